"""Trainers, launchers and places keep their contracts, and what CONTRIBUTING.md says to do adds one."""

import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fake_driver import driver_environment
from support import facts, findings_of, gpu, plan, profile, set_variables

from tui_train.base.command import argv
from tui_train.launchers import LAUNCHERS
from tui_train.places import place_of
from tui_train.profile.fields import FIELDS
from tui_train.profile.presets import KEY_BY_PLACEHOLDER
from tui_train.setup.setup import Setup
from tui_train.trainers import TRAINERS, trainer_has_own_field

ROOT = Path(__file__).parents[2]
MACHINES = {
    "cpu": facts(),
    "one GPU": facts(gpus=(gpu(0),)),
    "two GPUs": facts(gpus=(gpu(0), gpu(1))),
    "nemo": facts(gpus=(gpu(0), gpu(1)), packages={"nemo_toolkit": "2.7.3", "nemo_run": "0.7"}),
}


@pytest.mark.parametrize(("machine", "kind", "launcher"), itertools.product(MACHINES, TRAINERS, LAUNCHERS))
def test_every_trainer_under_every_launcher_has_a_plan_or_a_reason(machine, kind, launcher):
    where = MACHINES[machine]
    chosen = profile({
        "trainer.kind": kind, "trainer.launcher": launcher, "trainer.script": "/s/train.py" if kind == "script" else "",
        "nemo.recipe": "qwen25_500m" if kind == "nemo" else "", "nemo.mock_data": kind == "nemo",
    })  # fmt: skip
    errors = [finding for finding in findings_of(chosen, where) if finding.forbids_plan]
    if errors:
        assert all(finding.message and finding.remedy for finding in errors)
        return
    made, setup = plan(chosen, where), Setup(chosen, where)
    trainer = setup.trainer
    program = trainer.program_parts()
    words = argv(made.attempts[0].command, "/run")
    assert program
    told = {word.replace("$RUN_DIR", "/run") for part in program for word in part.words if isinstance(word, str)}
    assert told <= set(words)
    assert trainer.title() in made.title
    assert setup.ladder_context.accepted_placeholders <= KEY_BY_PLACEHOLDER.keys()
    assert made.resumes_itself == trainer.resumes_itself
    assert {file.path for file in made.programs} == {file.path for file in trainer.program_files()}


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_trainer_takes_fields_that_there_are(kind):
    sections = {key.partition(".")[0] for key in FIELDS}
    assert TRAINERS[kind].own_fields <= {*FIELDS, *sections}
    chosen = profile({"trainer.kind": kind})
    assert all(trainer_has_own_field(chosen, key) for key in TRAINERS[kind].own_fields)


def test_a_place_without_runs_says_what_to_do_instead():
    place = place_of(Path("/m.json"))
    assert place.name
    assert [each.can_start for each in (place, place_of(host="box"), place_of())] == [False, True, True]
    for ask in (place.ask_state, place.stop, place.resume):
        with pytest.raises(Exception, match="another machine") as caught:
            ask(None)
        assert "launch.sh" in caught.value.remedy


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The project, copied with what is compiled of it."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "tui_train", folder / "tui_train")
    return folder


@pytest.fixture
def project(copied, tmp_path):
    """A copy of the project, to which a thing is added."""
    shutil.copytree(copied, tmp_path / "project")
    return tmp_path / "project"


def edit(path, before, after):
    text = path.read_text()
    assert text.count(before) >= 1, f"{before!r} is not in {path}"
    path.write_text(text.replace(before, after, 1))


def add(path, lines):
    path.write_text(f"{path.read_text()}\n{lines}\n")


def name(package, kind):
    """Let a profile name the toy."""
    path = package / "profile/types.py"
    path.write_text(
        re.sub(rf"^({kind} = Literal\[.*?),?\s*\]", r'\1, "toy"]', path.read_text(), flags=re.MULTILINE | re.DOTALL)
    )


def printed(project, *words):
    """What the copied project's command prints."""
    return python(project, "-m", "tui_train", *words)


def python(project, *words):
    """What Python prints that has the copied project."""
    names = {"PYTHONPATH": project, "XDG_CONFIG_HOME": project / "config", "XDG_STATE_HOME": project / "s"}
    mine = {name: str(path) for name, path in names.items()}
    command = [sys.executable, *words]
    done = subprocess.run(command, env={**os.environ, **mine}, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


ON_CPU = ("--set", "hardware.device=cpu", "--set", f"trainer.python={sys.executable}")


@pytest.mark.whole
@pytest.mark.training
def test_a_launcher_is_added(project):
    package = project / "tui_train"
    torchrun = (package / "launchers/torchrun.py").read_text()
    (package / "launchers/toy.py").write_text(
        torchrun.replace('"torchrun"', '"toy"')
        .replace('(self.job.python, "-m", "torch.distributed.run")', '("toyrun", "--with")')
        .replace("return (*command,", "return (*command, CommandPart((self.job.python,)),")
    )
    add(package / "launchers/__init__.py", 'from tui_train.launchers import toy\nLAUNCHERS["toy"] = toy.Torchrun')
    name(package, "LauncherName")
    chosen = ("--set", "trainer.launcher=toy", *ON_CPU)
    made = json.loads(printed(project, "plan", "quickstart", "--json", *chosen))["plan"]
    assert "under toy" in made["title"]
    printed(project, "export", "quickstart", str(project / "run"), *chosen)
    shown = subprocess.check_output(["bash", project / "run/launch.sh", "--dry-run"], text=True)
    command = next(line for line in shown.splitlines() if line.startswith("toyrun"))
    words = made["attempts"][0]["argv"]
    assert shlex.split(command) == [word.replace("$RUN_DIR", str(project / "run")) for word in words]
    assert sys.executable in words


TRAINER = """
from tui_train.base.command import CommandPart
from tui_train.profile.presets import PresetArgument, Preset
from tui_train.trainers.trainer import Trainer


class Toy(Trainer):
    name = label = "a toy"
    about = "trains nothing"

    @property
    def preset(self):
        return Preset(label="toy", about="", arguments=(PresetArgument(("--batch={micro_batch}",)),))

    def program_parts(self):
        return (CommandPart(("-m", "toy")),)
"""


@pytest.mark.training
def test_a_trainer_is_added(project):
    package = project / "tui_train"
    (package / "trainers/toy.py").write_text(TRAINER)
    add(package / "trainers/__init__.py", 'from tui_train.trainers.toy import Toy\nTRAINERS["toy"] = Toy')
    name(package, "TrainerKind")
    edits = ("--set", "trainer.kind=toy", "--set", "recipe.micro_batch=3")
    made = json.loads(printed(project, "plan", "quickstart", "--json", *edits, *ON_CPU))["plan"]
    assert made["attempts"][0]["argv"][-3:] == ["-m", "toy", "--batch=3"]
    assert made["title"].startswith("a toy ")


PLACE = """
import msgspec

from tui_train.places.place import Place
from tui_train.places.profile_facts import probe_profile_facts


class Toy(Place):
    name = "toyland"

    def probe_facts_for(self, profile, on_wait):
        return msgspec.structs.replace(probe_profile_facts(profile, on_wait), other_machine="toyland")
"""


NAMED = """    if host == "toy":
        from tui_train.places.toy import Toy

        return Toy()
"""


@pytest.mark.whole
@pytest.mark.training
def test_a_place_is_added(project):
    package = project / "tui_train"
    (package / "places/toy.py").write_text(PLACE)
    entries = package / "places/__init__.py"
    edit(entries, "    return Place(host,", f"{NAMED}    return Place(host,")
    made = json.loads(printed(project, "plan", "quickstart", "--json", "--host", "toy", *ON_CPU))["plan"]
    assert "toyland" in " ".join(made["notes"])


RUNG = """
RUNGS["toy"] = Rung(
    label="Toy",
    cost="none",
    next_change=lambda *_: Change("half a toy", "why", (("recipe.seed", 7),)),
)
"""


@pytest.mark.whole
@pytest.mark.training
def test_a_rung_is_added(project):
    add(project / "tui_train/memory/ladder/rungs.py", RUNG)
    edits = ("--set", "ladder.rungs=toy", *ON_CPU)
    made = json.loads(printed(project, "plan", "quickstart", "--json", *edits))["plan"]
    assert [attempt["rung"] for attempt in made["attempts"]] == ["", "toy"]
    assert made["attempts"][1]["edits"] == {"recipe.seed": 7}


SIGNATURE = """
[[signature]]
failure = "toy_broke"
strength = 60
when = ['the toy (?P<name>\\w+) broke']
cause = "The toy {name} broke."
remedy = "Glue it."
"""


@pytest.mark.whole
def test_a_failure_is_added(project):
    add(project / "tui_train/diagnose/signatures.toml", SIGNATURE)
    (project / "toy.log").write_text("step 1\nthe toy bear broke\n")
    told = json.loads(printed(project, "diagnose", "toy.log", "--json"))
    assert (told["class"], told["cause"]) == ("toy_broke", "The toy bear broke.")


FIELD = """    make_field("recipe.toys", "Toys", "How many toys.", limits=(0, 99)),
    make_field("recipe.lora","""


@pytest.mark.whole
@pytest.mark.training
def test_a_field_is_added(project):
    package = project / "tui_train"
    edit(package / "profile/types.py", "    lora: bool = False\n", "    lora: bool = False\n    toys: int = 4\n")
    edit(package / "profile/rows/recipe.py", '    make_field("recipe.lora",', FIELD)
    assert re.search(r"recipe\.toys\s+How many toys\.[^]]*default:\s+4\]", printed(project, "keys"))
    printed(project, "new", "shelf", "--set", "recipe.toys=9")
    assert "toys = 9" in (project / "config/tui-train/profiles/shelf.toml").read_text()
    first = "arguments = [\n"
    edit(package / "profile/presets/hf-trainer.toml", first, f'{first}    {{ words = ["--toys={{toys}}"] }},\n')
    (project / "train.py").write_text("import transformers\n")
    script = ("--set", "trainer.kind=script", "--set", f"trainer.script={project}/train.py", *ON_CPU)
    preset = ("--set", "trainer.preset=hf-trainer")
    made = json.loads(printed(project, "plan", "shelf", "--json", *script, *preset))["plan"]
    assert "--toys=9" in made["attempts"][0]["argv"]


CARD = """
[card]
uuid = GPU-00000000-0000-0000-0000-000000000{number}
name = NVIDIA Toy 9000
bus = 00000000:0{number}:00.0
compute = 19.9
memory = 24576 MiB
cores = 8192
clock = 2000
"""


@pytest.mark.whole
def test_a_machine_and_a_cards_capability_are_added(project, tmp_path, monkeypatch):
    """The machine is a file, whose cards are found by the real binding; what a card can do is a row."""
    machine = tmp_path / "toy.txt"
    machine.write_text("driver = 580.95.05\ncuda = 13.0\n" + CARD.format(number=1) + CARD.format(number=2))
    set_variables(monkeypatch, driver_environment(str(machine)))
    cards = json.loads(printed(project, "facts", "--json"))["gpus"]
    assert [(card["name"], card["compute_capability"]) for card in cards] == [("NVIDIA Toy 9000", "19.9")] * 2

    speed = "from tui_train.facts.machine import probe; from tui_train.facts.gpus import capability; "
    speed += "print(capability.approximate_teraflops(probe.probe_machine().gpus[0]))"
    assert python(project, "-c", speed) == "None\n"
    edit(
        project / "tui_train/facts/gpus/capability.py",
        "CHIP_BY_CAPABILITY = {",
        "CHIP_BY_CAPABILITY = {199: ChipGeneration(128, 16384),",
    )
    assert float(python(project, "-c", speed)) == 64 * 2000 * 16384 / 1e6


def test_the_table_names_what_there_is():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    for path in re.findall(r"`(test_\w+\.py)`", text):
        assert [*(ROOT / "tests").rglob(path)], path
    for folder in re.findall(r"`((?:\w+/)+)(?:\w+\.\w+)?`", text):
        assert any((ROOT / base / folder).is_dir() for base in (".", "tui_train")), folder
    drawn = {
        name for line in re.findall(r"^ {4,6}.*?/.*$", text, re.MULTILINE) for name in re.findall(r"\b(\w+)/", line)
    }
    packages = {path.parent.name for path in ROOT.glob("tui_train/*/__init__.py")}
    assert packages <= drawn, packages - drawn


def test_msgspec_reads_what_is_declared():
    # A name that is in TRAINERS or LAUNCHERS alone could not be saved.
    kinds = msgspec.json.schema(type(profile().trainer))["$defs"]["TrainerSettings"]["properties"]["kind"]["enum"]
    assert set(kinds) == set(TRAINERS)
