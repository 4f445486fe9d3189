"""TensorBoard, W&B and Trackio as switches: what each trainer is passed, what really comes, and how it is opened."""

import contextlib
import itertools
import json
import os
import sqlite3
import subprocess
import sys

import msgspec
import pytest
from support import (
    export_run,
    facts,
    findings_of,
    package_folder,
    prepare_without_errors,
    profile,
    run_cli,
    run_launch_script,
    write_attempt_events,
)

from tui_train.actions.tune.space import make_search_space, trial_profile
from tui_train.base.command import argv
from tui_train.facts.types import YamlDocument
from tui_train.profile.changes import apply_change
from tui_train.runs.remote_run import RunLocation
from tui_train.runs.results import trackers
from tui_train.runs.results.result import read_result
from tui_train.runs.results.trackers import ReportingRun, tracker_lines

ALL = {"tracking.tensorboard": True, "tracking.wandb": True, "tracking.trackio": True}
INSTALLED = {"tensorboard": "2.21.0", "wandb": "0.31.0", "trackio": "0.43.0"}
SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py"}
MODULES = {"trainer.kind": "script", "trainer.config": "/c.yaml"}
# What a profile without the switches passes is what there was before.
PASSED = {
    "builtin": ({}, ["--report_to={}"]),
    "hf-trainer": (SCRIPT, ["--report_to={}"]),
    "trl": (SCRIPT, ["--report_to={}"]),
    "accelerate": (SCRIPT, ["--with_tracking", "--report_to={}"]),
}
SETS = [names for size in (1, 2, 3) for names in itertools.combinations(INSTALLED, size)]


def planned(values, **more):
    """The plan of a profile on a machine with both loggers."""
    return prepare_without_errors(profile(values), facts(packages=INSTALLED, paths={"/t.py": "file"}, **more)).plan


def words(values):
    """The words of the first attempt."""
    return argv(planned(values).attempts[0].command, "/run")


@pytest.mark.parametrize("name", PASSED)
def test_each_trainer_is_told_by_its_own_arguments(name):
    values, wanted = PASSED[name]
    values = values | ({"trainer.preset": name} if name != "builtin" else {})
    without = words(values)
    for names in [each for each in SETS if name != "accelerate" or len(each) == 1]:
        told = words(values | {f"tracking.{each}": True for each in names})
        assert [word for word in told if word not in without] == [word.format(",".join(names)) for word in wanted]
        assert [word for word in without if word not in told] == []


@pytest.mark.parametrize("names", [each for each in SETS if len(each) > 1])
def test_a_script_that_takes_one_tracker_never_reports_to_all_that_are_installed(names):
    chosen = profile(SCRIPT | {"trainer.preset": "accelerate"} | {f"tracking.{each}": True for each in names})
    found = facts(packages=INSTALLED, paths={"/t.py": "file"})
    (finding,) = [each for each in findings_of(chosen, found) if each.forbids_plan]
    assert (finding.key, finding.remedy) == (f"tracking.{names[0]}", "Choose one of them.")
    fixed = apply_change(finding.change, chosen)
    assert fixed.tracking.chosen_trackers == names[:1]
    assert not [each for each in findings_of(fixed, found) if each.forbids_plan]


@pytest.mark.parametrize(("preset", "keys"), [
    ("axolotl", {"use_tensorboard": True, "use_wandb": True, "use_trackio": True}),
    ("llama-factory", {"report_to": ["tensorboard", "wandb", "trackio"]}),
])  # fmt: skip
def test_files_of_trainers_say_it(preset, keys):
    values = MODULES | {"trainer.preset": preset}
    installed = INSTALLED | {"axolotl": "0.19.0", "llamafactory": "0.9.5"}
    document = YamlDocument(values={"do_train": True})
    found = msgspec.structs.replace(
        facts(packages=installed, paths={"/c.yaml": "file"}), documents={"/c.yaml": document}
    )
    configs = [
        prepare_without_errors(profile(chosen), found).plan.configs[0].values for chosen in (values, values | ALL)
    ]
    assert configs[1] == configs[0] | keys


def test_project_and_folder_are_variables_only_with_wandb():
    def names(values):
        return {setting.name: setting.value for setting in planned(values).attempts[0].command.env}

    assert "WANDB_PROJECT" not in names({"tracking.tensorboard": True})
    told = names({"tracking.wandb": True, "tracking.project": "mine"})
    assert told["WANDB_PROJECT"] == "mine"
    assert "WANDB_DIR" in told
    (finding,) = findings_of(profile({"tracking.project": "mine"}), facts())
    assert finding.key == "tracking.project"


@pytest.mark.parametrize(("version", "argument", "variable"), [
    ("4.56.2", [], "mine"), ("4.57.0", ["--project=mine"], None), ("5.23.0", ["--project=mine"], None),
])  # fmt: skip
def test_trackio_is_told_its_project_as_its_transformers_takes_it(version, argument, variable):
    values = SCRIPT | {"tracking.trackio": True, "tracking.project": "mine"}
    found = facts(packages=INSTALLED, paths={"/t.py": "file"}, transformers=version)
    command = prepare_without_errors(profile(values), found).plan.attempts[0].command
    assert [word for word in argv(command, "/run") if word.startswith("--project")] == argument
    assert {setting.name: setting.value for setting in command.env}.get("TRACKIO_PROJECT") == variable


def test_a_project_that_trackio_cannot_be_told_is_said():
    values = SCRIPT | {"trainer.preset": "accelerate", "tracking.trackio": True, "tracking.project": "mine"}
    found = facts(packages=INSTALLED, paths={"/t.py": "file"})
    (finding,) = [each for each in findings_of(profile(values), found) if each.key == "tracking.project"]
    assert "has no argument for it" in finding.message
    assert not [each for each in findings_of(apply_change(finding.change, profile(values)), found) if each.forbids_plan]


@pytest.mark.parametrize(("preset", "versions", "said"), [
    ("hf-trainer", {"transformers": "4.53.3"}, "transformers 4.53.3"), ("hf-trainer", {"transformers": "4.54.0"}, ""),
    ("accelerate", {"accelerate": "1.8.1"}, "accelerate 1.8.1"),
    ("accelerate", {"accelerate": "1.9.0", "transformers": "4.53.3"}, ""),
])  # fmt: skip
def test_a_library_that_does_not_know_trackio_is_said(preset, versions, said):
    chosen = profile(SCRIPT | {"trainer.preset": preset, "tracking.trackio": True})
    found = facts(packages=INSTALLED, paths={"/t.py": "file"}, **versions)
    told = [finding for finding in findings_of(chosen, found) if finding.key == "tracking.trackio"]
    assert [said in finding.message and finding.forbids_plan for finding in told] == ([True] if said else [])
    for finding in told:
        assert not any(
            one.key == "tracking.trackio" for one in findings_of(apply_change(finding.change, chosen), found)
        )


def test_a_plan_says_that_wandb_is_offline():
    values = {"tracking.wandb": True}
    offline = values | {"trainer.environment": {"WANDB_MODE": "offline"}}
    assert any("wandb sync" in note for note in planned(offline).notes)
    assert not any("wandb sync" in note for note in planned(values).notes)


def test_what_is_not_installed_can_be_left_out():
    chosen = profile(ALL)
    findings = findings_of(chosen, facts())
    assert [finding.key for finding in findings] == [*ALL]
    assert all(finding.forbids_plan for finding in findings)
    for finding in findings:
        chosen = apply_change(finding.change, chosen)
    assert findings_of(chosen, facts()) == ()


def test_trials_report_nowhere():
    from tui_train.setup.setup import Setup

    found = facts(packages=INSTALLED)
    chosen = profile(ALL)
    setup = Setup(chosen, found)
    among = make_search_space(setup)
    assert trial_profile(among.profile_setting, among, setup, "/out").tracking.chosen_trackers == ()


def stub(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("host", ["", "gpu-box"])
def test_the_lines_that_open_each_tracker(tmp_path, host, monkeypatch):
    """A shell takes them for what is meant, also through ssh, which has a shell there read them again."""
    monkeypatch.setattr(trackers, "is_port_in_use", lambda port: port in {6006, 6007})
    python = stub(tmp_path / "an env's/python", 'printf "%s\\n" "$TRACKIO_DIR" "$@"')
    stub(tmp_path / "bin/ssh", 'printf "%s\\n" ssh "$@" | sed \'$d\'; shift $(($# - 1)); sh -c "$1"')
    offline = {"WANDB_MODE": "offline", "TRACKIO_DIR": "/my $kept"}
    chosen = profile(ALL | {"tracking.project": "my 'own'", "trainer.environment": offline})
    folder = tmp_path / "a run"
    (folder / "wandb/offline-run-1").mkdir(parents=True)
    lines = tracker_lines(ReportingRun(chosen, RunLocation(host, str(folder)), "output", python))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"
    told = [
        subprocess.run(["sh", "-c", line.command], env={"PATH": path}, capture_output=True, text=True, check=True)
        .stdout.splitlines() for line in lines
    ]  # fmt: skip

    def through(*forward):
        return ["ssh", "-t", *forward, "--", host] if host else []

    assert told == [
        [
            *through("-L", "6008:localhost:6008"),
            "",
            "-m",
            "tensorboard.main",
            "--logdir",
            f"{folder}/output",
            *(("--port", "6008") if host else ()),
        ],
        [*through(), "", "-m", "wandb", "sync", f"{folder}/wandb/offline-run-1"],
        [*through("-L", "7860:localhost:7860"), "/my $kept", "-m", "trackio.cli", "show", "--project", "my 'own'"],
    ]


@pytest.mark.parametrize(("name", "variables", "where"), [
    ("wandb", {}, "at W&B"), ("wandb", {"WANDB_MODE": "disabled"}, "nowhere"),
    ("trackio", {"TRACKIO_SPACE_ID": "me/mine"}, "me/mine"), ("trackio", {"TRACKIO_SERVER_URL": "http://k"}, "server"),
])  # fmt: skip
def test_what_was_sent_elsewhere_is_said_to_be_there(name, variables, where):
    chosen = profile({f"tracking.{name}": True, "trainer.environment": variables})
    (line,) = tracker_lines(ReportingRun(chosen, RunLocation("", "/run"), "output", "/python"))
    assert (line.command, where in line.where) == ("", True)


def test_a_result_names_its_trackers(tmp_path):
    chosen = profile({"tracking.tensorboard": True, "hardware.device": "cpu"})
    run, _ = export_run(tmp_path / "run", chosen, facts(packages=INSTALLED))
    assert read_result(run).trackers == ()
    write_attempt_events(run, 90, "finished")
    command = f"{sys.executable} -m tensorboard.main --logdir {tmp_path}/run/output"
    assert [line.command for line in read_result(run).trackers] == [command]
    assert f"tensorboard   {command}" in run_cli("result", f"{run.path}/").stdout


@pytest.mark.training
@pytest.mark.whole
def test_the_built_in_trainer_reports_to_tensorboard_and_trackio_at_once(tmp_path):
    names = ("tensorboard==2.21.0", "protobuf==6.33.0", "absl-py==2.3.1", "trackio==0.43.0", "gradio-client==2.7.2",
             "httpx==0.28.1", "orjson==3.13.0", "pillow==12.3.0", "starlette==1.10.0", "uvicorn==0.54.0")  # fmt: skip
    folders = [
        package_folder(name, "TensorBoard and Trackio of the built-in trainer", tmp_path / name) for name in names
    ]
    path = os.pathsep.join(folders)
    values = {**ALL, "tracking.wandb": False, "tracking.project": "mine", "hardware.device": "cpu"}
    values["trainer.environment"] = {"PYTHONPATH": path, "HF_HOME": str(tmp_path / "hugging face")}
    values |= {"recipe.steps": 4, "recipe.checkpoint_every": 2}
    run, _ = export_run(tmp_path / "run", profile(values), facts(packages=INSTALLED))
    done = run_launch_script(run)
    assert done.returncode == 0, run.attempt_log(1).read_text()
    reader = (
        "import sys, pathlib\n"
        "from tensorboard.backend.event_processing.event_file_loader import EventFileLoader\n"
        "for file in sorted(pathlib.Path(sys.argv[1]).iterdir()):\n"
        "    for event in EventFileLoader(str(file)).Load():\n"
        "        for value in event.summary.value: print(event.step, value.tag)\n"
    )
    (folder,) = (run.path / "output" / "runs").iterdir()
    told = subprocess.run(
        [sys.executable, "-c", reader, folder], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    ).stdout.splitlines()  # fmt: skip
    assert [f"{step} train/loss" for step in range(1, 5)] == [line for line in told if line.endswith("/loss")]
    told = {line.partition(" ")[2].removeprefix("train/") for line in told}
    assert told >= {"learning_rate", "grad_norm", "tokens_per_second"}
    with contextlib.closing(sqlite3.connect(tmp_path / "hugging face/trackio/mine.db")) as kept:
        rows = [json.loads(text) for (text,) in kept.execute("select metrics from metrics order by id")]
    assert [row["train/global_step"] for row in rows if "train/loss" in row] == [1, 2, 3, 4]
    opened = read_result(run).trackers
    assert [line.tracker for line in opened] == ["tensorboard", "trackio"]
