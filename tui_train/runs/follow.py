"""Following a run from outside: its lines as they come, until it ends."""

import time
from collections.abc import Callable, Iterator

from tui_train.runs.rundir import RunDir
from tui_train.runs.status import AttemptStatus, Status, status
from tui_train.runs.tail import Tail

_PAUSE = 0.15


def follow(run: RunDir, *, on_attempt: Callable[[AttemptStatus], None] = lambda _: None) -> Iterator[str]:
    """Yield every line of the run's attempts, in order, until the run has ended and all is read."""
    shown = 0
    tail: Tail | None = None
    while True:
        now = status(run)
        if tail:
            yield from _lines(tail)
        newer = [attempt for attempt in now.attempts if attempt.number > shown]
        if newer:
            if tail and tail.unfinished:
                yield tail.unfinished
            on_attempt(newer[0])
            shown = newer[0].number
            tail = Tail(run.attempt_log(shown))
            continue
        if not now.live:
            if tail and tail.unfinished:
                yield tail.unfinished
            return
        time.sleep(_PAUSE)


def wait(run: RunDir) -> Status:
    """Return the run's status once it has ended."""
    while (now := status(run)).live:
        time.sleep(_PAUSE)
    return now


def _lines(tail: Tail) -> Iterator[str]:
    while lines := tail.read():
        yield from lines
