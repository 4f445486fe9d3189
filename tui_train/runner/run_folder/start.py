"""Start: all that one start of a run folder has, from its plan to the signals that it listens to."""

from __future__ import annotations

import os
import select
import time
from typing import Mapping, NamedTuple

from ..system.signals import StopSignals
from ..system.transport import LocalTransport
from .events import Journal
from .lock import HeldLock
from .supervisor_plan import PlannedAttempt, SupervisorPlan


class RunStart(NamedTuple):
    """One start of `script`."""

    planned: SupervisorPlan
    run_dir: str
    script: str
    own_dir: str
    """Where this machine's files go."""
    mark: str
    """The mark of its processes."""
    cards: tuple[str, ...]
    """This machine's own."""
    node_rank: int
    resume: bool
    grace: int
    """The seconds to save and end in."""
    environment: Mapping[str, str]
    """What an attempt gets besides what this process has."""
    journal: Journal
    locks: tuple[HeldLock, ...]
    signals: StopSignals
    transport: LocalTransport
    earlier_stop_counts: tuple[int, ...]
    """How often each machine had been asked to stop before."""

    @property
    def attempts(self) -> tuple[PlannedAttempt, ...]:
        """The attempts of the plan."""
        return self.planned.attempts

    @property
    def are_cards_overridden(self) -> bool:
        """True where they are not those of the plan."""
        return self.cards != self.planned.gpus

    @property
    def may_fall_back(self) -> bool:
        """True where another attempt may follow: machines that are started by hand do not agree upon one."""
        return not self.planned.is_started_by_hand and len(self.attempts) > 1


def record_event(start: RunStart, event: str, **details: object) -> None:
    """Add to events.jsonl what happened; where that cannot be written, it is said, and the training goes on."""
    try:
        start.journal.append(event, **details)
    except OSError as error:
        print_message(f"cannot write {event} to events.jsonl: {error.strerror or error}")


def print_message(text: str) -> None:
    """Print a line with the time; where a terminal takes none, it is dropped, for nothing may wait for a reader."""
    line = f"{time.strftime('%H:%M:%S')} launch.sh: {text}\n".encode(errors="replace")
    try:
        if select.select([], [1], [], 0.5)[1]:
            os.write(1, line)
    except (OSError, ValueError):
        return
