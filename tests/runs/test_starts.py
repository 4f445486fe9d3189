"""Signals while a run starts: what `tui-train run` says agrees with what runs. TUI_TRAIN_TEST_REPEATS=60 tries more."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from support import export_run, facts, patch_runner_module, pids_with_argument, sleeper_profile, wait_until

from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import StartInterrupted
from tui_train.profile import store
from tui_train.runner import detached_start
from tui_train.runs.conflicts import lock_run_starts
from tui_train.runs.interrupts import Interrupts, defer_ctrl_c
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import list_runs
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training

REPEATS = int(os.environ.get("TUI_TRAIN_TEST_REPEATS", "0"))
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WAYS = (("--detach",), ())


@pytest.fixture
def word(tmp_path):
    """A saved profile of a sleeper, known by a word of its own among the arguments."""
    word = f"--word={uuid.uuid4().hex}"
    (tmp_path / "sleeper.toml").write_text(store.profile_to_toml(sleeper_profile("--seconds=600", word)))
    yield word
    for run in list_runs():
        stop_local_run(run, at_once=True)


def command(folder, *options, verb="run"):
    words = [sys.executable, "-m", "tui_train", verb, *[str(folder / "sleeper.toml")] * (verb == "run"), *options]
    return subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def launchers():
    """The processes that start or keep a run of this test's own folder."""
    state = os.environ["XDG_STATE_HOME"].encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if any(state in part for part in path.read_bytes().split(b"\0")):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


def truth(word):
    """What is so: `trains`, `ended`, `never` for a folder that was not started, or `nothing`."""
    wait_until(lambda: pids_with_argument(word) or not launchers(), 60)
    runs = list_runs()
    if pids_with_argument(word):
        return "trains"
    if not runs:
        return "nothing"
    return "ended" if runs[0].events() else "never"


def claim(said):
    """What the words say last: `trains`, `ended`, `nothing`; empty where they say nothing of it."""
    for line in reversed(said.splitlines()):
        if "not started" in line or "did not start" in line:
            return "nothing"
        if "stopped" in line:
            return "ended"
        if "runs. Watch it" in line or "continues. Watch it" in line:
            return "trains"
    return ""


def agrees(said, so):
    """Whether words are true; a command that was ended before it could do anything may have none."""
    return claim(said) == so or (so == "nothing" and not said.strip())


def folder_is_there():
    """Wait until the run's folder is being made; more often than `wait_until` looks."""
    deadline = time.monotonic() + 60
    while not (runs_folder().is_dir() and any(runs_folder().iterdir())):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.whole
@pytest.mark.parametrize("number", range(REPEATS or 3))
def test_a_signal_while_a_run_starts(tmp_path, word, number):
    chance = random.Random(number)
    sent, options = SIGNALS[number % 3], WAYS[number // 3 % 2]
    # One of three comes while Python is started and the machine is probed, the others around the start itself.
    early = number // 6 % 3 == 2
    delay = chance.uniform(0.1, 2.0) if early else chance.uniform(0.0, 1.0)
    process = command(tmp_path, *options)
    if not early:
        folder_is_there()
    time.sleep(delay)
    process.send_signal(sent)
    said, so, code = process.communicate(timeout=90)[0], truth(word), process.returncode
    assert agrees(said, so), (sent, options, early, delay, said, so, code)
    assert "Traceback" not in said


def noted(number, after):
    """A signal that is noted as soon as something is so."""
    found = Interrupts()

    def wait():
        wait_until(after, 60)
        found.record_signal(number, None)

    threading.Thread(target=wait, daemon=True).start()
    return found


def test_a_run_that_had_started_when_a_signal_came_is_stopped_and_kept(tmp_path, word):
    run, _ = export_run(tmp_path / "run", store.load_profile_file(str(tmp_path / "sleeper.toml")), facts())
    # The signal comes between the last look at it and its first event.
    looks = "        if signals.stop:\n            return signals.code\n        outcome = _run_supervised"
    waits = "        while not signals.stop:\n            signals.wait(1)\n        outcome = _run_supervised"
    patch_runner_module(run, "supervisor.py", looks, waits)
    with pytest.raises(StartInterrupted) as caught:
        start_run(run, interrupts=noted(signal.SIGTERM, (run.path / ".lock" / "owner").exists))
    assert caught.value.exit_code == 143
    assert claim(caught.value.message) == "ended"
    assert read_status(run).state == "stopped"
    assert not pids_with_argument(word)


def test_a_signal_while_another_run_starts_ends_the_waiting(tmp_path, word):
    run, _ = export_run(tmp_path / "run", store.load_profile_file(str(tmp_path / "sleeper.toml")), facts())
    runs_folder().mkdir(parents=True)
    with lock_run_starts(), pytest.raises(StartInterrupted) as caught:
        start_run(run, interrupts=noted(signal.SIGINT, lambda: True))
    assert claim(caught.value.message) == "nothing"
    assert not run.events()
    assert not pids_with_argument(word)


def test_a_command_that_is_killed_leaves_a_run_or_a_folder_that_is_listed_as_new(tmp_path, word):
    process = command(tmp_path, "--detach")
    folder_is_there()
    process.kill()
    process.communicate(timeout=60)
    assert truth(word) in {"trains", "never", "nothing"}
    assert [read_status(run).state for run in list_runs()] in ([], ["new"], ["running"])


@pytest.mark.whole
@pytest.mark.parametrize(("verb", "number"), [("run", signal.SIGTERM), ("quickstart", signal.SIGINT)])
def test_a_command_that_is_ended_before_it_starts_anything_says_so(tmp_path, word, verb, number):
    """It waits for a Python that does not answer."""
    asked, python = tmp_path / "asked", tmp_path / "python"
    python.write_text(f"#!/bin/sh\ntouch {asked}\nexec sleep 60\n")
    python.chmod(0o755)
    process = command(tmp_path, "--set", f"trainer.python={python}", verb=verb)
    wait_until(asked.exists, 60)
    process.send_signal(number)
    assert claim(process.communicate(timeout=60)[0]) == "nothing"
    assert process.returncode == 128 + number
    assert truth(word) == "nothing"


class Broken(Interrupts):
    """Signals whose reading is broken off by a Ctrl-C, once something is so."""

    def __init__(self, after):
        self._after = after
        super().__init__()

    @property
    def number(self):
        wait_until(self._after, 60)
        raise KeyboardInterrupt

    @number.setter
    def number(self, value):
        pass

    def raise_if_start_interrupted(self, run_name):
        """Nothing came before the start."""


@pytest.mark.whole
def test_a_start_that_is_broken_off_when_it_trains_gives_the_training_its_time(tmp_path, monkeypatch):
    monkeypatch.setattr(detached_start, "_MAX_END_SECONDS", 0.2)
    monkeypatch.setenv("TUI_TRAIN_GRACE", "3")
    word = f"--word={uuid.uuid4().hex}"
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=600", "--ignore-signals", word), facts())
    log = run.attempt_log(1)
    try:
        with pytest.raises(KeyboardInterrupt):
            start_run(run, interrupts=Broken(lambda: log.exists() and b"tick" in log.read_bytes()))
        assert read_status(run).state == "stopped"
        assert not pids_with_argument(word)
    finally:
        for pid in pids_with_argument(word):
            os.kill(pid, signal.SIGKILL)


def test_a_lost_terminal_does_not_keep_a_run_from_being_stopped():
    def lost(_text):
        raise OSError(5, "Input/output error")

    Interrupts(lost).report("stopping")


def test_ctrl_c_that_falls_into_a_destructor_is_not_lost():
    """Python ignores what is raised there."""

    class Dropped:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    with defer_ctrl_c() as raise_if_pressed:
        Dropped()
        with pytest.raises(KeyboardInterrupt):
            raise_if_pressed()
