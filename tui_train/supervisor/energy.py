"""The energy that an attempt's cards draw, by a child that asks their driver; nothing of it holds a training up."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from typing import NamedTuple, Sequence

from . import commands
from .processes import NOBODY, Process, process, send

_MOST = 100
_ANSWER = 1.0  # seconds; a driver that hangs does not answer
_READ = re.compile(rb"(\d{1,12}(?:\.\d+)?) (\d{1,4})\n")
_PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "meter.py")


class Drawn(NamedTuple):
    """What cards drew, in joules: `cards` of the attempt's `of`."""

    joules: float
    cards: int
    of: int


class Metering(NamedTuple):
    """A child that meters so many cards, and where its answer is read; `answer` -1: there is none."""

    child: Process = NOBODY
    answer: int = -1
    cards: int = 0

    def end(self) -> Drawn | None:
        """Return what the cards drew, None where that is not known; the child is gone after a second at most."""
        if self.answer < 0:
            return None
        send(self.child, signal.SIGTERM)
        # It writes its answer at once, or ends without one.
        ready = select.select([self.answer], [], [], _ANSWER)[0]
        match = _READ.fullmatch(os.read(self.answer, _MOST) if ready else b"")
        self.kill()
        return Drawn(float(match.group(1)), int(match.group(2)), self.cards) if match else None

    def kill(self) -> None:
        """End the child; one that hangs in a driver is left behind."""
        if self.answer >= 0:
            os.close(self.answer)
            # Whoever waits for all children may have collected it, and its number may be another's.
            if self.child.alive:
                commands.kill(self.child.pid)


def meter(cards: Sequence[str]) -> Metering:
    """Begin to meter these cards; parts of one (MIG) have no meter of their own."""
    whole = [card for card in cards if card.startswith("GPU-")]
    if not whole:
        return Metering()
    words = (sys.executable, "-I", "-S", _PROGRAM, str(os.getpid()), *whole)
    try:
        pid, answer, errors = commands.spawn(words, os.environ)
    except OSError:
        return Metering()
    os.close(errors)
    return Metering(process(pid), answer, len(cards))
