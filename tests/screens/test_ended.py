"""A wizard that a signal ends: what it leaves of the terminal and of the handlers."""

import asyncio
import contextlib
import fcntl
import os
import pty
import shlex
import signal
import sys

import pytest
from support import wait_until
from terminal import Terminal

from screens.app import shutdown
from tui_train.runs.interrupts import Interrupts


def test_a_terminal_that_takes_nothing_is_left_blocking():
    outer, inner = pty.openpty()
    os.set_blocking(inner, False)
    try:
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(inner, b"x" * 4096)
        os.set_blocking(inner, True)
        shutdown._restore_terminal(inner, None)
        assert not fcntl.fcntl(inner, fcntl.F_GETFL) & os.O_NONBLOCK
    finally:
        os.close(inner)
        os.close(outer)


@pytest.fixture
def handled():
    """Put the handlers back afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_an_ignored_signal_stays_ignored_and_the_others_are_handled_as_before(handled):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    async def shown():
        with shutdown.leaving_on_signals(lambda _: None, sys.__stderr__.fileno()):
            return signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGTERM)

    ignored, taken = asyncio.run(shown())
    assert ignored is signal.SIG_IGN
    assert callable(taken)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    noting = Interrupts()
    noting.start_recording()
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    noting.stop_recording()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.whole
def test_a_wizard_whose_terminal_is_gone_without_a_signal_ends():
    words = shlex.join([sys.executable, "-m", "tui_train"])
    terminal = Terminal(command=["/bin/sh", "-c", f"trap '' HUP; exec {words}"])
    try:
        terminal.wait_for_any("New training", "Fine-tune")
        terminal.child.ptyproc.fileobj.close()
        wait_until(lambda: not terminal.child.isalive(), 30, "it goes on without a terminal")
    finally:
        terminal.child.terminate(force=True)
