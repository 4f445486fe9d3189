"""Arrays on this machine: a run for each value of a key, in the order of the values, on what is free."""

import sys

import msgspec
import pytest
from pilot import open_wizard, until_true, wait_for_text, wait_for_workers
from support import FULL_RECIPE, facts, gpu, profile, run_cli, wait_until
from tui_train.screens.preview.screen import PreviewScreen

from tui_train.actions.run_array import prepare_members
from tui_train.base.errors import BadInput
from tui_train.profile import store
from tui_train.runs import run_folders
from tui_train.runs.status import read_status

SCRIPT = """
import argparse, fcntl, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
seed = parser.parse_args().seed
with open("taken", "w") as taken:
    fcntl.flock(taken, fcntl.LOCK_EX | fcntl.LOCK_NB)  # another one that trains meanwhile fails here
    with open("seeds", "a") as seeds:
        print(seed, file=seeds)
    time.sleep(600 if seed > 8 else 0)
    for step in range(1, 4):
        print({"loss": 1 / (seed + step), "epoch": step}, flush=True)
    sys.exit(seed == 3)
"""


@pytest.fixture
def script(tmp_path):
    """A script that fails with the seed 3, in a saved profile `job` on the CPU, and with a folder of its own."""
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    chosen = {
        "name": "job",
        "hardware.device": "cpu",
        "trainer.kind": "script",
        "trainer.script": str(path),
        "trainer.python": sys.executable,
        "trainer.preset": "auto",
    }
    store.save_profile(profile(chosen))
    return path


def ended():
    """The runs by their notes, once none is live."""
    wait_until(lambda: not any(read_status(run).is_live for run in run_folders.list_runs()), 120)
    return {run.note(): read_status(run) for run in run_folders.list_runs()}


def test_the_name_of_a_run_ends_with_its_value_and_a_long_one_is_cut_before_it():
    members = prepare_members(profile(), "recipe.learning_rate=1e-4,0.002", facts())
    assert [each.run_name("My job") for each in members] == ["my-job-learning-rate-1e-4", "my-job-learning-rate-0-002"]
    names = [each.run_name("long " * 20) for each in members]
    assert [len(name) for name in names] == [40, 40]
    assert [name.endswith(value) for name, value in zip(names, ("-1e-4", "-0-002"), strict=True)] == [True, True]


@pytest.mark.whole
def test_each_value_is_trained_with_in_order_and_a_failure_stops_none(script):
    said = run_cli("run", "job", "--array", "recipe.seed=4,3,5", cwd=script.parent).stdout
    states = {note: status.state for note, status in ended().items()}
    assert states == {"seed=4": "finished", "seed=3": "failed", "seed=5": "finished"}
    assert {run.label for run in run_folders.list_runs()} == {"job-seed-4", "job-seed-3", "job-seed-5"}
    assert (script.parent / "seeds").read_text().split() == ["4", "3", "5"]
    assert all(run.name in said.splitlines()[-1] for run in run_folders.list_runs())


@pytest.mark.whole
def test_what_waits_is_stopped_with_what_it_waits_for(script):
    run_cli("run", "job", "--array", f"recipe.seed={'0' * 200}9,10")
    runs = [run.name for run in run_folders.list_runs()]
    wait_until(lambda: any(read_status(run).attempts for run in run_folders.list_runs()))
    run_cli("stop", "--now", *runs)
    assert {read_status(run).state for run in run_folders.list_runs()} == {"stopped"}
    assert sum(len(read_status(run).attempts) for run in run_folders.list_runs()) == 1


@pytest.mark.whole
async def test_an_array_is_started_on_preview_and_compared(script):
    async with open_wizard(size=(80, 24)) as pilot:
        pilot.app.open_saved_profile("job")
        pilot.app.action_go_to_step("preview")
        await wait_for_text(pilot, " (s saves it under another name). It keeps")
        await wait_for_workers(pilot)
        await pilot.press("a")
        await wait_for_text(pilot, "Try several values (a sweep)")
        await pilot.press("enter")
        await wait_for_text(pilot, "recipe.seed=1,2,3, or as --lr")
        await pilot.press(*"recipe.seed=1,2,2", "enter")
        await wait_for_text(pilot, "there twice")
        await pilot.press("home", "ctrl+k", *"recipe.seed=1,2,3,4,5", "enter")
        await until_true(pilot, lambda: isinstance(pilot.app.screen, PreviewScreen))
        await pilot.press("enter")
        await wait_for_text(pilot, "Compare", "A seed=1", "B 2", seconds=60)
        assert len(run_folders.list_runs()) == 5, "Enter meanwhile has started none"
        states = [status.state for status in ended().values()]
        assert sorted(states) == ["failed", *["finished"] * 4]
        await wait_for_text(pilot, "failed")


def test_an_argument_that_the_recipe_sets_as_well_is_named_by_its_key():
    chosen = profile({"trainer.kind": "script", "trainer.script": "/src/train.py", "trainer.preset": "hf-trainer",
                      "recipe.learning_rate": 1e-3})  # fmt: skip
    with pytest.raises(BadInput, match="--learning_rate is the learning rate of the recipe") as refused:
        prepare_members(chosen, "--learning_rate=1e-4,2e-4", facts())
    assert refused.value.remedy == "Write it as recipe.learning_rate=1e-4,2e-4."


@pytest.mark.parametrize(
    ("array", "what"), [("", "no value"), ("--lr=", "no value of --lr"), ("--lr=,", "no value of --lr")]
)
def test_an_empty_answer_is_told_to_have_no_value(array, what):
    with pytest.raises(BadInput, match=f"^{what}: type some, separated by commas"):
        prepare_members(profile(FULL_RECIPE), array, facts())


@pytest.mark.parametrize(
    "array",
    ["recipe.seed", "recipe.seed=", "recipe.seed=1,,2", "recipe.seed=1,1", "trainer.model=/a,/b", "=1,2", "recipe.x=1",
     "recipe.seed=1,2%0", "recipe.seed=1,2%x", "recipe.seed=1,2%1",
     "recipe.learning_rate=1e-3,0.001", "--lr=", "--lr=1,1", "--lr", "lr=1,2", "-=1,2",
     "--a b=1,2", "recipe.seed=" + ",".join(map(str, range(101)))],
)  # fmt: skip
def test_what_is_no_array_is_refused(array):
    with pytest.raises(BadInput):
        prepare_members(profile(FULL_RECIPE), array, facts())


@pytest.mark.parametrize(
    ("arguments", "array", "varied"),
    [
        ((), "--format=50%,60%", [["--format=50%"], ["--format=60%"]]),
        ((), "--format=%d-%s,x", [["--format=%d-%s"], ["--format=x"]]),
        ((), "--opts=a=1,b=2", [["--opts=a=1"], ["--opts=b=2"]]),
        ((), "--token=YQ==,Yg", [["--token=YQ=="], ["--token=Yg"]]),
        ((), "--set=lr=1,2", [["--set=lr=1"], ["--set=lr=2"]]),
        (("--set=a=0", "--set=lr=0"), "--set=lr=1,2", [["--set=a=0", "--set=lr=1"], ["--set=a=0", "--set=lr=2"]]),
        (("--set", "a=0", "--set", "lr=0"), "--set=lr=1,2",
         [["--set", "a=0", "--set", "lr=1"], ["--set", "a=0", "--set", "lr=2"]]),
        (("--rate", "0"), "--rate=1%,2%", [["--rate", "1%"], ["--rate", "2%"]]),
    ],
)  # fmt: skip
def test_values_may_have_percent_and_equals_signs(arguments, array, varied):
    chosen = profile({"trainer.kind": "script", "trainer.script": "/src/train.py", "trainer.arguments": arguments})
    members = prepare_members(chosen, array, facts())
    assert [[*member.prepared.profile.trainer.arguments] for member in members] == varied
    slurm = msgspec.structs.replace(facts(), scheduler="slurm")
    limited = prepare_members(chosen, f"{array}%2", slurm)
    assert [[*member.prepared.profile.trainer.arguments] for member in limited] == varied
    assert {member.at_once for member in limited} == {2}


def test_a_limit_does_not_take_the_place_of_a_dependency():
    slurm = msgspec.structs.replace(facts(), scheduler="slurm")
    values = {**FULL_RECIPE, "slurm.options": ("--dependency=afterok:7",)}
    with pytest.raises(BadInput, match="%1 jobs depend on earlier ones, in place of --dependency"):
        prepare_members(profile(values), "recipe.seed=1,2%1", slurm)


def test_members_are_planned_as_if_nobody_used_the_gpus():
    from tui_train.facts.types import GpuProcess

    free = gpu(0)
    busy = msgspec.structs.replace(free, processes=(GpuProcess(7, "python", "ann", 9 << 30),))
    plans = [prepare_members(profile(FULL_RECIPE), "recipe.steps=5,6", facts(gpus=(card,))) for card in (free, busy)]
    assert plans[0] == plans[1]
    assert [member.edit for member in plans[0]] == ["recipe.steps=5", "recipe.steps=6"]


@pytest.mark.parametrize(
    ("array", "before", "after"),
    [
        ("--lr=1,2", (), ("--lr=2",)),
        ("--lr=1,2", ("--lr=9", "--x"), ("--lr=2", "--x")),
        ("--lr=1,2", ("--lr", "9", "--lr", "8"), ("--lr", "9", "--lr", "2")),
        ("--fast=1,2", ("--fast", "--x"), ("--fast", "--x", "--fast=2")),
        ("optim.lr=1,2", ("optim.lr=9",), ("optim.lr=2",)),
    ],
)
def test_an_argument_of_the_training_can_differ(array, before, after):
    members = prepare_members(profile(FULL_RECIPE | {"trainer.arguments": before}), array, facts())
    assert members[1].prepared.profile.trainer.arguments == after
    assert [member.note for member in members] == [f"{array.lstrip('-').partition('=')[0]}={value}" for value in "12"]


def test_an_output_that_all_would_share_is_refused(tmp_path):
    with pytest.raises(BadInput, match="write to"):
        prepare_members(profile(FULL_RECIPE | {"trainer.output": str(tmp_path)}), "recipe.steps=5,6", facts())


def test_trainings_on_several_machines_are_no_array():
    values = FULL_RECIPE | {"trainer.launcher": "torchrun", "nodes.count": 2, "nodes.address": "10.0.0.1"}
    with pytest.raises(BadInput, match="several machines"):
        prepare_members(profile(values), "recipe.steps=5,6", facts())
