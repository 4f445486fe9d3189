"""The wizard: it owns the facts and the profile and alone assigns them; steps are pushed and post what they change."""

import os
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.worker import Worker, WorkerState

from tui_train.changes import apply
from tui_train.errors import BadInput, TuiTrainError
from tui_train.facts.types import Facts, Machine, PathState, Toolchain
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.text import visible

from . import STEPS
from .home import Home
from .messages import Become, Chosen, Complaint, GoHome, LeaveWizard, Mend, OpenRun, OpenStep

if TYPE_CHECKING:
    from tui_train.runs.rundir import RunDir

    from .step import Step

_UNDO = 100


class Learned(Message):
    """A part of the facts is there."""

    def __init__(self, part: str, value: Any) -> None:
        """Carry the part's name in Facts, and its value."""
        super().__init__()
        self.part = part
        self.value = value


class Wizard(App[int]):
    """From Home through five steps to a running training."""

    TITLE = "tui-train"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "leave", "Quit", show=False, priority=True)]

    profile: reactive[Profile] = reactive(Profile, init=False)
    facts: reactive[Facts | None] = reactive(None, init=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False)

    def __init__(self, run: str = "") -> None:
        """Open on Home, or on a run's folder."""
        super().__init__()
        self._run = run
        self._before: list[Profile] = []
        if os.environ.get("SSH_CONNECTION"):
            self.animation_level = "none"

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
        self.facts = Facts(machine=Machine(hostname=""))
        self.action_look()
        self._warm()

    @work(thread=True, exit_on_error=False)
    def _warm(self) -> None:
        """Import the steps while nobody waits for them."""
        for step in STEPS:
            import_module(f".{step.module}", __package__)

    def action_look(self) -> None:
        """Look at the machine, its Pythons and the profile's paths anew."""
        self.looking = frozenset({"machine", "toolchains"})
        self._look_machine()
        self._look_toolchains()
        self._look_paths()

    @work(thread=True, exclusive=True, group="machine", exit_on_error=False)
    def _look_machine(self) -> None:
        from tui_train.facts import probe

        self.post_message(Learned("machine", probe.machine()))

    @work(thread=True, exclusive=True, group="toolchains", exit_on_error=False)
    def _look_toolchains(self) -> None:
        from tui_train.facts import probe
        from tui_train.workflow import named_python

        self.post_message(Learned("toolchains", probe.toolchains(named_python(self.profile))))

    @work(thread=True, exclusive=True, group="paths", exit_on_error=False)
    def _look_paths(self) -> None:
        from tui_train.facts import probe

        self.post_message(Learned("paths", probe.paths(fields.paths_of(self.profile))))

    @on(Learned)
    def _learned(self, event: Learned) -> None:
        facts = self.facts or Facts(machine=Machine(hostname=""))
        self.looking -= {event.part}
        machine: Machine = event.value if event.part == "machine" else facts.machine
        toolchains: tuple[Toolchain, ...] = event.value if event.part == "toolchains" else facts.toolchains
        # Older answers may come later than newer ones: none of them is forgotten.
        paths: dict[str, PathState] = {**facts.paths, **event.value} if event.part == "paths" else facts.paths
        self.facts = Facts(machine=machine, toolchains=toolchains, paths=paths)

    @on(Worker.StateChanged)
    def _worker_ended(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR:
            self.looking -= {event.worker.group}
            self.complain(TuiTrainError(f"{event.worker.name}: {event.worker.error}", "Please report this fault."))

    @on(Chosen)
    def _chosen(self, event: Chosen) -> None:
        try:
            self.become(fields.put(self.profile, event.key, event.value))
        except BadInput as error:
            self.complain(error)

    @on(Mend)
    def _mend(self, event: Mend) -> None:
        change = event.change
        try:
            self.become(apply(change, self.profile))
        except BadInput as error:
            self.complain(error)
        else:
            self.notify(f"{change.title}: {change.why}. Ctrl+Z takes it back.", markup=False)

    @on(Become)
    def _become(self, event: Become) -> None:
        self.become(event.profile)

    def become(self, profile: Profile) -> None:
        """Make this the profile; the one before can be had back."""
        if profile != self.profile:
            self._before = [*self._before[-_UNDO:], self.profile]
            self._assign(profile)

    def action_undo(self) -> None:
        """Take the last change back."""
        if self._before:
            self._assign(self._before.pop())
        else:
            self.bell()

    def _assign(self, profile: Profile) -> None:
        paths = fields.paths_of(profile) != fields.paths_of(self.profile)
        python = profile.trainer.python != self.profile.trainer.python
        self.profile = profile
        if paths:
            self._look_paths()
        if python and self.facts and profile.trainer.python not in {tool.python for tool in self.facts.toolchains}:
            self._look_toolchains()

    @on(OpenStep)
    def _open_step(self, event: OpenStep) -> None:
        screen: Step = import_module(f".{event.module}", __package__).SCREEN()
        self.push_screen(screen.data_bind(Wizard.profile, Wizard.facts, Wizard.looking))

    @on(OpenRun)
    def _open_run(self, event: OpenRun) -> None:
        self.open_run(event.run)

    def open_run(self, run: "RunDir") -> None:
        """Show a run."""
        from .run import RunScreen

        self.push_screen(RunScreen(run))

    async def action_back(self) -> None:
        """Go back to the screen before."""
        if len(self.screen_stack) > 1:
            self.pop_screen()
        else:
            self.action_leave()

    @on(GoHome)
    def _home(self) -> None:
        while len(self.screen_stack) > 1:
            self.pop_screen()

    def action_leave(self) -> None:
        """Leave the wizard; a live run that is being watched asks first."""
        asks = getattr(self.screen, "ask_before_leaving", None)
        if asks is not None and asks():
            return
        self._leave()

    @on(LeaveWizard)
    def _leave(self) -> None:
        from tui_train.workflow import remember

        if self._before:
            remember(self.profile)
        self.exit(0)

    def action_help(self) -> None:
        """Explain the present screen."""
        from .base import Base
        from .widgets.dialogs import Help

        if isinstance(self.screen, Base):
            self.push_screen(Help(self.screen.help_text()))

    @on(Complaint)
    def _complaint(self, event: Complaint) -> None:
        self.complain(event.error)

    def complain(self, error: TuiTrainError) -> None:
        """Show an error with its remedy."""
        self.notify(visible(f"{error.message}. {error.remedy}"), severity="error", timeout=10, markup=False)

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Offer every action of the screen in the palette, by its key's words."""
        offered: set[str] = set()
        for active in screen.active_bindings.values():
            binding = active.binding
            if binding.description and active.enabled and binding.description not in {"palette", *offered}:
                offered.add(binding.description)
                about = f"Key {self.get_key_display(binding)}"
                yield SystemCommand(binding.description, about, partial(self._act, binding.action, active.node))
        yield SystemCommand("Look again", "Look at this machine and its Pythons anew", self.action_look)
        yield SystemCommand("Theme", "Change the colours", self.action_change_theme)

    async def _act(self, action: str, node: DOMNode) -> None:
        await self.run_action(action, node)
