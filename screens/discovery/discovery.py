"""The part of the wizard that queries machines, in workers; only it assigns the facts."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from textual import on
from textual.app import App
from textual.reactive import reactive
from textual.screen import Screen
from textual.worker import Worker, WorkerState, get_current_worker

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import visible
from tui_train.base.time_limit import TimeLimitError, call_within
from tui_train.profile.types import Profile

from .. import IMPORT_LOCK
from ..fault_guard import GuardedApp
from ..messages import QueryRecipes, QueryScriptHelp
from ..screen_words import finding_on_screen

if TYPE_CHECKING:
    from tui_train.checks import Finding
    from tui_train.facts.gpus.samples import CardSamples
    from tui_train.facts.machine.folder_names import RemoteFolderNames
    from tui_train.facts.types import Facts, Machine
    from tui_train.places.help_question import ScriptHelpQuestion
    from tui_train.places.place import Place
    from tui_train.runs.run_folders import RunFolder
    from tui_train.setup.setup import Setup

    from ..install.installation import Installation

# Parts of the facts of this machine that are asked for one by one.
LOCAL_FACTS_PARTS = (
    "machine",
    "toolchains",
    "paths",
    "variables",
    "engines",
    "images",
    "resources_in_use",
    "cards_in_queue",
    "hub",
)
_SAMPLING_WORKER_GROUP, _FILES_WORKER_GROUP = "live", "files"
# A second one would only wait for the same answer.
_MAX_COMPARING_SECONDS = 5.0
_PARTS_QUERIED_ONE_AT_A_TIME = frozenset({"machine", "toolchains", "engines"})


def _make_sharing_watcher(attribute: str) -> Callable[[Any], None]:
    """Return a watcher that assigns a value of the app to the screens that share it."""

    def share(app: App[int]) -> None:
        for screen in app.screen_stack:
            if attribute in getattr(screen, "SHARED_VALUES", ()):
                setattr(screen, attribute, getattr(app, attribute))

    return share


class DiscoveryApp(GuardedApp):
    """App that queries machines and shares the facts with its screens.

    `awaited_parts` are the parts of `facts` being queried, `card_samples` the cards' live load, `installation` the
    environment that is or was made.
    """

    profile: reactive[Profile] = reactive(Profile, init=False, repaint=False)
    facts: reactive["Facts | None"] = reactive(None, init=False, repaint=False)
    awaited_parts: reactive[frozenset[str]] = reactive(frozenset, init=False, repaint=False)
    card_samples: reactive["CardSamples"] = reactive((), init=False, repaint=False)
    installation: reactive["Installation | None"] = reactive(None, init=False, repaint=False)

    def __init__(self, named_place: "Place | None" = None) -> None:
        """Begin with nothing asked, of this machine or of the one that is named."""
        super().__init__()
        self._named_place = named_place
        self._query_numbers: dict[str, int] = {}
        self._setup: Setup | None = None
        self._findings: tuple[Setup, tuple[Finding, ...]] | None = None
        self._query_numbers_before_switch: dict[str, int] = {}  # what was asked of the machine before this one
        self._machine_read: Machine | None = None
        self._wants_samples = False
        self.run_being_edited: RunFolder | None = None  # whose profile was opened last; None: that of no run
        self.typed_host = ""  # the one that is saved once it answers
        self._names_there: RemoteFolderNames | None = None

    def setup_for_profile(self, profile: Profile, facts: "Facts") -> "Setup":
        """Return what a profile means on a machine; of those that are assigned it is made once, for all screens."""
        from tui_train.memory.data_defaults import make_setup

        if self._setup is None or self._setup.profile is not profile or self._setup.facts is not facts:
            self._setup = make_setup(profile, facts)
        return self._setup

    def findings_for(self, setup: "Setup") -> "tuple[Finding, ...]":
        """Return what is wrong with a setup, found once for all screens."""
        from tui_train.checks import find_problems

        if self._findings is None or self._findings[0] is not setup:
            self._findings = setup, tuple(finding_on_screen(each, setup.profile) for each in find_problems(setup))
        return self._findings[1]

    # Not Textual's `data_bind`: the app would hold every screen that was ever bound, until a value changes.
    def assign_shared_values(self, screen: Screen[Any]) -> None:
        """Give a new screen the values that it shares; later ones are assigned as they come."""
        for name in getattr(screen, "SHARED_VALUES", ()):
            screen.set_reactive(getattr(type(screen), name), getattr(self, name))

    watch_profile = _make_sharing_watcher("profile")
    watch_facts = _make_sharing_watcher("facts")
    watch_awaited_parts = _make_sharing_watcher("awaited_parts")
    watch_card_samples = _make_sharing_watcher("card_samples")
    watch_installation = _make_sharing_watcher("installation")

    @property
    def other_place(self) -> "Place | None":
        """The other machine where trainings run: the one named for all, else the profile's; None: this one."""
        return self.place_for(self.profile) if self._named_place or self.profile.hardware.host else None

    @property
    def is_machine_fixed(self) -> bool:
        """True if the machine was named when the wizard was opened."""
        return self._named_place is not None

    @property
    def other_machine_name(self) -> str:
        """The other machine where trainings run, in words; empty: this one."""
        return visible(self.other_place.host or str(self.other_place.machine_file)) if self.other_place else ""

    @property
    def list_folder_names(self) -> Callable[[str], list[str]]:
        """Return what names the files in a folder of the machine that all is for."""
        from tui_train.facts.machine.folder_names import RemoteFolderNames, names_in_local_folder
        from tui_train.profile import hosts

        host = self.other_place.host if self.other_place else ""
        if not host:
            return names_in_local_folder
        address = hosts.host_address(host)
        if self._names_there is None or self._names_there.host != address:
            self._names_there = RemoteFolderNames(address)
        return self._names_there

    @property
    def uses_slurm(self) -> bool:
        """True where trainings are jobs of Slurm, submitted from this machine or from a host."""
        place = self.other_place
        return bool(place.host and place.slurm) if place else self.profile.hardware.scheduler == "slurm"

    @property
    def other_machine_title(self) -> str:
        """The other machine or Slurm cluster where trainings run, in words; empty: this machine."""
        if not self.uses_slurm:
            return self.other_machine_name
        return f"{self.other_machine_name} (Slurm)" if self.other_machine_name else "Slurm"

    @property
    def can_start(self) -> bool:
        """True where trainings can be started on the machine that all is for: not on that of a file."""
        return self.other_place is None or bool(self.other_place.host)

    def place_for(self, profile: Profile) -> "Place":
        """Return the machine that a profile is for; never on a screen's thread, for it is imported first."""
        from tui_train.actions.machine_facts import place_for_profile
        from tui_train.places.place import Place

        return place_for_profile(profile, self._named_place or Place())

    @property
    def initial_facts(self) -> "Facts":
        """Facts before the first look; another machine that could not be asked is not one without cards."""
        return self._facts_of_unknown_machine("it was not asked yet", "Look again.")

    def _facts_of_unknown_machine(self, why: str, remedy: str) -> "Facts":
        from tui_train.facts.types import FactGap, Facts, Machine

        gap = FactGap(f"{self.other_machine_name} is not known", why, remedy, hides=True)
        machine = Machine(hostname="", gaps=(gap,) if self.other_machine_name else ())
        return Facts(
            machine=machine, other_machine=self.other_machine_name, scheduler="slurm" if self.uses_slurm else ""
        )

    def forget_machine_and_query(self) -> None:
        """Forget the facts of the machine before, and query the one that the profile names now."""
        self._query_numbers_before_switch = {**self._query_numbers}
        self.workers.cancel_group(self, _SAMPLING_WORKER_GROUP)
        self._machine_read, self.card_samples = None, ()
        self.awaited_parts = frozenset()
        self.facts = self.initial_facts
        self.action_refresh_facts()

    def action_refresh_facts(self, delay_seconds: float = 0) -> None:
        """Query all parts of the facts again, some seconds later."""
        self.refresh_parts(*(("machine",) if self.other_place else LOCAL_FACTS_PARTS), delay_seconds=delay_seconds)

    def read_data_again(self) -> None:
        """Read the training data again, where the app reads it."""

    def read_changed_files(self, findings: "Iterable[Finding]" = ()) -> None:
        """Read the files that the profile names again, where they are no longer as they were read.

        Rewards that one of the `findings` is about are tried again in any case: what they failed by may be elsewhere.
        """
        if any(finding.key == "finetune.rewards" for finding in findings):
            self.read_data_again()
        if self.facts is None or self.other_place or "paths" in self.awaited_parts or self.are_files_being_compared:
            return
        compare = partial(self._read_files_if_changed, self.profile, self.facts)
        self.run_worker(compare, name=_FILES_WORKER_GROUP, group=_FILES_WORKER_GROUP, thread=True, exclusive=True)

    def _read_files_if_changed(self, profile: Profile, facts: "Facts") -> None:
        with IMPORT_LOCK:
            from tui_train.places.profile_facts import have_files_changed
        # A disk that does not answer holds nothing up.
        with suppress(TimeLimitError):
            if call_within(_MAX_COMPARING_SECONDS, partial(have_files_changed, profile, facts)):
                self.call_later(self.refresh_parts, "paths")

    @property
    def are_files_being_compared(self) -> bool:
        """True until it is known whether the files that the profile names are as they were read."""
        return any(worker.group == _FILES_WORKER_GROUP and not worker.is_finished for worker in self.workers)

    def refresh_parts(self, *parts: str, delay_seconds: float = 0) -> None:
        """Query some parts of the facts again, unless that is under way."""
        wanted = [part for part in parts if part not in self.awaited_parts or part not in _PARTS_QUERIED_ONE_AT_A_TIME]
        self.mark_parts_awaited(*wanted)
        if delay_seconds:
            self.set_timer(delay_seconds, partial(self.query_parts, *wanted))
        else:
            self.query_parts(*wanted)

    def refresh_part_quietly(self, facts_part: str) -> None:
        """Query a part of the facts again; its old value stays until the answer."""
        self._query_numbers[facts_part] = self._query_numbers.get(facts_part, 0) + 1
        self.query_parts(facts_part)

    def query_parts(self, *parts: str) -> None:
        """Query the awaited parts of the facts, for the present profile."""
        for part in parts:
            question = partial(_answer_about_part, part, self.profile, self.other_place, self.typed_host)
            self.run_query(part, question)

    def mark_parts_awaited(self, *parts: str) -> None:
        """Mark parts of the facts as awaited, so that nothing is reported as missing before it is known."""
        for part in parts:
            self._query_numbers[part] = self._query_numbers.get(part, 0) + 1
            self.awaited_parts |= {part}

    def run_query(self, facts_part: str, question: Callable[[], Any]) -> None:
        """Answer a question about an awaited part of the facts in a worker."""
        number = self._query_numbers[facts_part]

        def answer() -> None:
            # What merges an answer is imported before that is done on the app's thread.
            with IMPORT_LOCK:
                from . import machine_queries  # noqa: F401
            self.call_later(self._merge_answer_into_facts, number, facts_part, question())

        self.run_worker(answer, name=str(number), group=facts_part, thread=True, exclusive=True)

    def _merge_answer_into_facts(self, query_number: int, part: str, value: Any) -> None:
        from tui_train.facts.gpus.samples import machine_with_new_problems
        from tui_train.facts.types import Machine

        from .machine_queries import facts_with_answer

        facts = self.facts or self.initial_facts
        newest = query_number == self._query_numbers.get(part)
        if query_number <= self._query_numbers_before_switch.get(part, 0) or (not newest and part != "paths"):
            return
        if type(value) is Machine:
            self._machine_read = value
            self._start_or_stop_sampling()
            value = machine_with_new_problems(value, self.card_samples)
        self.facts = facts_with_answer(facts, part, value)
        if part == "machine":
            self.use_node_slurm_would_allocate()
        if newest:
            self.awaited_parts -= {part}
        if part == "hub":
            self.query_hub_if_model_unknown()

    def use_node_slurm_would_allocate(self) -> None:
        """Use the node that Slurm would allocate now, if the whole cluster is known."""
        facts = self.facts
        if facts is None or facts.cluster is None or facts.cluster.problem or not self.uses_slurm:
            return
        from tui_train.places.profile_facts import node_for_profile

        machine = node_for_profile(facts.machine, facts.cluster, self.profile)
        if machine != facts.machine:
            self.facts = replace(facts, machine=machine)

    def query_hub_if_model_unknown(self) -> None:
        """Ask the Hub about the profile's model, where the cache lacks it and nothing is known of it."""
        from tui_train.places.profile_facts import query_uncached_hub_model
        from tui_train.setup.recipe.hub_model import model_to_query

        facts, profile = self.facts, self.profile
        name = model_to_query(profile, facts) if facts and self.other_place is None else ""
        if facts and name and name not in facts.hub_models:
            self.mark_parts_awaited("hub_models")
            self.run_query("hub_models", lambda: query_uncached_hub_model(profile, facts))

    @on(QueryScriptHelp)
    def _query_script_help(self) -> None:
        from tui_train.places.help_question import script_help_question

        question = script_help_question(self.profile, self.facts or self.initial_facts)
        if "help" in self.awaited_parts:
            self.bell()
            return
        self._run_script_help(question)

    def query_script_help_if_undecided(self) -> None:
        """Ask the script for its --help where its source leaves open what the preset `auto` passes."""
        if self.other_place or self.facts is None or "help" in self.awaited_parts:
            return
        from tui_train.places.help_question import script_help_question_for_auto_preset

        if question := script_help_question_for_auto_preset(self.profile, self.facts):
            self._run_script_help(question)

    def _run_script_help(self, question: "ScriptHelpQuestion") -> None:
        from tui_train.facts.scripts.script_help import read_script_help

        self.notify(visible(f"Running {question.key} --help …"), markup=False)
        self.mark_parts_awaited("help")
        self.run_query(
            "help", lambda: {question.key: read_script_help(question.python, question.words, question.folder)}
        )

    @on(QueryRecipes)
    def _query_recipes(self, event: QueryRecipes) -> None:
        from tui_train.facts.models import nemo_models

        if "recipes" not in self.awaited_parts:
            self.notify("Asking NeMo for its recipes: about 15 s.", markup=False)
            self.mark_parts_awaited("recipes")
            self.run_query("recipes", lambda: {event.python: nemo_models.probe_recipes(event.python, event.flavour)})

    def sample_cards_while_wanted(self, *, wanted: bool) -> None:
        """Sample the cards from now on, or no longer: the screen on top shows them, or does not."""
        self._wants_samples = wanted
        self._start_or_stop_sampling()

    def _start_or_stop_sampling(self) -> None:
        """Start or stop sampling the cards."""
        running = any(worker.group == _SAMPLING_WORKER_GROUP and worker.is_running for worker in self.workers)
        if not self._wants_samples:
            self.workers.cancel_group(self, _SAMPLING_WORKER_GROUP)
        elif self._machine_read and self._machine_read.gpus and not running and self.other_place is None:
            self.run_worker(
                self._post_samples_until_cancelled,
                name=_SAMPLING_WORKER_GROUP,
                group=_SAMPLING_WORKER_GROUP,
                thread=True,
            )

    def _post_samples_until_cancelled(self) -> None:
        from tui_train.facts.gpus.live_samples import yield_changed_samples

        worker = get_current_worker()
        for latest in yield_changed_samples(lambda: worker.is_cancelled):
            self.call_later(self._set_live_samples, latest)

    def _set_live_samples(self, samples: "CardSamples") -> None:
        from tui_train.facts.gpus.samples import machine_with_new_problems

        self.card_samples = samples
        if self._machine_read is None:
            return
        machine = machine_with_new_problems(self._machine_read, self.card_samples)
        if self.facts and machine != self.facts.machine:
            self.facts = replace(self.facts, machine=machine)

    @on(Worker.StateChanged)
    def _end_failed_query(self, event: Worker.StateChanged) -> None:
        if event.state != WorkerState.ERROR:
            return
        part, error = event.worker.group, event.worker.error
        if event.worker.name.isdigit() and int(event.worker.name) <= self._query_numbers_before_switch.get(part, 0):
            return  # of the machine before
        self.awaited_parts -= {part}
        known = self.facts is not None and self.facts.machine.hostname
        if self.other_place and part in LOCAL_FACTS_PARTS and isinstance(error, TuiTrainError) and not known:
            self.facts = self._facts_of_unknown_machine(error.message, f"{error.remedy} Then look again.")


def _answer_about_part(part: str, profile: Profile, place: "Place | None", typed_host: str) -> Any:
    """Return the answer of this machine, or all facts of another one, which tells them in one answer."""
    from .machine_queries import QUERY_BY_FACTS_PART, query_host_and_save_typed

    return query_host_and_save_typed(profile, place, typed_host) if place else QUERY_BY_FACTS_PART[part](profile)
