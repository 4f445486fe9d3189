"""Run: a training as it goes: its log, step, loss, speed and attempts; it can be left, stopped and opened again."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.app import App, ComposeResult, SuspendNotSupported
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.reactive import reactive
from textual.timer import Timer
from textual.worker import get_current_worker

from tui_train.base.errors import Unavailable
from tui_train.base.text import broken_loss_text, visible
from tui_train.diagnose import Diagnosis
from tui_train.facts.gpus.samples import CardSamples
from tui_train.facts.types import Facts
from tui_train.places.fetched_results import fetch_results
from tui_train.places.run_mirror import RunMirror
from tui_train.profile import store
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.follow import RunSnapshot, follow_snapshots
from tui_train.runs.run_folders import RunFolder
from tui_train.views import plain_text
from tui_train.views.previous_run import find_earlier_run_of_profile
from tui_train.views.run_ends import stopped_run_text
from tui_train.views.run_outline import read_run_outline

from ..base import JUMP_BINDING, WizardScreen
from ..messages import (
    ApplyFix,
    CompareRuns,
    GoBack,
    LeaveWizard,
    OpenScreen,
    OpenStep,
    SetProfile,
)
from ..textual_fixes import driver_of
from ..widgets.jump import JumpTarget
from ..widgets.key_bar import KeyBar
from ..widgets.lines import Lines
from ..widgets.plot import Plot
from ..widgets.run_plot import MIN_PLOT_ROWS, draw_or_hide_plot
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import styled
from . import run_end
from .failure_panel import FailurePanel
from .log_pane import LogPane
from .log_view import LogView
from .run_end import RUN_NOT_ENDED, LogReadReporter, RunEnd
from .run_view import WAITING_STATES, RunView

if TYPE_CHECKING:
    from .metrics_screen import MetricsScreen

_ESCAPE_CHARACTER = "\x1b"
_FOLLOW_RETRY_SECONDS = 30.0  # seconds, for a long log is read from its start
_FOLDER_CHECK_SECONDS = 2.0
_MIN_DRAW_SECONDS = 1.0  # seconds between two drawings of what goes on
_MIN_CARD_DRAW_SECONDS = 2.0
_MIN_TALL_ROWS = 34  # rows, for a diagnosis, the plot and some of the log
_MAX_CARDS_IN_LOW_TERMINAL, _MAX_CARDS_IN_TALL_TERMINAL = 3, 10
_ROWS_OF_FRAME = 2  # rows of the rail and the keys
_MIN_LOG_ROWS = 7  # five lines of the log, its title and its place
# The parts of the facts from which it follows whether a change fits.
_FACTS_PARTS_FOR_MEMORY_FIT = frozenset({"machine", "toolchains"})


class RunScreen(WizardScreen):
    """The fifth step: one run, started here or anywhere."""

    HELP = """Run

The training runs on its own: Esc leaves it running, and Home opens it again, also after a lost connection.

  s   stop the training and all its processes
  r   resume an ended run from its newest checkpoint;
      where it has none, r says why
  e   change settings of an ended run, and run again
  Enter  see what an ended run made; if it ran on
         another host, that is copied here first
  E   open the script at the line of its error, in
      your editor ($VISUAL, $EDITOR)
  c   compare it with the run of its name before it
  F2  of a run that failed, or whose loss is NaN: make
      the change that F2 names there, and open Preview;
      a run that still trains is stopped first
  Esc   back; a training continues

The plot

  p   show or hide it
  z   zoom to the last steps; again: closer, then all
  l   logarithmic scale on or off
  v   the learning rate in place of the loss, and back
  m   every metric of the log, a small plot of each

The log

An attempt is one start of the training: after out of memory another one follows. Each has a log of its own.
  ↑ ↓ PgUp PgDn   scroll; ← → sideways
  Home g, End G   its start; its end, followed as it grows
  /               search down for words or a regular expression;
                  small letters find capitals too
  n N             the next match, the previous one
  f               show matching lines only
  w               wrap long lines, or cut them
  x               the lines as written, or tidied: values in columns,
                  one line for a progress bar, harmless messages
                  dimmed, the cause of a failure marked
  a               the log of another attempt, or launch.log: what was
                  started, and when
  o               the lines of one process only, if they begin with
                  its rank, such as [rank1]:
  Esc             end a search; show all lines again

When a run ends while you watch, the terminal rings and shows a notification; TUI_TRAIN_NOTIFY=off turns that off."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_result", "Result", key_display="Enter"),
        Binding("f2", "fix", "Fix it"),
        Binding("s", "stop", "Stop"),
        Binding("r", "resume", "Resume"),
        Binding("e", "edit", "Edit"),
        Binding("E", "open_script", "Open the script"),
        Binding("c", "compare_with_previous", "Compare"),
        Binding("z", "change_plot_options('z')", "Zoom to the last part", show=False),
        Binding("l", "change_plot_options('l')", "Logarithmic scale", show=False),
        Binding("v", "change_plot_options('v')", "Learning rate or loss", show=False),
        Binding("m", "show_metrics", "Metrics"),
        Binding("p", "change_plot_options('p')", "Plot"),
        Binding("a", "choose_attempt", "Log of another attempt", show=False),
        Binding("o", "choose_rank", "Lines of one rank", show=False),
        Binding("escape", "back", "Back", key_display="Esc"),
        JUMP_BINDING,
    ]

    WANTS_CARD_SAMPLES = True
    SHARED_VALUES = ("card_samples", "facts", "awaited_parts")
    card_samples: reactive[CardSamples] = reactive((), init=False, repaint=False)
    facts: reactive[Facts | None] = reactive(None, init=False, repaint=False)
    awaited_parts: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)

    def __init__(self, run: RunFolder) -> None:
        super().__init__()
        self.run = run
        self.view = RunView(run)
        self._drawn_at = self._cards_drawn_at = 0.0
        self._draw_timer: Timer | None = None
        self._metrics_screen: MetricsScreen | None = None
        self._is_loss_broken = False  # while it trains

    def compose(self) -> ComposeResult:
        """State, plot, cards, log, keys."""
        yield StepBar("Run")
        yield Lines(id="state")
        yield FailurePanel()
        yield Plot(id="plot")
        with Container(id="foot"):
            yield Lines(id="cards")
            yield LogPane(id="log")
        yield KeyBar()

    def on_mount(self) -> None:
        """Read the log from now on."""
        self.query_one(LogView).focus()
        self.query_one("#plot").display = self.query_one("#cards").display = False
        self.query_one("#state", Lines).show_lines_of_any_width(styled(f"{visible(self.run.name)}: reading …"))
        self._follow_run()
        self._find_previous_run()
        self.set_timer(_FOLDER_CHECK_SECONDS, self._look_for_folder)

    @on(FailurePanel.RowsChanged)
    def draw_plot_and_cards(self) -> None:
        """Draw the plot as it is wanted, and the cards in the room that it leaves."""
        if self.view.snapshot:
            # Also where the screen is small, some of the log stays.
            self.query_one(FailurePanel).limit_rows(
                max(1, self.size.height - _ROWS_OF_FRAME - self._line_count("#state") - _MIN_LOG_ROWS)
            )
            shown = self.view.plot._replace(max_rows=self._free_row_count())
            draw_or_hide_plot(self.query_one(Plot), self.view.snapshot.progress, shown)
            self._draw_cards_or_outcome()
            self.query_one("#foot").styles.min_height = _MIN_LOG_ROWS + self._line_count("#cards")

    def _free_row_count(self) -> int:
        """Return the rows that are left for the plot and the cards, beside all else and the least of the log."""
        taken = sum(self._line_count(part) for part in ("#state", "#why"))
        return self.size.height - _ROWS_OF_FRAME - taken - _MIN_LOG_ROWS

    def _card_row_count(self) -> int:
        return max(0, self._free_row_count() - (MIN_PLOT_ROWS if self.query_one(Plot).display else 0))

    def _line_count(self, selector: str) -> int:
        lines = self.query_one(selector, Lines)
        return lines.line_count if lines.display else 0

    def on_resize(self) -> None:
        """Draw the plot where there is room for it now."""
        self.draw_plot_and_cards()

    def on_screen_resume(self) -> None:
        """Arrange it: what came while another screen was on top had no place yet."""
        self.call_after_refresh(self.draw_plot_and_cards)

    @work(thread=True, exclusive=True, group="watch")
    def _follow_run(self) -> None:
        worker, mirror = get_current_worker(), RunMirror(self.run, partial(self.call_later, self._show_host_problem))
        try:
            for snapshot in follow_snapshots(self.run, lambda: worker.is_cancelled):
                if snapshot.status.state in WAITING_STATES and not self.view.outline:
                    self.view.outline = read_run_outline(self.run)
                self.call_later(self._show_run_snapshot, snapshot)
        finally:
            mirror.close()

    @work(thread=True, group="look")
    def _look_for_folder(self) -> None:
        """Look whether somebody deleted the folder, and again later: an ended run is read no more."""
        try:
            self.run.path.stat()
        except FileNotFoundError:
            self.call_unless_cancelled(self._show_that_folder_is_gone)
            return
        except OSError:
            pass
        self.call_unless_cancelled(self.set_timer, _FOLDER_CHECK_SECONDS, self._look_for_folder)

    def _show_that_folder_is_gone(self) -> None:
        self.view.is_folder_gone = True
        self._draw()

    def _show_host_problem(self, problem: str) -> None:
        """Show that the run's host does not answer, or answers again; the run itself continues."""
        had_problem, self.view.link_problem = bool(self.view.link_problem), problem
        if had_problem and not problem:
            self.notify("The host answers again.", markup=False)
        if had_problem or problem:
            self._draw_rate_limited()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Show that the run is not followed, open its newest log, and follow again later."""
        if worker_group != "watch":
            return
        self.view.is_log_unreadable = True
        self._draw()
        if self.view.snapshot is None:
            self._open_log(self.view.newest_logged_attempt_number)
        self.set_timer(_FOLLOW_RETRY_SECONDS, self._follow_again)

    def _follow_again(self) -> None:
        self.view.is_log_unreadable = False
        self._follow_run()

    def _show_run_snapshot(self, snapshot: RunSnapshot) -> None:
        view = self.view
        before, went_on = view.snapshot, view.is_still_training
        view.snapshot = snapshot
        if before is None:
            # Which cards are its own was not known when they were sampled.
            view.add_samples(self.card_samples)
        if snapshot.attempt_number != (before.attempt_number if before else 0):
            self._open_log(snapshot.attempt_number)
        if before is None or view.is_still_training != went_on:
            self.query_one(LogPane).set_growing(is_growing=view.is_still_training)
            self._show_run_end(RUN_NOT_ENDED)
            if not view.is_still_training:
                self.read_run_end()
                if before:
                    broken = plain_text.broken_end_loss_text(snapshot.status, snapshot.progress)
                    self._announce_end(", ".join(filter(None, (snapshot.status.state, broken))))
        changed = (
            before is None
            or before.status.state != snapshot.status.state
            or before.attempt_number != snapshot.attempt_number
        )
        # What was told before a step was is no reason to wait.
        self._draw_rate_limited(at_once=changed or not (before and before.progress.step))
        self._follow_broken_loss(snapshot)
        self.refresh_bindings()

    def _follow_broken_loss(self, snapshot: RunSnapshot) -> None:
        """Find what helps against a loss that is no number as soon as it is one, and forget it where it recovers."""
        last = snapshot.progress.last
        broken = self.view.is_still_training and last is not None and broken_loss_text(last.loss) != ""
        if broken != self._is_loss_broken and self.view.is_still_training:
            if broken:
                self._explain_broken_loss()
            else:
                self._show_run_end(RUN_NOT_ENDED)
        self._is_loss_broken = broken

    @work(thread=True, exclusive=True, group="explain")
    def _explain_broken_loss(self) -> None:
        self.call_unless_cancelled(self._show_run_end, run_end.explain_broken_loss(self.run, self.facts))

    def _announce_end(self, state: str) -> None:
        """Ring, and send a notification through the terminal, unless TUI_TRAIN_NOTIFY=off."""
        if os.environ.get("TUI_TRAIN_NOTIFY") != "off":
            self.app.bell()
            notify_terminal(self.app, f"tui-train: {visible(self.run.name)} {state}")

    def _draw_rate_limited(self, *, at_once: bool = False) -> None:
        """Draw, but not more often than one can read."""
        wait = self._drawn_at + _MIN_DRAW_SECONDS - time.monotonic()
        if at_once or wait <= 0:
            self._draw()
        elif self._draw_timer is None:
            self._draw_timer = self.set_timer(wait, self._draw)

    def _draw(self) -> None:
        if self._draw_timer:
            self._draw_timer.stop()
        self._draw_timer, self._drawn_at = None, time.monotonic()
        self._draw_state()
        self.draw_plot_and_cards()
        if self._metrics_screen and self._metrics_screen.is_attached:
            self._metrics_screen.draw()

    def _draw_state(self) -> None:
        """Draw the run's state and its problems."""
        if self.view.snapshot or self.view.is_log_unreadable:
            self.query_one("#state", Lines).show(self.view.state_lines(self.card_samples))

    def watch_card_samples(self) -> None:
        """Record and draw the samples of the run's cards, while it uses them."""
        self.view.add_samples(self.card_samples)
        self._draw_rate_limited()

    def _draw_cards_or_outcome(self) -> None:
        """Show the cards of a live run, what a waiting one will do, and what an ended one leaves."""
        cards, view = self.query_one("#cards", Lines), self.view
        is_sampled = bool(view.snapshot and view.snapshot.status.is_live and view.samples_of_run(self.card_samples))
        cards.display = is_sampled or not view.is_still_training or view.is_waiting
        if view.is_waiting:
            cards.show(view.outline_lines(self._card_row_count()))
        elif not view.is_still_training:
            cards.show(view.outcome_lines(self._card_row_count()))
        elif is_sampled and self._drawn_at - self._cards_drawn_at >= _MIN_CARD_DRAW_SECONDS:
            self._cards_drawn_at = self._drawn_at
            most = _MAX_CARDS_IN_LOW_TERMINAL if self.size.height < _MIN_TALL_ROWS else _MAX_CARDS_IN_TALL_TERMINAL
            cards.show(view.card_lines(self.card_samples, self.facts, most, self._card_row_count()))

    # Its end

    def watch_awaited_parts(self, before: frozenset[str], now: frozenset[str]) -> None:
        """Explain the end again once it is known where the change would have to fit."""
        known = before & _FACTS_PARTS_FOR_MEMORY_FIT and not now & _FACTS_PARTS_FOR_MEMORY_FIT
        if known and not self.view.is_still_training and not self.view.end.is_fetching:
            self.read_run_end()

    @work(thread=True, exclusive=True, group="explain")
    def read_run_end(self) -> None:
        """Find out why an ended run failed, and what it leaves."""
        worker = get_current_worker()
        show_progress = partial(self.call_later, self._show_log_read_progress)
        reporter = LogReadReporter(show_progress, lambda: worker.is_cancelled)
        end = run_end.explain_run_end(self.run, self.view.last_plan_position, self.facts, reporter)
        self.call_unless_cancelled(self._show_run_end, end)

    def _show_log_read_progress(self, diagnosis: Diagnosis | None, words: str) -> None:
        """Show what the end of a large log tells, and how much of the rest was read."""
        self.view.reading_text = words
        self._show_diagnosis(diagnosis)
        self._draw_state()

    def _show_run_end(self, end: RunEnd) -> None:
        """Show why it failed, and what it leaves."""
        self.view.end = end
        self.view.reading_text = ""
        self._draw_state()
        self._show_diagnosis(end.diagnosis, end.memory_fit_text)
        if end.diagnosis and self.size.height < _MIN_TALL_ROWS:
            # The log tells more of a failure than the plot, which p brings back.
            self.view.plot = self.view.plot._replace(is_hidden=True)
        self.draw_plot_and_cards()
        self.refresh_bindings()

    def _show_diagnosis(self, diagnosis: Diagnosis | None, memory_fit_text: str = "") -> None:
        self.query_one(FailurePanel).show_diagnosis(diagnosis, memory_fit_text)
        self.query_one(LogView).highlight_cause_line(diagnosis.line if diagnosis else "")

    @work(thread=True, exclusive=True, group="fetch")
    def _fetch_result(self) -> None:
        shown = 0.0

        def progress(taken: int) -> None:
            nonlocal shown
            if time.monotonic() - shown > run_end.PROGRESS_INTERVAL_SECONDS:
                shown = time.monotonic()
                self.call_later(self._show_fetched_bytes, taken)

        progress(0)
        try:
            fetch_results(self.run, on_progress=progress)
        finally:
            self.call_later(self._show_fetched_bytes, None)
            self.call_later(self.read_run_end)

    def _show_fetched_bytes(self, taken: int | None) -> None:
        if self.view.end.output:
            self.view.end = replace(self.view.end, output=replace(self.view.end.output, fetching=taken))
            self._draw_cards_or_outcome()
            self.refresh_bindings()

    # What its keys do

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what can be done with the run now."""
        return self.view.can_do(action)

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Enter says what it does first, and p what becomes of the plot."""
        texts = {"p": "Show plot" if self.view.plot.is_hidden else "Hide plot"}
        texts |= {"enter": "Fetch"} if self.view.end.can_fetch else {}
        return {**super().footer_text_by_key, **texts, **self.query_one(LogPane).footer_text_by_key}

    def why_key_refused(self, key: str) -> str:
        """Return why the run cannot be stopped, resumed or edited now."""
        return self.view.why_key_refused(key)

    def jump_targets(self) -> Iterable[JumpTarget]:
        """Return the log, and where it shows the cause of a failure."""
        pane, panel, diagnosis = self.query_one(LogPane), self.query_one(FailurePanel), self.view.end.diagnosis
        if panel.display and diagnosis and diagnosis.line:
            yield JumpTarget("Failure, in the log", panel, 0, partial(pane.find_text, diagnosis.line), is_heading=False)
        yield JumpTarget("Log", pane.query_one("#title"), 0, pane.query_one(LogView).focus)

    def action_change_plot_options(self, key: str) -> None:
        """Change the plot as a key does."""
        self.view.plot = self.view.plot.after_key(key)
        self.draw_plot_and_cards()
        self.refresh_bindings()

    def action_show_metrics(self) -> None:
        """Show every metric of the log."""
        from .metrics_screen import MetricsScreen

        self._metrics_screen = MetricsScreen(self.view)
        self.app.push_screen(self._metrics_screen)

    def _open_log(self, attempt: int) -> None:
        """Show the log of an attempt; 0 is that of launch.sh."""
        name = f"attempt {attempt}" if attempt else "launcher"
        self.query_one(LogPane).open_log(self.run.attempt_log(attempt) if attempt else self.run.launch_log, name)

    def action_choose_attempt(self) -> None:
        """Choose the attempt whose log is shown."""
        numbers = [attempt.number for attempt in self.view.snapshot.status.attempts] if self.view.snapshot else []
        answers = [(str(number), f"attempt {number}") for number in reversed(numbers)]

        answers.append(("0", "launcher log"))
        self.ask_choice("Which log?", answers, lambda answer: self._open_log(int(answer)))

    def action_choose_rank(self) -> None:
        """Choose the rank whose lines are shown."""
        known = self.view.snapshot.line_prefix_ranks if self.view.snapshot else ()
        if not known:
            self.notify(
                "This log does not say which process wrote a line: none begins with a rank, such as [rank1]:.",
                markup=False,
            )
            return

        def show(answer: str) -> None:
            self.query_one(LogPane).filter_by_rank(None if answer == "all" else int(answer))

        self.ask_choice("Whose lines?", (("all", "all lines"), *((str(rank), f"rank {rank}") for rank in known)), show)

    def action_stop(self) -> None:
        """Ask, then end the run."""
        self.ask_and_stop(self.run, "Stop this training?", self._stop_run)

    @work(thread=True, group="stop")
    def _stop_run(self, *, then: Callable[[RunStatus], object] | None = None) -> None:
        from tui_train.places import place_of_run

        ended = place_of_run(self.run).stop(self.run)
        if then:
            then(ended)
        else:
            words = visible(plain_text.stop_result_text(ended))
            self.notify(f"{words[:1].upper()}{words[1:]}.", markup=False)

    @work(thread=True, group="resume")
    def action_resume(self) -> None:
        """Start the same script again."""
        from tui_train.places import place_of_run

        words = place_of_run(self.run).resume(self.run)
        self.call_later(self._follow_run)
        if words:
            self.notify(words, markup=False)

    def ask_before_leaving(self) -> bool:
        """Ask what becomes of a live run; false when there is nothing to ask."""
        if not self.view.is_still_training:
            return False
        answers = (
            ("detach", "Leave it running, and quit; Home opens it again"),
            ("stop", "Stop it, and quit"),
            ("", "Stay here"),
        )

        def leave(answer: str) -> None:
            if answer == "detach":
                self.post_message(LeaveWizard())
            else:
                self._stop_run(then=lambda ended: self.post_message(LeaveWizard(stopped_run_text(self.run, ended))))

        self.ask_choice("The training still runs.", answers, leave)
        return True

    def action_show_result(self) -> None:
        """Show what the run made; what is on a host only is fetched first."""
        if self.view.end.can_fetch:
            self._fetch_result()
        elif self.view.end.run_result:
            from ..result.screen import ResultScreen

            self.post_message(OpenScreen(ResultScreen(self.run, self.view.end.run_result)))

    def action_fix(self) -> None:
        """Make the change that may help, and show what would run then; a run that still trains can be stopped first."""
        if found := self.view.end.profile_and_change:
            if self.view.is_still_training:
                question = f"Stop this training, and open Preview with {visible(found[1].title)}?"
                self.ask_and_stop(self.run, question, lambda: self._stop_run(then=lambda _: self._open_fix(*found)))
            else:
                self._open_fix(*found)

    def _open_fix(self, profile: Profile, change: Change) -> None:
        self.post_message(SetProfile(profile, run=self.run))
        self.post_message(OpenStep("preview", self))
        # After the preview is there, which shows what was changed.
        self.post_message(ApplyFix(change))

    def action_edit(self) -> None:
        """Open the steps with the values of this run."""
        self.post_message(
            SetProfile(store.load_profile_file(str(self.run.profile_file)), save_as_draft=False, run=self.run)
        )
        self.post_message(OpenStep("recipe", self))

    def action_open_script(self) -> None:
        """Hand the terminal to the user's editor, at the line that raised the error."""
        from tui_train.actions.editor import open_editor_at_line

        diagnosis = self.view.end.diagnosis
        if diagnosis is None:
            return
        try:
            with self.app.suspend():
                open_editor_at_line(diagnosis.source_file, diagnosis.source_line)
        except SuspendNotSupported:
            remedy = f"Open line {diagnosis.source_line} of {visible(diagnosis.source_file)} in another one."
            raise Unavailable("this terminal cannot be handed to an editor", remedy) from None

    @work(thread=True, exclusive=True, group="before")
    def _find_previous_run(self) -> None:
        self.call_later(self._set_run_to_compare_with, find_earlier_run_of_profile(self.run))

    def _set_run_to_compare_with(self, previous_run: RunFolder | None) -> None:
        self.view.previous_run = previous_run
        self.refresh_bindings()
        self.draw_plot_and_cards()

    def action_compare_with_previous(self) -> None:
        """Compare it with the run of the same profile before it."""
        if self.view.previous_run:
            self.post_message(CompareRuns((self.view.previous_run, self.run)))

    def action_back(self) -> None:
        """Go back to the screen before; a live run goes on."""
        self.post_message(GoBack(f"{visible(self.run.label)} keeps training." if self.view.is_still_training else ""))


def notify_terminal(app: App[Any], words: str) -> None:
    """Send a notification through the terminal (OSC 9), which one that knows none ignores; through tmux as well."""
    driver = driver_of(app)
    if driver is None or app.is_headless:
        return
    sequence = f"\x1b]9;{''.join(char for char in words if char.isprintable())}\x07"
    if os.environ.get("TMUX"):
        sequence = f"\x1bPtmux;{sequence.replace(_ESCAPE_CHARACTER, _ESCAPE_CHARACTER * 2)}\x1b\\"
    driver.write(sequence)


SCREEN = RunScreen
