"""Run: a training as it goes: its log, step, loss, speed and attempts; it can be left, stopped and opened again."""

import time
from typing import ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.worker import get_current_worker

from tui_train.base.text import visible
from tui_train.facts.gpus.samples import Samples
from tui_train.runs.follow import RunNews, watch
from tui_train.runs.health import BUSY_PERCENT, health_problems
from tui_train.runs.other_machines.mirror import Mirror
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import may_write

from ..messages import GoBack
from ..widgets.bar import StepBar
from ..widgets.keys import Keys
from ..widgets.lines import Lines
from ..widgets.plot import Plot
from ..widgets.text_layout import WARNING, styled
from .card_lines import CardHistory, CardLabel, card_lines
from .failure import FailurePanel
from .log_pane import LogPane
from .log_view import LogView
from .run_end import STILL_RUNS, EndExplained, ExplainProgress, RunEnd, announce
from .run_logs import RunLogs
from .run_outcome import outcome_lines
from .run_plot import MIN_ROWS, RunPlot, show_plot
from .run_state import run_state_lines

_RETRY_SECONDS = 30.0  # seconds, for a long log is read from its start
_DRAW_SECONDS = 1.0  # seconds between two drawings of what goes on
_CARD_SECONDS = 2.0
_MAX_ATTEMPTS = 100
_UNREAD_NOTICE = "step and loss can no longer be read; the log below is still followed"
_TALL_ROWS = 34  # rows, for a diagnosis, the plot and some of the log
_FEW_CARDS, _MANY_CARDS = 3, 10
_FRAME_ROWS = 2  # rows of the rail and the keys
_MIN_LOG_ROWS = 7  # five lines of the log, its title and its place


class RunChanged(Message):
    """Something about the run has changed."""

    def __init__(self, news: RunNews) -> None:
        """Carry what is new."""
        super().__init__()
        self.news = news


class RunScreen(RunPlot, RunEnd, RunLogs):
    """The fifth step: one run, started here or anywhere."""

    HELP = """Run

The training writes to files of its run folder and needs no viewer: Esc leaves it running, and Home opens it again,
also after a lost connection.

  s   stop it and every process of it
  r   resume an ended run from its newest checkpoint;
      where it has none, r says why
  e   edit: the steps with its values
  Enter  what an ended run made; it is fetched first
         from the host on which it ran
  c   compare it with the run before it
  F2  where a change of the profile may help a failed
      run: make it and open the preview
  Esc   back; a live run continues

The plot

  p   show or hide it
  z   the last part only; again: less of it, then all
  l   logarithmic scale, or not
  v   the learning rate, or the loss

The log

Of any size, and all of it. The line below it says where you are.
  ↑ ↓ PgUp PgDn   scroll; ← → sideways
  Home g, End G   its start; its end, followed as it grows
  /               search down for words or a regular expression;
                  small letters find capitals too
  n N             the next line that matches, the one above
  f               show matching lines only
  w               wrap long lines, or do not
  a               another attempt's log, or the launcher's
  o               only the lines of one rank: those that begin
                  with [rank1]: or the like
  Esc             end a search; show all lines again

When a run ends while you watch, the terminal rings and gets a notification (OSC 9); TUI_TRAIN_NOTIFY=off ends that."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("r", "again", "Resume"),
        Binding("a", "attempt", "Log of another attempt", show=False),
        Binding("o", "rank", "Lines of one rank", show=False),
        Binding("escape", "back", "Back", key_display="Esc"),
    ]

    LIVE = True
    SHARED = ("live", "facts", "looking")
    live: reactive[Samples] = reactive((), init=False, repaint=False)

    def __init__(self, run: RunDir) -> None:
        """Show a run."""
        super().__init__()
        self.run = run
        self._news: RunNews | None = None
        self._history = CardHistory()
        self._cards_busy_at = time.monotonic()
        self._is_unread = False
        self._reading_text = ""  # how much of a large log was read
        self._link_problem = ""
        self._drawn_at = self._cards_drawn_at = 0.0
        self._draw_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """State, plot, cards, log, keys."""
        yield StepBar("Run")
        yield Lines(id="state")
        yield FailurePanel()
        yield Plot(id="plot")
        with Container(id="foot"):
            yield Lines(id="cards")
            yield LogPane(id="log")
        yield Keys()

    def on_mount(self) -> None:
        """Read the log from now on."""
        self.query_one(LogView).focus()
        self.query_one("#plot").display = self.query_one("#cards").display = False
        self.query_one("#state", Lines).show_fixed(styled(f"{visible(self.run.name)}: reading …"))
        self._follow_run()

    @on(FailurePanel.Arranged)
    def draw_plot(self) -> None:
        """Draw the plot as it is wanted, and the cards in the room that it leaves."""
        if self._news:
            # Also where the screen is small, some of the log stays.
            self.query_one(FailurePanel).limit_rows(
                max(1, self.size.height - _FRAME_ROWS - self._height("#state") - _MIN_LOG_ROWS)
            )
            shown = self.plot_options._replace(room=self._free_rows())
            show_plot(self.query_one(Plot), self._news.progress, shown)
            self.draw_cards()
            self.query_one("#foot").styles.min_height = _MIN_LOG_ROWS + self._height("#cards")

    def _free_rows(self) -> int:
        """Return the rows that are left for the plot and the cards, beside all else and the least of the log."""
        taken = sum(self._height(part) for part in ("#state", "#why"))
        return self.size.height - _FRAME_ROWS - taken - _MIN_LOG_ROWS

    def _rows_for_cards(self) -> int:
        return max(0, self._free_rows() - (MIN_ROWS if self.query_one(Plot).display else 0))

    def _height(self, part: str) -> int:
        lines = self.query_one(part, Lines)
        return lines.line_count if lines.display else 0

    def on_resize(self) -> None:
        """Draw the plot where there is room for it now."""
        self.draw_plot()

    def on_screen_resume(self) -> None:
        """Arrange it: what came while another screen was on top had no place yet."""
        super().on_screen_resume()
        self.call_after_refresh(self.draw_plot)

    @work(thread=True, exclusive=True, group="watch")
    def _follow_run(self) -> None:
        worker, mirror = get_current_worker(), Mirror(self.run, self._report_link)
        try:
            for news in watch(self.run, lambda: worker.is_cancelled):
                self.post_message(RunChanged(news))
        finally:
            mirror.close()

    def _report_link(self, problem: str) -> None:
        """Say that the host of the run does not answer, or does again; the run itself goes on."""
        self.app.call_from_thread(self._show_link, problem)

    def _show_link(self, problem: str) -> None:
        if problem != self._link_problem:
            words = f"{problem} The run goes on there." if problem else "The host answers again."
            if problem or self._link_problem:
                self.notify(visible(words), severity="warning" if problem else "information", markup=False)
            self._link_problem = problem

    def follow_run(self) -> None:
        """Read the run's log again."""
        self._follow_run()

    def recover(self, group: str) -> None:
        """Say that the run is no longer followed, show its newest log all the same, and follow it again later."""
        if group != "watch":
            return
        self._is_unread = True
        self._draw()
        if self._news is None:
            self._open_log(max((attempt for attempt in range(1, _MAX_ATTEMPTS) if self._has_log(attempt)), default=0))
        self.set_timer(_RETRY_SECONDS, self._follow_again)

    def _follow_again(self) -> None:
        self._is_unread = False
        self._follow_run()

    def _has_log(self, attempt: int) -> bool:
        return self.run.attempt_log(attempt).is_file()

    @on(RunChanged)
    def _take_news(self, event: RunChanged) -> None:
        news = event.news
        before, went_on = self._news, self.still_trains
        self._news = news
        if news.attempt != (before.attempt if before else 0):
            self._open_log(news.attempt)
        if before is None or self.still_trains != went_on:
            self.query_one(LogPane).set_growing(grows=self.still_trains)
            self.show_end(EndExplained(why_not_resumable=STILL_RUNS))
            if not self.still_trains:
                self.explain_end()
                if before:
                    announce(self.app, self.run.name, news.status.state)
        changed = before is None or before.status.state != news.status.state or before.attempt != news.attempt
        # What was told before a step was is no reason to wait.
        self._draw_soon(now=changed or not (before and before.progress.step))
        self.refresh_bindings()

    def _draw_soon(self, *, now: bool = False) -> None:
        """Draw, but not more often than one can read."""
        wait = self._drawn_at + _DRAW_SECONDS - time.monotonic()
        if now or wait <= 0:
            self._draw()
        elif self._draw_timer is None:
            self._draw_timer = self.set_timer(wait, self._draw)

    def _draw(self) -> None:
        if self._draw_timer:
            self._draw_timer.stop()
        self._draw_timer, self._drawn_at = None, time.monotonic()
        self._draw_state()
        self.draw_plot()

    def _draw_state(self) -> None:
        """Say the run's state, and what is wrong with it; the lines about a failure belong here as well."""
        state, told = self.query_one("#state", Lines), self._news
        unread = (
            *((_UNREAD_NOTICE,) if self._is_unread else ()),
            *((self._reading_text,) if self._reading_text else ()),
        )
        if told is None:
            if unread:
                state.show_fixed(styled(visible(self.run.name)), styled(WARNING, f" {_UNREAD_NOTICE}"))
            return
        samples = self._run_samples() if told.status.live else ()
        idle = (time.monotonic() - self._cards_busy_at) / 60 if samples else None
        wrong = (*unread, *health_problems(told.progress, told.quiet_minutes, idle, told.not_resumed, told.unread))
        state.show(lambda width: run_state_lines(self.run.name, told, wrong, width))

    @on(ExplainProgress)
    def _show_reading(self, event: ExplainProgress) -> None:
        """Show what the end of a large log tells, and how much of the rest was read."""
        self._reading_text = event.words
        self.query_one(FailurePanel).show_diagnosis(event.diagnosis)
        self._draw_state()

    @on(EndExplained)
    def show_end(self, event: EndExplained) -> None:
        """Show why it failed, and what it leaves."""
        self.take_end(event)
        if self._reading_text:
            self._reading_text = ""
            self._draw_state()
        self.query_one(FailurePanel).show_diagnosis(event.diagnosis, event.fits_text)
        if event.diagnosis and self.size.height < _TALL_ROWS:
            # The log tells more of a failure than the plot, which p brings back.
            self.plot_options = self.plot_options._replace(hidden=True)
        self.draw_plot()
        self.refresh_bindings()

    def _run_samples(self) -> Samples:
        told = self._news
        return tuple(sample for sample in self.live if told and sample.uuid in told.gpus)

    def watch_live(self) -> None:
        """Take what the run's cards do, while it uses them."""
        mine = self._run_samples()
        now = time.monotonic()
        if any((sample.use or 0) >= BUSY_PERCENT for sample in mine):
            self._cards_busy_at = now
        self._history.add(mine, now)
        self._draw_soon()

    def draw_cards(self) -> None:
        """Show the cards of a live run, and of an ended one what it leaves."""
        cards, told = self.query_one("#cards", Lines), self._news
        mine = self._run_samples() if told and told.status.live else ()
        cards.display = bool(mine) or not self.still_trains
        if told and not self.still_trains:
            left, made = self._output, self._run_result
            most = self._rows_for_cards()
            cards.show(lambda width: outcome_lines(told, left, made, self.next_keys(), width)[:most])
        elif mine and self._drawn_at - self._cards_drawn_at >= _CARD_SECONDS:
            self._cards_drawn_at = self._drawn_at
            room, names = self._rows_for_cards(), self._card_labels()
            most = _FEW_CARDS if self.size.height < _TALL_ROWS else _MANY_CARDS
            cards.show(lambda width: card_lines(mine, self._history, names, most, width)[:room])

    def _card_labels(self) -> dict[str, CardLabel]:
        """Return what the run's cards are called, by UUID: as the machine numbers them, else as the plan names them."""
        told = self._news
        planned = dict(zip(told.gpus, told.gpu_names, strict=False)) if told else {}
        cards = {uuid: CardLabel("", name) for uuid, name in planned.items()}
        here = self.facts.machine.gpus if self.facts else ()
        return cards | {gpu.uuid: CardLabel(str(gpu.index), gpu.name) for gpu in here if gpu.uuid}

    @property
    def still_trains(self) -> bool:
        """True while the training goes on."""
        return self._news is None or may_write(self._news.status)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a live run can be stopped, only one that ended with a checkpoint be resumed."""
        del parameters
        if action == "fix":
            return self.remedy is not None
        if action == "stop":
            return self.still_trains or bool(self._news and self._news.status.leftover)
        if action == "edit":
            return not self.still_trains
        if action == "result":
            made = self._run_result is not None and self._run_result.weights is not None
            return not self.still_trains and (self.can_fetch or made)
        return action != "again" or not (self.still_trains or self.why_not_resumable)

    def why_key_refused(self, key: str) -> str:
        """Return why the run cannot be stopped, resumed, edited or left now."""
        name = visible(self.run.label)
        words = {
            "s": f"{name} has ended.",
            "r": f"{name} {self.why_not_resumable}.",
            "e": f"{name} still runs: s stops it.",
        }
        return words.get(key, "") if self._news else ""

    def action_back(self) -> None:
        """Go back to the screen before; a live run goes on."""
        self.post_message(
            GoBack(f"{visible(self.run.name)} continues; Home opens it again." if self.still_trains else "")
        )


SCREEN = RunScreen
