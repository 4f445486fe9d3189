"""Whatever ends a wizard, its terminal or its connection at any moment, the run goes on and the terminal is as before.

TUI_TRAIN_TEST_CUTS is how many are cut, TUI_TRAIN_TEST_SEED the seed of their moments.
"""

import contextlib
import io
import os
import random
import signal
import sys
import termios
import time
import uuid

import psutil
import pytest
import ssh
from support import XDG_VARIABLES, export_run, facts, living_run_pids, pids_with_argument, sleeper_profile, wait_until
from terminal import Terminal, go_to_preview
from try_counts import count_tries

from tui_train.actions.last_profile import remember_profile_without_secrets
from tui_train.runs.local_start import start_run
from tui_train.runs.run_folders import list_runs
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

pytestmark = pytest.mark.training
HOW_MANY = int(os.environ.get("TUI_TRAIN_TEST_CUTS", "5"))
SEED = int(os.environ.get("TUI_TRAIN_TEST_SEED", "1"))
# One in so many is cut while it starts a run.
STARTS = 5
HERE = ("kill", "terminate", "hang up", "close")
AFAR = ("client", "server", "key")
# Seconds until which a wizard is cut: it shows its first screen in one or two of them.
LATEST = 3.5
# What is switched on and has to be off again: the other screen, mouse, focus, pasting; and the cursor, hidden.
MODES = (b"1049", b"1000", b"1003", b"1004", b"2004")


def opened(words, way, box):
    """Open a wizard here, or on a host over ssh."""
    command = [sys.executable, "-m", "tui_train", *words]
    if way in AFAR:
        kept = {name: os.environ[name] for name in XDG_VARIABLES} | {"TEXTUAL_ANIMATIONS": "none"}
        command = [*box, "-tt", "box", ssh.shell_command(command, kept)]
    terminal = Terminal(command=command)
    terminal.child.logfile_read = io.BytesIO()
    return terminal


def remote():
    """The wizards and viewers over ssh, however far they have come: the processes of this test below an sshd."""
    home = os.environ["XDG_STATE_HOME"]
    found = []
    for process in psutil.process_iter(["cmdline", "name"]):
        with contextlib.suppress(psutil.Error):
            ours = "tui_train" in (process.info["cmdline"] or []) and process.info["name"] not in {"env", "ssh"}
            if ours and process.environ().get("XDG_STATE_HOME") == home and under_sshd(process):
                found.append(process)
    return found


def under_sshd(process):
    return any(parent.name().startswith("sshd") for parent in process.parents())


def cut(terminal, way):
    """End it in one way, and wait until it is gone."""
    child = terminal.child
    # Without its sshd it lives on until its terminal is gone, and may start a run until then.
    # Before it is there, no sshd of its own can be found, and ssh knows no key that cuts.
    known = wait_until(remote, 30, "nothing was started over ssh") if way in AFAR else []
    if way in {"kill", "client"}:
        child.kill(signal.SIGKILL)
    elif way == "terminate":
        child.kill(signal.SIGTERM)
    elif way == "hang up":
        child.kill(signal.SIGHUP)
    elif way == "close":
        child.ptyproc.fileobj.close()
    elif way == "key":
        child.send("\r~.")
    else:
        for process in {parent for one in known for parent in one.parents()}:
            # The one that listens is our child.
            with contextlib.suppress(psutil.Error):
                if process.name().startswith("sshd") and process.ppid() != os.getpid():
                    process.kill()
    if way not in AFAR:
        wait_until(lambda: not child.isalive(), 30, f"the wizard goes on after it was cut: {way}")
    else:
        gone = lambda: not remote() and not any(one.is_running() for one in known)  # noqa: E731
        wait_until(gone, 30, f"the wizard goes on after its connection was cut: {way}")


def restored(terminal):
    """The terminal takes lines and echoes them, and each mode that was switched on is off."""
    flags = termios.tcgetattr(terminal.child.child_fd)[3]
    assert flags & termios.ECHO, "it does not echo"
    assert flags & termios.ICANON, "it takes no lines"
    terminal.text()
    written = terminal.child.logfile_read.getvalue()
    left = [mode for mode in MODES if written.rfind(b"\x1b[?%sh" % mode) > written.rfind(b"\x1b[?%sl" % mode)]
    assert not left, f"modes are left on: {left}"
    assert written.rfind(b"\x1b[?25h") >= written.rfind(b"\x1b[?25l"), "the cursor is hidden"


def watch(terminal, seconds):
    """Read what it shows for a time, as a terminal does."""
    until_ = time.monotonic() + seconds
    while time.monotonic() < until_:
        terminal.text()


@pytest.fixture
def box(tmp_path):
    with ssh.run_sshd(tmp_path, what="that runs survive whatever cuts a connection") as words:
        yield words


@pytest.fixture
def word():
    """A word that the processes of this test's runs have among theirs, which are ended after it."""
    made = f"--word={uuid.uuid4().hex}"
    yield made
    for run in list_runs():
        with contextlib.suppress(Exception):
            stop_local_run(run, at_once=True)
    for pid in pids_with_argument(made):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.whole
@pytest.mark.timeout(600 + HOW_MANY * 30)
def test_a_run_and_the_terminal_survive_whatever_ends_a_viewer(tmp_path, box, word, record_property):
    run, _ = export_run(tmp_path / "run", sleeper_profile("--seconds=36000", word), facts())
    start_run(run)
    log = run.attempt_log(1)
    leader = read_status(run).pid
    try:
        with count_tries(record_property, "cuts of a viewer") as made:
            for number in range(HOW_MANY - HOW_MANY // STARTS):
                chance = random.Random(f"cut {SEED} {number}")
                way, moment = (*HERE, *AFAR)[number % 7], chance.uniform(0.0, LATEST)
                with made.one(f"cut {number}, seed {SEED}: {way} after {moment:.2f} s"):
                    terminal = opened(("attach", str(run.path)), way, box)
                    try:
                        watch(terminal, moment)
                        cut(terminal, way)
                        if way in {"terminate", "hang up"}:
                            restored(terminal)
                        before = log.stat().st_size
                        wait_until(lambda before=before: log.stat().st_size > before)
                        assert (read_status(run).state, read_status(run).pid) == ("running", leader)
                        assert len(pids_with_argument(word)) == 1
                    finally:
                        terminal.child.close(force=True)
    finally:
        assert stop_local_run(run).state == "stopped"
    ticks = [int(line.split()[1]) for line in log.read_text().splitlines() if line.startswith("tick ")]
    assert ticks == [*range(1, len(ticks) + 1)], "lines are lost"
    assert [event.event for event in run.events()].count("attempt_started") == 1


def settled(word):
    """What has become of a start that was cut: its run when it trains, None when nothing of it is left."""

    def known():
        live = [run for run in list_runs() if read_status(run).is_live]
        if live:
            return read_status(live[0]).attempts and len(pids_with_argument(word)) == 1 and [live[0]]
        # A launch.sh that has begun either reports itself or ends.
        return not launchers() and not pids_with_argument(word) and [None]

    try:
        return wait_until(known, 60)[0]
    except AssertionError as error:
        seen = [(run.path.name, read_status(run), run.launch_log.read_text()) for run in list_runs()[:2]]
        raise AssertionError(f"{seen}, launch.sh: {launchers()}, with the word: {pids_with_argument(word)}") from error


def launchers():
    """The processes that run this test's launch.sh."""
    begun = [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]
    ours = [" ".join(words) for words in begun if os.environ["XDG_STATE_HOME"] in " ".join(words)]
    return [words for words in ours if "launch.sh" in words]


@pytest.mark.timeout(600 + HOW_MANY * 60)
def test_a_start_that_is_cut_is_a_run_or_nothing(box, word, record_property):
    with count_tries(record_property, "cuts of a start") as made:
        for number in range(max(2, HOW_MANY // STARTS)):
            # A draft goes with its start.
            remember_profile_without_secrets(sleeper_profile("--seconds=600", word))
            chance = random.Random(f"start {SEED} {number}")
            way, moment = chance.choice((*HERE, *AFAR)), chance.uniform(0.0, 2.0)
            # The first two are cut once they show the training.
            trains = number < 2
            way = ("kill", "server")[number] if trains else way
            with made.one(f"start {number}, seed {SEED}: {way} after {moment:.2f} s"):
                terminal = opened((), way, box)
                try:
                    go_to_preview(terminal)
                    terminal.child.send("\r")
                    if trains:
                        terminal.wait_for_any("tick")
                    else:
                        watch(terminal, moment)
                    cut(terminal, way)
                    if way in {"terminate", "hang up"}:
                        restored(terminal)
                    run = settled(word)
                    assert run or not trains
                    if run:
                        before = run.attempt_log(1).stat().st_size
                        wait_until(lambda run=run, before=before: run.attempt_log(1).stat().st_size > before)
                        assert stop_local_run(run).state == "stopped"
                        assert living_run_pids(read_status(run).mark) == ()
                    assert pids_with_argument(word) == []
                finally:
                    terminal.child.close(force=True)
                    for run in list_runs():
                        stop_local_run(run, at_once=True)
