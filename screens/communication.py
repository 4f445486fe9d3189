"""Communication: a test whether the processes reach each other, and of what helps where they do not."""

from collections.abc import Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static
from textual.worker import get_current_worker

from tui_train.actions.doctor.communication_fixes import examine_communication
from tui_train.actions.doctor.short_runs import ShortRunContext, ShortRunObserver
from tui_train.base.errors import TuiTrainError
from tui_train.base.text import capitalised, visible
from tui_train.facts.machine.communication_tests import Examination, RankStage
from tui_train.profile.changes import Change
from tui_train.setup.setup import Setup
from tui_train.views.communication_report import communication_test_title, examination_text, stage_text

from .base import WizardScreen
from .messages import ApplyFix
from .widgets.hint import Hint
from .widgets.key_bar import KeyBar
from .widgets.step_bar import StepBar
from .widgets.text_layout import styled

MAX_TEST_SECONDS = 60.0


class CommunicationScreen(WizardScreen):
    """The stages of the test as they end, and what came of it."""

    HELP = f"""Communication

The processes are started as the training would be, on the same machines and GPUs, and exchange data once in each way.
Where they do not reach each other, what may help is tried as well, the cheapest first. All ends within
{MAX_TEST_SECONDS:.0f} s and leaves nothing.
Enter takes the change with which it worked; Ctrl+Z takes it back. Esc ends the test and goes back."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "use_fix_or_go_back", "Next", key_display="Enter"),
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
        yield Static(communication_test_title(self._setup), id="asked", markup=False)
        with VerticalScroll(id="body", can_focus=False):
            yield Static(id="trials", markup=False)
        yield Hint()
        yield KeyBar()

    def on_mount(self) -> None:
        """Start the test."""
        self._show_lines_and_hint("Testing. Esc ends it and goes back.")
        self._run_test()

    @property
    def footer_text_by_key(self) -> Mapping[str, str]:
        """Name what Enter does now."""
        return {"enter": "Use it" if self._examination and self._examination.proven_fix else "Back"}

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Enter does nothing while it tests."""
        return action != "use_fix_or_go_back" or not self._is_testing

    def action_use_fix_or_go_back(self) -> None:
        """Apply the change that helped, and go back."""
        if self._examination and (change := self._examination.proven_fix):
            self.app.screen_stack[-2].post_message(ApplyFix(change))
        self.app.pop_screen()

    @work(thread=True, exclusive=True, group="communication")
    def _run_test(self) -> None:
        setup = self._setup
        run_context = ShortRunContext(self.wizard.place_for(setup.profile), setup.facts, _ScreenObserver(self))
        try:
            examination = examine_communication(setup.profile, run_context, MAX_TEST_SECONDS)
        except TuiTrainError as error:
            self.call_unless_cancelled(
                self._show_result, None, visible(f"{capitalised(error.message)}. {error.remedy}")
            )
            return
        text = examination_text(setup, examination, with_fix=False)
        self.call_unless_cancelled(self._show_result, examination, text)

    def recover_from_failed_worker(self, worker_group: str) -> None:
        """Let Enter go back."""
        self._show_result(None, "The test itself failed.")

    def add_line(self, line: str) -> None:
        """Show a line below the others."""
        self._lines.append(line)
        self._show_lines_and_hint("Testing. Esc ends it and goes back.")

    def _show_result(self, examination: Examination | None, text: str) -> None:
        self._examination, self._is_testing = examination, False
        self._lines += ["", *text.split("\n")]
        change = examination.proven_fix if examination else None
        self._show_lines_and_hint(
            f"Enter takes “{visible(change.title)}”." if change else "Enter goes back.", emphasised=bool(change)
        )
        if not self.wizard.other_machine_name:
            self.wizard.refresh_part_quietly("paths")

    def _show_lines_and_hint(self, hint: str, *, emphasised: bool = False) -> None:
        self.query_one("#trials", Static).update("\n".join(self._lines))
        self.query_one("#body", VerticalScroll).scroll_end(animate=False)
        self.query_one(Hint).show_text(styled((hint, "b" if emphasised else "")))
        self.refresh_bindings()


class _ScreenObserver(ShortRunObserver):
    """Observer that shows the progress of the test, unless the screen was left."""

    def __init__(self, screen: CommunicationScreen) -> None:
        self._screen, self._worker = screen, get_current_worker()

    @property
    def is_cancelled(self) -> bool:
        """True once the screen was left."""
        return self._worker.is_cancelled

    def begin_test(self, change: Change | None) -> None:
        """Show with which change it is tested now."""
        if change:
            self._screen.call_unless_cancelled(self._screen.add_line, f"\nwith {visible(change.title)}:")

    def note_stage(self, stage: RankStage) -> None:
        """Show what the first process has done, and every problem."""
        if stage.rank == 0 or stage.problem:
            self._screen.call_unless_cancelled(self._screen.add_line, stage_text(stage))
