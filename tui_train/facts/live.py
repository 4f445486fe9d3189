"""What the cards do right now, once a second, as told by a process of its own, which may hang or crash without harm."""

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from time import monotonic

from tui_train.base.parse import Unparsable, json_as
from tui_train.facts import probe
from tui_train.facts.ask import GIVEN_UP
from tui_train.facts.samples import SILENT, Samples, with_problem

# How soon the reader hears of a new sample, or that it is no longer wanted.
_GLANCE = 0.1
_SILENT_AFTER = 5.0
# A driver that ended may be back soon. One that was not there seldom comes, and starting a Python is not free.
_AGAIN = 10.0
_SELDOM = 60.0
# More than this without an end of line is no sample.
_MOST = 2**20


def samples(cancelled: Callable[[], bool]) -> Iterator[Samples]:
    """Yield the samples of all cards whenever one changes, until `cancelled()`, `give_up()` or the generator is closed.

    Cards of whose identity the driver tells nothing are left out; without cards, or a driver, nothing is yielded.
    """
    child: _Child | None = None
    known: Samples = ()
    heard = monotonic()
    try:
        while not cancelled() and not GIVEN_UP.wait(_GLANCE):
            if child is None or child.to_be_replaced():
                child = _Child()
            now = child.read()
            if now is not None:
                heard = monotonic()
            elif monotonic() - heard > _SILENT_AFTER:
                now = with_problem(known, SILENT)
            if now is not None and now != known:
                known = now
                yield now
    finally:
        if child is not None:
            child.end()


class _Child:
    """The process that samples, as its reader sees it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._started = monotonic()
        self._told = False
        self._rest = b""
        command, changes = probe.child_command("tui_train.facts.sampler")
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                command,
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **changes},
                cwd="/",
                start_new_session=True,
            )
        if self._process is not None and self._process.stdout is not None:
            os.set_blocking(self._process.stdout.fileno(), False)

    def read(self) -> Samples | None:
        """Return the newest samples, None where there are no new ones; the end of the process is dealt with."""
        if self._process is None or self._process.stdout is None:
            return None
        piece: bytes | None = self._process.stdout.read(_MOST)
        if piece is None:
            return None
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not piece or len(self._rest) > _MOST:
            self.end()
        # What the driver's library may print itself is no sample.
        for line in reversed(lines):
            with contextlib.suppress(Unparsable):
                now = json_as(line, Samples)
                self._told = True
                return now
        return None

    def to_be_replaced(self) -> bool:
        """Return whether the process is over, and long enough ago for another to be worth its start."""
        return self._process is None and monotonic() - self._started > (_AGAIN if self._told else _SELDOM)

    def end(self) -> None:
        """Kill the process; one that hangs inside a driver, where nothing can kill it, is not waited for."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=1)
