"""Runs that are started in the place of a training, watched for a while, and removed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.facts.machine.communication_tests import Exchange
from tui_train.facts.types import Facts
from tui_train.places.place import Place
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.changes import Change
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.rundir import RunDir
from tui_train.setup.setup import Setup

_POLL_SECONDS = 0.1
_POLL_SECONDS_ELSEWHERE = 1.0


class ShortRunObserver:
    """Base class for observers of short runs, which may cancel them; this one does nothing."""

    @property
    def is_cancelled(self) -> bool:
        """Whether the test is to end now."""
        return False

    def begin_test(self, change: Change | None) -> None:
        """Note that a test begins: with a change, or as the profile is."""

    def note_exchange(self, exchange: Exchange) -> None:
        """Note what a process has done."""


class ShortRunContext(NamedTuple):
    """The place and facts for short runs, with their observer and interrupts."""

    place: Place
    facts: Facts
    observer: ShortRunObserver
    interrupts: Interrupts = NO_INTERRUPTS

    @property
    def is_cancelled(self) -> bool:
        """Whether the test is to end now."""
        return bool(self.interrupts.number) or self.observer.is_cancelled


@contextmanager
def temporary_run(setup: Setup, run_context: ShortRunContext) -> Iterator[RunDir]:
    """Start a run in the place of a training; at the end it leaves no process, and no folder.

    Raises Unavailable where it cannot be started.
    """
    prepared = prepare_plan(setup)
    if prepared.plan is None or prepared.errors:
        first = prepared.errors[0]
        raise Unavailable(first.message, first.remedy)
    run = run_context.place.submit(prepared, prepared.plan, run_context.interrupts)
    try:
        yield run
    finally:
        _stop_and_remove_run(run, run_context.place)


def wait_for_end_in_time(
    run: RunDir, run_context: ShortRunContext, max_seconds: float, note_progress: Callable[[], None] = lambda: None
) -> bool:
    """Wait until a run has ended by itself; False where it has not in time. What waits in a queue does not count."""
    until = time.monotonic() + max_seconds
    while True:
        status = run_context.place.ask_state(run)
        note_progress()
        if status.state == "queued":
            until = time.monotonic() + max_seconds
        elif not status.live and status.state != "new":
            return True
        if time.monotonic() > until or run_context.is_cancelled:
            return False
        time.sleep(_POLL_SECONDS_ELSEWHERE if run_context.place.name else _POLL_SECONDS)


def _stop_and_remove_run(run: RunDir, place: Place) -> None:
    # Where the stop does not come through, the run stays in the list: it may still be at work.
    with suppress(TuiTrainError):
        place.stop(run, at_once=True)
        place.remove(run)
