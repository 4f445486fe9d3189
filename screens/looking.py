"""The part of the wizard that finds things out: it asks in workers, and alone assigns the facts that they bring."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import on
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.profile.types import Profile

from .guard import Guarded
from .messages import AskRecipes, AskScript, Shown
from .questions import QUESTIONS, load, whole, with_answer

if TYPE_CHECKING:
    from tui_train.facts.names import NamesThere
    from tui_train.facts.samples import Samples
    from tui_train.facts.types import Facts, Machine
    from tui_train.targets import Target
    from tui_train.targets.help_question import HelpQuestion
    from tui_train.workflow.machines import Source

_LIVE = "live"
# A second one would only wait for the same answer.
_ONE_AT_A_TIME = frozenset({"machine", "toolchains", "engines"})


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

    def __init__(self, samples: "Samples") -> None:
        """Carry the samples of all of them."""
        super().__init__()
        self.samples = samples


class Looking(Guarded):
    """An app that looks: `looking` are the parts of `facts` that are being asked for, `live` what the cards do now."""

    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive["Facts | None"] = reactive(None, init=False, repaint=False)
    looking: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    live: reactive["Samples"] = reactive((), init=False, repaint=False)

    def __init__(self, source: "Source | None" = None) -> None:
        """Begin with nothing asked, of this machine or of the one that is named."""
        super().__init__()
        self._named = source if source and (source.machine or source.host) else None
        self._asked: dict[str, int] = {}
        self._left: dict[str, int] = {}  # what was asked of the machine before this one
        self._found: Machine | None = None
        self._wanted = False
        self.typed_host = ""  # the one that is saved once it answers
        self._names_there: NamesThere | None = None

    # Not Textual's `data_bind`: the app would hold every screen that was ever bound, until a value changes.
    def share(self, screen: Screen[Any]) -> None:
        """Give a new screen the values that it shares; later ones are assigned as they come."""
        for name in getattr(screen, "SHARED", ()):
            screen.set_reactive(getattr(type(screen), name), getattr(self, name))

    def _assign_to_screens(self, name: str) -> None:
        for screen in self.screen_stack:
            if name in getattr(screen, "SHARED", ()):
                setattr(screen, name, getattr(self, name))

    def watch_profile(self) -> None:
        """Assign it to the screens."""
        self._assign_to_screens("profile")

    def watch_facts(self) -> None:
        """Assign them to the screens."""
        self._assign_to_screens("facts")

    def watch_looking(self) -> None:
        """Assign it to the screens."""
        self._assign_to_screens("looking")

    def watch_live(self) -> None:
        """Assign it to the screens."""
        self._assign_to_screens("live")

    @property
    def _source(self) -> "Source | None":
        return self._source_for(self.profile)

    def _source_for(self, profile: Profile) -> "Source | None":
        """Return the other machine: the one that was named for all, else the profile's; None: this one."""
        if not self._named and not profile.hardware.host:
            return None
        from tui_train.workflow.machines import Source, source_for

        return source_for(profile, self._named or Source())

    @property
    def named(self) -> bool:
        """Whether all is for a machine that was named when the wizard was opened."""
        return self._named is not None

    @property
    def elsewhere(self) -> str:
        """The other machine that all is for, in words; empty: this one."""
        return visible(self._source.host or str(self._source.machine)) if self._source else ""

    @property
    def names_in(self) -> Callable[[str], list[str]]:
        """Return what names the files in a folder of the machine that all is for."""
        from tui_train.facts.names import NamesThere, names_here
        from tui_train.profile import hosts

        host = self._source.host if self._source else ""
        if not host:
            return names_here
        address = hosts.address_of(host)
        if self._names_there is None or self._names_there.host != address:
            self._names_there = NamesThere(address)
        return self._names_there

    @property
    def submits(self) -> bool:
        """Whether trainings are jobs of Slurm, submitted from this machine or from a host."""
        source = self._source
        return bool(source.host and source.slurm) if source else self.profile.hardware.scheduler == "slurm"

    @property
    def where(self) -> str:
        """Where all is for, in words: another machine or Slurm; empty: this machine itself."""
        if not self.submits:
            return self.elsewhere
        return f"{self.elsewhere} (Slurm)" if self.elsewhere else "Slurm"

    @property
    def starts(self) -> bool:
        """Whether trainings can be started on the machine that all is for: not on that of a file."""
        return self._source is None or bool(self._source.host)

    def target_for(self, profile: Profile) -> "Target":
        """Return the machine that a profile is for; never on a screen's thread, for it is imported first."""
        from tui_train.workflow.machines import Source, source_for

        return (self._source_for(profile) or source_for(profile, Source())).target

    @property
    def unknown(self) -> "Facts":
        """What is known before the first look; another machine that could not be asked is not one without cards."""
        return self._unknown("it was not asked yet", "Look again.")

    def _unknown(self, why: str, remedy: str) -> "Facts":
        from tui_train.facts.types import Facts, Gap, Machine

        gap = Gap(f"{self.elsewhere} is not known", why, remedy, hides=True)
        machine = Machine(hostname="", gaps=(gap,) if self.elsewhere else ())
        return Facts(machine=machine, elsewhere=self.elsewhere, scheduler="slurm" if self.submits else "")

    def switch_machine(self) -> None:
        """Forget the machine before, and look at the one that the profile is for now."""
        self._left = {**self._asked}
        self.workers.cancel_group(self, _LIVE)
        self._found, self.live = None, ()
        self.looking = frozenset()
        self.facts = self.unknown
        self.action_look()

    def action_look(self, later: float = 0) -> None:
        """Look at everything again, some seconds later."""
        self.look(*(("machine",) if self._source else QUESTIONS), later=later)

    def look(self, *parts: str, later: float = 0) -> None:
        """Look at some parts again, unless that is under way."""
        wanted = [part for part in parts if part not in self.looking or part not in _ONE_AT_A_TIME]
        self.expect(*wanted)
        if later:
            self.set_timer(later, partial(self.look_at, *wanted))
        else:
            self.look_at(*wanted)

    def refresh_quietly(self, part: str) -> None:
        """Look at a part again; what is known of it counts until then."""
        self._asked[part] = self._asked.get(part, 0) + 1
        self.look_at(part)

    def look_at(self, *parts: str) -> None:
        """Look at parts that are expected, for the present profile."""
        for part in parts:
            question = (
                QUESTIONS[part] if self._source is None else partial(whole, source=self._source, typed=self.typed_host)
            )
            self.ask(part, partial(question, self.profile))

    def expect(self, *parts: str) -> None:
        """Say that parts will be looked at, so that nothing is said to be missing before it is known."""
        for part in parts:
            self._asked[part] = self._asked.get(part, 0) + 1
            self.looking |= {part}

    def ask(self, part: str, question: Callable[[], Any]) -> None:
        """Have a worker answer a question about an expected part."""
        asked = self._asked[part]

        def answer() -> None:
            load()
            self.post_message(Learned(asked, part, question()))

        self.run_worker(answer, name=str(asked), group=part, thread=True, exclusive=True)

    @on(Learned)
    def _learned(self, event: Learned) -> None:
        from tui_train.facts.samples import with_samples
        from tui_train.facts.types import Machine

        facts = self.facts or self.unknown
        newest = event.asked == self._asked.get(event.part)
        if event.asked <= self._left.get(event.part, 0) or (not newest and event.part != "paths"):
            return
        value: Any = event.value
        if type(value) is Machine:
            self._found = value
            self._sample()
            value = with_samples(value, self.live)
        self.facts = with_answer(facts, event.part, value)
        if event.part == "machine":
            self.plan_for_node()
        if newest:
            self.looking -= {event.part}
        if event.part == "hub":
            self.ask_hub()

    def plan_for_node(self) -> None:
        """Take the node that Slurm would give now, where all of the cluster is known."""
        facts = self.facts
        if facts is None or facts.cluster is None or facts.cluster.problem or not self.submits:
            return
        from tui_train.targets.slurm import planned_for

        machine = planned_for(facts.machine, facts.cluster, self.profile)
        if machine != facts.machine:
            self.facts = replace(facts, machine=machine)

    def ask_hub(self) -> None:
        """Ask the Hub about the profile's model, where the cache lacks it and nothing is known of it."""
        from tui_train.resolve.hub import to_ask
        from tui_train.targets.here import asked

        facts, profile = self.facts, self.profile
        name = to_ask(profile, facts) if facts and self._source is None else ""
        if facts and name and name not in facts.hub_models:
            self.expect("hub_models")
            self.ask("hub_models", lambda: asked(profile, facts))

    @on(AskScript)
    def _ask_script(self) -> None:
        from tui_train.targets.help_question import help_question

        try:
            question = help_question(self.profile, self.facts or self.unknown)
        except TuiTrainError as error:
            self.complain(error)
            return
        if "help" in self.looking:
            self.bell()
            return
        self._ask_help(question)

    def ask_undecided(self) -> None:
        """Ask the script for its --help where its source leaves open what the preset `auto` passes."""
        if self._source or self.facts is None or "help" in self.looking:
            return
        from tui_train.targets.help_question import undecided

        if question := undecided(self.profile, self.facts):
            self._ask_help(question)

    def _ask_help(self, question: "HelpQuestion") -> None:
        from tui_train.facts.script_help import ask_script

        self.notify(visible(f"Running {question.key} --help …"), markup=False)
        self.expect("help")
        self.ask("help", lambda: {question.key: ask_script(question.python, question.words, question.folder)})

    @on(AskRecipes)
    def _ask_recipes(self, event: AskRecipes) -> None:
        from tui_train.facts import recipes

        if "recipes" not in self.looking:
            self.notify("Asking NeMo for its recipes: about 15 s.", markup=False)
            self.expect("recipes")
            self.ask("recipes", lambda: {event.python: recipes.recipes(event.python, event.flavour)})

    @on(Shown)
    def _shown(self, event: Shown) -> None:
        self._wanted = event.live
        self._sample()

    def _sample(self) -> None:
        """Begin or end to watch the cards."""
        running = any(worker.group == _LIVE and worker.is_running for worker in self.workers)
        if not self._wanted:
            self.workers.cancel_group(self, _LIVE)
        elif self._found and self._found.gpus and not running and self._source is None:
            self.run_worker(self._watch_cards, name=_LIVE, group=_LIVE, thread=True)

    def _watch_cards(self) -> None:
        from tui_train.facts.live import live_samples

        worker = get_current_worker()
        for told in live_samples(lambda: worker.is_cancelled):
            self.post_message(Sampled(told))

    @on(Sampled)
    def _sampled(self, event: Sampled) -> None:
        from tui_train.facts.samples import with_samples

        self.live = event.samples
        if self._found is None:
            return
        machine = with_samples(self._found, self.live)
        if self.facts and machine != self.facts.machine:
            self.facts = replace(self.facts, machine=machine)

    @on(Worker.StateChanged)
    def _worker_ended(self, event: Worker.StateChanged) -> None:
        if event.state != WorkerState.ERROR:
            return
        part, error = event.worker.group, event.worker.error
        if event.worker.name.isdigit() and int(event.worker.name) <= self._left.get(part, 0):
            return  # of the machine before
        self.looking -= {part}
        known = self.facts is not None and self.facts.machine.hostname
        if self._source and part in QUESTIONS and isinstance(error, TuiTrainError) and not known:
            self.facts = self._unknown(error.message, f"{error.remedy} Then look again.")
