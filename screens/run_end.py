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
from tui_train.diagnose import Diagnosis, Enough, Watch, of_run
from tui_train.diagnose.again import why_not_again
from tui_train.facts.types import Facts
from tui_train.memory.length import set_up
from tui_train.memory.predict import predict
from tui_train.profile import store
from tui_train.profile.changes import Change, apply
from tui_train.profile.types import Profile
from tui_train.runs.fetching import fetch
from tui_train.runs.remains import Remains, remains
from tui_train.runs.result import Result, result
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.workflow.previous import run_before

from .messages import ApplyFix, Become, CompareRuns, Complaint, OpenResult, OpenStep
from .run_logs import RunLogs
from .terminal import notify_terminal

GOES = "still runs"
# Seconds between progress updates.
_PROGRESS_EVERY = 0.5
# The parts of the facts from which it follows whether a change fits.
_FOR_FIT = frozenset({"machine", "toolchains"})


class Ended(Message):
    """What is known of an ended run: why it failed, the profile in which a change is tried, what it leaves.

    `fits` says in words what memory the change would take; `made` is the adapter or model to use; `stays` says why it
    cannot be resumed, empty where it can; `earlier` is the run before it.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is known by itself
        self,
        found: Diagnosis | None = None,
        profile: Profile | None = None,
        left: Remains | None = None,
        fits: str = "",
        made: Result | None = None,
        stays: str = "",
        earlier: RunDir | None = None,
    ) -> None:
        """Carry all of it."""
        super().__init__()
        self.found = found
        self.profile = profile
        self.left = left
        self.fits = fits
        self.made = made
        self.stays = stays
        self.earlier = earlier


class Explaining(Message):
    """What the end of a large log shows, and in words how much of it was read."""

    def __init__(self, found: Diagnosis | None, words: str) -> None:
        """Carry both."""
        super().__init__()
        self.found = found
        self.words = words


class _Reading(Watch):
    """Tells a screen how its run's large log is read, until nobody waits for it."""

    def __init__(self, screen: "RunEnd") -> None:
        self._screen, self._worker = screen, get_current_worker()
        self._found: Diagnosis | None = None
        self._next = time.monotonic() + 1.0

    def at_end(self, found: Diagnosis | None) -> None:
        """Show it at once; what F2 would change follows with the whole."""
        self._found = replace(found, change=None) if found else None
        self._screen.post_message(Explaining(self._found, "reading the rest of its log"))

    def has_read(self, done: int, total: int) -> None:
        """Show it now and then."""
        if self._worker.is_cancelled:
            raise Enough
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY
            words = f"reading the rest of its log: {100 * done // total} % of {size(total)}"
            self._screen.post_message(Explaining(self._found, words))


def look_at_end(run: RunDir, position: int, facts: Facts | None, watch: Watch | None = None) -> Ended:
    """Return what is known of an ended run whose last attempt is the plan's at a position; TuiTrainError."""
    found = of_run(run, facts, watch)
    profile = store.load(str(run.profile)) if found and found.change else None
    fits = _fits(profile, found.change, facts) if profile and found and found.change and facts else ""
    stays = why_not_again(run, status(run), found)
    return Ended(found, profile, remains(run, position), fits, result(run), stays, run_before(run))


def _fits(profile: Profile, change: Change, facts: Facts) -> str:
    """Return the memory that would be reserved after a change and whether it fits, empty where that is not known."""
    predicted = predict(set_up(apply(change, profile), facts))
    if predicted.estimate is None or not predicted.places:
        return ""
    verdict = predicted.places[0][1]
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
    _left: Remains | None = None
    _made: Result | None = None
    _earlier: RunDir | None = None
    why_not_resumable = GOES  # why another start would not resume it

    def take(self, event: Ended) -> None:
        """Know what an ended run leaves, and the change that may help."""
        change = event.found.change if event.found else None
        self.remedy = (event.profile, change) if event.profile and change else None
        self._left, self._made = event.left, event.made
        self.why_not_resumable, self._earlier = event.stays, event.earlier

    def watch_looking(self, before: frozenset[str], now: frozenset[str]) -> None:
        """Explain the end again once it is known where the change would have to fit."""
        fetches = self._left is not None and self._left.fetching is not None
        if not self.going and not fetches and before & _FOR_FIT and not now & _FOR_FIT:
            self.look_at_end()

    @work(thread=True, exclusive=True, group="explain")
    def look_at_end(self) -> None:
        """Find out why an ended run failed, and what it leaves."""
        worker = get_current_worker()
        attempts = self._told.status.attempts if self._told else ()
        try:
            found = look_at_end(self.run, attempts[-1].position if attempts else 1, self.facts, _Reading(self))
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            if not worker.is_cancelled:
                self.post_message(found)

    def next_keys(self) -> list[tuple[str, str]]:
        """Return what can be done next, each a key and a word."""
        keys = (
            ("fix", "F2", "fix it"),
            ("result", "Enter", "fetch the result" if self.may_fetch else "result"),
            ("again", "r", "resume"),
            ("edit", "e", "edit and rerun"),
            *((("compare", "c", "compare with the run before"),) if self._earlier else ()),
        )
        return [(key, word) for action, key, word in keys if self.check_action(action, ())]

    @property
    def key_words(self) -> Mapping[str, str]:
        """Enter says what it does first."""
        return {**super().key_words, **({"enter": "Fetch"} if self.may_fetch else {})}

    @property
    def may_fetch(self) -> bool:
        """Whether the results are on a host only."""
        left = self._left
        return left is not None and left.host != "" and not left.fetched and left.fetching is None

    @work(thread=True, exclusive=True, group="fetch")
    def _fetch(self) -> None:
        shown = 0.0

        def progress(taken: int) -> None:
            nonlocal shown
            if time.monotonic() - shown > _PROGRESS_EVERY:
                shown = time.monotonic()
                self.app.call_from_thread(self._show_fetching, taken)

        progress(0)
        try:
            fetch(self.run, progress=progress)
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        self.app.call_from_thread(self._show_fetching, None)
        self.app.call_from_thread(self.look_at_end)

    def _show_fetching(self, taken: int | None) -> None:
        # It goes on when this screen is left.
        if self._left and self.display and self.is_attached:
            self._left = replace(self._left, fetching=taken)
            self.draw_cards()
            self.refresh_bindings()

    def draw_cards(self) -> None:
        """Draw what the run leaves."""
        raise NotImplementedError

    def action_result(self) -> None:
        """Show what the run made; what is on a host only is fetched first."""
        if self.may_fetch:
            self._fetch()
        elif self._made:
            self.post_message(OpenResult(self.run, self._made))

    def action_fix(self) -> None:
        """Make the change that may help, and show what would run then."""
        if self.remedy:
            profile, change = self.remedy
            self.post_message(Become(profile))
            self.post_message(OpenStep("preview"))
            # After the preview is there, which shows what was changed.
            self.post_message(ApplyFix(change))

    def action_edit(self) -> None:
        """Open the steps with the values of this run."""
        try:
            profile = store.load(str(self.run.profile))
        except TuiTrainError as error:
            self.post_message(Complaint(error))
            return
        self.post_message(Become(profile, keep=False))
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
