"""TensorBoard and W&B as switches: what each trainer is passed, and that the built-in one really reports."""

import os
import subprocess
import sys

import msgspec
import pytest
from support import alone, bash, check, exported, facts, profile, ready

from tui_train.actions.tune.space import search_space, trial_profile
from tui_train.base.command import argv
from tui_train.facts.types import YamlDocument
from tui_train.profile.changes import apply_change

BOTH = {"tracking.tensorboard": True, "tracking.wandb": True}
INSTALLED = {"tensorboard": "2.21.0", "wandb": "0.31.0"}
SCRIPT = {"trainer.kind": "script", "trainer.script": "/t.py"}
MODULES = {"trainer.kind": "script", "trainer.config": "/c.yaml"}
# What a profile without the switches passes is what there was before.
PASSED = {
    "builtin": ({}, ["--report_to", "tensorboard", "wandb"]),
    "hf-trainer": (SCRIPT, ["--report_to", "tensorboard", "wandb"]),
    "trl": (SCRIPT, ["--report_to", "tensorboard", "wandb"]),
    "accelerate": (SCRIPT, ["--with_tracking", "--report_to=all"]),
}


def planned(values, **more):
    """The plan of a profile on a machine with both loggers."""
    return ready(profile(values), facts(packages=INSTALLED, paths={"/t.py": "file"}, **more)).plan


def words(values):
    """The words of the first attempt."""
    return argv(planned(values).attempts[0].command, "/run")


@pytest.mark.parametrize("name", PASSED)
def test_each_trainer_is_told_by_its_own_arguments(name):
    values, wanted = PASSED[name]
    values = values | ({"trainer.preset": name} if name != "builtin" else {})
    without, both = words(values), words(values | BOTH)
    added = [word for word in both if word not in without]
    assert added == wanted
    assert [word for word in without if word not in both] == []
    one = [word for word in words(values | {"tracking.wandb": True}) if word not in without]
    assert len(one) < len(wanted) or "wandb" in one[-1]
    assert not any("tensorboard" in word for word in one)


@pytest.mark.parametrize(("preset", "keys"), [
    ("axolotl", {"use_tensorboard": True, "use_wandb": True}),
    ("llama-factory", {"report_to": ["tensorboard", "wandb"]}),
])  # fmt: skip
def test_files_of_trainers_say_it(preset, keys):
    values = MODULES | {"trainer.preset": preset}
    installed = INSTALLED | {"axolotl": "0.19.0", "llamafactory": "0.9.5"}
    document = YamlDocument(values={"do_train": True})
    found = msgspec.structs.replace(
        facts(packages=installed, paths={"/c.yaml": "file"}), documents={"/c.yaml": document}
    )
    configs = [ready(profile(chosen), found).plan.configs[0].values for chosen in (values, values | BOTH)]
    assert configs[1] == configs[0] | keys


def test_project_and_folder_are_variables_only_with_wandb():
    def names(values):
        return {setting.name: setting.value for setting in planned(values).attempts[0].command.env}

    assert "WANDB_PROJECT" not in names({"tracking.tensorboard": True})
    told = names({"tracking.wandb": True, "tracking.project": "mine"})
    assert told["WANDB_PROJECT"] == "mine"
    assert "WANDB_DIR" in told
    (finding,) = check(profile({"tracking.project": "mine"}), facts())
    assert finding.key == "tracking.project"


def test_a_plan_says_that_wandb_is_offline():
    values = {"tracking.wandb": True}
    offline = values | {"trainer.environment": {"WANDB_MODE": "offline"}}
    assert any("wandb sync" in note for note in planned(offline).notes)
    assert not any("wandb sync" in note for note in planned(values).notes)


def test_what_is_not_installed_can_be_left_out():
    chosen = profile(BOTH)
    findings = check(chosen, facts())
    assert [finding.key for finding in findings] == ["tracking.tensorboard", "tracking.wandb"]
    assert all(finding.forbids_plan for finding in findings)
    for finding in findings:
        chosen = apply_change(finding.change, chosen)
    assert check(chosen, facts()) == ()


def test_trials_report_nowhere():
    from tui_train.setup.setup import Setup

    found = facts(packages=INSTALLED)
    chosen = profile(BOTH)
    setup = Setup(chosen, found)
    among = search_space(setup)
    assert not trial_profile(among.profile_setting, among, setup, "/out").tracking.wandb


@pytest.mark.training
@pytest.mark.whole
def test_the_built_in_trainer_writes_events(tmp_path):
    names = ("tensorboard==2.21.0", "protobuf==6.33.0", "absl-py==2.3.1")
    folders = [alone(name, "TensorBoard of the built-in trainer", tmp_path / name) for name in names]
    path = os.pathsep.join(folders)
    values = {**BOTH, "tracking.wandb": False, "trainer.environment": {"PYTHONPATH": path}, "hardware.device": "cpu"}
    values |= {"recipe.steps": 4, "recipe.checkpoint_every": 2}
    run, _ = exported(tmp_path / "run", profile(values), facts(packages=INSTALLED))
    done = bash(run)
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
