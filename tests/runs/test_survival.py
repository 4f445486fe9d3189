"""A stop leaves nothing of a run, whatever started its processes: TUI_TRAIN_TEST_REPEATS=20 does it that often."""

import itertools
import os
import signal
import uuid

import psutil
import pytest
from support import export_run, facts, living_run_pids, pids_with_argument, sleeper_profile, wait_until

from tui_train.runs.local_start import start_run
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training

REPEATS = int(os.environ.get("TUI_TRAIN_TEST_REPEATS", "0"))
IGNORE, APART, HIDE = ("--ignore-signals",), ("--children-apart=2", "--ignore-signals"), ("--hide", "--ignore-signals")
TWO = {"hardware.processes": 2}
WAYS = [
    (launcher, arguments)
    for arguments in (IGNORE, APART, HIDE)
    for launcher in ("python", "torchrun", "accelerate")
    if REPEATS or (launcher, arguments) in {("python", APART), ("torchrun", IGNORE), ("accelerate", APART)}
]
STOPS = [*itertools.islice(itertools.cycle(WAYS), REPEATS or len(WAYS))]


@pytest.mark.tries("stops of every launcher")
@pytest.mark.parametrize(
    "number", range(len(STOPS)), ids=lambda number: f"{number}-{STOPS[number][0]}{STOPS[number][1][0]}"
)
def test_a_stop_leaves_no_process(tmp_path, monkeypatch, number):
    launcher, arguments = STOPS[number]
    monkeypatch.setenv("TUI_TRAIN_GRACE", "1")
    word = f"--word={uuid.uuid4().hex}"
    values = {"trainer.launcher": launcher, **(TWO if launcher != "python" else {})}
    run, _ = export_run(tmp_path / "run", sleeper_profile(*arguments, word, "--seconds=600", **values), facts())
    ranks = 1 if launcher == "python" else 2
    apart = ranks * (2 if arguments is APART else 0)
    try:
        start_run(run)
        wait_until(lambda: run.attempt_log(1).read_bytes().count(b"tick 1\n") == ranks + apart, 90)
        # Those that went apart do not carry the word, which the sleeper does not hand on.
        before = {*pids_with_argument(word), *living_run_pids(read_status(run).mark, read_status(run).leader)}
        assert len(before) >= ranks + apart
        now = stop_local_run(run)
        assert (now.state, now.leftover) == ("stopped", ())
        assert pids_with_argument(word) == []
        assert not [
            pid for pid in before if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        ]
    finally:
        for pid in (*pids_with_argument(word), *living_run_pids(read_status(run).mark or "-", read_status(run).leader)):
            os.kill(pid, signal.SIGKILL)
