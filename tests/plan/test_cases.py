"""Each folder of cases/ is a profile, a machine, and the files that they become; a changed script is a change to read.

To write the expected files again: TUI_TRAIN_UPDATE_CASES=1 pytest tests/plan/test_cases.py
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support import make_engine_stub, make_stub, plain_environment, prepare, sample, stub_calls

from tui_train.base.command import argv, expand_word, word_in_run_dir
from tui_train.facts.types import Facts
from tui_train.plan.render.script.launch_script import render_launch_script
from tui_train.plan.run_files import PLAN_JSON_FILE_NAME, RUNNER_ZIP_FILE_NAME
from tui_train.profile import store
from tui_train.setup.machine.container import container_command

CASES = sorted(path.parent for path in (Path(__file__).parents[1] / "cases").glob("*/profile.toml"))
UPDATE = os.environ.get("TUI_TRAIN_UPDATE_CASES") == "1"


def made(case):
    """What a case becomes."""
    profile = store.load_profile_file(str(case / "profile.toml"))
    found = msgspec.json.decode((case / "facts.json").read_bytes(), type=Facts)
    prepared = prepare(profile, found)
    assert prepared.plan is not None, prepared.findings
    return prepared


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_becomes_what_is_expected(case):
    prepared = made(case)
    # But for those that are copied as they are, and the plan as data.
    copied = {program.path for program in prepared.plan.programs} | {PLAN_JSON_FILE_NAME}
    files = {file.path: file.text for file in prepared.files if file.path not in copied and not file.data}
    if UPDATE:
        for path, text in files.items():
            (case / path).write_text(text)
    assert {path.name for path in case.iterdir()} == {*files, "facts.json"}
    for path, text in files.items():
        assert (case / path).read_text() == text, f"{case.name}/{path}: see the head of this file"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_head_of_a_script_fits_a_terminal(case):
    head, _, _ = (case / "launch.sh").read_text().partition("\n\n")
    # What is longer is one word, as a path is.
    assert [line for line in head.splitlines() if len(line) > 80 and " " in line.removeprefix("# ").strip()] == []


def test_the_expected_scripts_are_clean():
    scripts = [case / "launch.sh" for case in sample(CASES, 3)]
    checked = subprocess.run(
        [Path(sys.executable).with_name("shellcheck"), "--norc", *scripts], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout[:3000]


CHECKPOINT = "/a b/checkpoint-7"
RANK = "--node-rank=1"
# What the supervisor knows of a machine.
MACHINE = {
    "CONTAINER": "name-1", "USER": "--user=7:8", "MEMLOCK": "512", "RUN_MOUNT": "--volume=a:b",
    "CACHE_MOUNT": "--volume=c:d", "HUGGING_FACE_MOUNT": "--volume=e:f",
}  # fmt: skip
TOLD = {f"TUI_TRAIN_{name}": value for name, value in MACHINE.items()}
TOLD |= {"TUI_TRAIN_CONTAINER_NAME": TOLD["TUI_TRAIN_CONTAINER"], "TUI_TRAIN_CONTAINER_USER": TOLD["TUI_TRAIN_USER"]}


def standing(plan):
    """The plan with the folders of this test's machine in place of those of the case's."""
    attempts = tuple(
        msgspec.structs.replace(attempt, command=msgspec.structs.replace(attempt.command, cwd=word_in_run_dir("")))
        for attempt in plan.attempts
    )
    container = plan.container and msgspec.structs.replace(plan.container, folders=())
    return msgspec.structs.replace(plan, attempts=attempts, container=container)


@pytest.mark.parametrize(
    ("case", "checkpoint"),
    # Every second case with a checkpoint, and the others without.
    [
        pytest.param(case, checkpoint, id=f"{case.name}{checkpoint and '-checkpoint'}")
        for number, case in enumerate(CASES)
        for checkpoint in sample(["", CHECKPOINT], 2, number % 2)
    ],
)
def test_each_attempt_starts_what_the_plan_says(tmp_path, case, checkpoint):
    """Its words, its variables and its folder, as they arrive in the process that launch.sh --plain becomes."""
    run = tmp_path.resolve() / "run"
    plan = standing(made(case).plan)
    run.mkdir()
    (run / RUNNER_ZIP_FILE_NAME).write_text("")  # it has nothing to fill in here
    (run / "launch.sh").write_text(render_launch_script(plan))
    engine = plan.container.engine if plan.container else ""
    environment = plain_environment(STUB_NOTES=str(tmp_path / "notes"), XDG_CACHE_HOME=str(tmp_path))
    environment |= dict.fromkeys(plan.secrets, "x")
    if engine:
        make_engine_stub(tmp_path / "bin" / engine)
        environment |= {**TOLD, "PATH": f"{tmp_path / 'bin'}:{environment['PATH']}"}
    else:
        environment["TUI_TRAIN_PYTHON"] = str(make_stub(tmp_path / "python"))
    first = plan.address or next(iter(plan.hosts), "")
    values = {"RUN_DIR": str(run), "PYTHONPATH": "", "NODE_RANK": "1", "ADDRESS": first, **MACHINE}
    values["GPUS"] = ",".join(plan.gpus)
    several = [RANK, f"--gpus={values['GPUS']}"] if plan.nodes > 1 else []
    given = [f"--checkpoint={checkpoint}"] if checkpoint and plan.attempts[0].checkpoints else []
    for number, attempt in sample([*enumerate(plan.attempts, start=1)], 3):
        started = ["bash", run / "launch.sh", "--plain", f"--attempt={number}", *given, *several]
        subprocess.run(started, env=environment, check=True, stdout=subprocess.DEVNULL)
        note = stub_calls(tmp_path / "notes")[-1]
        told = [f"{setting.name}={expand_word(setting.value, values)}" for setting in attempt.command.env]
        if engine:
            wanted = container_command(
                plan.container, attempt.command, values | {"CHECKPOINT": checkpoint if given else ""}
            )
            assert note["argv"][1:] == wanted[1:]
            assert note["cwd"] == "/"
            continue
        assert note["argv"][1:] == argv(attempt.command, str(run), checkpoint if given else "", 1, first)[1:]
        assert note["cwd"] == str(run)
        assert {*told} <= {f"{name}={value}" for name, value in note["env"].items()}
        others = {setting.name for other in plan.attempts for setting in other.command.env}
        assert not (others - {setting.name for setting in attempt.command.env}) & {*note["env"]}


def test_ordinary_scripts_are_short():
    """They are read by people: about 110 lines, with containers and many attempts a few more."""
    lengths = {case.name: len((case / "launch.sh").read_text().splitlines()) for case in CASES}
    assert max(lengths.values()) <= 140, lengths
    assert sorted(lengths.values())[len(lengths) // 2] <= 118, lengths


def test_an_update_must_be_asked_for():
    assert not UPDATE, "the expected files were written again: read the difference"
