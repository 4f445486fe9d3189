"""A link that is cut at any moment of a start: what trains is known here, and nothing trains twice.

TUI_TRAIN_TEST_CUTS is how many are cut, TUI_TRAIN_TEST_SEED the seed of their moments.
"""

import contextlib
import os
import random
import time

import pytest
import ssh as secure_shell
from ssh import runs_of_host
from support import pids_with_argument, prepare, sleeper_profile, wait_until
from try_counts import count_tries

from tui_train.base.errors import Unavailable
from tui_train.places import place_of_run
from tui_train.places.jobs import refresh_jobs
from tui_train.places.place import Place
from tui_train.runner.run_folder import state
from tui_train.runs import run_folders
from tui_train.runs.remote_run import read_run_location
from tui_train.runs.status import read_status

pytestmark = pytest.mark.training
HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_CUTS", "4"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
SLEEPER = "import time\nwhile True: print('tick', flush=True); time.sleep(0.5)\n"


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host `box` over a real ssh, with a home of its own; `cut` ends every connection to it."""
    with secure_shell.bare_host(tmp_path, monkeypatch, SLEEPER, what="starts over a link that is cut") as home:
        yield home


def settled(run):
    """Ask until it is known whether a run has started."""

    def known():
        with contextlib.suppress(Unavailable):
            refresh_jobs([run])
        return read_status(run).state != "unconfirmed"

    wait_until(known, 60)


def started_here():
    """The runs that are here, by the folder of each there."""
    return {read_run_location(run.path).folder: run for run in run_folders.list_runs()}


@pytest.mark.timeout(300 + HOW_MANY * 30)
def test_what_trains_is_known_and_trains_once(host, tmp_path, record_property):
    word = f"--word={tmp_path.name}-{os.getpid()}"
    chosen = sleeper_profile(word, name="far", **{"trainer.script": f"{host}/train.py"})
    place = Place("box")
    prepared = prepare(chosen, place.probe_facts_for(chosen))
    began = time.monotonic()
    first = place.submit(prepared, prepared.plan)
    took = time.monotonic() - began
    assert place_of_run(first).stop(first, at_once=True).state == "stopped"
    with count_tries(record_property, "cuts of a start on a host") as made:
        for number in range(HOW_MANY):
            moment = random.Random(f"start {SEED} {number}").uniform(0.0, took)
            with made.one(f"cut {number}, seed {SEED}: after {moment:.2f} s of {took:.2f} s"):
                timer = secure_shell.cut_connections_later(tmp_path, moment)
                with contextlib.suppress(Unavailable):
                    place.submit(prepared, prepared.plan)
                timer.join()
                for run in started_here().values():
                    settled(run)
                here = {folder for folder, run in started_here().items() if read_status(run).is_live}
                there = {str(folder) for folder in runs_of_host(host) if state.read_status(str(folder)).is_live}
                assert there == here
                wait_until(lambda there=there: len(pids_with_argument(word)) == len(there))
                for folder in there:
                    stopped = place_of_run(started_here()[folder]).stop(started_here()[folder], at_once=True)
                    assert stopped.state == "stopped"
                assert pids_with_argument(word) == []
