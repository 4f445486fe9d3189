"""Runs that are started in the place of a training, watched for a while, and removed."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from tui_train.base.errors import TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.facts.machine.communication_tests import RankStage
from tui_train.facts.types import Facts
from tui_train.places.place import Place
from tui_train.plan.render.prepare import prepare_plan
from tui_train.profile.changes import Change
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.run_folders import RunFolder
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

    def note_stage(self, stage: RankStage) -> None:
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


class TemporaryRun:
    """A run in the place of a training, and its end, which is asked for once: a host that hangs takes its time."""

    def __init__(self, run: RunFolder, run_context: ShortRunContext) -> None:
        self.run = run
        self._context = run_context
        self._is_stop_asked = self._is_stopped = False

    def stop(self) -> None:
        """End it. Raises NoAnswer where its host does not confirm that; after a cancellation that is reported."""
        if self._is_stop_asked:
            return
        self._is_stop_asked = True
        interrupts = self._context.interrupts
        if interrupts.number:
            interrupts.report(f"{interrupts.signal_name}: ending the test …")
        try:
            self._context.place.stop(self.run, at_once=True)
            self._is_stopped = True
        except TuiTrainError as error:
            if not self._context.is_cancelled:
                raise
            interrupts.report(f"{visible(self.run.name)} may still be at work: {error.message}. {error.remedy}")

    def remove(self) -> None:
        """Stop and remove it; where its end is not confirmed, it stays in the list."""
        with suppress(TuiTrainError):
            self.stop()
            if self._is_stopped:
                self._context.place.remove(self.run)


@contextmanager
def temporary_run(setup: Setup, run_context: ShortRunContext) -> Iterator[TemporaryRun]:
    """Start a run in the place of a training; at the end it leaves no process, and no folder.

    Raises Unavailable where it cannot be started.
    """
    prepared = prepare_plan(setup)
    if prepared.plan is None or prepared.errors:
        first = prepared.errors[0]
        raise Unavailable(first.message, first.remedy)
    temporary = TemporaryRun(run_context.place.submit(prepared, prepared.plan, run_context.interrupts), run_context)
    try:
        yield temporary
    finally:
        temporary.remove()


def wait_for_end_in_time(
    run: RunFolder, run_context: ShortRunContext, max_seconds: float, note_progress: Callable[[], None] = lambda: None
) -> bool:
    """Wait until a run has ended by itself; False where it has not in time. What waits in a queue does not count."""
    until = time.monotonic() + max_seconds
    while True:
        status = run_context.place.ask_state(run)
        note_progress()
        if status.state == "queued":
            until = time.monotonic() + max_seconds
        elif not status.is_live and status.state != "new":
            return True
        if time.monotonic() > until or run_context.is_cancelled:
            return False
        time.sleep(_POLL_SECONDS_ELSEWHERE if run_context.place.name else _POLL_SECONDS)
