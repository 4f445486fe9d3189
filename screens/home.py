"""Home: a new training, the saved profiles, and the runs, of which a live one can be opened again."""

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible

from .base import Base
from .messages import Become, Complaint, OpenRun, OpenStep, StartOver
from .widgets.bar import StepBar
from .widgets.keys import Keys

if TYPE_CHECKING:
    from tui_train.profile.types import Profile

_MOST_RUNS = 30
_EVERY = 2.0
_FIRST = (
    ("new", "New training     begins with your last values"),
    ("quickstart", "Quickstart       a small model on sample text, to see it work"),
)

Rows = tuple[tuple[str, ...], ...]


class Found(Message):
    """The profiles and runs that are there: for each its id and its words."""

    def __init__(self, profiles: tuple[str, ...], runs: Rows, going: frozenset[str]) -> None:
        """Carry the profiles' names, the runs' rows, each with its folder first, and which of them go on."""
        super().__init__()
        self.going = going
        self.profiles = profiles
        self.runs = runs


class Choices(OptionList):
    """A list whose Enter stands among the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select", "Open", key_display="Enter")]


class Home(Base):
    """The first screen."""

    HELP = """Home

Start a new training, begin with a saved profile, or open a run: a running one continues when you close it.

Enter opens what is marked, up and down move. N starts a new one. S ends the marked run and all its processes.
All screens: Enter next, Esc back, F1 help (or ?, outside of a field), Ctrl+P all actions, Q quit."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "new", "New"),
        Binding("s", "stop", "Stop run"),
    ]

    def __init__(self) -> None:
        """Begin with nothing found."""
        super().__init__()
        self._found: tuple[tuple[str, ...], Rows, frozenset[str]] | None = None
        self._going: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        """Put a list under the bar."""
        yield StepBar(title="from ssh to a running training")
        yield Choices(*(Option(words, id=name) for name, words in _FIRST), id="list", markup=False)
        yield Keys()

    def on_mount(self) -> None:
        """Look for profiles and runs now, and again while the screen is shown."""
        self.query_one(OptionList).highlighted = 0
        self.call_after_refresh(self.look)
        self.set_interval(_EVERY, self.look)

    def on_screen_resume(self) -> None:
        """Look again when the screen is shown again."""
        self.look()

    @work(thread=True, exclusive=True, group="home")
    def look(self) -> None:
        """Find the profiles and runs; nothing is drawn when nothing changed."""
        if self.app.screen is not self:
            return
        from tui_train.profile import store
        from tui_train.runs.listing import read_runs
        from tui_train.workflow import show

        found = read_runs(_MOST_RUNS)
        runs = tuple((str(one.run.path), *show.run_row(one), one.damage) for one in found)
        going = frozenset(str(one.run.path) for one in found if one.going)
        self.post_message(Found(store.names(), runs, going))

    @on(Found)
    def _show(self, event: Found) -> None:
        if event.going != self._going:
            self._going = event.going
            self.refresh_bindings()
        found = (event.profiles, event.runs, event.going)
        if found == self._found:
            return
        self._found = found
        options = self.query_one(OptionList)
        marked = options.highlighted_option.id if options.highlighted_option else None
        options.clear_options()
        options.add_options(_options(event.profiles, event.runs, event.going))
        ids = [options.get_option_at_index(position).id for position in range(options.option_count)]
        options.highlighted = ids.index(marked) if marked in ids else 0

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a run of which something works can be stopped."""
        del parameters
        kind, folder = self._marked()
        return action != "stop" or (kind == "run" and folder in self._going)

    def _marked(self) -> tuple[str, str]:
        options = self.query(OptionList)
        marked = options.first().highlighted_option if options else None
        kind, _, rest = (marked.id or "").partition(":") if marked else ("", "", "")
        return kind, rest

    @on(OptionList.OptionHighlighted)
    def _moved(self) -> None:
        self.refresh_bindings()

    def action_new(self) -> None:
        """Begin with the last profile."""
        self.post_message(StartOver())
        self.post_message(OpenStep("hardware"))

    @on(OptionList.OptionSelected)
    def _opened(self, event: OptionList.OptionSelected) -> None:
        kind, _, rest = (event.option_id or "").partition(":")
        if kind == "new":
            self.action_new()
        elif kind == "quickstart":
            from tui_train.profile.types import Profile

            self._begin(Profile(), keep=False)
        elif kind == "profile":
            self._begin_with(rest)
        elif kind == "run":
            self._open_run(rest)

    def _begin_with(self, name: str) -> None:
        from tui_train.profile import store

        try:
            self._begin(store.load(name))
        except TuiTrainError as error:
            self.post_message(Complaint(error))

    def _begin(self, profile: "Profile", *, keep: bool = True) -> None:
        self.post_message(Become(profile, keep=keep))
        self.post_message(OpenStep("hardware"))

    def _open_run(self, folder: str) -> None:
        from tui_train.runs import rundir

        try:
            self.post_message(OpenRun(rundir.find(folder)))
        except TuiTrainError as error:
            self.post_message(Complaint(error))

    def action_stop(self) -> None:
        """Ask, then end the marked run."""
        from .widgets.dialogs import Ask

        _, folder = self._marked()
        name = visible(folder.rpartition("/")[2])
        answers = (("", "No, leave it"), ("stop", "Stop it and all its processes"))

        def answered(answer: str | None) -> None:
            if answer:
                self._stop(folder)

        self.app.push_screen(Ask(f"Stop {name}?", answers), answered)

    @work(thread=True, group="stop")
    def _stop(self, folder: str) -> None:
        from tui_train.runs import rundir
        from tui_train.runs.stop import stop

        try:
            stop(rundir.find(folder))
        except TuiTrainError as error:
            self.post_message(Complaint(error))
        self.app.call_from_thread(self.look)


def _options(profiles: tuple[str, ...], runs: Rows, going: frozenset[str]) -> list[Option]:
    """Return the list: what goes on stands before the profiles, which may be many."""
    live = tuple(row for row in runs if row[0] in going)
    ended = tuple(row for row in runs if row[0] not in going)
    saved = [Option(f"  {visible(name)}", id=f"profile:{name}") for name in profiles]
    options = [Option(words, id=name) for name, words in _FIRST]
    for title, found in (("Running", _rows(live)), ("Saved profiles", saved), ("Runs", _rows(ended))):
        if found:
            options += [Option(Text(f"\n{title}", "bold"), disabled=True), *found]
    return options


def _rows(runs: Rows) -> list[Option]:
    return [
        Option(f"  {state:<16} {started:<17} {took:<12} {name}{f': {damage}' if damage else ''}", id=f"run:{folder}")
        for folder, name, state, started, took, _attempts, damage in runs
    ]
