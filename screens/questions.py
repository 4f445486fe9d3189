"""What the wizard asks of a machine, part by part, and how an answer becomes part of the facts."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tui_train.base.errors import TuiTrainError
from tui_train.profile.types import Profile

from . import IMPORTS

if TYPE_CHECKING:
    from tui_train.facts.types import Facts
    from tui_train.workflow.machines import Source


def _machine(profile: Profile) -> Any:
    from tui_train.facts import probe

    if profile.hardware.scheduler == "none":
        return probe.machine()
    from tui_train.facts.slurm import Submitting, read_cluster
    from tui_train.targets.slurm import planned_for

    cluster = read_cluster()
    return Submitting(planned_for(probe.machine(), cluster, profile), cluster)


def _toolchains(profile: Profile) -> Any:
    from tui_train.facts import probe
    from tui_train.targets.here import named_python

    return probe.toolchains(named_python(profile))


def _paths(profile: Profile) -> Any:
    from tui_train.targets.here import named

    return named(profile)


def _variables(_profile: Profile) -> Any:
    from tui_train.facts.variables import variables

    return variables()


def _engines(_profile: Profile) -> Any:
    from tui_train.facts import images

    return images.engines()


def _taken(profile: Profile) -> Any:
    from tui_train.runs.conflicts import resources_in_use
    from tui_train.targets.here import met_at

    found = resources_in_use(met_at(profile))
    if profile.hardware.scheduler == "none":
        return found
    from tui_train.targets.slurm import taken_by_jobs

    return taken_by_jobs(found)


def _hub(profile: Profile) -> Any:
    from tui_train.facts import hub

    return hub.read_hub_cache(hub.hub_variables(profile))


def _images(profile: Profile) -> Any:
    from tui_train.targets.here import chosen_image

    return chosen_image(profile)


def whole(profile: Profile, source: "Source", typed: str) -> "Facts":
    """Return all facts of another machine; the host that was typed is saved once it has answered."""
    from tui_train.profile import hosts
    from tui_train.workflow.machines import facts_for

    found = facts_for(profile, source)
    if typed and typed == source.host and typed not in hosts.saved_hosts():
        with suppress(TuiTrainError):
            hosts.add(typed)
    return found


def load() -> None:
    """Import what the questions need, once."""
    with IMPORTS:
        import tui_train.workflow.machines  # noqa: F401


# By the name of the part in Facts.
QUESTIONS: dict[str, Callable[[Profile], Any]] = {
    "machine": _machine,
    "toolchains": _toolchains,
    "paths": _paths,
    "variables": _variables,
    "engines": _engines,
    "images": _images,
    "taken": _taken,
    "hub": _hub,
}

# Until these are there a plan is made without them: they may take long, and a start looks again.
WHILE_PLANNED = frozenset({"data", "peers"})
# Of these each answer is about something else, and none of them is forgotten.
_GATHERED = frozenset({"hub_models", "help", "recipes", "data"})
_GATHERED_OF_PATHS = ("paths", "closed", "free", "documents", "models", "sources", "checkpoints")


def with_answer(facts: "Facts", part: str, value: Any) -> "Facts":
    """Return the facts with the answer to a question about a part of them."""
    from tui_train.facts.script_help import with_help
    from tui_train.facts.types import Facts, Machine

    if type(value) is Facts:
        return replace(value, help=facts.help, recipes=facts.recipes, peers=facts.peers)
    if part == "paths":
        # Older answers may come later than newer ones.
        gathered: Any = {name: {**getattr(facts, name), **getattr(value, name)} for name in _GATHERED_OF_PATHS}
        once = {name: getattr(value, name) for name in ("presets", "wandb_key", "accelerate_config")}
        return with_help(replace(facts, **once, **gathered))
    if part in _GATHERED:
        return with_help(replace(facts, **{part: {**getattr(facts, part), **value}}))
    if part == "machine" and type(value) is not Machine:
        return replace(facts, machine=value.machine, cluster=value.cluster)
    return replace(facts, **{part: value})
