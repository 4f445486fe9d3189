"""Tuning on a host: its trials are runs there, which leave nothing behind, and end by themselves where it is lost."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pilot import screen_text, until_true, wait_for_text, wait_for_workers
from ssh import bare_host, lead_ssh_back, runs_of_host
from support import facts, living_run_pids, profile, run_cli, wait_until
from tui_train.screens.tuning import TuningScreen

from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.actions.tune import host_trial
from tui_train.actions.tune.tune import run_tuning
from tui_train.base.errors import BadInput, NoAnswer
from tui_train.memory.data_defaults import make_setup
from tui_train.places import place_of_run
from tui_train.places.place import Place
from tui_train.profile import store
from tui_train.runner.run_folder import state
from tui_train.runs import run_folders
from tui_train.runs.status import read_status
from tui_train.wizard import make_wizard

SCRIPT = """
import argparse, sys, time
parser = argparse.ArgumentParser()
for name in ("output_dir", "per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "save_steps"):
    parser.add_argument(f"--{name}")
chosen = parser.parse_args()
size = int(chosen.per_device_train_batch_size)
for step in range(1, int(chosen.max_steps) + 1):
    if size > 2 and step == 3:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    time.sleep(0.02)
    print(f"step {step}/{chosen.max_steps} loss {2 / step:.3f}", flush=True)
"""
ARGUMENTS = (
    "--output_dir={output}",
    "--per_device_train_batch_size={micro_batch}",
    "--gradient_accumulation_steps={accumulation}",
    "--max_steps={steps}",
    "--save_steps={checkpoint_every}",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The home folder of the host `box`, which ssh leads to."""
    lead_ssh_back(tmp_path / "home", tmp_path / "client", monkeypatch)
    monkeypatch.setattr(host_trial, "_MIN_TIMED_SECONDS", 1.0)
    (tmp_path / "home" / "train.py").write_text(SCRIPT)
    return tmp_path / "home"


@pytest.fixture
def home_over_ssh(tmp_path, monkeypatch):
    """The same behind a real sshd."""
    monkeypatch.setattr(host_trial, "_MIN_TIMED_SECONDS", 1.0)
    with bare_host(tmp_path, monkeypatch, SCRIPT, what="tuning on a host over ssh") as home:
        yield home


def tuned(home, **values):
    """A profile of a script on the host that runs out of memory above a micro batch of two."""
    given = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": f"{home}/train.py"}
    given |= {"trainer.arguments": ARGUMENTS, "trainer.python": sys.executable, "hardware.host": "box"}
    given |= {
        "recipe.checkpoint_every": 60,
        "recipe.micro_batch": 4,
        "recipe.global_batch": 4,
        "recipe.steps": 60,
        "hardware.device": "cpu",
        "name": "far",
    }
    return profile(given | values)


def facts_there(chosen):
    return probe_facts_for_start(chosen, Place("box"))


@pytest.mark.whole
def test_trials_run_on_the_host_and_leave_only_their_logs_here(home_over_ssh):
    home = home_over_ssh
    chosen = tuned(home, **{"notify.command": ("touch", f"{home}/told")})
    ended = [*run_tuning(chosen, facts_there(chosen), place=Place("box"))][-1]
    tried = {trial.setting.micro_batch: trial.outcome for trial in ended.trials}
    assert tried == {4: "out of memory", 2: "measured", 1: "measured"}
    # Four samples in 0.02 s, or slower.
    assert all(10 < trial.rate < 300 for trial in ended.trials if trial.outcome == "measured")
    assert ended.change
    assert "loss" in Path(ended.trials[0].log).read_text()
    assert not run_folders.list_runs()
    assert not runs_of_host(home)
    assert not (home / "told").exists()


@pytest.mark.whole
def test_a_trial_whose_link_is_lost_is_listed_and_ends_by_itself(home, tmp_path, monkeypatch):
    monkeypatch.setattr(host_trial, "SECONDS_BEYOND_LIMIT", 0)
    chosen, client = tuned(home, **{"recipe.micro_batch": 2}), tmp_path / "client" / "ssh"
    there, leads = facts_there(chosen), client.read_text()

    def cut_when_it_trains():
        if any((folder / "attempt-1.log").exists() for folder in runs_of_host(home)):
            client.write_text("#!/bin/sh\nexit 255\n")
        return False

    states = run_tuning(chosen, there, place=Place("box"), max_trial_seconds=6.0, cancelled=cut_when_it_trains)
    with pytest.raises(NoAnswer, match=r"it is not known how .*-far-trial-1 stands") as raised:
        list(states)
    assert "It ends there by itself 6 s after its start" in raised.value.remedy
    (run,), (folder,) = run_folders.list_runs(), runs_of_host(home)
    assert (run.name, read_status(run).state) == (folder.name, "running")
    wait_until(lambda: not living_run_pids(state.read_status(str(folder)).mark), 30)
    client.write_text(leads)
    assert place_of_run(run).ask_state(run).state == "stopped"


@pytest.mark.whole
def test_ctrl_c_ends_the_trial_there(home, tmp_path):
    (tmp_path / "far.toml").write_text(store.profile_to_toml(tuned(home, **{"recipe.micro_batch": 2})))
    words = [sys.executable, "-m", "tui_train", "tune", str(tmp_path / "far.toml")]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: any((folder / "attempt-1.log").exists() for folder in runs_of_host(home)), 90)
    mark = state.read_status(str(runs_of_host(home)[0])).mark
    process.send_signal(signal.SIGINT)
    said, wrong = process.communicate(timeout=60)
    assert (process.returncode, wrong) == (130, "")
    assert "short trainings on box" in said
    assert "Stopped before a trial was timed." in said
    assert not living_run_pids(mark)
    assert not run_folders.list_runs()
    assert not runs_of_host(home)


@pytest.mark.whole
async def test_the_screen_tunes_there_and_esc_ends_the_trial(home):
    chosen = tuned(home, **{"recipe.micro_batch": 1, "recipe.global_batch": 2})
    setup = make_setup(chosen, facts_there(chosen))
    app = make_wizard()
    async with app.run_test(size=(100, 30)) as pilot:
        await wait_for_workers(pilot)
        app.push_screen(TuningScreen(setup))
        await wait_for_text(pilot, "short trainings on the CPU of box")
        await pilot.press("enter")
        await until_true(pilot, lambda: bool(app.screen._state and app.screen._state.trials), 240)
        assert "samples/s" in screen_text(pilot)
        await until_true(pilot, lambda: any((each / "attempt-1.log").exists() for each in runs_of_host(home)), 240)
        await pilot.press("escape")
        await until_true(pilot, lambda: not runs_of_host(home) and not run_folders.list_runs(), 240)


def test_what_a_host_cannot_tune_is_refused():
    chosen = profile({"hardware.host": "box"})
    with pytest.raises(BadInput, match="trials do not wait for the GPUs of box"):
        next(run_tuning(chosen, facts(), place=Place("box"), when_free=True))
    said = run_cli("tune", "quickstart", "--set=hardware.scheduler=slurm", code=65).stderr
    assert "tune cannot run as a Slurm job" in said
