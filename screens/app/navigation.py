"""The way through the screens: steps forth and back, runs, results; each screen that is left is released."""

import gc
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from textual import on
from textual.await_complete import AwaitComplete
from textual.screen import Screen
from textual.timer import Timer

from tui_train.base.errors import TuiTrainError

from .. import load_module
from ..messages import CompareRuns, GoBack, GoToStep, OpenDataPreview, OpenResult, OpenRun, OpenStep, TryResult
from .host_probing import HostProbingApp

if TYPE_CHECKING:
    from tui_train.profile.types import Profile
    from tui_train.runs.rundir import RunDir

    from ..run.run_view import RunView
    from ..steps.step import StepScreen

_PAINT_SECONDS = 0.1  # seconds in which a new screen is drawn
_GARBAGE_DELAY_SECONDS = 0.15  # seconds without another screen being left, in which the one below is drawn
# There is one draft.
_DRAFT_KEPT_NOTICE = (
    "Your changes are kept as the draft, in place of any before: Home continues it, s on Preview saves a profile."
)


class NavigationApp(HostProbingApp):
    """An app that opens the screens which others ask for, and goes back from them."""

    _clear_timer: Timer | None = None

    def action_leave(self) -> None:
        """Leave the app."""
        raise NotImplementedError

    @on(OpenStep)
    def _open_step(self, event: OpenStep) -> None:
        kind: type[StepScreen] = load_module(event.module).SCREEN
        there = any(isinstance(screen, kind) for screen in self.screen_stack)
        # Of a screen that is covered by now Enter was pressed more than once before the step was there.
        if not there or event.opener in {None, self.screen}:
            self._show_step(event.module)
            if event.notice:
                self.notify(event.notice, markup=False)

    def _show_step(self, module: str) -> None:
        """Open a step, or go back to it where it is open."""
        kind: type[StepScreen] = load_module(module).SCREEN
        if self._go_back_to_screen(lambda screen: isinstance(screen, kind)):
            return
        self._save_draft_in_background()
        self.ask_training_hosts()
        if module in {"recipe", "preview"}:
            self.ask_script_help_if_undecided()
        if module == "hardware":
            self.action_look(_PAINT_SECONDS)
        else:
            # Another run may have begun meanwhile.
            if not self.other_machine:
                self.refresh_quietly("resources_in_use")
            if self.profile.trainer.config:
                # It may have been edited meanwhile, and a copy of it trains.
                self.refresh_parts("paths")
        self._push_with_shared_values(kind())

    @on(GoToStep)
    def _go_to_step(self, event: GoToStep) -> None:
        if event.module == "run":
            return
        if profile := self._profile_of_shown_run():
            self.set_profile(profile, save_as_draft=False)
        self._show_step(event.module)

    def _profile_of_shown_run(self) -> "Profile | None":
        """Return the profile of the run that is shown; None where no run is, or it cannot be read."""
        from tui_train.profile import store

        view: RunView | None = getattr(self.screen, "view", None)
        try:
            return store.load_profile_file(str(view.run.profile)) if view else None
        except TuiTrainError as error:
            self.show_error(error)
            return None

    def _go_back_to_screen(self, is_wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Go back to the newest screen that is wanted; false where there is none."""
        above = next((at for at, screen in enumerate(reversed(self.screen_stack)) if is_wanted(screen)), None)
        for _ in range(above or 0):
            self._save_draft_in_background()
            self.pop_screen()
        return above is not None

    @on(OpenRun)
    def _open_run(self, event: OpenRun) -> None:
        from ..steps.step import StepScreen

        # What was started here takes the place of the steps that led to it.
        while isinstance(self.screen, StepScreen):
            self._save_draft_in_background()
            self.pop_screen()
        self.open_run(event.run)
        if event.notice:
            self.notify(event.notice, markup=False)

    @on(CompareRuns)
    def _open_comparison(self, event: CompareRuns) -> None:
        from ..compare import CompareScreen

        if not isinstance(self.screen, CompareScreen):
            self._push_with_shared_values(CompareScreen(event.runs))

    @on(OpenResult)
    def _open_result(self, event: OpenResult) -> None:
        from ..result import ResultScreen

        if not isinstance(self.screen, ResultScreen):
            self._push_with_shared_values(ResultScreen(event.run, event.result))

    @on(TryResult)
    def _open_chat(self, event: TryResult) -> None:
        from ..chat.screen import ChatScreen

        if not isinstance(self.screen, ChatScreen):
            self._push_with_shared_values(ChatScreen(event.run, compare=event.compare))

    @on(OpenDataPreview)
    def _open_data_preview(self) -> None:
        from ..data.screen import DataPreviewScreen
        from ..steps.step import StepScreen

        if not isinstance(self.screen, DataPreviewScreen):
            self._push_with_shared_values(
                DataPreviewScreen(self.screen.step_title if isinstance(self.screen, StepScreen) else "")
            )

    def open_run(self, run: "RunDir") -> None:
        """Show a run, unless it is shown already."""
        from ..run.screen import RunScreen

        if not self._go_back_to_screen(lambda screen: isinstance(screen, RunScreen) and screen.run.path == run.path):
            self._push_with_shared_values(RunScreen(run))

    def _push_with_shared_values(self, screen: Screen[None]) -> None:
        self.assign_shared_values(screen)
        self.push_screen(screen)

    # What was said on one screen would cover lines of the next.

    def push_screen(self, *screen: Any, **options: Any) -> Any:
        """Show a screen, without what was said on the one before."""
        self.clear_notifications()
        if isinstance(screen[0], Screen):
            self._add_size_classes(screen[0])
        return super().push_screen(*screen, **options)

    def _add_size_classes(self, screen: Screen[Any]) -> None:
        # Textual sets them once the screen has been drawn, and then draws all of it a second time.
        sides = (self.size.width, self.HORIZONTAL_BREAKPOINTS), (self.size.height, self.VERTICAL_BREAKPOINTS)
        for cells, breakpoints in sides:
            _, name = max(each for each in breakpoints or () if each[0] <= cells)
            screen.add_class(name, update=False)

    def pop_screen(self) -> AwaitComplete:
        """Close a screen with what was said on it, and clear it away once nobody waits.

        Its parts hold each other. Left to Python they would be looked for while the next step is made, which then
        takes twice as long.
        """
        self.clear_notifications()
        if self._clear_timer:
            self._clear_timer.stop()
        self._clear_timer = self.set_timer(_GARBAGE_DELAY_SECONDS, _collect_garbage)
        return super().pop_screen()

    async def action_back(self) -> None:
        """Go back to the step before, from the first one to where the steps were opened; else to the screen below."""
        from ..steps.step import StepScreen

        if isinstance(self.screen, StepScreen) and (before := self.screen.previous_step_module):
            there: type[StepScreen] = load_module(before).SCREEN
            if not any(isinstance(screen, there) for screen in self.screen_stack):
                self.pop_screen()
            self._show_step(before)
        elif isinstance(self.screen, StepScreen):
            self._go_back_to_screen(lambda screen: not isinstance(screen, StepScreen))
            if self.is_edited:
                self.notify(_DRAFT_KEPT_NOTICE, markup=False)
        elif len(self.screen_stack) > 1:
            self._save_draft_in_background()
            self.pop_screen()
        else:
            self.action_leave()

    @on(GoBack)
    def _go_back(self, event: GoBack) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        if event.notice:
            self.notify(event.notice, markup=False)

    def open_profile(self, name: str) -> None:
        """Open the steps of a saved profile."""
        from tui_train.profile import store

        try:
            profile = store.load_profile_file(name)
        except TuiTrainError as error:
            self.show_error(error)
            return
        self.set_profile(profile, save_as_draft=False)
        self._show_step("hardware")

    def action_go_to_step(self, module: str, key: str = "") -> None:
        """Show a step, with the cursor on one of its fields."""
        self.post_message(GoToStep(module))
        if key:
            self.set_timer(_PAINT_SECONDS, partial(self._focus_field, module, key))

    def _focus_field(self, module: str, key: str) -> None:
        there = type(self.screen).__module__.split(".")[-2]
        form = getattr(self.screen, "form", None) if there == module else None
        if form is not None and any(row.key == key for row in form.state.rows):
            form.go_to_row(key)


def _collect_garbage() -> None:
    gc.collect()
