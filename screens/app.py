"""The wizard: it owns the facts and the profile and alone assigns them; steps are pushed and post what they change."""

import os
import threading
from collections.abc import Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace
from textual import on, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from tui_train.changes import apply
from tui_train.errors import BadInput, TuiTrainError
from tui_train.facts.samples import Samples, with_samples
from tui_train.facts.types import Facts, Machine
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.text import visible

from . import STEPS
from .home import Home
from .messages import (
    Anew,
    AskRecipes,
    AskScript,
    Become,
    Chosen,
    Complaint,
    GoHome,
    LeaveWizard,
    Mend,
    OpenRun,
    OpenStep,
    Shown,
)

if TYPE_CHECKING:
    from tui_train.runs.rundir import RunDir
    from tui_train.workflow import HelpQuestion

    from .step import Step

_UNDO = 100


class Learned(Message):
    """A part of the facts is there."""

    def __init__(self, asked: int, part: str, value: Any) -> None:
        """Carry which look it was, the part's name in Facts, and its value."""
        super().__init__()
        self.asked = asked
        self.part = part
        self.value = value


class Sampled(Message):
    """What the cards do has changed."""

    def __init__(self, samples: Samples) -> None:
        """Carry the samples of all of them."""
        super().__init__()
        self.samples = samples


class Wizard(App[int]):
    """From Home through five steps to a running training."""

    TITLE = "tui-train"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+q", "leave", "Quit", show=False, priority=True)]

    profile: reactive[Profile] = reactive(Profile, init=False)
    facts: reactive[Facts | None] = reactive(None, init=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False)
    live: reactive[Samples] = reactive((), init=False)

    def __init__(self, run: str = "") -> None:
        """Open on Home, or on a run's folder."""
        super().__init__()
        self._run = run
        self._before: list[Profile] = []
        self._key = ""
        self._kept: Profile | None = None
        self._remembered: Profile | None = None
        self._remembering = threading.Lock()
        self._asked: dict[str, int] = {}
        self._found = Machine(hostname="")
        self._wanted = False
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
        from tui_train.facts.ask import give_up

        give_up(now=False)
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
        if "machine" not in self.looking:
            self._look_machine(self._ask("machine"))
        if "toolchains" not in self.looking:
            self._look_toolchains(self._ask("toolchains"))
        self._look_paths(self._ask("paths"))
        self._look_variables(self._ask("variables"))
        if "engines" not in self.looking:
            self._look_engines(self._ask("engines"))
        self._look_image(self._ask("images"))

    def _ask(self, part: str) -> int:
        """Note that a part of the facts is looked at, and return which look it is."""
        self._asked[part] = self._asked.get(part, 0) + 1
        self.looking |= {part}
        return self._asked[part]

    @work(thread=True, exclusive=True, group="machine", exit_on_error=False)
    def _look_machine(self, asked: int) -> None:
        from tui_train.facts import probe

        self.post_message(Learned(asked, "machine", probe.machine()))

    @work(thread=True, exclusive=True, group="toolchains", exit_on_error=False)
    def _look_toolchains(self, asked: int) -> None:
        from tui_train.facts import probe
        from tui_train.workflow import named_python

        self.post_message(Learned(asked, "toolchains", probe.toolchains(named_python(self.profile))))

    @work(thread=True, exclusive=True, group="paths", exit_on_error=False)
    def _look_paths(self, asked: int) -> None:
        from tui_train.workflow import named

        self.post_message(Learned(asked, "paths", named(self.profile)))

    @on(AskScript)
    def _ask_script(self) -> None:
        from tui_train.workflow import help_question

        try:
            question = help_question(self.profile, self.facts or Facts(machine=Machine(hostname="")))
        except TuiTrainError as error:
            self.complain(error)
            return
        if "help" in self.looking:
            self.bell()
            return
        self.notify(visible(f"Running {question.key} --help …"), markup=False)
        self._look_help(self._ask("help"), question)

    @work(thread=True, exclusive=True, group="help", exit_on_error=False)
    def _look_help(self, asked: int, question: "HelpQuestion") -> None:
        from tui_train.facts.script_help import ask_script

        found = ask_script(question.python, question.words, question.folder)
        self.post_message(Learned(asked, "help", {question.key: found}))

    @work(thread=True, exclusive=True, group="variables", exit_on_error=False)
    def _look_variables(self, asked: int) -> None:
        from tui_train.facts.variables import variables

        self.post_message(Learned(asked, "variables", variables()))

    @work(thread=True, exclusive=True, group="engines", exit_on_error=False)
    def _look_engines(self, asked: int) -> None:
        from tui_train.facts import images

        self.post_message(Learned(asked, "engines", images.engines()))

    @work(thread=True, exclusive=True, group="images", exit_on_error=False)
    def _look_image(self, asked: int) -> None:
        from tui_train.workflow import chosen_image

        self.post_message(Learned(asked, "images", chosen_image(self.profile)))

    @on(AskRecipes)
    def _ask_recipes(self, event: AskRecipes) -> None:
        if "recipes" not in self.looking:
            self.notify("Asking NeMo for its recipes: about 15 s.", markup=False)
            self._look_recipes(self._ask("recipes"), event.python)

    @work(thread=True, exclusive=True, group="recipes", exit_on_error=False)
    def _look_recipes(self, asked: int, python: str) -> None:
        from tui_train.facts import recipes

        self.post_message(Learned(asked, "recipes", {python: recipes.recipes(python)}))

    @on(Learned)
    def _learned(self, event: Learned) -> None:
        facts = self.facts or Facts(machine=Machine(hostname=""))
        newest = event.asked == self._asked.get(event.part)
        if not newest and event.part != "paths":
            return
        value = event.value
        if event.part == "paths":
            # Older answers may come later than newer ones: none of them is forgotten.
            paths, documents = {**facts.paths, **value.paths}, {**facts.documents, **value.documents}
            self.facts = replace(facts, paths=paths, documents=documents, presets=value.presets)
        elif event.part in {"help", "recipes"}:
            self.facts = replace(facts, **{event.part: {**getattr(facts, event.part), **value}})
        elif event.part == "machine":
            self._found = value
            self._sample()
            self.facts = replace(facts, machine=with_samples(value, self.live))
        else:
            self.facts = replace(facts, **{event.part: value})
        if newest:
            self.looking -= {event.part}

    @on(Shown)
    def _shown(self, event: Shown) -> None:
        self._wanted = event.live
        self._sample()

    def _sample(self) -> None:
        """Begin or end to watch the cards."""
        running = any(worker.group == "live" and worker.is_running for worker in self.workers)
        if not self._wanted:
            self.workers.cancel_group(self, "live")
        elif self._found.gpus and not running:
            self._watch_cards()

    @work(thread=True, exclusive=True, group="live", exit_on_error=False)
    def _watch_cards(self) -> None:
        from tui_train.facts.live import samples

        worker = get_current_worker()
        for told in samples(lambda: worker.is_cancelled):
            self.post_message(Sampled(told))

    @on(Sampled)
    def _sampled(self, event: Sampled) -> None:
        self.live = event.samples
        machine = with_samples(self._found, self.live)
        if self.facts and machine != self.facts.machine:
            self.facts = replace(self.facts, machine=machine)

    @on(Worker.StateChanged)
    def _worker_ended(self, event: Worker.StateChanged) -> None:
        if event.state == WorkerState.ERROR:
            self.looking -= {event.worker.group}
            self.complain(TuiTrainError(f"{event.worker.name}: {event.worker.error}", "Please report this fault."))

    @on(Chosen)
    def _chosen(self, event: Chosen) -> None:
        try:
            self.become(fields.put(self.profile, event.key, event.value), event.key)
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
            self.notify(visible(f"{change.title}: {change.why}. Ctrl+Z takes it back."), markup=False)

    @on(Become)
    def _become(self, event: Become) -> None:
        self.become(event.profile, keep=event.keep)

    @on(Anew)
    def _anew(self) -> None:
        from tui_train.workflow import last

        self.become(self._kept or last(), keep=False)

    def become(self, profile: Profile, key: str = "", *, keep: bool = True) -> None:
        """Make this the profile; the one before can be had back, that before all edits of one key in a row."""
        if profile == self.profile:
            return
        if not key or key != self._key:
            self._before = [*self._before[-_UNDO:], self.profile]
        self._key = key
        if keep:
            self._kept = profile
        self._assign(profile)

    def action_undo(self) -> None:
        """Take the last change back."""
        self._key = ""
        if self._before:
            self._assign(self._before.pop())
            self._kept = self.profile
        else:
            self.bell()

    def _assign(self, profile: Profile) -> None:
        paths = fields.paths_of(profile) != fields.paths_of(self.profile)
        known = {tool.python for tool in self.facts.toolchains} if self.facts else set()
        python = profile.trainer.python != self.profile.trainer.python and profile.trainer.python not in {"", *known}
        # First what is looked at, so that nothing is said to be missing before it is known.
        asked_paths = self._ask("paths") if paths else 0
        asked_python = self._ask("toolchains") if python else 0
        image = (profile.container.engine, profile.container.image)
        other_image = image != (self.profile.container.engine, self.profile.container.image)
        asked_image = self._ask("images") if other_image else 0
        self.profile = profile
        if paths:
            self._look_paths(asked_paths)
        if python:
            self._look_toolchains(asked_python)
        if other_image:
            self._look_image(asked_image)

    @on(OpenStep)
    def _open_step(self, event: OpenStep) -> None:
        kind: type[Step] = import_module(f".{event.module}", __package__).SCREEN
        if any(isinstance(screen, kind) for screen in self.screen_stack):
            return  # Enter was pressed more than once before the step was there
        self._keep()
        if event.module == "hardware":
            self.action_look()
        elif self.profile.trainer.config:
            # It may have been edited meanwhile, and a copy of it trains.
            self._look_paths(self._ask("paths"))
        screen = kind()
        self.push_screen(screen.data_bind(Wizard.profile, Wizard.facts, Wizard.looking, Wizard.live))

    @on(OpenRun)
    def _open_run(self, event: OpenRun) -> None:
        self.open_run(event.run)

    def open_run(self, run: "RunDir") -> None:
        """Show a run, unless it is shown already."""
        from .run import RunScreen

        if any(isinstance(screen, RunScreen) and screen.run.path == run.path for screen in self.screen_stack):
            return
        self.push_screen(RunScreen(run).data_bind(Wizard.live))

    async def action_back(self) -> None:
        """Go back to the screen before."""
        if len(self.screen_stack) > 1:
            self._keep()
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
        from tui_train.facts.ask import give_up

        self._remember()
        give_up()
        self.exit(0)

    def _keep(self) -> None:
        """Remember the profile while nobody waits for it, so that a lost connection does not lose it."""
        if self._kept != self._remembered:
            self._keep_now()

    @work(thread=True, group="keep", exit_on_error=False)
    def _keep_now(self) -> None:
        self._remember()

    def _remember(self) -> None:
        from tui_train.workflow import remember

        with self._remembering:
            kept = self._kept
            if kept is not None and kept != self._remembered:
                remember(kept)
                self._remembered = kept

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
