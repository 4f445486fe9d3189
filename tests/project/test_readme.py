"""README and docs/ are right: their commands run, their tables are the program's own, their links lead somewhere."""

import inspect
import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import click
import msgspec
import pytest
import warm
from chat_data import CHAT_ROW

from tui_train.base import app_paths
from tui_train.cli import app as cli
from tui_train.cli.plans import plans
from tui_train.profile.presets import shipped_presets, user_presets
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.runner.system.environments import environments_folder
from tui_train.runs import run_folders

ROOT = Path(__file__).parents[2]
CHINESE_README = ROOT / "README.zh-CN.md"
GUIDES = tuple(sorted(path for folder in ("how-to", "zh") for path in (ROOT / "docs" / folder).glob("*.md")))
PAGES = {
    path: path.read_text(encoding="utf-8")
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/reference").glob("*.md")),
    )
}
TEXT = "\n".join(PAGES.values())
# What makes the trainings short; it stays in the profiles that its commands save.
QUICK = ("layers=1", "hidden_size=16", "heads=2", "sequence_length=16", "steps=2", "checkpoint_every=1")
# Whatever cards the machine of the tests has, and whatever torch.
CPU = ["--set", "hardware.device=cpu"]
SETTINGS = [word for edit in QUICK for word in ("--set", f"recipe.{edit}")] + CPU
# A script as a user has it: it takes any arguments and does nothing.
OWN_SCRIPT = "import sys\nprint(sys.argv)\n"


def commands(text=TEXT, kind="sh"):
    """All commands in the code blocks of a text, in order, as words."""
    for block in re.findall(rf"^```{kind}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            if words := shlex.split(line, comments=True):
                yield words


def table(heading, number=0):
    """The rows of the table under that heading (the first such one is 0), as lists of their cells."""
    lines = TEXT.split(heading)[number + 1].splitlines()
    rows = []
    for line in lines[2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def known_commands(group=cli.cli, before=""):
    """All commands by their whole name, those of groups among them, in the order of the table."""
    for name in group.list_commands(None):
        command = group.commands[name]
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{before}{name}", command
            yield from known_commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


def run(words, folder):
    """Run one of the commands, trainings made short; return its exit code and what it printed."""
    name, *rest = words
    if name == "tui-train":
        takes_edits = rest and any(param.name == "edits" for param in cli.cli.commands[rest[0]].params)
        # Other trainers than the built-in one have numbers of their own.
        ours = {"quickstart", "mine"} & {*rest} and not any("trainer.kind=" in word for word in rest)
        python = ["--set", f"trainer.python={warm.training()}"] if ours else []
        words = warm.cli_command(*rest, *([*(SETTINGS if ours else CPU), *python] if takes_edits else []))
        # What is installed takes minutes, and what fine-tunes is tested elsewhere.
        words += ["--dry-run", "--path", str(folder / "env")] if rest[:2] == ["env", "create"] else []
    elif name == "bash":
        words = [*words, "--dry-run"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(
        words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=both, check=False
    )
    return done.returncode, done.stdout.decode()


FINE_TUNING = ["tui-train", "run", "chat"]


@pytest.mark.training
def test_commands_without_the_wizard_run(tmp_path):
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    (tmp_path / "chat.jsonl").write_text(json.dumps(CHAT_ROW) + "\n")
    done = []
    for words in commands():
        if words[0] == "bash" or words[0] == "tui-train":
            code, out = run(words, tmp_path)
            # The Python of the tests has no TRL, and there is no such model.
            assert code == (65 if words == FINE_TUNING else 0), f"{shlex.join(words)}\n{out}"
            done.append(words[1])
    quickstart = next(run for run in run_folders.list_runs() if run.name.endswith("quickstart"))
    made = {path.name for path in quickstart.path.iterdir()}
    assert {cells[0].strip("`/") for cells in table("| File | What it is |", 1)} <= made
    assert {"facts", "quickstart", "new", "plan", "run", "export", "my-run/launch.sh"} <= set(done)


def test_other_commands_are_known():
    targets = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE).group(1).split()
    extras = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())["project"]["optional-dependencies"]
    for words in commands():
        match words:
            case ["tui-train" | "bash", *_]:
                pass
            case ["make", target]:
                assert target in targets
            case [".venv/bin/pip", "install", "-e", project]:
                assert re.fullmatch(r"\.\[(\w+)\]", project).group(1) in extras
            case ["python3", "-m", "venv", ".venv"] | [".venv/bin/tui-train"]:
                pass
            case _:
                pytest.fail(f"no test knows {shlex.join(words)}")


def test_make_run_opens_the_wizard_or_trains():
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    make = ["make", "--dry-run", "run"]
    out = subprocess.run(make, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert ".ci/environment run" in out
    assert ".venv/bin/tui-train quickstart" in out


def test_table_of_commands():
    expected = []
    for name, command in known_commands():
        arguments = [param.name.upper() for param in command.params if isinstance(param, click.Argument)]
        first_sentence = re.match(r".*?[.](?=\s|$)", " ".join(inspect.cleandoc(command.help).split())).group()
        expected.append([f"`{' '.join(['tui-train', name, *arguments])}`", first_sentence])
    assert table("| Command | What it does |") == [["`tui-train`", "Opens the wizard."], *expected]


def test_commands_with_json():
    told = re.search(r"^All but (.*) take `--json`", TEXT, re.MULTILINE).group(1)
    lacking = [name for name, command in known_commands() if not any("--json" in each.opts for each in command.params)]
    assert re.findall(r"`([\w ]+)`", told) == sorted(lacking)


def test_table_of_exit_codes():
    assert table("| Code | Meaning |") == [[str(code), meaning] for code, meaning in cli.MEANING_BY_EXIT_CODE.items()]


def test_places(monkeypatch):
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name)
    told = [Path(cells[0].strip("`")).expanduser() for cells in table("| Where | What |")]
    folders = [app_paths.profiles_folder(), app_paths.presets_folder()]
    cache = app_paths.image_facts_folder()
    known = [*(folder / "NAME.toml" for folder in folders), app_paths.webhooks_folder(), app_paths.runs_folder()]
    known += [app_paths.last_profile_file(), app_paths.faults_log(), environments_folder()]
    known += [app_paths.runs_folder().with_name("environments")]
    known += [cache.parent / "runner", cache, app_paths.data_summaries_folder(), cache.parent / "container"]
    assert told == known


@pytest.mark.whole
def test_files_of_a_run(tmp_path):
    told = {cells[0].strip("`/") for cells in table("| File | What it is |")}
    (tmp_path / "train.py").write_text("print()\n")
    mine = ["trainer.kind=script", f"trainer.script={tmp_path}/train.py", "trainer.preset=custom"]
    for name, edits in {"a": ["trainer.launcher=python"], "b": ["trainer.launcher=accelerate"], "c": mine}.items():
        words = ["tui-train", "export", "quickstart", name, *(word for edit in edits for word in ("--set", edit))]
        code, out = run(words, tmp_path)
        assert code == 0, out
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    (tmp_path / "mine.yaml").write_text("training:\n  steps: 5\n")
    edits = ("kind=script", "script=train.py", "config=mine.yaml", "preset=total-batch-yaml")
    sets = [word for edit in edits for word in ("--set", f"trainer.{edit}")]
    code, out = run(["tui-train", "export", "quickstart", "yaml", *sets, "--set", "ladder.rungs="], tmp_path)
    assert code == 0, out
    # These take a machine with GPUs; what they are called there, the cases know.
    stems = {"nemo_recipe", "megatron_bridge", "automodel"}
    of_nemo = {path.name for path in (ROOT / "tests" / "cases").glob("*/*") if path.stem in stems}
    assert len(of_nemo) == 3
    assert {path.name for path in tmp_path.glob("*/*")} | of_nemo == told


def test_a_preset_of_your_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    text = re.search(r"^```toml\n(.*?)^```$", PAGES[ROOT / "docs" / "scripts.md"], re.DOTALL | re.MULTILINE).group(1)
    app_paths.presets_folder().mkdir(parents=True)
    (app_paths.presets_folder() / "mine.toml").write_text(text)
    (tmp_path / "train.py").write_text(OWN_SCRIPT)
    sets = [word for edit in ("kind=script", "script=train.py", "preset=mine") for word in ("--set", f"trainer.{edit}")]
    sets += ["--set", "recipe.micro_batch=8", "--set", "recipe.global_batch=16"]
    code, out = run(["tui-train", "export", "quickstart", "own", *sets], tmp_path)
    assert code == 0, out
    script = (tmp_path / "own" / "launch.sh").read_text()
    assert "micro_batch=8 accumulation=2" in script
    assert '"--bs=$micro_batch" "--accumulate=$accumulation"' in script
    assert "${checkpoint:+" in script
    assert "--amp" not in script
    expression = re.compile(user_presets.parse_preset(text, "README").log[0])
    assert expression.search("it 5 of 60, loss 1.25e-1").groupdict() == {"step": "5", "steps": "60", "loss": "1.25e-1"}


def test_table_of_presets():
    shipped = [name for name in shipped_presets() if name != "builtin"]
    assert [cells[0].strip("`") for cells in table("| Preset | For |")] == [AUTO_PRESET, *shipped]


def test_the_chinese_readme_has_the_same_commands():
    assert list(commands(CHINESE_README.read_text(encoding="utf-8"))) == list(commands(PAGES[ROOT / "README.md"]))


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_commands_of_the_guides_can_be_typed(path):
    for words in commands(path.read_text(encoding="utf-8"), "text"):
        if words[0] != "tui-train":
            assert words[0] in {"docker", "ssh", "bash", "export"}, words
            continue
        command, rest = cli.cli, words[1:]
        while isinstance(command, click.Group) and rest and rest[0] in command.commands:
            command, rest = command.commands[rest[0]], rest[1:]
        context = command.make_context(shlex.join(words), rest)
        plans.apply_edits(Profile(), context.params.get("edits") or ())


def test_links_lead_somewhere():
    texts = {path: path.read_text(encoding="utf-8") for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"))}
    links = [(path, link) for path, text in texts.items() for link in re.findall(r"\]\(([^)#]+)", text)]
    assert links
    assert [link for path, link in links if "://" not in link and not (path.parent / link).exists()] == []


def test_every_page_is_in_the_navigation_of_the_site():
    nav = (ROOT / "zensical.toml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    assert [page for page in pages if f'"{page}"' not in nav] == []


def test_the_readme_is_short():
    assert len(PAGES[ROOT / "README.md"].splitlines()) <= 80


def test_the_modules_that_the_guide_of_the_tests_names_are_there():
    table = (ROOT / "tests/README.md").read_text(encoding="utf-8").split("| module | has |")[1].split("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert "support" in named
    assert [name for name in named if not (ROOT / f"tests/{name}.py").is_file()] == []
