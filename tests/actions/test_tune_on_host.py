"""Tuning on a host: its trials are runs there, which leave nothing behind, and end by themselves where it is lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ssh import lead_ssh_back, runs_of_host
from support import facts, findings_of, living_run_pids, profile, run_cli, wait_until

from tui_train.actions.machine_facts import FactsSource
from tui_train.actions.training_hosts import probe_facts_for_start
from tui_train.actions.tune import host_trial
from tui_train.actions.tune.space import make_search_space
from tui_train.actions.tune.tune import run_tuning
from tui_train.base.errors import BadInput, NoAnswer
from tui_train.places.place import Place
from tui_train.profile import store
from tui_train.runs import rundir
from tui_train.runs.status import read_status
from tui_train.setup.setup import Setup

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


def tuned(home, **values):
    """A profile of a script on the host that runs out of memory above a micro batch of two."""
    given = {"trainer.kind": "script", "trainer.preset": "custom", "trainer.script": f"{home}/train.py"}
    given |= {"trainer.arguments": ARGUMENTS, "trainer.python": sys.executable, "hardware.host": "box"}
    given |= {"recipe.checkpoint_every": 60, "recipe.micro_batch": 4, "recipe.global_batch": 4, "recipe.steps": 60, "hardware.device": "cpu", "name": "far"}
    return profile(given | values)


def facts_there(chosen):
    return probe_facts_for_start(chosen, FactsSource(host="box"))


@pytest.mark.whole
def test_trials_run_on_the_host_and_leave_only_their_logs_here(home):
    chosen = tuned(home, **{"notify.command": ("touch", f"{home}/told")})
    state = [*run_tuning(chosen, facts_there(chosen), place=Place("box"))][-1]
    tried = {trial.setting.micro_batch: trial.outcome for trial in state.trials}
    assert tried == {4: "out of memory", 2: "measured", 1: "measured"}
    assert all(25 < trial.rate / trial.setting.micro_batch < 60 for trial in state.trials if trial.rate > 0) or tried
    assert state.change
    assert "loss" in Path(state.trials[0].log).read_text()
    assert not rundir.list_runs()
    assert not runs_of_host(home)
    assert not (home / "told").exists()
