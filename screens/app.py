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
from tui_train.workflow.theme import keep_theme, theme

from . import STEPS, loaded
from .ended import listening
from .home import Home
from .installing import Installing
from .messages import (
    Complaint,
    LeaveWizard,
)
from .terminal import TerminalDriver
from .textual_fixes import fix_textual
from .themes import dress, wear

if TYPE_CHECKING:
    from tui_train.workflow.machines import Source


fix_textual()


class Wizard(Installing):
    """From Home through five steps to a running training."""

    TITLE = "tui-train"
    CSS_PATH = "app.tcss"
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (140, "-wide")]  # noqa: RUF012 - declared so in App
    VERTICAL_BREAKPOINTS = [(0, "-low"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "leave", "Quit", show=False, priority=True)]

    def __init__(self, run: str = "", source: "Source | None" = None) -> None:
        """Open on Home, or on a run's folder; for this machine, or for the one that is named."""
        super().__init__(source)
        dress(self, theme())
        self._run = run
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

    async def run_async(self, *, headless: bool = False, **how: Any) -> int | None:
        """Run until it is left, or ended from outside."""
        if headless:
            return await super().run_async(headless=headless, **how)
        with listening(self.leave, sys.__stderr__.fileno() if sys.__stderr__ else 2):
            return await super().run_async(headless=headless, **how)

    def get_driver_class(self) -> type[Driver]:
        """Read keys without Textual's waits, unless another driver is named in the environment."""
        kind = super().get_driver_class()
        return TerminalDriver if kind is LinuxDriver else kind

    def get_default_screen(self) -> Screen[None]:
        """Begin on Home."""
        return Home()

    def on_mount(self) -> None:
        """Look at the machine after the first screen is drawn."""
        if self._run:
            from tui_train.runs.rundir import RunDir

            self.open_run(RunDir(Path(self._run)))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        from tui_train.facts.ask import cancel_children

        cancel_children(now=False)
        self.facts = self.unknown
        self.action_look()
        self._warm()

    @work(thread=True)
    def _warm(self) -> None:
        """Import the steps while nobody waits for them."""
        try:
            for step in STEPS:
                loaded(step.module)
        finally:
            # What is imported stays: to look through all of it for garbage holds every key up for some 40 ms.
            gc.freeze()
            gc.enable()

    def action_leave(self) -> None:
        """Leave the wizard; a live run that is being watched asks first."""
        asks = getattr(self.screen, "ask_before_leaving", None)
        try:
            if (asks is not None and asks()) or self._asks_of_installation():
                return
        except Exception as error:  # noqa: BLE001 - whatever fails, the wizard can be left
            self._handle_exception(error)
        self._leave()

    def _asks_of_installation(self) -> bool:
        """Ask whether an environment that is being made is given up; false when there is none."""
        from .widgets.dialogs import Ask

        if not self.installs or isinstance(self.screen, Ask):
            return self.installs

        def answered(answer: str | None) -> None:
            if answer:
                self._leave()

        answers = (("", "Stay here, let it go on"), ("leave", "Cancel it and leave"))
        self.push_screen(Ask("An environment is being made.", answers), answered)
        return True

    @on(LeaveWizard)
    def _leave(self) -> None:
        self.leave()

    def leave(self, code: int = 0) -> None:
        """Keep the last values and end, with an exit code."""
        from tui_train.facts.ask import cancel_children

        lost = None
        try:
            if left := self._remember():
                lost = Text(f"tui-train: {left}")
        except Exception as error:  # noqa: BLE001 - as above
            lost = Text(visible(f"tui-train: the last values could not be kept: {error}"))
        cancel_children()
        self.cancel_installation()
        self.exit(code, message=lost)

    def action_help(self) -> None:
        """Explain the present screen."""
        from .base import Base
        from .widgets.dialogs import Help

        if isinstance(self.screen, Base):
            self.push_screen(Help(self.screen.help_lines))

    @on(Complaint)
    def _complaint(self, event: Complaint) -> None:
        self.complain(event.error)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer what the screen can do, then steps, fields, profiles and runs."""
        from .offers import offers

        return offers(self, screen)

    def action_theme(self, name: str) -> None:
        """Change the colours, and keep them for the next session."""
        wear(self, name)
        keep_theme(name)

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
