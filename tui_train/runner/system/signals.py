"""Signals that end a training: the first stop gives it its grace, and only an explicit second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from types import FrameType

# What a second Ctrl-C means, said by a program: end at once.
END_AT_ONCE_SIGNAL = signal.SIGUSR1


class StopSignals:
    """The signals that came: `stop` is the name of the first that asks to end, `code` the exit code that it means.

    SIGTERM joins a stop that is under way, for several may ask; a second SIGINT comes from a person who will not wait.
    """

    def __init__(self) -> None:
        self.stop = ""
        self.code = 0
        self.at_once = False
        self._read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        # Whoever started this with Ctrl-C ignored, as a shell does in the background, keeps it so.
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note_stop_signal)
        for number in (signal.SIGTERM, signal.SIGQUIT, END_AT_ONCE_SIGNAL):
            signal.signal(number, self._note_stop_signal)
        # A lost terminal ends neither this program nor the training; the end of a child wakes it.
        for number in (signal.SIGHUP, signal.SIGPIPE, signal.SIGCHLD):
            signal.signal(number, _ignore_signal)

    def _note_stop_signal(self, number: int, _frame: FrameType | None) -> None:
        again = bool(self.stop)
        self.at_once |= number == END_AT_ONCE_SIGNAL or (again and number == signal.SIGINT)
        if not again:
            self.stop = signal.Signals(number).name
            self.code = 143 if number == END_AT_ONCE_SIGNAL else 128 + number

    def wait(self, seconds: float, descriptor: int = -1) -> bool:
        """Return when a signal comes, something can be read from a descriptor, which is told, or after some seconds."""
        ready = select.select([self._read, *([descriptor] if descriptor >= 0 else ())], [], [], max(0.0, seconds))[0]
        with contextlib.suppress(BlockingIOError):
            while os.read(self._read, 512):
                pass
        return descriptor in ready


def reset_signals() -> None:
    """Give every signal its default again, for a child between fork and exec; what was ignored for us stays so."""
    signal.set_wakeup_fd(-1)
    numbers = [
        signal.SIGTERM,
        signal.SIGQUIT,
        END_AT_ONCE_SIGNAL,
        signal.SIGHUP,
        signal.SIGPIPE,
        signal.SIGCHLD,
        signal.SIGXFSZ,
    ]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        numbers.append(signal.SIGINT)
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)


def _ignore_signal(_number: int, _frame: FrameType | None) -> None:
    pass
