"""Run: a training as it goes: its log, step, loss, speed and attempts; it can be left, stopped and opened again."""

import time
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive
from textual.widgets import Static
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.diagnose import Diagnosis, of_run
from tui_train.facts.samples import Samples
from tui_train.facts.types import Facts
from tui_train.profile import store
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runs.follow import RunNews, watch
from tui_train.runs.health import BUSY, worries
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import continues
from tui_train.workflow import show

from .ending import Ending
from .messages import ApplyFix, Become, Complaint, GoHome, OpenStep
from .widgets.bar import StepBar
from .widgets.braille import Axes, Series, drawable
from .widgets.dialogs import Ask
from .widgets.keys import Keys
from .widgets.log_pane import LogPane
from .widgets.log_view import LogView
from .widgets.plot import Plot
from .widgets.run_state import run_state
from .widgets.why import Why

_RETRY = 30.0  # seconds, for a long log is read from its start
_MOST_ATTEMPTS = 100
_UNREAD = "step and loss can no longer be read; the log below is still followed"
_MOST_POINTS = 2000
_ROOM = 34  # rows, for a diagnosis, the plot and some of the log


class News(Message):
    """Something about the run has changed."""

    def __init__(self, told: RunNews) -> None:
        """Carry what is new."""
        super().__init__()
        self.told = told


class Explained(Message):
    """It is known why a run failed, and from which profile it was made where its change can be tried."""

    def __init__(self, found: Diagnosis | None, profile: Profile | None) -> None:
        """Carry both."""
        super().__init__()
        self.found = found
        self.profile = profile


class RunScreen(Ending):
    """The fifth step: one run, started here or anywhere."""

    HELP = """Run

The training writes to files of its run folder and needs no viewer: D leaves it running, and Home opens it again,
also after a lost connection. X ends it and every process of it.
R starts an ended run again, from its newest complete checkpoint. When it failed, it says why and what to do; where a
change of the profile may help, F2 makes it and opens the preview, from which Enter runs it. P shows or hides the plot.

The log

Of any size, and all of it. The line below it says where you are.
  ↑ ↓ PgUp PgDn   scroll; ← → sideways
  Home g, End G   its start; its end, followed as it grows
  /               search down for words or a regular expression;
                  small letters find capitals too
  n N             the next line that matches, the one above
  f               show matching lines only
  w               wrap long lines, or do not
  a               another attempt's log, or what launch.sh said
  o               only the lines of one rank: those that begin
                  with [rank1]: or the like
  Esc             end a search; show all lines again"""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("d", "detach", "Detach"),
        Binding("x", "stop", "Stop"),
        Binding("r", "again", "Run again"),
        Binding("f2", "fix", "Fix it"),
        Binding("p", "plot", "Plot"),
        Binding("a", "attempt", "Log of another attempt", show=False),
        Binding("o", "rank", "Lines of one rank", show=False),
        Binding("escape", "home", "Home", key_display="Esc"),
    ]

    LIVE = True
    SHARED = ("live", "facts")
    live: reactive[Samples] = reactive((), init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)

    def __init__(self, run: RunDir) -> None:
        """Show a run."""
        super().__init__()
        self.run = run
        self._told: RunNews | None = None
        self._shown = 0
        self._cards: tuple[str, ...] = ()
        self._busy = time.monotonic()
        self._remedy: tuple[Profile, Change] | None = None
        self._unread = False

    def compose(self) -> ComposeResult:
        """State, plot, log, keys."""
        yield StepBar("Run")
        yield Static(id="state", markup=False)
        yield Why()
        yield Static(id="cards", markup=False)
        yield Plot(id="plot")
        yield LogPane(id="log")
        yield Keys()

    def on_mount(self) -> None:
        """Read the log from now on."""
        self.query_one(LogView).focus()
        self.query_one("#state", Static).update(f"{visible(self.run.name)}: reading …")
        self._watch()

    @work(thread=True, exclusive=True, group="watch")
    def _watch(self) -> None:
        worker = get_current_worker()
        for told in watch(self.run, lambda: worker.is_cancelled):
            self.post_message(News(told))

    def follow(self) -> None:
        """Read the run's log again."""
        self._watch()

    def recover(self, group: str) -> None:
        """Say that the run is no longer followed, show its newest log all the same, and follow it again later."""
        if group != "watch":
            return
        self._unread = True
        self._show_state()
        if self._told is None:
            self._open(max((attempt for attempt in range(1, _MOST_ATTEMPTS) if self._has_log(attempt)), default=0))
        self.set_timer(_RETRY, self._follow_again)

    def _follow_again(self) -> None:
        self._unread = False
        self._watch()

    def _has_log(self, attempt: int) -> bool:
        return self.run.attempt_log(attempt).is_file()

    @on(News)
    def _show(self, event: News) -> None:
        told = event.told
        before, going = self._told, self.going
        self._told = told
        if told.attempt != (before.attempt if before else 0):
            self._open(told.attempt)
        self._show_state()
        if before is None or self.going != going:
            self.post_message(Explained(None, None))
            if not self.going:
                self._explain()
        self.watch_live()
        if before is None or told.progress.curve != before.progress.curve:
            self._draw_plot()
        self.refresh_bindings()

    def _show_state(self) -> None:
        """Say the run's state, and what is wrong with it; the lines about a failure belong here as well."""
        state = self.query_one("#state", Static)
        unread = (_UNREAD,) if self._unread else ()
        if self._told is None:
            if unread:
                state.update(Text(f" {visible(self.run.name)}\n ! {_UNREAD}", "bold red"))
            return
        samples = self._samples() if self._told.status.live else []
        idle = (time.monotonic() - self._busy) / 60 if samples else None
        wrong = worries(self._told.progress, self._told.quiet, idle, self._told.not_resumed)
        words = run_state(self.run, self._told, (*unread, *wrong))
        state.styles.height = len(words.plain.splitlines())
        state.update(words, layout=False)

    @work(thread=True, exclusive=True, group="explain")
    def _explain(self) -> None:
        """Find out why an ended run failed."""
        worker = get_current_worker()
        try:
            found = of_run(self.run, self.facts)
            profile = store.load(str(self.run.profile)) if found and found.change else None
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        else:
            if not worker.is_cancelled:
                self.post_message(Explained(found, profile))

    @on(Explained)
    def _say_why(self, event: Explained) -> None:
        change = event.found.change if event.found else None
        self._remedy = (event.profile, change) if event.profile and change else None
        self.query_one(Why).say(event.found)
        if event.found and self.size.height < _ROOM:
            # The log tells more of a failure than the plot, which P brings back.
            self.query_one(Plot).add_class("hidden")
            self._draw_plot()
        self.refresh_bindings()

    def action_fix(self) -> None:
        """Make the change that may help, and show what would run then."""
        if self._remedy:
            profile, change = self._remedy
            self.post_message(GoHome())
            self.post_message(Become(profile))
            self.post_message(ApplyFix(change))
            self.post_message(OpenStep("preview"))

    def _open(self, attempt: int) -> None:
        """Show the log of an attempt; 0 is what launch.sh itself said."""
        self._shown = attempt
        self.query_one(LogPane).open(self.run.attempt_log(attempt) if attempt else self.run.launcher_log)

    def action_attempt(self) -> None:
        """Choose the attempt whose log is shown."""
        numbers = [attempt.number for attempt in self._told.status.attempts] if self._told else []
        answers = [(str(number), f"attempt {number}") for number in reversed(numbers)]

        def answered(answer: str | None) -> None:
            if answer:
                self._open(int(answer))

        self.app.push_screen(Ask("Which log?", (*answers, ("0", "what launch.sh said"))), answered)

    def action_rank(self) -> None:
        """Choose the rank whose lines are shown."""
        known = self._told.prefixes if self._told else ()
        if not known:
            self.notify("No line of this log begins with a rank, such as [rank1]: or [default1]:.", markup=False)
            return

        def answered(answer: str | None) -> None:
            if answer:
                self.query_one(LogPane).choose_rank(None if answer == "all" else int(answer))

        answers = (("all", "all lines"), *((str(rank), f"rank {rank}") for rank in known))
        self.app.push_screen(Ask("Whose lines?", answers), answered)

    def _samples(self) -> Samples:
        told = self._told
        return tuple(sample for sample in self.live if told and sample.uuid in told.gpus)

    def watch_live(self) -> None:
        """Show what the run's cards do, while it uses them."""
        told = self._told
        mine = self._samples()
        if any((sample.use or 0) >= BUSY for sample in mine):
            self._busy = time.monotonic()
        lines = show.cards(mine) if told and told.status.live else ()
        cards = self.query_one("#cards", Static)
        if lines == self._cards:
            return
        self._cards = lines
        cards.display = bool(lines)
        cards.update(Text("\n".join(f" {line}" for line in lines), "dim", no_wrap=True, overflow="ellipsis"))

    def _draw_plot(self) -> None:
        plot = self.query_one(Plot)
        kept = self._told.progress.curve.thinned(_MOST_POINTS) if self._told else []
        points = drawable([(point.step, point.loss) for point in kept])
        plot.display = bool(points) and not plot.has_class("hidden")
        if plot.display and self._told:
            plot.show("Loss", "", (Series(points),), Axes(end=self._told.progress.steps))

    @property
    def going(self) -> bool:
        """Whether the training goes on."""
        return self._told is None or continues(self._told.status)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a live run can be stopped, only an ended one started again."""
        del parameters
        if action == "detach":
            return self.going
        if action == "fix":
            return self._remedy is not None
        if action == "stop":
            return self.going or bool(self._told and self._told.status.leftover)
        return action != "again" or not self.going

    def action_plot(self) -> None:
        """Show or hide the plot."""
        self.query_one(Plot).toggle_class("hidden")
        self._draw_plot()

    def action_detach(self) -> None:
        """Leave the run to itself and go Home."""
        self.action_home()

    def action_home(self) -> None:
        """Go Home; a live run goes on."""
        if self.going:
            self.notify(f"{visible(self.run.name)} goes on; Home opens it again.", markup=False)
        self.post_message(GoHome())


SCREEN = RunScreen
