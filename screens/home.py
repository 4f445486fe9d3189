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

from .home_reading import Found, HomeReading
from .home_start import BEGINNINGS
from .widgets.bar import StepBar
from .widgets.filter import Filter
from .widgets.hint import Hint
from .widgets.ink import MUTED, ink
from .widgets.keys import Keys
from .widgets.row_list import RowList

if TYPE_CHECKING:
    from tui_train.facts.types import Facts
    from tui_train.supervisor.progress import Progress
    from tui_train.workflow.cards import Card
    from tui_train.workflow.digest import Digest, Digests

_EVERY = 2.0
_FAR = 10.0  # seconds after which the hosts of live runs are asked
_PAUSE = 0.03
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
        self._draft: Card | None = None
        self._grouped = False
        self._saying: Timer | None = None

    def compose(self) -> ComposeResult:
        """Put a list under the filter."""
        yield StepBar(title="Home")
        yield Filter("name, model, data or state")
        yield RowList(BEGINNINGS, id="list", typing=self.action_filter)
        yield Hint()
        yield Keys()

    def on_mount(self) -> None:
        """Read profiles and runs after the first picture, and again while the screen is shown."""
        self._say()
        self.call_after_refresh(self.look)
        self.set_interval(_EVERY, self.look)
        self.set_interval(_FAR, self.ask_hosts)

    def on_screen_resume(self) -> None:
        """Read again when the screen is shown again."""
        self.look()

    @on(Found)
    def _found(self, event: Found) -> None:
        self.runs = {f"run:{digest.run.path}": digest for digest in event.runs}
        self.profiles = {f"profile:{card.name}": card for card in event.profiles}
        self.marked = frozenset(key for key in self.marked if key in self.runs)
        self._draft = event.draft
        self._show()

    # What is shown

    def _show(self) -> None:
        from .home_rows import Shown, counts, rows

        text = self.query_one(Filter).text
        known = tuple(self.runs.values()), tuple(self.profiles.values())
        shown = Shown(*known, text, self.marked, self._grouped, self._draft)
        listed = rows(shown, BEGINNINGS)
        self.list.show(listed, self.wanted)
        self.wanted = self.wanted if self.list.cursor != self.wanted else ""
        self.query_one(Filter).say(counts(shown, listed))
        self._say()

    def watch_facts(self) -> None:
        """Say which machine this is."""
        machine = self.facts.machine if self.facts else None
        if machine is None or not self.is_mounted:
            return
        busy = sum(any(not process.graphics for process in gpu.processes) for gpu in machine.gpus)
        cards = f"   {busy} of {len(machine.gpus)} GPUs busy" if machine.gpus else ""
        self.query_one(StepBar).say(ink((f"{visible(machine.hostname)}{cards}", MUTED)))

    def _say(self) -> None:
        """Explain the row in which the cursor is."""
        words, key = _HINTS.get(self.list.cursor, ""), self.list.cursor
        if key in self.runs:
            from .home_rows import hint

            words = hint(self.runs[key])
        elif key in self.profiles:
            words = "Enter opens its steps, g runs it now."
        self.query_one(Hint).say(Content(words))
        self.refresh_bindings()
        if key in self.runs and self.digests and self.has_class("-tall"):
            self._draw_losses(self.runs[key], self.digests)
        elif self.posted:
            self._plot(None)

    @work(thread=True, group="plot", exclusive=True)
    def _draw_losses(self, digest: "Digest", digests: "Digests") -> None:
        """Read the losses of the run in which the cursor is; where there is room, they are drawn below the list."""
        worker, progress = get_current_worker(), digests.curves(digest)
        if not worker.is_cancelled:
            self.app.call_from_thread(self._plot, progress)

    def _plot(self, progress: "Progress | None") -> None:
        from tui_train.supervisor.progress import Progress

        from .run_plot import Shown, show_plot
        from .widgets.plot import Plot

        plot = next(iter(self.query(Plot)), None)
        if plot is None and progress:
            plot = Plot(id="loss")
            self.mount(plot, after=self.list)
        if plot:
            show_plot(plot, progress or Progress(), Shown(hidden=progress is None))

    @on(RowList.Moved)
    def _moved(self) -> None:
        # The row first: while a key is held, what is said of it can wait.
        if self._saying:
            self._saying.stop()
        self._saying = self.set_timer(_PAUSE, self._say)

    @on(Filter.Changed)
    def _filtered(self) -> None:
        self._show()
        self.list.action_end(-1)

    def action_filter(self) -> None:
        """Type what is to be shown."""
        self.query_one(Filter).open()

    def action_leave_filter(self) -> None:
        """Go to the list; the filter stays."""
        self.set_focus(self.list)
        self.query_one(Filter).leave()

    def action_clear(self) -> None:
        """Show everything again."""
        self.set_focus(self.list)
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
    def list(self) -> RowList:
        """The list."""
        return self.query_one("#list", RowList)
