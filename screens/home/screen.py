"""Home: what runs, what ran, the saved profiles, and a new training; it is found by typing, and tidied here."""

from typing import TYPE_CHECKING, ClassVar

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.reactive import reactive
from textual.timer import Timer
from textual.worker import get_current_worker

from tui_train.base.text import visible

from ..widgets.bar import StepBar
from ..widgets.hint import Hint
from ..widgets.keys import Keys
from ..widgets.text_layout import MUTED, styled
from .filter import Filter
from .home_reading import HomeContents, HomeReading
from .home_start import START_ROWS
from .row_list import RowList

if TYPE_CHECKING:
    from tui_train.facts.types import Facts
    from tui_train.supervisor.progress import Progress
    from tui_train.views.profile_cards import ProfileCard
    from tui_train.views.run_digest import Digest, DigestCache

_REFRESH_SECONDS = 2.0
_HOSTS_SECONDS = 10.0  # seconds after which the hosts of live runs are asked
_HINT_DELAY = 0.03
_HINTS = {
    "new": "Five steps from defaults: hardware, backend, recipe, preview, run. You can leave and continue later.",
    "draft": "The same steps with the values that you edited last.",
    "quickstart": "Opens the preview of a small model on sample text, which trains in a minute or two.",
}


class Home(HomeReading):
    """The first screen."""

    HELP = """Home

Start a training, or open a run or a profile. A run continues when you leave. Keys that can take
several runs (Delete, Note, Stop, Compare) take the marked ones where there are any, else the one under the cursor; all
others take the one under the cursor.

↑ ↓ PgUp PgDn   move; Tab goes to the next panel
  Enter           open a run; begin with a profile
  /               show only what has these words: name, model,
                  data, state, note; Esc shows all again
  n               new training, from defaults
  b               runs by profile, or by age
  Space           mark a run; Esc takes all marks away
  c               compare the marked runs

A run
  e               edit: its profile with its values
  r               resume from its newest checkpoint; where
                  it has none, r says why
  s               stop it and all its processes
  d m i           delete its folder, rename it, note a line

A profile
  g               run it now, after all checks
  e y d m         edit, duplicate, delete, rename it

All screens: Enter next, Esc back, F1 help (or ?, outside of a field), Ctrl+P all actions, q quit."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "clear", "Show all", key_display="Esc"),
        Binding("escape", "unmark", "Unmark", key_display="Esc"),
        Binding("n", "new", "New"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("r", "resume", "Resume"),
        Binding("s", "stop", "Stop run"),
        Binding("g", "run_now", "Run now"),
        Binding("e", "edit", "Edit"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("i", "note", "Note"),
        Binding("m", "rename", "Rename"),
        Binding("y", "duplicate", "Duplicate"),
        Binding("b", "group", "By profile"),
        Binding("b", "ungroup", "By age"),
        Binding("space", "mark", "Mark", key_display="Space"),
        Binding("c", "compare", "Compare"),
    ]
    SHARED = ("facts",)
    facts: reactive["Facts | None"] = reactive(None, init=False, repaint=False)

    def __init__(self) -> None:
        """Begin with nothing found."""
        super().__init__()
        self._draft: ProfileCard | None = None
        self._grouped = False
        self._hint_timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """Put a list under the filter."""
        yield StepBar(title="Home")
        yield Filter("name, model, data or state")
        yield RowList(START_ROWS, id="list", start_typing=self.action_filter)
        yield Hint()
        yield Keys()

    def on_mount(self) -> None:
        """Read profiles and runs after the first picture, and again while the screen is shown."""
        self._show_hint()
        self.call_after_refresh(self.refresh_list)
        self.set_interval(_REFRESH_SECONDS, self.refresh_list)
        self.set_interval(_HOSTS_SECONDS, self.update_hosts)

    def on_screen_resume(self) -> None:
        """Read again when the screen is shown again."""
        self.refresh_list()

    @on(HomeContents)
    def _take_contents(self, event: HomeContents) -> None:
        self.runs = {f"run:{digest.run.path}": digest for digest in event.runs}
        self.profiles = {f"profile:{card.name}": card for card in event.profiles}
        self.marked = frozenset(key for key in self.marked if key in self.runs)
        self._draft = event.draft
        self._show()

    # What is shown

    def _show(self) -> None:
        from .home_rows import HomeState, counts_text, home_rows

        text = self.query_one(Filter).text
        known = tuple(self.runs.values()), tuple(self.profiles.values())
        shown = HomeState(*known, text, self.marked, self._grouped, self._draft)
        listed = home_rows(shown, START_ROWS)
        self.row_list.show(listed, self.next_cursor)
        self.next_cursor = self.next_cursor if self.row_list.cursor != self.next_cursor else ""
        self.query_one(Filter).show_count(counts_text(shown, listed))
        self._show_hint()

    def watch_facts(self) -> None:
        """Say which machine this is."""
        machine = self.facts.machine if self.facts else None
        if machine is None or not self.is_mounted:
            return
        busy = sum(any(not process.graphics for process in gpu.processes) for gpu in machine.gpus)
        cards = f"   {busy} of {len(machine.gpus)} GPUs busy" if machine.gpus else ""
        self.query_one(StepBar).show_aside(styled((f"{visible(machine.hostname)}{cards}", MUTED)))

    def _show_hint(self) -> None:
        """Explain the row in which the cursor is."""
        words, key = _HINTS.get(self.row_list.cursor, ""), self.row_list.cursor
        if key in self.runs:
            from .home_rows import run_hint

            words = run_hint(self.runs[key])
        elif key in self.profiles:
            words = "Enter opens its steps, g runs it now."
        self.query_one(Hint).show_text(Content(words))
        self.refresh_bindings()
        if key in self.runs and self.digests and self.has_class("-tall"):
            self._draw_losses(self.runs[key], self.digests)
        elif self.posted:
            self._show_losses(None)

    @work(thread=True, group="plot", exclusive=True)
    def _draw_losses(self, digest: "Digest", digests: "DigestCache") -> None:
        """Read the losses of the run in which the cursor is; where there is room, they are drawn below the list."""
        worker, progress = get_current_worker(), digests.read_losses(digest)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._show_losses, progress)

    def _show_losses(self, progress: "Progress | None") -> None:
        from tui_train.supervisor.progress import Progress

        from ..run.run_plot import PlotOptions, show_plot
        from ..widgets.plot import Plot

        plot = next(iter(self.query(Plot)), None)
        if plot is None and progress:
            plot = Plot(id="loss")
            self.mount(plot, after=self.row_list)
        if plot:
            show_plot(plot, progress or Progress(), PlotOptions(hidden=progress is None))

    @on(RowList.Moved)
    def _delay_hint(self) -> None:
        # The row first: while a key is held, what is said of it can wait.
        if self._hint_timer:
            self._hint_timer.stop()
        self._hint_timer = self.set_timer(_HINT_DELAY, self._show_hint)

    @on(Filter.Changed)
    def _apply_filter(self) -> None:
        self._show()
        self.row_list.action_end(-1)

    def action_filter(self) -> None:
        """Type what is to be shown."""
        self.query_one(Filter).open()

    def action_leave_filter(self) -> None:
        """Go to the list; the filter stays."""
        self.set_focus(self.row_list)
        self.query_one(Filter).leave()

    def action_clear(self) -> None:
        """Show everything again."""
        self.set_focus(self.row_list)
        self.query_one(Filter).clear()

    def show_marks(self) -> None:
        """Draw what is marked."""
        self._show()

    def action_unmark(self) -> None:
        """Take all marks away."""
        self.marked = frozenset()
        self._show()

    def action_group(self) -> None:
        """Show the runs by their profiles."""
        self._grouped = True
        self._show()

    def action_ungroup(self) -> None:
        """Show the runs by age."""
        self._grouped = False
        self._show()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        if action == "clear":
            return bool(self.is_mounted and self.query_one(Filter).text)
        if action == "unmark":
            return bool(self.is_mounted and self.marked and not self.query_one(Filter).text)
        if action in {"group", "ungroup"}:
            return bool(self.runs) and self._grouped is (action == "ungroup")
        return super().check_action(action, parameters)

    @property
    def row_list(self) -> RowList:
        """The list."""
        return self.query_one("#list", RowList)
