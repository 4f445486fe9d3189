"""Communication: a test whether the processes reach each other, and of what helps where they do not."""

from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.worker import get_current_worker

from tui_train.actions.doctor.cures import examine_communication
from tui_train.actions.doctor.short_runs import Observer, Workbench
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import sentence, visible
from tui_train.facts.machine.communication_tests import Examination, Exchange
from tui_train.profile.changes import Change
from tui_train.setup.setup import Setup
from tui_train.views.communication_report import examination_text, exchange_text, test_title

from .base import WizardScreen
from .messages import ApplyFix
from .widgets.bar import StepBar
from .widgets.hint import Hint
from .widgets.keys import KeyBar
from .widgets.text_layout import styled

MAX_SECONDS = 60.0


class CommunicationScreen(WizardScreen):
    """The stages of the test as they end, and what came of it."""

    HELP = f"""Communication

The processes are started as the training would be, on the same machines and GPUs, and exchange data once in each way.
Where they do not reach each other, what may help is tried as well, the cheapest first. All ends within
{MAX_SECONDS:.0f} s and leaves nothing.
Enter takes the change with which it worked; Ctrl+Z takes it back. Esc ends the test and goes back."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "next", "Next", key_display="Enter"),
        Binding("escape", "app.back", "Back", key_display="Esc"),
    ]

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self._setup = setup
        self._lines: list[str] = []
        self._examination: Examination | None = None
        self._is_testing = True

    def compose(self) -> ComposeResult:
        """Compose what is tested, its stages, what came of it and the keys."""
        yield StepBar(title="Backend › Communication")
        yield Static(test_title(self._setup), id="asked", markup=False)
        with VerticalScroll(id="body", can_focus=False):
            yield Static(id="trials", markup=False)
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Begin."""
        self._show("Testing. Esc ends it and goes back.")
        self._test()

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Say what Enter does now."""
        return {"enter": "Use it" if self._examination and self._examination.proved_change else "Back"}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter does nothing while it tests."""
        return action != "next" or not self._is_testing

    def action_next(self) -> None:
        """Take the change that helped, and go back."""
        if self._examination and (change := self._examination.proved_change):
            self.app.screen_stack[-2].post_message(ApplyFix(change))
        self.app.pop_screen()

    @work(thread=True, exclusive=True, group="communication")
    def _test(self) -> None:
        setup, observer = self._setup, _ScreenObserver(self)
        bench = Workbench(self.wizard.place_for(setup.profile), setup.facts, observer)
        try:
            examination = examine_communication(setup.profile, bench, MAX_SECONDS)
        except TuiTrainError as error:
            observer.call(self._end, None, visible(f"{sentence(error.message)}. {error.remedy}"))
            return
        observer.call(self._end, examination, examination_text(setup, examination, with_fix=False))

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Let Enter go back."""
        self._end(None, "The test itself failed.")

    def add_line(self, line: str) -> None:
        """Show a line below the others."""
        self._lines.append(line)
        self._show("Testing. Esc ends it and goes back.")

    def _end(self, examination: Examination | None, text: str) -> None:
        self._examination, self._is_testing = examination, False
        self._lines += ["", *text.split("\n")]
        change = examination.proved_change if examination else None
        self._show(f"Enter takes “{visible(change.title)}”." if change else "Enter goes back.", emphasised=bool(change))
        if not self.wizard.other_machine_name:
            self.wizard.refresh_part_quietly("paths")

    def _show(self, hint: str, *, emphasised: bool = False) -> None:
        self.query_one("#trials", Static).update("\n".join(self._lines))
        self.query_one("#body", VerticalScroll).scroll_end(animate=False)
        self.query_one(Hint).show_text(styled((hint, "b" if emphasised else "")))
        self.refresh_bindings()


class _ScreenObserver(Observer):
    """Shows what is done, unless the screen was left."""

    def __init__(self, screen: CommunicationScreen) -> None:
        self._screen, self._worker = screen, get_current_worker()

    @property
    def is_cancelled(self) -> bool:
        """Whether the screen was left."""
        return self._worker.is_cancelled

    def call(self, function: object, *arguments: object) -> None:
        """Call a function of the screen on its thread."""
        if not self._worker.is_cancelled:
            self._screen.app.call_from_thread(function, *arguments)  # type: ignore[arg-type]

    def begin_test(self, change: Change | None) -> None:
        """Show with which change it is tested now."""
        if change:
            self.call(self._screen.add_line, f"\nwith {visible(change.title)}:")

    def note_exchange(self, exchange: Exchange) -> None:
        """Show what the first process has done, and every problem."""
        if exchange.rank == 0 or exchange.problem:
            self.call(self._screen.add_line, exchange_text(exchange))
