"""Runs survive whoever started them, and end wholly: TUI_TRAIN_TEST_REPEATS=20 does each of it that often."""

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import uuid

import psutil
import pytest
import ssh
from support import XDG, exported, facts, marked, sleeping, until, with_word
from terminal import Terminal, to_launch

from tui_train.actions.last_profile import remember_profile
from tui_train.runs.rundir import all_runs
from tui_train.runs.start import start
from tui_train.runs.status import status
from tui_train.runs.stop import stop_run

pytestmark = pytest.mark.training

REPEATS = int(os.environ.get("TUI_TRAIN_TEST_REPEATS", "0"))
SURVIVALS = range(REPEATS or 1)


@pytest.fixture
def last():
    """The wizard begins with a sleeper that is known by a word of its own."""
    word = f"--word={uuid.uuid4().hex}"
    remember_profile(sleeping("--seconds=600", word))
    return word


def started(terminal):
    """Go through the wizard to a run by Enter alone, and wait until it trains."""
    to_launch(terminal)
    terminal.press("\r", "● 5 Run")
    terminal.see("tick")
    return all_runs()[0]


def goes_on(run, word):
    """The run lives, its log grows, others see all of it, and it ends when it is told to."""
    log = run.attempt_log(1)
    assert status(run).state == "running"
    assert len(with_word(word)) == 1
    before = log.stat().st_size
    until(lambda: log.stat().st_size > before)
    attach = [sys.executable, "-m", "tui_train", "attach", run.name]
    viewers = [subprocess.Popen(attach, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) for _ in range(2)]
    for viewer in viewers:
        assert viewer.stdout.readline() == b"tick 1\n"
    assert stop_run(run).state == "stopped"
    for viewer in viewers:
        viewer.stdout.read()
        assert viewer.wait() == 143
        viewer.stdout.close()
    assert marked(status(run).mark) == ()
    assert with_word(word) == []


@pytest.mark.tries("killed wizards")
@pytest.mark.parametrize("number", SURVIVALS)
def test_a_run_survives_its_killed_wizard(terminals, last, number):
    del number
    terminals.append(terminal := Terminal())
    run = started(terminal)
    terminal.child.kill(signal.SIGKILL)
    terminal.child.close(force=True)
    until(lambda: not terminal.child.isalive())
    goes_on(run, last)


def cut_client(terminal, _remote):
    """As a lost network, or a closed laptop, at this end."""
    terminal.child.kill(signal.SIGKILL)


def cut_server(_terminal, remote):
    """As a server that ends the session: all sshd above the wizard but the one that listens, which is our child."""
    for process in remote.parents():
        if process.name().startswith("sshd") and process.ppid() != os.getpid():
            process.kill()


def cut_by_key(terminal, _remote):
    """As its user ends it, by ssh's own key."""
    terminal.child.send("\r~.")


def wizards(home):
    """The wizards, asked for by the folder that only this test's have."""
    for process in psutil.process_iter(["cmdline"]):
        if (process.info["cmdline"] or [])[-2:] == ["-m", "tui_train"] and process.uids().real == os.geteuid():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("XDG_STATE_HOME") == home and process.name() not in {"env", "ssh"}:
                    yield process


CUTS = {"server": cut_server, "client": cut_client, "key": cut_by_key}


@pytest.mark.tries("dropped ssh sessions")
@pytest.mark.parametrize("number", SURVIVALS)
def test_a_run_survives_a_dropped_ssh_session(terminals, last, tmp_path, number):
    with ssh.server(tmp_path, what="that runs survive a dropped ssh session") as words:
        kept = {name: os.environ[name] for name in XDG} | {"TEXTUAL_ANIMATIONS": "none"}
        wizard = ssh.command([sys.executable, "-m", "tui_train"], kept)
        terminals.append(terminal := Terminal(command=[*words, "-tt", "box", wizard]))
        run = started(terminal)
        (remote,) = wizards(kept["XDG_STATE_HOME"])
        assert any(parent.name().startswith("sshd") for parent in remote.parents())
        [*CUTS.values()][number % len(CUTS)](terminal, remote)
        until(lambda: not remote.is_running() or remote.status() == psutil.STATUS_ZOMBIE)
        goes_on(run, last)


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
    run, _ = exported(tmp_path / "run", sleeping(*arguments, word, "--seconds=600", **values), facts())
    ranks = 1 if launcher == "python" else 2
    apart = ranks * (2 if arguments is APART else 0)
    try:
        start(run)
        until(lambda: run.attempt_log(1).read_bytes().count(b"tick 1\n") == ranks + apart, 90)
        # Those that went apart do not carry the word, which the sleeper does not hand on.
        before = {*with_word(word), *marked(status(run).mark, status(run).leader)}
        assert len(before) >= ranks + apart
        now = stop_run(run)
        assert (now.state, now.leftover) == ("stopped", ())
        assert with_word(word) == []
        assert not [
            pid for pid in before if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
        ]
    finally:
        for pid in (*with_word(word), *marked(status(run).mark or "-", status(run).leader)):
            os.kill(pid, signal.SIGKILL)
