"""A plan for another machine: from a file, and asked over a real ssh; what is written here runs there."""

import getpass
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import ssh as secure_shell
import support
from pilot import PRETRAIN_KEY, press_keys, screen_text, wait_for_workers
from support import GIB, UUIDS, findings_of, gpu, inside, machine, plan, profile, sample, toolchain

from tui_train.base.errors import BadInput
from tui_train.facts.other_machines import machine_files, remote
from tui_train.facts.types import Facts
from tui_train.places.place import Place
from tui_train.places.profile_facts import probe_host_facts
from tui_train.profile.fields import profile_with_value
from tui_train.runner.questions import survey
from tui_train.trainers import auto_preset
from tui_train.wizard import make_wizard

ROOT = Path(__file__).parents[2]
QUICK = [f"--set=recipe.{edit}" for edit in ("layers=1", "hidden_size=16", "heads=2", "steps=2", "checkpoint_every=1")]
BOX = Facts(
    machine=msgspec.structs.replace(
        machine(cpu_count=16, gpus=(gpu(0), gpu(1))), hostname="gpu-box", memory_available=60 * GIB
    ),
    toolchains=(toolchain("/opt/train/bin/python", label="conda env (train)"),),
)


def tui(*words, code=0, **more):
    return support.run_cli(*words, code=code, env={**os.environ, "PYTHONPATH": str(ROOT), **more})


@pytest.fixture
def box(tmp_path):
    """A file of a machine with two cards, as `facts --json` prints one."""
    file = tmp_path / "box.json"
    file.write_bytes(msgspec.json.encode({"machine": BOX.machine, "toolchains": BOX.toolchains}))
    return file


def test_the_script_is_for_the_machine_in_the_file(box, tmp_path):
    shown = tui("plan", "quickstart", "--machine", box).stdout
    assert "2 processes on 2 GPUs" in shown
    assert f"Made for another machine: {box}." in shown
    out = tmp_path / "out"
    said = tui("export", "quickstart", out, "--machine", box, "--set=hardware.gpus=1").stdout
    assert f"Copy {out} to that machine." in said
    assert said.endswith("Run it with: bash launch.sh\n")
    script = (out / "launch.sh").read_text()
    assert re.search(rf"^gpus={UUIDS[1]} ", script, re.MULTILINE)
    assert UUIDS[0] not in script
    assert "python=${TUI_TRAIN_PYTHON:-/opt/train/bin/python}" in script
    assert "# Made for another machine" in script
    assert "RTX 3090: fits" in tui("estimate", "quickstart", "--machine", box).stdout


def test_paths_there_are_not_said_to_be_missing(box):
    edits = ["--set=trainer.data=/data/there.txt", "--set=trainer.model=/models/there", "--set=trainer.output=/out"]
    done = tui("plan", "quickstart", "--machine", box, *edits)
    assert "does not exist" not in done.stderr
    assert "paths exist was not checked" in done.stdout
    assert "paths are there" not in tui("plan", "quickstart", "--machine", box).stdout


def test_what_would_be_tried_is_shown_and_nothing_is(box, tmp_path):
    done = tui("tune", "quickstart", "--machine", box, "--dry-run", "--precision=bf16", XDG_STATE_HOME=str(tmp_path))
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["8", "no", "fp32", "fits", "first"] in lines
    assert ["8", "yes", "bf16", "fits"] in lines
    assert "At most 8 of them are tried" in done.stdout
    assert not list(tmp_path.rglob("trial*"))
    data = json.loads(tui("tune", "quickstart", "--machine", box, "--dry-run", "--json").stdout)
    assert data[0] == {
        "setting": {"micro_batch": 8, "checkpointing": False, "precision": "fp32"}, "memory": "fits", "first": True
    }  # fmt: skip
    assert "add --dry-run" in tui("tune", "quickstart", "--machine", box, code=64).stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("plan", "quickstart", "--host=box"), "not both"),
        (("estimate", "quickstart", "--trace"), "runs on this machine"),
        (("estimate", "quickstart", "--measure"), "runs on this machine"),
    ],
)
def test_what_makes_no_sense_is_wrong_usage(box, words, part):
    assert part in tui(*words, "--machine", box, code=64).stderr
    assert "--on needs" in tui("plan", "quickstart", "--host=", code=64).stderr


def test_a_file_that_is_none_is_refused(tmp_path):
    (tmp_path / "bad.json").write_text("{}")
    words = ("export", "quickstart", tmp_path / "out", "--machine")
    tui(*words, tmp_path / "bad.json", code=65)
    tui(*words, tmp_path / "none.json", code=66)
    assert not (tmp_path / "out").exists()


def test_an_image_there_is_not_guessed_at(box):
    where = Place(machine_file=box).probe_facts_for(profile(inside()))
    (error,) = [found for found in findings_of(profile(inside()), where) if found.key.startswith("container")]
    assert "can only be looked into" in error.message


def test_a_name_that_the_file_leaves_out_is_no_path(tmp_path, monkeypatch):
    monkeypatch.setenv("USER", "ann")
    tools = (toolchain("/scratch/ann/env/bin/python"), toolchain(f"{Path.home()}/env/bin/python"))
    machine_files.save_machine_file(tmp_path / "box.json", msgspec.structs.replace(BOX, toolchains=tools))
    where = Place(machine_file=tmp_path / "box.json").probe_facts_for(profile())
    assert plan(profile(), where).python == "~/env/bin/python"
    only = msgspec.structs.replace(where, toolchains=where.toolchains[:1])
    assert "facts --json" in findings_of(profile(), only)[0].message


def test_this_machine_is_not_taken_for_the_other(box, monkeypatch):
    monkeypatch.setenv("NCCL_P2P_DISABLE", "1")
    where = Place(machine_file=box).probe_facts_for(profile())
    assert (where.variables, where.resources_in_use, where.engines) == ((), (), None)
    assert where.other_machine == str(box)


@pytest.mark.whole
@pytest.mark.training
def test_what_is_exported_here_runs_there(tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", there / "env"], check=True)
    paths = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    (site,) = (there / "env" / "lib").glob("python*/site-packages")
    (site / "libraries.pth").write_text("\n".join(paths))
    box = tmp_path / "box.json"
    tui("facts", "--save", box, HOME=str(there), VIRTUAL_ENV=str(there / "env"), PATH="/usr/bin:/bin")
    tools = [tool for tool in json.loads(box.read_text())["toolchains"] if tool["python"].startswith("~/")]
    assert tools
    saved_there = json.loads(box.read_text()) | {"toolchains": tools}
    box.write_text(json.dumps(saved_there))
    tui("export", "quickstart", here / "run", "--machine", box, "--set=hardware.device=cpu", *QUICK, HOME=str(here))
    shutil.move(here / "run", there / "copied")
    environment = {**os.environ, "HOME": str(there)}
    command = ["bash", str(there / "copied" / "launch.sh")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "done | model saved in" in (there / "copied" / "attempt-1.log").read_text()


# Over ssh

SMI = f"""#!/bin/sh
cat <<'END'
0, {UUIDS[0]}, NVIDIA GeForce RTX 3090, 00000000:01:00.0, 8.6, 24576, 24249, Disabled, 570.86
1, {UUIDS[1]}, NVIDIA GeForce RTX 3090, 00000000:04:00.0, 8.6, 24576, 24249, Disabled, 570.86
END
"""


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host `box` with nvidia-smi and an environment that trains, reached by the program's plain `ssh`."""
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    for name, text in {"nvidia-smi": SMI, "tui-train": "#!/bin/sh\nexit 127\n"}.items():
        (home / "bin" / name).write_text(text)
        (home / "bin" / name).chmod(0o755)
    (home / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    env = home / ".local" / "share" / "tui-train" / "envs" / "hf" / "bin"
    env.mkdir(parents=True)
    (env / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (env / "python").chmod(0o755)
    (home / "c.yaml").write_text("learning_rate: 1.0e-5\n")
    with secure_shell.run_sshd(tmp_path, what="plans for a host over ssh") as words:
        secure_shell.redirect_ssh(home, words, tmp_path / "client", monkeypatch)
        yield home


def test_a_python_that_is_slow_is_not_called_missing(tmp_path, monkeypatch):
    slow = tmp_path / "python"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(survey, "_MAX_NAMED_PYTHON_SECONDS", 0.2)
    question = {"pythons": [str(slow), str(tmp_path / "none")], "run": "", "probe": ""}
    (found,) = survey._probe_toolchains(question, with_others=False)
    assert (found["python"], found["problem"]) == (str(slow), "it did not answer within 0.2 s")


def test_what_the_files_beside_a_script_there_import_is_known(tmp_path):
    script = str(tmp_path / "train.py")
    (tmp_path / "lib" / "deep").mkdir(parents=True)
    (tmp_path / ".venv").mkdir()
    (tmp_path / "train.py").write_text("import lib.model\nimport seen_there\n")
    (tmp_path / "lib" / "__init__.py").touch()
    (tmp_path / "lib" / "model.py").write_text("import not_there\nfrom .deep import more\n")
    (tmp_path / "lib" / "deep" / "more.py").write_text("import also_not_there\n")
    (tmp_path / ".venv" / "x.py").write_text("import of_the_environment\n")

    def imports():
        question = {"script": script, "most": 100, "files": [script]}
        there = secure_shell.survey_this_machine(question)
        assert not any(".venv" in name for name in there.sources)
        source = remote.parse_sent_source(there.files[script], there.beside, there.sources)
        return {(each.module, each.file, each.line) for each in source.imports}

    in_script, in_package = ("seen_there", "", 2), ("not_there", "lib/model.py", 1)
    assert imports() == {in_script, in_package, ("also_not_there", "lib/deep/more.py", 1)}
    (tmp_path / "lib" / "model.py").write_text("import sys\nsys.path.append('x')\nimport not_there\n")
    assert imports() == set(), "the project changes what can be imported"


@pytest.mark.whole
def test_a_plan_for_a_host_without_tui_train(host):
    chosen = profile({"trainer.data": (f"{host}/c.yaml", f"{host}/gone.txt"), "trainer.config": f"{host}/c.yaml"})
    where = Place("box").probe_facts_for(chosen)
    assert [card.uuid for card in where.machine.gpus] == list(UUIDS)
    assert where.machine.memory_total
    assert where.other_machine == "box"
    labels = {tool.label: tool for tool in where.toolchains}
    assert labels["env hf"].python == str(host / ".local/share/tui-train/envs/hf/bin/python")
    assert labels["env hf"].torch
    assert where.paths[f"{host}/c.yaml"] == "file"
    assert where.paths[f"{host}/gone.txt"] == "missing"
    assert where.documents[f"{host}/c.yaml"].values == {"learning_rate": 1e-5}
    # The torch of these tests is for the CPU.
    assert "2 RTX 3090 are idle" in tui("plan", "quickstart", "--host", "box", code=69).stderr
    shown = tui("plan", "quickstart", "--host", "box", "--set=hardware.device=cpu").stdout
    assert "Made for another machine: box." in shown
    assert str(host) in shown


@pytest.mark.whole
def test_who_computes_on_a_card_there_is_known(host):
    apps = f'case "$1" in *compute-apps*) echo "{UUIDS[1]}, $PPID, 1500"; exit ;; esac\n'
    (host / "bin" / "nvidia-smi").write_text(SMI.replace("#!/bin/sh\n", f"#!/bin/sh\n{apps}"))
    first, second = remote.read_host_facts("box").machine.gpus
    assert first.processes == ()
    (process,) = second.processes
    assert (process.name.startswith("python"), process.user, process.memory) == (True, getpass.getuser(), 1500 << 20)


@pytest.mark.whole
def test_a_named_python_there_is_asked_and_a_script_read(host):
    script = host / "train.py"
    text = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\np.parse_args()\n"
    script.write_text(text)
    (host / "mine").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (host / "mine").chmod(0o755)
    where = remote.read_planning_facts("box", remote.PathsNamedByPlan(pythons=(f"{host}/mine",), script=str(script)))
    assert auto_preset.arguments_summary(where.sources[str(script)]) == "argparse, line 2: --lr"
    assert str(script) not in where.documents
    assert next(tool.label for tool in where.toolchains if tool.python == f"{host}/mine") == "chosen"


@pytest.mark.whole
def test_the_cache_of_models_there_is_the_one_that_the_profile_names(host):
    own = profile({"trainer.environment": {"HF_HOME": f"{host}/models"}})
    assert probe_host_facts("box", own).hub.folder == f"{host}/models/hub"
    assert probe_host_facts("box", profile()).hub.folder == f"{host}/.cache/huggingface/hub"


# The wizard


@pytest.mark.whole
@pytest.mark.parametrize("size", sample([(80, 24), (120, 40)], 2), ids=str)
async def test_the_wizard_shows_that_machine_and_exports(box, tmp_path, monkeypatch, size):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    async with make_wizard(place=Place(machine_file=box)).run_test(size=size) as pilot:
        for step in ("", "Hardware", "Backend", "Recipe", "Preview"):
            if step:
                await press_keys(PRETRAIN_KEY if step == "Hardware" else "enter")(pilot)
            await wait_for_workers(pilot)
            text = screen_text(pilot)
            assert "box.json" in text.splitlines()[0]
            assert step in text
            if step == "Hardware":
                assert "gpu-box" in text
                assert text.count("GeForce RTX 3090") == 2 + (size[0] >= 110), "one is shown beside the list as well"
            assert "Tune speed" not in text
        assert "⏎ Run" not in screen_text(pilot)
        assert "Export" in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert "Preview" in screen_text(pilot).splitlines()[0]
        assert not (tmp_path / "quickstart").exists()
        await press_keys("e", "enter")(pilot)
    assert UUIDS[1] in (tmp_path / "quickstart" / "launch.sh").read_text()


@pytest.mark.whole
async def test_a_path_there_is_asked_for_once_it_is_typed(box, monkeypatch):
    asked = []
    whole = Place.probe_facts_for
    monkeypatch.setattr(Place, "probe_facts_for", lambda place, chosen: asked.append(chosen) or whole(place, chosen))
    async with make_wizard(place=Place(machine_file=box)).run_test(size=(80, 24)) as pilot:
        await press_keys(PRETRAIN_KEY, "enter")(pilot)
        before = len(asked)
        for text in ("/d", "/da", "/data"):
            pilot.app.edits.set_profile(profile_with_value(pilot.app.profile, "trainer.data", (text,)), "trainer.data")
            await pilot.pause()
        assert "machine" in pilot.app.awaited_parts
        for _ in range(60):
            await pilot.pause(0.05)
            if not pilot.app.awaited_parts:
                break
        assert [chosen.trainer.data for chosen in asked[before:]] == [("/data",)]
        assert not pilot.app.awaited_parts


async def test_a_machine_that_can_no_longer_be_read_is_no_machine_without_cards(box):
    box.write_text("{")
    async with make_wizard(place=Place(machine_file=box)).run_test(size=(80, 24)) as pilot:
        await wait_for_workers(pilot, refused=True)
        await pilot.press("enter")
        await wait_for_workers(pilot, refused=True)
        assert "training runs on the CPU" not in screen_text(pilot)
        assert "No GPU can be used yet" in screen_text(pilot)


def test_what_keeps_a_machine_from_being_known_is_said_before_the_wizard_opens(tmp_path, monkeypatch):
    from tui_train import wizard as door

    monkeypatch.setattr(door, "is_wizard_terminal", lambda: True)
    monkeypatch.setattr(door, "make_wizard", lambda *_: pytest.fail("it opened"))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(BadInput):
        door.open_wizard(place=Place(machine_file=tmp_path / "bad.json"))
