"""Home: what runs, what ran, the saved profiles, and ways to begin a training; found by typing, and tidied here."""

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.events import Key
from textual.reactive import reactive
from textual.timer import Timer
from textual.worker import get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, quantity, size_text, visible
from tui_train.base.time_limit import TimeLimitError, call_within

from ..base import JUMP_BINDING
from ..messages import CompareRuns, ContinueDraft, HomeDrawn, OpenRun
from ..screen_words import words_on_screen
from ..textual_fixes import forward_key
from ..widgets.cursor_list import CursorList
from ..widgets.hint import Hint
from ..widgets.key_bar import KeyBar
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import MUTED, styled
from .filter_line import FilterLine
from .home_reader import HomeReader, has_run_profile_or_draft, update_remote_runs
from .home_state import MAX_NAMES_SHOWN, HomeState, runs_text
from .new_training import ScreenWithNewTraining
from .start_options import START_OPTIONS, START_ROWS

if TYPE_CHECKING:
    from tui_train.facts.types import Facts
    from tui_train.plan.render.prepare import PreparedPlan
    from tui_train.runner.logs.progress import Progress
    from tui_train.runs.run_folders import RunFolder
    from tui_train.views.profile_digests import ProfileDigest
    from tui_train.views.run_digest import DigestCache, RunDigest

    from ..widgets.jump import JumpTarget
    from .run_pane import RunDetails

_REFRESH_SECONDS = 2.0
_HOST_QUERY_PERIOD_SECONDS = 10.0  # seconds after which the hosts of live runs are asked
_HINT_DELAY_SECONDS = 0.03
_MAX_UNDRAWN_SECONDS = 0.3  # in which the first picture waits for the newest runs
_START_OPTION_BY_KEY = {beginning.key: beginning for beginning in START_OPTIONS}
_HINT_BY_ROW_KEY = {
    **{key: beginning.hint for key, beginning in _START_OPTION_BY_KEY.items()},
    "draft": "Opens your last changes on the step where you left them.",
    "new": "Or paste here: a path, a model's name (ORG/NAME), or a command that trains.",
}


def _is_anything_saved_as_far_as_known() -> bool:
    """Return whether anything is saved; of a disk that does not answer at once, that it may be."""
    try:
        return call_within(_MAX_UNDRAWN_SECONDS, has_run_profile_or_draft)
    except TimeLimitError:
        return True


class _HomeList(CursorList):
    """The list of Home; a slash opens the filter."""

    def on_key(self, event: Key) -> None:
        """Begin to type at once: letters that come in one piece with the slash are none of the screen's keys."""
        focused = self.screen.focused
        if focused is None or focused is self:
            if event.key == "slash" and isinstance(self.screen, HomeScreen) and self.screen.may_have_rows_to_filter:
                event.stop()
                self.screen.action_open_filter()
            return
        event.stop()
        forward_key(focused, event)


class HomeScreen(ScreenWithNewTraining):
    """The first screen."""

    HELP = """Home

Start a training, or open a run or a profile. A run continues when you leave. Paste a path, a model's name (ORG/NAME)
or a command that trains to begin with it: data and models open a fine-tune, a .py file a script, a .toml file its
profile.

↑ ↓ PgUp PgDn   move; Tab goes to the next panel
  Enter           open a run; begin with a profile
  /               filter: only runs with these words: name, model,
                  data, state, note, or a setting's value
                  (rate=2e-4); Esc shows all again. Of a path that
                  is typed, Enter begins with it
  n               new training: fine-tune, own script,
                  a small one to see it work, or a path or
                  a command
  b               group the runs by profile; again: by age
  Space           mark a run: d, i, s and c then take all marked
                  ones; Esc takes the marks away
  c               compare the marked runs

A run
  e               open the steps with its settings, to
                  change some and run again
  r               resume from its newest checkpoint; where
                  it has none, r says why
  s               stop it and all its processes
  d m i           delete its folder, rename it, note a line

A profile
  g               run it now, after all checks
  e y d m         edit, duplicate, delete, rename it

All screens: Enter next, Esc back, F1 help (or ?, outside of a field), Ctrl+P all actions, Ctrl+O a letter
on each panel and group, which goes there, q quit."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear_filter", "Show all", key_display="Esc"),
        Binding("escape", "unmark", "Unmark", key_display="Esc"),
        Binding("n", "choose_start_option", "New"),
        Binding("slash", "open_filter", "Filter", key_display="/"),
        Binding("r", "resume", "Resume"),
        Binding("s", "stop", "Stop run"),
        Binding("g", "run_now", "Run now"),
        Binding("e", "edit", "Edit"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("i", "note", "Note"),
        Binding("m", "rename", "Rename"),
        Binding("y", "duplicate", "Duplicate"),
        Binding("b", "group_by_profile", "By profile"),
        Binding("b", "list_by_age", "By age"),
        Binding("space", "mark", "Mark", key_display="Space"),
        Binding("c", "compare", "Compare"),
        JUMP_BINDING,
    ]
    SHARED_VALUES = ("facts",)
    facts: reactive["Facts | None"] = reactive(None, init=False, repaint=False)

    def __init__(self, *, is_first: bool = True) -> None:
        """Make it; `is_first`: no other screen covers it at the start."""
        super().__init__()
        self.state = HomeState()
        self._is_anything_saved = _is_anything_saved_as_far_as_known()
        self._awaits_first_frame = is_first
        self._held_drawing = ExitStack()
        self._next_cursor = ""  # the row to which the cursor goes as soon as it is listed
        self._reader: HomeReader | None = None
        self._reading = self._is_read_again = False
        self._hint_timer: Timer | None = None
        self._pane_key = ""  # the row that the pane shows
        self._details: RunDetails | None = None
        self._described_machine: object = None  # of which the title was made

    def compose(self) -> ComposeResult:
        """Put a list under the filter."""
        yield StepBar(title="Home")
        yield FilterLine("filter by name, model, data, state")
        with Horizontal(id="middle"):
            rows = () if self._is_anything_saved else START_ROWS
            yield _HomeList(rows, id="list", pinned_section="live")
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Read what is saved for the first picture, and again while the screen is shown."""
        self._show_hint_and_details()
        if self._awaits_first_frame and self._is_anything_saved:
            self._held_drawing.enter_context(self.app.batch_update())
            self.set_timer(_MAX_UNDRAWN_SECONDS, self._draw_first_frame)
        elif self._awaits_first_frame:
            self.call_after_refresh(self._draw_first_frame)
        self.set_interval(_REFRESH_SECONDS, self.refresh_list)
        self.set_interval(_HOST_QUERY_PERIOD_SECONDS, self._update_remote_runs_if_any)

    def on_resize(self) -> None:
        """Show the pane in a terminal that was made wide enough for it."""
        if not self._awaits_first_frame:
            self.call_after_refresh(self._show_hint_and_details)

    def on_screen_resume(self) -> None:
        """Read again when the screen is shown again."""
        self.watch_facts()
        if self._next_cursor:
            self._show_list()
        self.refresh_list()

    def _draw_first_frame(self) -> None:
        """Draw, with or without what is saved."""
        if self._awaits_first_frame:
            self._awaits_first_frame = False
            self._held_drawing.close()
            self.app.screen.refresh()  # which by now may be a dialog
            self.call_after_refresh(self._continue_after_first_frame)

    def _continue_after_first_frame(self) -> None:
        self.post_message(HomeDrawn())
        self._show_hint_and_details()  # how much room there is shows with the first picture
        self.refresh_list()  # what is known only of the runs that are seen

    @property
    def footer_text_by_key(self) -> dict[str, str]:
        """Name no key for a new training where the page is nothing else."""
        return {} if self.state.runs or self.state.profiles else {"n": ""}

    @property
    def keys_named_in_texts(self) -> tuple[str, ...]:
        """Keys of the row of a new training, and of the hint on a profile."""
        return ("n", "g")

    # What is read

    def refresh_list(self) -> None:
        """Read what has changed, in a worker; one at a time."""
        self._is_read_again = self._reading
        nothing_to_read = self._awaits_first_frame and not self._is_anything_saved
        if self._reading or nothing_to_read or self.app.screen is not self:
            return
        self._reading = True
        self._read_contents(self.row_list.visible_keys)

    @work(thread=True, group="home")
    def _read_contents(self, visible_keys: tuple[str, ...]) -> None:
        worker = get_current_worker()
        if self._reader or has_run_profile_or_draft():
            self._reader = self._reader or HomeReader(partial(self.call_later, self._show_contents))
            self._reader.read(visible_keys, lambda: worker.is_cancelled)
        self.call_later(self._read_again_if_asked)

    def _read_again_if_asked(self) -> None:
        self._reading = False
        if self._is_read_again:
            self.refresh_list()

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Read again later."""
        if worker_group == "home":
            self._reading = False

    def _show_contents(
        self, runs: "tuple[RunDigest, ...]", profiles: "tuple[ProfileDigest, ...]", draft: "ProfileDigest | None"
    ) -> None:
        was_empty = not (self.state.runs or self.state.profiles)
        self.state.update(runs, profiles, draft)
        wanted = self._next_cursor
        self._show_list()
        if was_empty and (self.state.runs or self.state.profiles):
            # The live or newest run, wherever the cursor was among the ways to begin.
            if self.row_list.cursor != wanted:
                self.row_list.action_go_to_end(-1)
            self.refresh_list()  # the causes of the failures that are in sight now
        self._draw_first_frame()

    def _update_remote_runs_if_any(self) -> None:
        """Query the hosts of live runs, while the screen is shown."""
        asking = any(worker.group == "hosts" and not worker.is_finished for worker in self.app.workers)
        runs = self.state.runs.values()
        if self.app.screen is self and not asking and any(digest.status and digest.status.host for digest in runs):
            self._update_remote_runs(tuple(digest.run for digest in runs if digest.is_stoppable))

    @work(thread=True, group="hosts")
    def _update_remote_runs(self, runs: "tuple[RunFolder, ...]") -> None:
        worker = get_current_worker()
        update_remote_runs(runs, lambda: worker.is_cancelled)

    # What is shown

    def _show_list(self) -> None:
        from .home_rows import home_rows, listed_counts_text

        self.state.filter_text = self.query_one(FilterLine).text
        listed = home_rows(self.state)
        self.row_list.show(listed, self._next_cursor)
        self._next_cursor = self._next_cursor if self.row_list.cursor != self._next_cursor else ""
        self.query_one(FilterLine).show_count(listed_counts_text(self.state, listed))
        self._show_hint_and_details()

    def go_to_run(self, run: "RunFolder") -> None:
        """Put the cursor on a run as soon as it is listed."""
        self._next_cursor = f"run:{run.path}"

    def watch_facts(self) -> None:
        """Show which machine this is, while the screen is shown."""
        facts = self.facts
        if facts is None or not facts.machine.hostname or self.app.screen is not self:
            return
        if (known := (facts.machine, facts.toolchains)) != self._described_machine:
            self._described_machine = known
            self._describe_machine(facts)

    @work(thread=True, group="title", exclusive=True)
    def _describe_machine(self, facts: "Facts") -> None:
        """Find how many GPUs can train: to judge them takes imports for which no key waits."""
        from tui_train.views.gpus_line import gpus_line

        self.call_unless_cancelled(self._show_machine, visible(facts.machine.hostname), gpus_line(facts))

    def _show_machine(self, name: str, gpus_in_words: str) -> None:
        self.query_one(StepBar).show_at_right(styled((gpus_in_words, MUTED)), name)

    def _show_hint_and_details(self) -> None:
        """Explain the row in which the cursor is."""
        words, key = _HINT_BY_ROW_KEY.get(self.row_list.cursor, ""), self.row_list.cursor
        run = self.state.runs.get(key)
        if run:
            from .home_rows import run_hint_text

            words = (
                visible(run.run.name)
                if self._has_pane_room
                else run_hint_text(run, self.state.settings_before.get(key, ""))
            )
        elif key in self.state.profiles and not self._has_pane_room:
            words = "Enter opens its steps, g runs it now."
        self.query_one(Hint).show_text(Content(words))
        self.refresh_bindings()
        if self._has_pane_room and not self._awaits_first_frame and (self.state.runs or self.state.profiles):
            self._show_cursor_row_in_pane()
        elif self._has_pane_room:
            self.call_after_refresh(self._show_cursor_row_in_pane)  # the first picture does not wait for it
        elif run and self._reader and self.has_class("-tall"):
            self._read_losses(run, self._reader.digests)
        elif self.query("#below"):
            self._show_losses(None)

    @property
    def _has_pane_room(self) -> bool:
        return self.has_class("-wide") or self.has_class("-medium")

    def _show_cursor_row_in_pane(self) -> None:
        """Show details of the cursor's row beside the list; losses and changes of a run are read in a worker."""
        from .run_pane import RunPane

        key, pane = self.row_list.cursor, next(iter(self.query(RunPane)), None)
        if pane is None:
            if not (middle := self.query_one("#middle")).is_attached:
                return  # the screen is being left
            pane = RunPane()
            middle.mount(pane)
        self._show_losses(None)
        if run := self.state.runs.get(key):
            self._details = self._details if self._pane_key == key else None
            pane.show_run(run, self._details)
            if self._reader:
                self._read_details(run, self.state.earlier_run_of_profile(key), self._reader.digests)
        elif digest := self.state.profiles.get(key):
            pane.show_profile(digest)
        elif beginning := _START_OPTION_BY_KEY.get(key):
            pane.show_start_option(beginning)
        else:
            pane.show_nothing()
        self._pane_key = key

    @work(thread=True, group="plot", exclusive=True)
    def _read_details(self, digest: "RunDigest", before: "RunDigest | None", digests: "DigestCache") -> None:
        """Read what is said of a run beside the list."""
        from tui_train.views.compare import settings_changed_between

        from .run_pane import RunDetails

        worker, progress = get_current_worker(), digests.read_progress_of_run(digest)
        changes = settings_changed_between(before.run, digest.run) if before and not worker.is_cancelled else ()
        details = RunDetails(progress, before.run.name if before and changes else "", changes)
        self.call_unless_cancelled(self._show_details, digest, details)

    def _show_details(self, digest: "RunDigest", details: "RunDetails") -> None:
        from .run_pane import RunPane

        self._details = details
        for pane in self.query(RunPane):
            pane.show_run(digest, details)

    @work(thread=True, group="plot", exclusive=True)
    def _read_losses(self, digest: "RunDigest", digests: "DigestCache") -> None:
        """Read the losses of the run in which the cursor is; below the list there may be room for them."""
        self.call_unless_cancelled(self._show_losses, digests.read_progress_of_run(digest))

    def _show_losses(self, progress: "Progress | None") -> None:
        from tui_train.runner.logs.progress import Progress

        from ..widgets.plot import Plot
        from ..widgets.run_plot import PlotOptions, draw_or_hide_plot

        plot = next(iter(self.query("#below").results(Plot)), None)
        if plot is None and progress:
            plot = Plot(id="below")
            self.mount(plot, after="#middle")
        if plot:
            draw_or_hide_plot(plot, progress or Progress(), PlotOptions(is_hidden=progress is None))

    @on(CursorList.Moved)
    def _schedule_hint(self) -> None:
        # The row first: while a key is held, what is said of it can wait.
        if self._hint_timer:
            self._hint_timer.stop()
        self._hint_timer = self.set_timer(_HINT_DELAY_SECONDS, self._show_hint_and_details)

    @on(FilterLine.Changed)
    def _apply_filter(self) -> None:
        self._show_list()
        self.row_list.action_go_to_end(-1)

    @property
    def may_have_rows_to_filter(self) -> bool:
        """True unless there are no runs and profiles; before the first picture that is not known."""
        return self.state.can_do("open_filter", "") or (self._awaits_first_frame and self._is_anything_saved)

    def action_open_filter(self) -> None:
        """Type what is to be shown."""
        self.query_one(FilterLine).open_input()

    def action_leave_filter(self) -> None:
        """Go to the list; the filter stays."""
        self.set_focus(self.row_list)
        self.query_one(FilterLine).close_input()

    def action_open_typed_path_or_leave_filter(self) -> None:
        """Go to the list; where no row is left, begin with the path that was typed, whose slash opened the filter."""
        self.action_leave_filter()
        text = self.query_one(FilterLine).text
        if "/" in text.strip("/") and not self.row_list.cursor:
            self._open_typed_path_if_there(text)

    @work(thread=True, group="paste", exclusive=True)
    def _open_typed_path_if_there(self, filter_text: str) -> None:
        from tui_train.runner.system.paths import path_state

        path = "/" + filter_text.lstrip("/")
        if path_state(path) in {"file", "folder"}:
            self.call_unless_cancelled(self._open_typed_path, path, filter_text)

    def _open_typed_path(self, path: str, filter_text: str) -> None:
        """Begin with a path, unless something else was done meanwhile."""
        if self.app.screen is self and self.query_one(FilterLine).text == filter_text:
            self.action_clear_filter()
            self.open_pasted_text(path)

    def action_clear_filter(self) -> None:
        """Show everything again."""
        self.set_focus(self.row_list)
        self.query_one(FilterLine).clear()

    def action_unmark(self) -> None:
        """Unmark all runs."""
        self.state.marked = frozenset()
        self._show_list()

    def action_group_by_profile(self) -> None:
        """Show the runs by their profiles."""
        self.state.grouped = True
        self._show_list()

    def action_list_by_age(self) -> None:
        """Show the runs by age."""
        self.state.grouped = False
        self._show_list()

    def jump_targets(self) -> "Iterable[JumpTarget]":
        """Return the panels of the list."""
        from ..widgets.jump import list_jump_targets

        return list_jump_targets(self.row_list)

    # The row of the cursor

    @property
    def row_list(self) -> CursorList:
        """The list."""
        return self.query_one("#list", CursorList)

    @property
    def live_runs(self) -> "Iterable[RunFolder]":
        """The runs that were live when it was last drawn."""
        return (digest.run for digest in self.state.runs.values() if digest.is_live)

    @property
    def _cursor_row_key(self) -> str:
        return self.row_list.cursor if self.is_mounted else ""

    @property
    def _run_at_cursor(self) -> "RunDigest | None":
        return self.state.runs.get(self._cursor_row_key)

    @property
    def _marked_runs_or_run_at_cursor(self) -> "tuple[RunDigest, ...]":
        return self.state.marked_runs_or_run_at(self._cursor_row_key)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        if action == "run_now" and self.wizard.is_machine_fixed:
            return False
        return self.state.can_do(action, self._cursor_row_key)

    def why_key_refused(self, key: str) -> str:
        """Return why a key does nothing on this row, or with these marks."""
        return self.state.why_key_refused(key, self._cursor_row_key)

    # Opening

    @on(CursorList.Opened)
    def _open_row(self, event: CursorList.Opened) -> None:
        kind, _, name = event.key.partition(":")
        if event.key == "new":
            self.action_choose_start_option()
        elif event.key == "draft":
            self.post_message(ContinueDraft())
        elif kind == "profile":
            self._open_step_with_saved_profile(name, "hardware")
        elif event.key in self.state.runs:
            self.post_message(OpenRun(self.state.runs[event.key].run))
        else:
            self.open_start_option(event.key)

    def action_edit(self) -> None:
        """Open the profile of the run, or the profile, at its recipe."""
        digest = self._run_at_cursor
        run = digest.run if digest else None
        name = str(run.profile_file) if run else self.state.profile_name_at(self._cursor_row_key)
        self._open_step_with_saved_profile(name, "recipe", run)

    def _open_step_with_saved_profile(self, reference: str, step: str, run: "RunFolder | None" = None) -> None:
        from tui_train.profile import store

        # What is only looked at takes no draft away.
        self.open_step_with_profile(store.load_profile_file(reference), step, save_as_draft=False, run=run)

    # Starting and stopping

    @work(thread=True, group="start")
    def action_resume(self) -> None:
        """Start the run again, from its newest checkpoint."""
        from tui_train.places import place_of_run

        if digest := self._run_at_cursor:
            words = place_of_run(digest.run).resume(digest.run)
            self.post_message(OpenRun(digest.run, visible(words)))

    @work(thread=True, group="start", exclusive=True)
    def action_run_now(self) -> None:
        """Start the profile at once, or say what forbids it."""
        from tui_train.actions.training_hosts import prepare_plan_and_place
        from tui_train.profile import store
        from tui_train.runs.run_code import code_not_kept_in_time_text

        name = self.state.profile_name_at(self._cursor_row_key)
        self.notify(f"Checking {visible(name)} …", markup=False)
        prepared, place = prepare_plan_and_place(store.load_profile_file(name))
        if prepared.plan is None or prepared.errors:
            self.call_later(self._offer_preview_of_forbidden_start, name, prepared)
        else:
            run = place.submit(prepared, prepared.plan)
            self.post_message(OpenRun(run, code_not_kept_in_time_text(run.path)))

    def _offer_preview_of_forbidden_start(self, name: str, prepared: "PreparedPlan") -> None:
        errors_text = "\n".join(
            visible(words_on_screen(f"✗ {capitalised(finding.message)}. {finding.screen_remedy}"))
            for finding in prepared.errors[:MAX_NAMES_SHOWN]
        )
        self.ask_choice(
            f"{visible(name)} cannot start here.\n\n{errors_text}",
            (("preview", "Open it in Preview, where F2 fixes what it can"), ("", "Leave it")),
            partial(self.open_step_with_profile, prepared.profile),
        )

    def action_stop(self) -> None:
        """Ask, then end the run, or the marked ones that are live."""
        going = tuple(each for each in self._marked_runs_or_run_at_cursor if each.is_stoppable)
        if len(going) == 1:
            self.ask_and_stop(going[0].run, f"Stop {runs_text(going)}?", lambda: self._stop_runs((going[0].run,)))
            return
        answers = (("", "No, leave them"), ("stop", "Stop them and all their processes"))
        runs = tuple(each.run for each in going)
        self.ask_choice(f"Stop {runs_text(going)}?", answers, lambda _answer: self._stop_runs(runs))

    @work(thread=True, group="stop")
    def _stop_runs(self, runs: "tuple[RunFolder, ...]") -> None:
        from tui_train.places import place_of_run

        for run in runs:
            try:
                place_of_run(run).stop(run)
            except TuiTrainError as error:
                self.wizard.show_error(error)
        self.call_later(self.refresh_list)

    # Tidying

    def action_mark(self) -> None:
        """Mark the run, or take the mark away, and go on to the next."""
        key = self.row_list.cursor
        if key in self.state.runs:
            self.state.marked ^= {key}
            self.row_list.action_move(1)
            if self.row_list.cursor not in self.state.runs:
                self.row_list.go_to_row(key)
            self._show_list()

    def action_compare(self) -> None:
        """Show the marked runs side by side, the oldest first."""
        self.post_message(CompareRuns(tuple(digest.run for digest in reversed(self._marked_runs_or_run_at_cursor))))

    def action_delete(self) -> None:
        """Ask, then remove the marked runs, or the run or profile in which the cursor is."""
        if runs := self._marked_runs_or_run_at_cursor:
            self._measure_and_ask_delete(tuple(digest.run for digest in runs), runs_text(runs))
        elif name := self.state.profile_name_at(self._cursor_row_key):
            self._ask_delete(f"Delete the profile {visible(name)}? Its runs stay.", partial(_remove_profile, name))

    @work(thread=True, group="delete", exclusive=True)
    def _measure_and_ask_delete(self, runs: "tuple[RunFolder, ...]", runs_in_words: str) -> None:
        """Find what the runs take on disk, then ask."""
        from tui_train.places import place_of_run
        from tui_train.runner.system.folder_usage import folder_usage
        from tui_train.runs.remote_run import read_remote_location

        for run in runs:
            place_of_run(run).refuse_if_active_or_outside(run)
        total = sum(folder_usage(str(run.path)).size for run in runs)
        question = f"Delete {runs_in_words}?\n\nLogs and checkpoints go too. It frees {size_text(total)}."
        places = (read_remote_location(run.path) for run in runs)
        hosts = visible(", ".join(sorted({place.host for place in places if place and not place.shared})))
        self.call_later(self._ask_delete, question, partial(_remove_runs, runs), hosts)

    def _ask_delete(self, question: str, remove: Callable[..., str], hosts: str = "") -> None:
        """Ask, and where some of it is on `hosts`, whether it goes there as well."""

        def delete(answer: str) -> None:
            self.state.marked = frozenset()
            self._make_change_on_disk(partial(remove, only_here=answer == "here") if hosts else remove)

        answers = {"": "No, keep it", "delete": f"Delete, also on {hosts}" if hosts else "Delete"}
        self.ask_choice(question, [*answers.items(), *([("here", "Delete only here")] if hosts else [])], delete)

    @work(thread=True, group="change")
    def _make_change_on_disk(self, change: Callable[[], str]) -> None:
        """Change something on disk, and say what was done."""
        try:
            self.notify(visible(change()), markup=False)
        finally:
            self.call_later(self.refresh_list)

    def _ask_text(self, question: str, value: str, change: Callable[[str], str]) -> None:
        """Ask for a text until `change`, which says what it did, takes it or Esc ends it."""

        def answered(said: str) -> None:
            self.notify(visible(said), markup=False)
            self.refresh_list()

        self.ask_text(question, value, answered, change=change)

    def action_rename(self) -> None:
        """Ask for another name of the run or the profile."""
        digest, name = self._run_at_cursor, self.state.profile_name_at(self._cursor_row_key)
        if digest:
            question = f"New name of the run {visible(digest.run.name)} (its date and time stay in front):"
            self._ask_text(question, digest.run.label, partial(self._rename_run, digest.run))
        elif name:
            question = f"New name of the profile {visible(name)}:"
            self._ask_text(question, name, partial(self._rename_profile, name))

    def _rename_run(self, run: "RunFolder", name: str) -> str:
        """Rename a run, which stays marked and under the cursor."""
        from tui_train.runs import folders

        renamed = folders.rename_run(run, name)
        self._next_cursor = f"run:{renamed.path}"
        if f"run:{run.path}" in self.state.marked:
            self.state.marked |= {self._next_cursor}
        return f"Renamed to {renamed.name}."

    def _rename_profile(self, name: str, new_name: str) -> str:
        from tui_train.profile import store

        store.rename_profile(name, new_name)
        self._next_cursor = f"profile:{new_name}"
        return f"Renamed to {new_name}."

    def action_note(self) -> None:
        """Ask for a line about the run, or the marked ones."""
        if chosen := self._marked_runs_or_run_at_cursor:
            question = f"Note on {runs_text(chosen)}, shown in lists (empty: no note):"
            self._ask_text(question, chosen[0].note, partial(_write_notes, tuple(each.run for each in chosen)))

    def action_duplicate(self) -> None:
        """Ask for the name of a copy of the profile."""
        if name := self.state.profile_name_at(self._cursor_row_key):
            self._ask_text(f"Name of the copy of {visible(name)}:", f"{name}-2", partial(_duplicate_profile, name))


# Changes on disk, each of which returns in words what it did, or raises TuiTrainError.


def _remove_runs(runs: "tuple[RunFolder, ...]", *, only_here: bool = False) -> str:
    """Remove the folders of runs, of those on a host there as well, unless `only_here`."""
    from tui_train.places import place_of_run
    from tui_train.runs import folders

    freed = sum(folders.remove_run(run) if only_here else place_of_run(run).remove(run) for run in runs)
    return f"Deleted {quantity(len(runs), 'run')}, freed {size_text(freed)}."


def _write_notes(runs: "tuple[RunFolder, ...]", text: str) -> str:
    """Write a line about runs; an empty one removes theirs."""
    from tui_train.runs import folders

    for run in runs:
        folders.write_note(run, text)
    return "Noted." if text.strip() else "The note was removed."


def _remove_profile(name: str) -> str:
    """Remove a saved profile."""
    from tui_train.profile import store

    store.remove_profile(name)
    return f"Deleted the profile {name}."


def _duplicate_profile(name: str, new_name: str) -> str:
    """Save a copy of a profile."""
    from tui_train.profile import store

    store.duplicate_profile(name, new_name)
    return f"Saved {new_name}."
