"""The end of a run: why it failed, what it leaves, and the terminal's notification to whoever watched it."""

import os
import time
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace
from textual import work
from textual.app import App
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import size, visible
from tui_train.diagnose import Diagnosis, ReadWatcher, StopReading, diagnose_run
from tui_train.diagnose.repeated_failure import why_not_restartable
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import set_up
from tui_train.memory.predict import predict
from tui_train.profile import store
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.runs.other_machines.fetching import fetch
from tui_train.runs.results.result import Result, read_result
from tui_train.runs.results.run_output import RunOutput, find_output
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.views.previous_run import run_before

from ..app.terminal import notify_terminal
from ..messages import ApplyFix, CompareRuns, ErrorToShow, OpenResult, OpenStep, SetProfile
from .run_logs import RunLogs

STILL_RUNS = "still runs"
# Seconds between progress updates.
_PROGRESS_EVERY = 0.5
# The parts of the facts from which it follows whether a change fits.
_PARTS_FOR_FIT = frozenset({"machine", "toolchains"})


class EndExplained(Message):
    """Findings on an ended run: why it failed, the profile in which a change is tried, what it leaves.

    `fits_text` says in words what memory the change would take; `run_result` is the adapter or model to use;
    `why_not_resumable` says why it cannot be resumed, empty where it can; `previous_run` is the run before it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is known by itself
        self,
        diagnosis: Diagnosis | None = None,
        profile: Profile | None = None,
        output: RunOutput | None = None,
        fits_text: str = "",
        run_result: Result | None = None,
        why_not_resumable: str = "",
        previous_run: RunDir | None = None,
    ) -> None:
        """Carry all of it."""
        super().__init__()
        self.diagnosis = diagnosis
        self.profile = profile
        self.output = output
        self.fits_text = fits_text
        self.run_result = run_result
        self.why_not_resumable = why_not_resumable
        self.previous_run = previous_run


class ExplainProgress(Message):
    """Explanation by the end of a large log, and in words how much of it was read."""

    def __init__(self, diagnosis: Diagnosis | None, words: str) -> None:
        """Carry both."""
        super().__init__()
        self.diagnosis = diagnosis
        self.words = words


class _LogReadWatcher(ReadWatcher):
    """Tells a screen how its run's large log is read, until nobody waits for it."""

    def __init__(self, screen: "RunEnd") -> None:
        self._screen, self._worker = screen, get_current_worker()
        self._end_diagnosis: Diagnosis | None = None
        self._next = time.monotonic() + 1.0

    def at_end(self, diagnosis: Diagnosis | None) -> None:
        """Show it at once; what F2 would change follows with the whole."""
        self._end_diagnosis = replace(diagnosis, change=None) if diagnosis else None
        self._screen.post_message(ExplainProgress(self._end_diagnosis, "reading the rest of its log"))

    def has_read(self, done: int, total: int) -> None:
        """Show it now and then."""
        if self._worker.is_cancelled:
            raise StopReading
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY
            words = f"reading the rest of its log: {100 * done // total} % of {size(total)}"
            self._screen.post_message(ExplainProgress(self._end_diagnosis, words))


def explain_end(run: RunDir, position: int, facts: Facts | None, watch: ReadWatcher | None = None) -> EndExplained:
    """Return what is known of an ended run whose last attempt is the plan's at a position; TuiTrainError."""
    found = diagnose_run(run, facts, watch)
    profile = store.load(str(run.profile)) if found and found.change else None
    fits = _fits_text(profile, found.change, facts) if profile and found and found.change and facts else ""
    stays = why_not_restartable(run, status(run), found)
    return EndExplained(found, profile, find_output(run, position), fits, read_result(run), stays, run_before(run))


def _fits_text(profile: Profile, change: Change, facts: Facts) -> str:
    """Return the memory that would be reserved after a change and whether it fits, empty where that is not known."""
    predicted = predict(set_up(apply_change(change, profile), facts))
    if predicted.estimate is None or not predicted.pools:
        return ""
    verdict = predicted.pools[0][1]
    return f"{size(verdict.reserved)} reserved {'✓' if verdict.band == 'fits' else '!'} {verdict.band}"


def announce(app: App[int], name: str, state: str) -> None:
    """Ring, and send a notification through the terminal, unless TUI_TRAIN_NOTIFY=off."""
    if os.environ.get("TUI_TRAIN_NOTIFY") != "off":
        app.bell()
        notify_terminal(app, f"tui-train: {visible(name)} {state}")


class RunEnd(RunLogs):
    """A screen of one run, with what can be done once that has ended."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "result", "Result", key_display="Enter"),
        Binding("f2", "fix", "Fix it"),
        Binding("e", "edit", "Edit"),
        Binding("c", "compare", "Compare"),
    ]
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    remedy: tuple[Profile, Change] | None = None
    _output: RunOutput | None = None
    _run_result: Result | None = None
    _previous_run: RunDir | None = None
    why_not_resumable = STILL_RUNS  # why another start would not resume it

    def take_end(self, event: EndExplained) -> None:
        """Know what an ended run leaves, and the change that may help."""
        change = event.diagnosis.change if event.diagnosis else None
        self.remedy = (event.profile, change) if event.profile and change else None
        self._output, self._run_result = event.output, event.run_result
        self.why_not_resumable, self._previous_run = event.why_not_resumable, event.previous_run

    def watch_looking(self, before: frozenset[str], now: frozenset[str]) -> None:
        """Explain the end again once it is known where the change would have to fit."""
        fetches = self._output is not None and self._output.fetching is not None
        if not self.still_trains and not fetches and before & _PARTS_FOR_FIT and not now & _PARTS_FOR_FIT:
            self.explain_end()

    @work(thread=True, exclusive=True, group="explain")
    def explain_end(self) -> None:
        """Find out why an ended run failed, and what it leaves."""
        worker = get_current_worker()
        attempts = self._news.status.attempts if self._news else ()
        try:
            found = explain_end(self.run, attempts[-1].position if attempts else 1, self.facts, _LogReadWatcher(self))
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        else:
            if not worker.is_cancelled:
                self.post_message(found)

    def next_keys(self) -> list[tuple[str, str]]:
        """Return what can be done next, each a key and a word."""
        keys = (
            ("fix", "F2", "fix it"),
            ("result", "Enter", "fetch the result" if self.can_fetch else "result"),
            ("again", "r", "resume"),
            ("edit", "e", "edit and rerun"),
            *((("compare", "c", "compare with the run before"),) if self._previous_run else ()),
        )
        return [(key, word) for action, key, word in keys if self.check_action(action, ())]

    @property
    def key_words(self) -> Mapping[str, str]:
        """Enter says what it does first."""
        return {**super().key_words, **({"enter": "Fetch"} if self.can_fetch else {})}

    @property
    def can_fetch(self) -> bool:
        """True where the results are on a host only."""
        left = self._output
        return left is not None and left.host != "" and not left.fetched and left.fetching is None

    @work(thread=True, exclusive=True, group="fetch")
    def _fetch_result(self) -> None:
        shown = 0.0

        def progress(taken: int) -> None:
            nonlocal shown
            if time.monotonic() - shown > _PROGRESS_EVERY:
                shown = time.monotonic()
                self.app.call_from_thread(self._show_fetched_bytes, taken)

        progress(0)
        try:
            fetch(self.run, progress=progress)
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
        self.app.call_from_thread(self._show_fetched_bytes, None)
        self.app.call_from_thread(self.explain_end)

    def _show_fetched_bytes(self, taken: int | None) -> None:
        # It goes on when this screen is left.
        if self._output and self.display and self.is_attached:
            self._output = replace(self._output, fetching=taken)
            self.draw_cards()
            self.refresh_bindings()

    def draw_cards(self) -> None:
        """Draw what the run leaves."""
        raise NotImplementedError

    def action_result(self) -> None:
        """Show what the run made; what is on a host only is fetched first."""
        if self.can_fetch:
            self._fetch_result()
        elif self._run_result:
            self.post_message(OpenResult(self.run, self._run_result))

    def action_fix(self) -> None:
        """Make the change that may help, and show what would run then."""
        if self.remedy:
            profile, change = self.remedy
            self.post_message(SetProfile(profile))
            self.post_message(OpenStep("preview"))
            # After the preview is there, which shows what was changed.
            self.post_message(ApplyFix(change))

    def action_edit(self) -> None:
        """Open the steps with the values of this run."""
        try:
            profile = store.load(str(self.run.profile))
        except TuiTrainError as error:
            self.post_message(ErrorToShow(error))
            return
        self.post_message(SetProfile(profile, keep=False))
        self.post_message(OpenStep("recipe"))

    @work(thread=True, exclusive=True, group="before")
    def action_compare(self) -> None:
        """Compare it with the run of the same profile before it."""
        other = run_before(self.run)
        if other:
            self.post_message(CompareRuns((other, self.run)))
        else:
            words = "There is no earlier run of this profile; mark runs on Home by Space to compare others."
            self.app.call_from_thread(self.notify, words, markup=False)
