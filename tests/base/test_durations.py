"""Durations come from the time since boot: a clock that is set, or a summer time, makes none negative or absurd."""

import json
import os
import time

import pytest

from tui_train.runner.system.processes import machine_boot_id, process_with_pid
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_listed_run, read_status
from tui_train.views import plain_text

HOUR = 3600.0
BACK, FORWARD = -HOUR, HOUR


@pytest.fixture
def run(tmp_path):
    return RunFolder(tmp_path / "run")


def happened(run, *events):
    run.path.mkdir()
    run.events_file.write_text("".join(json.dumps(event) + "\n" for event in events))


def ended(by):
    """A start of 90 s with an attempt of 60 s, in whose middle the clock was set by some seconds."""
    return (
        {"event": "run_started", "time": 50_000.0, "uptime": 100.0, "mark": "m"},
        {"event": "attempt_started", "attempt": 1, "position": 1, "time": 50_010.0, "uptime": 110.0},
        {"event": "attempt_ended", "attempt": 1, "exit_code": 0, "time": 50_070.0 + by, "uptime": 170.0},
        {"event": "run_ended", "state": "finished", "exit_code": 0, "time": 50_090.0 + by, "uptime": 190.0},
    )


@pytest.mark.parametrize("by", [0.0, BACK, FORWARD])
def test_of_a_run_that_has_ended(run, by):
    happened(run, *ended(by))
    now = read_status(run)
    assert (now.seconds, now.attempts[0].seconds) == (90.0, 60.0)
    assert plain_text.listed_run_row(read_listed_run(run))[3] == "1 min 30 s"


def test_events_without_a_time_since_boot_are_never_negative(run):
    happened(run, *({name: event[name] for name in event if name != "uptime"} for event in ended(BACK)))
    assert (read_status(run).seconds, read_status(run).attempts[0].seconds) == (0.0, 0.0)


@pytest.fixture
def begun():
    """A live start of a minute ago, which this very process keeps."""
    me = process_with_pid(os.getpid())
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME) - 60
    known = {"mark": "m", "pid": me.pid, "start_ticks": me.ticks, "boot_id": machine_boot_id()}
    return {"event": "run_started", "time": time.time() - 60, "uptime": uptime, **known}


@pytest.mark.parametrize("by", [0.0, BACK, FORWARD])
def test_of_a_run_that_goes_on(run, begun, by):
    happened(run, begun | {"time": begun["time"] + by})
    opened = os.open(run.path, os.O_RDONLY)
    try:
        now = read_status(run)
    finally:
        os.close(opened)
    assert now.state == "running"
    assert 60 <= now.seconds < 90
    assert now.seconds == int(now.seconds)


def test_a_lost_run_has_none(run, begun):
    happened(run, begun | {"start_ticks": 1})
    assert (read_status(run).state, read_status(run).seconds) == ("lost", None)
