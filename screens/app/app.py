"""The wizard: it pushes the steps, which post what they change; it owns the facts and the profile."""

import gc
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

from tui_train.base.text import visible
from tui_train.views.chosen_theme import read_chosen_theme_name, save_chosen_theme_name

from .. import STEPS, load_module
from ..home.screen import HomeScreen
from ..messages import ErrorToShow, LeaveWizard
from ..textual_fixes import fix_textual
from ..themes import apply_theme, register_themes
from .environment_maker import InstallingApp
from .shutdown import leaving_on_signals
from .terminal import TerminalDriver

if TYPE_CHECKING:
    from tui_train.actions.machine_facts import FactsSource


fix_textual()


class Wizard(InstallingApp):
    """From Home through five steps to a running training."""

    TITLE = "tui-train"
    CSS_PATH = "app.tcss"
    # A form takes 78 columns, and what follows from it at least 38.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (118, "-medium"), (140, "-wide")]  # noqa: RUF012 - declared so in App
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "leave", "Quit", show=False, priority=True)]

    def __init__(self, run_folder: str = "", source: "FactsSource | None" = None) -> None:
        """Open on Home, or on a run's folder; for this machine, or for the one that is named."""
        super().__init__(source)
        register_themes(self, read_chosen_theme_name())
        self._run_folder = run_folder
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

    async def run_async(self, *, headless: bool = False, **options: Any) -> int | None:
        """Run until it is left, or ended from outside."""
        if headless:
            return await super().run_async(headless=headless, **options)
        with leaving_on_signals(self.save_and_exit, sys.__stderr__.fileno() if sys.__stderr__ else 2):
            return await super().run_async(headless=headless, **options)

    def get_driver_class(self) -> type[Driver]:
        """Read keys without Textual's waits, unless another driver is named in the environment."""
        kind = super().get_driver_class()
        return TerminalDriver if kind is LinuxDriver else kind

    def get_default_screen(self) -> Screen[None]:
        """Begin on Home."""
        return HomeScreen()

    def on_mount(self) -> None:
        """Look at the machine after the first screen is drawn."""
        if self._run_folder:
            from tui_train.runs.rundir import RunDir

            self.open_run(RunDir(Path(self._run_folder)))
        self.call_after_refresh(self._probe_machine_first_time)

    def _probe_machine_first_time(self) -> None:
        from tui_train.facts.machine.child_process import set_children_cancelled

        set_children_cancelled(cancelled=False)
        self.facts = self.initial_facts
        self.action_look()
        self._import_steps()

    @work(thread=True)
    def _import_steps(self) -> None:
        """Import the steps while nobody waits for them."""
        try:
            for step in STEPS:
                load_module(step.module)
        finally:
            # What is imported stays: to look through all of it for garbage holds every key up for some 40 ms.
            gc.freeze()
            gc.enable()

    def action_leave(self) -> None:
        """Leave the wizard; a live run that is being watched asks first."""
        asks = getattr(self.screen, "ask_before_leaving", None)
        try:
            if (asks is not None and asks()) or self._ask_before_cancelling_installation():
                return
        except Exception as error:  # noqa: BLE001 - whatever fails, the wizard can be left
            self._handle_exception(error)
        self._leave_without_asking()

    def _ask_before_cancelling_installation(self) -> bool:
        """Ask whether an environment that is being made is given up; false when there is none."""
        from ..widgets.dialogs import ChoiceDialog

        if not self.is_installing or isinstance(self.screen, ChoiceDialog):
            return self.is_installing

        def answered(answer: str | None) -> None:
            if answer:
                self._leave_without_asking()

        answers = (("", "Stay here, let it go on"), ("leave", "Cancel it and leave"))
        self.push_screen(ChoiceDialog("An environment is being made.", answers), answered)
        return True

    @on(LeaveWizard)
    def _leave_without_asking(self) -> None:
        self.save_and_exit()

    def save_and_exit(self, code: int = 0) -> None:
        """Keep the last values and end, with an exit code."""
        from tui_train.facts.machine.child_process import set_children_cancelled

        lost = None
        try:
            if left := self._write_last_profile():
                lost = Text(f"tui-train: {left}")
        except Exception as error:  # noqa: BLE001 - as above
            lost = Text(visible(f"tui-train: the last values could not be kept: {error}"))
        set_children_cancelled()
        self.cancel_installation()
        self.exit(code, message=lost)

    def action_help(self) -> None:
        """Explain the present screen."""
        from ..base import WizardScreen
        from ..widgets.dialogs import HelpScreen

        if isinstance(self.screen, WizardScreen):
            self.push_screen(HelpScreen(self.screen.help_lines))

    @on(ErrorToShow)
    def _show_posted_error(self, event: ErrorToShow) -> None:
        self.show_error(event.error)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer what the screen can do, then steps, fields, profiles and runs."""
        from .palette import palette_commands

        return palette_commands(self, screen)

    def action_theme(self, name: str) -> None:
        """Change the colours, and keep them for the next session."""
        apply_theme(self, name)
        save_chosen_theme_name(name)

    def get_key_display(self, binding: Binding) -> str:
        """Write keys as they stand on the keyboard."""
        if binding.key == "enter":
            return "Enter"
        shown = super().get_key_display(binding)
        return shown.capitalize() if len(shown) > 1 and not shown.startswith("^") else shown

    def action_command_palette(self) -> None:
        """Open the palette, unless it is open."""
        from .palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())
