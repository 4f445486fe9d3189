"""The wizard: it pushes the steps, which post what they change; it owns the facts and the profile."""

import gc
import os
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.timer import Timer

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.workflow.theme import keep_theme, theme

from . import STEPS
from .ended import listening
from .home import Home
from .messages import (
    CompareRuns,
    Complaint,
    GoBack,
    GoToStep,
    LeaveWizard,
    OpenResult,
    OpenRun,
    OpenStep,
    TryResult,
)
from .reading import Reading
from .terminal import TerminalDriver
from .textual_fixes import fix_textual
from .themes import NAMES, dress, wear

if TYPE_CHECKING:
    from tui_train.profile.types import Profile
    from tui_train.runs.rundir import RunDir
    from tui_train.workflow.machines import Source

    from .step import Step

fix_textual()
_PAINTED = 0.1  # seconds in which a new screen is drawn
_QUIET = 0.15  # seconds without another screen being left, in which the one below is drawn
# There is one draft.
_KEPT = "Your changes are kept as the draft, in place of any before: Home continues it, s on Preview saves a profile."
_MOST_RUNS = 200  # of the newest, in the palette


class Wizard(Reading):
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
        self._clearing: Timer | None = None
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
        from tui_train.facts.ask import give_up

        give_up(now=False)
        self.facts = self.unknown
        self.action_look()
        self._warm()

    @work(thread=True)
    def _warm(self) -> None:
        """Import the steps while nobody waits for them."""
        for step in STEPS:
            import_module(f".{step.module}", __package__)
        # What is imported stays: to look through all of it for garbage holds every key up for some 40 ms.
        gc.freeze()

    @on(OpenStep)
    def _open_step(self, event: OpenStep) -> None:
        kind: type[Step] = import_module(f".{event.module}", __package__).SCREEN
        there = any(isinstance(screen, kind) for screen in self.screen_stack)
        # Of a screen that is covered by now Enter was pressed more than once before the step was there.
        if not there or event._sender is self.screen:  # noqa: SLF001 - nothing else says who asks
            self._show_step(event.module)

    def _show_step(self, module: str) -> None:
        """Open a step, or go back to it where it is open."""
        kind: type[Step] = import_module(f".{module}", __package__).SCREEN
        if self._close_until(lambda screen: isinstance(screen, kind)):
            return
        self._keep()
        if module == "hardware":
            self.action_look(_PAINTED)
        else:
            # Another run may have begun meanwhile.
            if not self.elsewhere:
                self.glance("taken")
            if self.profile.trainer.config:
                # It may have been edited meanwhile, and a copy of it trains.
                self.look("paths")
        self._push(kind())

    @on(GoToStep)
    def _go_to_step(self, event: GoToStep) -> None:
        if event.module == "run":
            return
        if profile := self._profile_of_run():
            self.become(profile, keep=False)
        self._show_step(event.module)

    def _profile_of_run(self) -> "Profile | None":
        """Return the profile of the run that is shown; None where no run is, or it cannot be read."""
        from tui_train.profile import store

        from .ending import Ending

        try:
            return store.load(str(self.screen.run.profile)) if isinstance(self.screen, Ending) else None
        except TuiTrainError as error:
            self.complain(error)
            return None

    def _close_until(self, wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Go back to the newest screen that is wanted; false where there is none."""
        above = next((at for at, screen in enumerate(reversed(self.screen_stack)) if wanted(screen)), None)
        for _ in range(above or 0):
            self._keep()
            self.pop_screen()
        return above is not None

    @on(OpenRun)
    def _open_run(self, event: OpenRun) -> None:
        from .step import Step

        # What was started here takes the place of the steps that led to it.
        while isinstance(self.screen, Step):
            self._keep()
            self.pop_screen()
        self.open_run(event.run)
        if event.said:
            self.notify(event.said, markup=False)

    @on(CompareRuns)
    def _compare(self, event: CompareRuns) -> None:
        from .compare import Compare

        if not isinstance(self.screen, Compare):
            self._push(Compare(event.runs))

    @on(OpenResult)
    def _open_result(self, event: OpenResult) -> None:
        from .result import ResultScreen

        if not isinstance(self.screen, ResultScreen):
            self._push(ResultScreen(event.run, event.made))

    @on(TryResult)
    def _try_result(self, event: TryResult) -> None:
        from .trying import Trying

        if not isinstance(self.screen, Trying):
            self._push(Trying(event.run, compare=event.compare))

    def open_run(self, run: "RunDir") -> None:
        """Show a run, unless it is shown already."""
        from .run import RunScreen

        if not self._close_until(lambda screen: isinstance(screen, RunScreen) and screen.run.path == run.path):
            self._push(RunScreen(run))

    def _push(self, screen: Screen[None]) -> None:
        self.share(screen)
        self.push_screen(screen)

    # What was said on one screen would cover lines of the next.

    def push_screen(self, *screen: Any, **how: Any) -> Any:
        """Show a screen, without what was said on the one before."""
        self.clear_notifications()
        return super().push_screen(*screen, **how)

    def pop_screen(self) -> AwaitComplete:
        """Close a screen with what was said on it, and clear it away once nobody waits.

        Its parts hold each other. Left to Python they would be looked for while the next step is made, which then
        takes twice as long.
        """
        self.clear_notifications()
        if self._clearing:
            self._clearing.stop()
        self._clearing = self.set_timer(_QUIET, _clear_away)
        return super().pop_screen()

    async def action_back(self) -> None:
        """Go back to the step before, from the first one to where the steps were opened; else to the screen below."""
        from .step import Step

        if isinstance(self.screen, Step) and (before := self.screen.module_before):
            there: type[Step] = import_module(f".{before}", __package__).SCREEN
            if not any(isinstance(screen, there) for screen in self.screen_stack):
                self.pop_screen()
            self._show_step(before)
        elif isinstance(self.screen, Step):
            self._close_until(lambda screen: not isinstance(screen, Step))
            if self.edited:
                self.notify(_KEPT, markup=False)
        elif len(self.screen_stack) > 1:
            self._keep()
            self.pop_screen()
        else:
            self.action_leave()

    @on(GoBack)
    def _back(self, event: GoBack) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        if event.said:
            self.notify(event.said, markup=False)

    def action_leave(self) -> None:
        """Leave the wizard; a live run that is being watched asks first."""
        asks = getattr(self.screen, "ask_before_leaving", None)
        try:
            if asks is not None and asks():
                return
        except Exception as error:  # noqa: BLE001 - whatever fails, the wizard can be left
            self._handle_exception(error)
        self._leave()

    @on(LeaveWizard)
    def _leave(self) -> None:
        self.leave()

    def leave(self, code: int = 0) -> None:
        """Keep the last values and end, with an exit code."""
        from tui_train.facts.ask import give_up

        lost = None
        try:
            self._remember()
        except Exception as error:  # noqa: BLE001 - as above
            lost = Text(visible(f"tui-train: the last values could not be kept: {error}"))
        give_up()
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
        """Offer in the palette every action of the screen by its key's words, then steps, fields, profiles, runs."""
        offered: set[str] = set()
        # Those at the bottom of the screen first.
        for active in sorted(screen.active_bindings.values(), key=lambda active: not active.binding.show):
            binding = active.binding
            if binding.description and active.enabled and binding.description not in {"palette", *offered}:
                offered.add(binding.description)
                about = f"Key {self.get_key_display(binding)}"
                yield SystemCommand(binding.description, about, partial(self._act, binding.action, active.node))
        of_run = hasattr(screen, "run")
        for step in STEPS[:-1]:
            about = f"Step {step.title}, with the values of this run" if of_run else "A step"
            yield SystemCommand(f"Go to {step.title}", about, partial(self.action_go, step.module))
        yield from self._fields()
        yield from self._profiles()
        from tui_train.runs.rundir import runs_by_name

        for run in runs_by_name()[:_MOST_RUNS]:
            yield SystemCommand(f"Run {visible(run.name)}", "Open it", partial(self.call_later, self.open_run, run))
        yield SystemCommand("Look again", "Read the machine and its Pythons again", self.action_look)
        for name in NAMES:
            if name != self.theme:
                yield SystemCommand(f"Theme {name}", "Change the colours", partial(self.action_theme, name))

    def _profiles(self) -> Iterable[SystemCommand]:
        """Yield a command for each saved profile: it opens its steps."""
        from tui_train.profile import store

        for name in store.names():
            yield SystemCommand(
                f"Profile {visible(name)}", "Open its steps", partial(self.call_later, self._open_profile, name)
            )

    def _open_profile(self, name: str) -> None:
        from tui_train.profile import store

        try:
            profile = store.load(name)
        except TuiTrainError as error:
            self.complain(error)
            return
        self.become(profile, keep=False)
        self._show_step("hardware")

    def _fields(self) -> Iterable[SystemCommand]:
        """Yield a command for each field of a step's form that the profile has a use for: it goes there."""
        from tui_train.profile import fields
        from tui_train.workflow import choices

        for step in STEPS[:-1]:
            kind: type[Step] = import_module(f".{step.module}", __package__).SCREEN
            for key in (key for section in kind.SECTIONS for key in section.keys):
                if choices.applies(key, self.profile):
                    go = partial(self.action_go, step.module, key)
                    yield SystemCommand(fields.field(key).label, f"{step.title}: {key}", go)

    def action_go(self, module: str, key: str = "") -> None:
        """Show a step, with the cursor on one of its fields."""
        self.post_message(GoToStep(module))
        if key:
            self.set_timer(_PAINTED, partial(self._focus_field, module, key))

    def _focus_field(self, module: str, key: str) -> None:
        there = type(self.screen).__module__.rpartition(".")[2]
        form = getattr(self.screen, "form", None) if there == module else None
        if form is not None and any(row.key == key for row in form.rows):
            form.go(key)

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

    async def _act(self, action: str, node: DOMNode) -> None:
        await self.run_action(action, node)


def _clear_away() -> None:
    gc.collect()
