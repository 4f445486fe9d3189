"""Stops at once and one in another, of workers that make it hard: TUI_TRAIN_TEST_STOPS is how many runs are stopped."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support import SCRIPTS, export_run, facts, living_run_pids, sleeper_profile, wait_until
from try_counts import count_tries

from tui_train.base.errors import TuiTrainError
from tui_train.plan.run_files import RUNNER_ZIP_FILE_NAME
from tui_train.runs.local_start import start_run
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training
HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_STOPS", "4"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
# At a time: they mostly wait.
TOGETHER = 5
SAVES = 1.0
# The grace is long beside a save, and a wait for it would be longer than any machine is slow.
GRACE = 40


def living(pids):
    """Those of the noted processes that live, by what the kernel says of them."""
    found = []
    for pid in pids:
        with contextlib.suppress(OSError), Path(f"/proc/{pid}/stat").open("rb") as file:
            if file.read().rpartition(b")")[2].split()[0] not in {b"Z", b"X"}:
                found.append(pid)
    return found


class Stopping:
    """One run and those who stop it."""

    def __init__(self, folder, seed):
        chance = random.Random(f"stops {seed}")
        self.save, self.pids = folder / "saved", folder / "pids"
        # Each that ends by itself when it has saved; the others it leaves have to be ended.
        words = [f"--save={self.save}", f"--pids={self.pids}", f"--save-seconds={chance.choice((0.2, SAVES))}"]
        words += ["--forks=3"] * chance.randrange(2) + ["--apart=2"] * chance.randrange(2)
        self.ignores = chance.random() < 0.25
        words += ["--ignore"] * self.ignores
        self.grace = 6 if self.ignores or "--forks=3" in words or "--apart=2" in words else GRACE
        self.at_once = chance.choice((None, None, 0.0, 0.3))
        self.who = [chance.choice(("here", "supervisor", "signal")) for _ in range(chance.choice((1, 2, 4)))]
        self.delays = [chance.choice((0.0, 0.0, 0.1, 0.4)) for _ in self.who]
        chosen = sleeper_profile(*words, **{"trainer.script": str(SCRIPTS / "hostile.py")})
        self.words = f"seed {seed}: {words}, by {self.who} after {self.delays}, at once after {self.at_once}"
        self.run, _ = export_run(folder / "run", chosen, facts())
        self.ended = []

    def one(self, who, delay):
        time.sleep(delay)
        if who == "here":
            with contextlib.suppress(TuiTrainError):
                self.ended.append(stop_local_run(self.run).state)
        elif who == "supervisor":
            words = [sys.executable, str(self.run.path / RUNNER_ZIP_FILE_NAME), "stop"]
            subprocess.run(words, capture_output=True, check=False)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(
                    read_status(self.run).pid or os.getpid(), signal.SIGTERM if read_status(self.run).is_live else 0
                )

    def play(self):
        """Start it, stop it in every way at once, and look at what is left."""
        try:
            start_run(self.run)
            wait_until(lambda: b"ready" in self.run.attempt_log(1).read_bytes(), 90)
            self.noted()
            stops = [threading.Thread(target=self.one, args=pair) for pair in zip(self.who, self.delays, strict=True)]
            for thread in stops:
                thread.start()
            if self.at_once is not None:
                time.sleep(self.at_once)
                assert stop_local_run(self.run, at_once=True).state == "stopped"
            for thread in stops:
                thread.join()
            wait_until(lambda: not read_status(self.run).is_live, 90)
            self.check_nothing_is_left()
        finally:
            for pid in (*living(self.noted()), *living_run_pids(read_status(self.run).mark or "-")):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def noted(self):
        return [int(line) for line in self.pids.read_text().split()] if self.pids.exists() else []

    def check_nothing_is_left(self):
        assert living(self.noted()) == [], "processes are left"
        assert living_run_pids(read_status(self.run).mark) == ()
        names = [event.event for event in self.run.events()]
        assert names.count("run_started") == names.count("run_ended") == names.count("attempt_ended") == 1, names
        assert names[-1] == "run_ended"
        assert (read_status(self.run).state, read_status(self.run).leftover) == ("stopped", ())
        assert set(self.ended) <= {"stopped"}
        if self.at_once is None:
            assert self.save.read_text() == "saved\n", "what was being saved is lost"


@pytest.mark.timeout(600 + HOW_MANY * 60)
@pytest.mark.whole
def test_stops_at_once_lose_no_save_and_leave_nothing(tmp_path, monkeypatch, record_property):
    folders = [tmp_path / str(number) for number in range(HOW_MANY)]
    for folder in folders:
        folder.mkdir()
    runs = [Stopping(folder, SEED * 1000 + number) for number, folder in enumerate(folders)]
    # The grace is read from the environment when a run starts, so those of one grace go together.
    groups = [[run for run in runs if run.grace == grace] for grace in (6, GRACE)]
    with count_tries(record_property, "stops at once of hostile workers") as made:
        for together in [group[at : at + TOGETHER] for group in groups for at in range(0, len(group), TOGETHER)]:
            monkeypatch.setenv("TUI_TRAIN_GRACE", str(together[0].grace))
            with ThreadPoolExecutor(TOGETHER) as pool:
                played = [pool.submit(run.play) for run in together]
            for run, future in zip(together, played, strict=True):
                with made.one(run.words):
                    future.result()
