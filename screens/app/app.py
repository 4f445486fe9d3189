"""The wizard: it owns profile and facts, takes what its screens post, and opens the screens that they ask for."""

import gc
import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import on, work
from textual.actions import SkipAction
from textual.app import SystemCommand
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Input

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, visible
from tui_train.base.time_limit import TimeLimitError, call_within
from tui_train.views.chosen_theme import read_chosen_theme_name, save_chosen_theme_name

from .. import STEPS, load_step_module
from ..discovery.discovery import DiscoveryApp
from ..home.screen import HomeScreen
from ..messages import (
    ApplyFix,
    CompareRuns,
    ContinueDraft,
    GoBack,
    GoToStep,
    HomeDrawn,
    LeaveWizard,
    OpenEvaluation,
    OpenRun,
    OpenScreen,
    OpenStep,
    SetProfile,
    UndoChange,
    ValueChosen,
)
from ..textual_fixes import fix_textual
from ..themes import apply_theme, register_themes
from .data_reading import DataReader
from .environment_installer import EnvironmentInstaller
from .host_probing import HostProber
from .profile_edits import ProfileEdits
from .shutdown import leaving_on_signals
from .terminal import TerminalDriver

if TYPE_CHECKING:
    from tui_train.actions.evaluate import EvaluationOptions
    from tui_train.checks.finding import EnvironmentInstall
    from tui_train.places.place import Place
    from tui_train.profile.types import Profile
    from tui_train.runs.run_folders import RunFolder

    from ..install.installation import Installation
    from ..run.run_view import RunView
    from ..steps.step import StepScreen

_OTHER_SCREENS_STYLE_FILE = Path(__file__).absolute().with_name("other_screens.tcss")
_NEWEST_RUN_COUNT = 20  # for one that was started since Home was last seen
# Seconds for what is written and read at the end, each: a disk that hangs keeps nobody in the wizard.
_MAX_DISK_SECONDS = 1.5
# Workers whose work is waited for at the end, however long it takes; others may read a disk that hangs.
_CHANGING_WORKER_GROUPS = frozenset(
    {"change", "delete", "fetch", "folder", "install", "make", "resume", "start", "stop"}
)
_PAINT_SECONDS = 0.1  # seconds in which a new screen is drawn
_GARBAGE_DELAY_SECONDS = 0.15  # seconds without another screen being left, in which the one below is drawn
# There is one draft.
_DRAFT_KEPT_NOTICE = "Your changes are kept: Continue the draft on Home opens them again."


fix_textual()


class Wizard(DiscoveryApp):
    """From Home through five steps to a running training."""

    TITLE = "tui-train"
    CSS_PATH = "app.tcss"
    # A form takes 78 columns, and what follows from it at least 38.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (118, "-medium"), (140, "-wide")]  # noqa: RUF012 - declared so in App
    VERTICAL_BREAKPOINTS = [(0, "-low"), (18, "-usual"), (34, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "leave", "Quit", show=False, priority=True),
        # In a dialog, no other binding of the app's is looked at.
        Binding("ctrl+c", "help_quit", show=False, priority=True),
    ]

    def __init__(self, run_folder: str = "", named_place: "Place | None" = None) -> None:
        """Open on Home, or on a run's folder; for this machine, or for the one that is named."""
        super().__init__(named_place)
        register_themes(self, read_chosen_theme_name())
        self._run_folder = run_folder
        self.edits = ProfileEdits(self)
        self._data = DataReader(self)
        self._hosts = HostProber(self)
        self._environment = EnvironmentInstaller(self, self._show_installation_state)
        self._chosen_evaluations: dict[Path, EvaluationOptions] = {}  # by the run's folder, for this session
        self._clear_timer: Timer | None = None
        self._exit_by_force_later: Callable[[int], None] = lambda _code: None
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

    async def run_async(self, *, headless: bool = False, **options: Any) -> int | None:
        """Run until it is left, or ended from outside."""
        if headless:
            return await super().run_async(headless=headless, **options)
        terminal = sys.__stderr__.fileno() if sys.__stderr__ else 2
        with leaving_on_signals(self.save_draft_and_exit, terminal) as self._exit_by_force_later:
            return await super().run_async(headless=headless, **options)

    def get_driver_class(self) -> type[Driver]:
        """Read keys without Textual's waits, unless another driver is named in the environment."""
        kind = super().get_driver_class()
        return TerminalDriver if kind is LinuxDriver else kind

    def get_default_screen(self) -> Screen[None]:
        """Begin on Home."""
        return HomeScreen(is_first=not self._run_folder)

    def on_mount(self) -> None:
        """Open the run that was named, if one was."""
        if self._run_folder:
            from tui_train.runs.run_folders import RunFolder

            self.open_run(RunFolder(Path(self._run_folder)))
            self.call_after_refresh(self._query_facts_and_import_steps)

    @on(HomeDrawn)
    def _query_facts_and_import_steps(self) -> None:
        from tui_train.facts.machine.child_process import set_children_cancelled

        self._read_styles_of_other_screens()
        set_children_cancelled(cancelled=False)
        self.facts = self.initial_facts
        self.action_refresh_facts()
        self._import_steps()

    def _read_styles_of_other_screens(self) -> None:
        """Read the styles that Home has no use for, once: parsing them takes as long as drawing it."""
        if not self.stylesheet.has_source(str(_OTHER_SCREENS_STYLE_FILE)):
            self.stylesheet.read(_OTHER_SCREENS_STYLE_FILE)
            self.stylesheet.parse()

    @work(thread=True)
    def _import_steps(self) -> None:
        """Import the steps while nobody waits for them."""
        try:
            for step in STEPS:
                load_step_module(step.module)
        finally:
            # What is imported stays: to look through all of it for garbage holds every key up for some 40 ms.
            gc.freeze()
            gc.enable()

    def watch_profile(self) -> None:
        """Share it, and look at what a changed one names."""
        super().watch_profile()
        self._data.read_if_changed()
        self._query_hosts_unless_typing()

    def watch_facts(self) -> None:
        """Share them, and ask what they were needed for."""
        super().watch_facts()
        self._data.read_if_changed()
        self._query_hosts_unless_typing()

    def watch_awaited_parts(self) -> None:
        """Share it, and ask the other hosts once nothing of the first one is awaited."""
        super().watch_awaited_parts()
        self._query_hosts_unless_typing()

    def _query_hosts_unless_typing(self) -> None:
        # Half a name may be that of another host: they are asked at the next step.
        if self.edits.edited_key != "nodes.hosts":
            self._hosts.query_hosts_if_changed()

    def action_refresh_facts(self, delay_seconds: float = 0) -> None:
        """Look at everything again, also at the data and the other hosts."""
        self._hosts.forget_answered_hosts()
        self._data.read_again()
        super().action_refresh_facts(delay_seconds)
        self._hosts.query_hosts_if_changed()

    def read_data_again(self) -> None:
        """Read the training data again, and try its rewards."""
        self._data.read_again()

    @on(ValueChosen)
    def _set_chosen_value(self, event: ValueChosen) -> None:
        self.edits.set_chosen_value(event)

    @on(SetProfile)
    def _set_posted_profile(self, event: SetProfile) -> None:
        self.edits.set_posted_profile(event)

    @on(ApplyFix)
    def _apply_fix(self, event: ApplyFix) -> None:
        from tui_train.profile.changes import Change

        if isinstance(event.fix, Change):
            self.edits.apply_fix(event.fix)
        else:
            self.install_environment(event.fix)

    @on(UndoChange)
    def action_undo(self) -> None:
        """Undo the last change of the profile."""
        self.edits.undo()

    @on(ContinueDraft)
    def _continue_draft(self) -> None:
        self._open_step_once(OpenStep(self.edits.continue_draft(), self.screen))

    def install_environment(self, environment: "EnvironmentInstall") -> None:
        """Make an environment, unless one is being made, and show what is done."""
        from ..install.screen import InstallScreen

        self._environment.install_unless_busy(environment)
        if not isinstance(self.screen, InstallScreen):
            self.push_screen(InstallScreen(self._environment.cancel))

    def _show_installation_state(self, installation: "Installation") -> None:
        """Show how an installation goes on, and train with its Python from its end on."""
        from ..install.screen import InstallScreen

        before, self.installation = self.installation, installation
        if not (before and before.is_running):
            return
        here = self.facts is not None and self.facts.host == installation.host
        if installation.python and here:
            self.post_message(ValueChosen("trainer.python", installation.python))
            words = f"{visible(display_path(installation.python))} will train from now on. Ctrl+Z takes it back."
            self.notify(words, markup=False)
        elif installation.failure and not isinstance(self.screen, InstallScreen):
            self.notify(visible(installation.failure), severity="error", timeout=10, markup=False)

    @on(OpenStep)
    def _open_step_once(self, event: OpenStep) -> None:
        kind: type[StepScreen] = load_step_module(event.module).SCREEN
        there = any(isinstance(screen, kind) for screen in self.screen_stack)
        # Of a screen that is covered by now Enter was pressed more than once before the step was there.
        if not there or event.opener in {None, self.screen}:
            self._push_or_return_to_step(event.module)
            if event.notice:
                self.notify(event.notice, markup=False)

    def _push_or_return_to_step(self, module: str, *, goes_back: bool = False) -> None:
        """Open a step, or go back to it where it is open."""
        kind: type[StepScreen] = load_step_module(module).SCREEN
        self.edits.note_step(module, goes_back=goes_back)
        if self._go_back_to_screen(lambda screen: isinstance(screen, kind)):
            return
        self.edits.save_draft_in_background()
        self._hosts.query_hosts_if_changed()
        if module in {"recipe", "preview"}:
            self.query_script_help_if_undecided()
        if module == "hardware":
            self.action_refresh_facts(_PAINT_SECONDS)
        # Another run may have begun meanwhile.
        elif not self.other_machine_name:
            self.refresh_part_quietly("resources_in_use")
            self.refresh_part_quietly("cards_in_queue")
        self.push_screen(kind())

    @on(GoToStep)
    def _go_to_step_with_run_profile(self, event: GoToStep) -> None:
        if event.module == "run":
            return
        if profile := self._profile_of_shown_run():
            self.edits.set_profile(profile, save_as_draft=False)
        self._push_or_return_to_step(event.module)

    def _profile_of_shown_run(self) -> "Profile | None":
        """Return the profile of the run that is shown; None where no run is, or it cannot be read."""
        from tui_train.profile import store

        view: RunView | None = getattr(self.screen, "view", None)
        try:
            return store.load_profile_file(str(view.run.profile_file)) if view else None
        except TuiTrainError as error:
            self.show_error(error)
            return None

    def _go_back_to_screen(self, is_wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Go back to the newest screen that is wanted; false where there is none."""
        above = next((at for at, screen in enumerate(reversed(self.screen_stack)) if is_wanted(screen)), None)
        for _ in range(above or 0):
            self.edits.save_draft_in_background()
            self.pop_screen()
        return above is not None

    @on(OpenRun)
    def _open_run_in_place_of_steps(self, event: OpenRun) -> None:
        self._leave_steps()
        self.open_run(event.run)
        if event.notice:
            self.notify(event.notice, markup=False)

    def _leave_steps(self) -> None:
        """Make room for what was started here: it replaces the steps, and the ended run that was edited."""
        from ..run.screen import RunScreen
        from ..steps.step import StepScreen

        is_started_here = isinstance(self.screen, StepScreen)
        if is_started_here:
            self.edits.forget_started_draft()
        while isinstance(self.screen, StepScreen):
            self.pop_screen()
        if is_started_here and isinstance(self.screen, RunScreen) and not self.screen.view.is_still_training:
            self.pop_screen()

    @on(CompareRuns)
    def _open_comparison(self, event: CompareRuns) -> None:
        from ..compare import CompareScreen
        from ..run.screen import RunScreen

        if not isinstance(self.screen, HomeScreen):
            self._put_home_cursor_on_run(event.runs[-1])  # of those that were started together
        self._leave_steps()
        if not isinstance(self.screen, CompareScreen):
            opened_from = "Run" if isinstance(self.screen, RunScreen) else "Home"
            self.push_screen(CompareScreen(event.runs, opened_from))

    @on(OpenScreen)
    def _open_screen(self, event: OpenScreen) -> None:
        if not isinstance(self.screen, type(event.screen)):
            self.push_screen(event.screen)

    @on(OpenEvaluation)
    def _open_evaluation(self, event: OpenEvaluation) -> None:
        from ..evaluate import EvaluateScreen

        if not isinstance(self.screen, EvaluateScreen):
            self.push_screen(EvaluateScreen(event.run, self._chosen_evaluations))

    def open_run(self, run: "RunFolder") -> None:
        """Show a run, unless it is shown already."""
        from ..run.screen import RunScreen

        self._put_home_cursor_on_run(run)
        if not self._go_back_to_screen(lambda screen: isinstance(screen, RunScreen) and screen.run.path == run.path):
            self.push_screen(RunScreen(run))

    def _put_home_cursor_on_run(self, run: "RunFolder") -> None:
        for home in self.screen_stack:
            if isinstance(home, HomeScreen):
                home.go_to_run(run)

    # What was said on one screen would cover lines of the next.

    def push_screen(self, *screen: Any, **options: Any) -> Any:
        """Show a screen with the values that it shares, without what was said on the one before."""
        self.clear_notifications()
        self._read_styles_of_other_screens()
        if isinstance(screen[0], Screen):
            self.assign_shared_values(screen[0])
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
            there: type[StepScreen] = load_step_module(before).SCREEN
            if not any(isinstance(screen, there) for screen in self.screen_stack):
                self.pop_screen()
            self._push_or_return_to_step(before, goes_back=True)
        elif isinstance(self.screen, StepScreen):
            self._go_back_to_screen(lambda screen: not isinstance(screen, StepScreen))
            if self.edits.is_edited:
                self.notify(_DRAFT_KEPT_NOTICE, markup=False)
        elif len(self.screen_stack) > 1:
            self.edits.save_draft_in_background()
            self.pop_screen()
        else:
            self.action_leave()

    @on(GoBack)
    def _pop_screen_and_notify(self, event: GoBack) -> None:
        if len(self.screen_stack) > 1:
            self.pop_screen()
        if event.notice:
            self.notify(event.notice, markup=False)

    def open_saved_profile(self, name: str) -> None:
        """Open the steps of a saved profile."""
        from tui_train.profile import store

        self.edits.set_profile(store.load_profile_file(name), save_as_draft=False)
        self._push_or_return_to_step("hardware")

    def action_go_home(self) -> None:
        """Show Home; a run keeps training."""
        self._go_back_to_screen(lambda screen: isinstance(screen, HomeScreen))

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

    def action_leave(self) -> None:
        """Leave the wizard; a live run that is being watched asks first."""
        asks = getattr(self.screen, "ask_before_leaving", None)
        try:
            if (asks is not None and asks()) or self._ask_before_leaving_installation():
                return
        except Exception as error:  # noqa: BLE001 - whatever fails, the wizard can be left
            self._handle_exception(error)
        self._leave_without_asking()

    def action_help_quit(self) -> None:
        """Say which key quits, for Ctrl+C ends other programs; where text is selected, it copies that."""
        from ..base import WizardScreen

        typed = self.focused if isinstance(self.focused, Input) else None
        is_copied = bool(self.screen.get_selected_text() or (typed and typed.selected_text))
        done = "copies what is selected" if is_copied else "stops nothing here"
        key = "Ctrl+Q" if typed or not isinstance(self.screen, WizardScreen) else "q"
        self.notify(f"Ctrl+C {done}. {key} quits, and runs go on.", markup=False)
        if is_copied:
            raise SkipAction

    def _ask_before_leaving_installation(self) -> bool:
        """Ask what becomes of an environment that is being made; false when there is none."""
        from ..widgets.dialogs import ChoiceDialog

        if not self._environment.is_busy or isinstance(self.screen, ChoiceDialog):
            return self._environment.is_busy

        def answered(answer: str | None) -> None:
            if answer == "cancel":
                self._environment.cancel()
            if answer:
                self._leave_without_asking()

        answers = (
            ("", "Stay here until it is done"),
            ("leave", "Quit; it goes on, and F2 shows it again"),
            ("cancel", "Cancel the installation and quit"),
        )
        self.push_screen(ChoiceDialog("Packages are still being installed.", answers), answered)
        return True

    @on(LeaveWizard)
    def _leave_without_asking(self, event: LeaveWizard | None = None) -> None:
        self.save_draft_and_exit(last_words=event.last_words if event else "")

    def save_draft_and_exit(self, code: int = 0, *, last_words: str = "") -> None:
        """Keep the last values and end, with an exit code and some words in the terminal."""
        from tui_train.facts.machine.child_process import set_children_cancelled

        left, goes_on = "", ""
        if not any(worker.group in _CHANGING_WORKER_GROUPS and not worker.is_finished for worker in self.workers):
            self._exit_by_force_later(code)
        try:
            left = call_within(_MAX_DISK_SECONDS, self.edits.write_draft_and_name_lost_secrets)
        except TimeLimitError:
            left = "your last changes may be lost: the disk does not answer"
        except Exception as error:  # noqa: BLE001 - as above
            left = visible(f"your last changes could not be saved: {error}")
        with suppress(Exception):
            goes_on = self._continuing_runs_text()
        set_children_cancelled()
        self._environment.leave()
        lines = list(filter(None, (f"tui-train: {left}" if left else "", last_words, goes_on)))
        self.exit(code, message=Text("\n".join(lines)) if lines else None)

    def _continuing_runs_text(self) -> str:
        """Return which runs go on without the wizard: of the newest, and of those that it has shown as live."""
        from tui_train.runs.run_folders import runs_newest_first_by_name
        from tui_train.runs.status import read_live_runs
        from tui_train.views.run_ends import continuing_runs_text

        shown = [run for screen in self.screen_stack if isinstance(screen, HomeScreen) for run in screen.live_runs]

        def read() -> str:
            candidates = {run.path: run for run in (*runs_newest_first_by_name()[:_NEWEST_RUN_COUNT], *shown)}
            return continuing_runs_text(read_live_runs(candidates.values()))

        return call_within(_MAX_DISK_SECONDS, read)

    def action_help(self) -> None:
        """Explain the present screen."""
        from ..base import WizardScreen
        from ..widgets.dialogs import HelpScreen

        if isinstance(self.screen, WizardScreen):
            self.push_screen(HelpScreen(self.screen.help_lines))

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer what the screen can do, then steps, fields, profiles and runs."""
        from .palette import palette_commands

        return palette_commands(self, screen)

    def change_and_save_theme(self, name: str) -> None:
        """Change the colours, and keep them for the next session."""
        apply_theme(self, name)
        save_chosen_theme_name(name)

    def get_key_display(self, binding: Binding) -> str:
        """Write keys as they stand on the keyboard."""
        if binding.key == "enter":
            return "Enter"
        shown = super().get_key_display(binding)
        if shown.startswith("^"):
            return f"Ctrl+{shown[1:].upper()}"
        return shown.capitalize() if len(shown) > 1 else shown

    def action_command_palette(self) -> None:
        """Open the palette, unless it is open."""
        from .palette import Palette

        if not isinstance(self.screen, Palette):
            self.push_screen(Palette())


def _collect_garbage() -> None:
    gc.collect()
