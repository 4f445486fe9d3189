"""Questions of the wizard to a machine, part by part, and how an answer becomes part of the facts."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tui_train.base.errors import TuiTrainError
from tui_train.profile.types import Profile

from .. import IMPORT_LOCK

if TYPE_CHECKING:
    from tui_train.actions.machine_facts import FactsSource
    from tui_train.facts.types import Facts


def _query_machine(profile: Profile) -> Any:
    from tui_train.facts.machine import probe

    if profile.hardware.scheduler == "none":
        return probe.probe_machine()
    from tui_train.facts.other_machines.slurm import SubmitHost, read_cluster
    from tui_train.places.profile_facts import node_for_profile

    cluster = read_cluster()
    return SubmitHost(node_for_profile(probe.probe_machine(), cluster, profile), cluster)


def _query_toolchains(profile: Profile) -> Any:
    from tui_train.facts.machine import probe
    from tui_train.places.profile_facts import python_named_in_profile

    return probe.probe_toolchains(python_named_in_profile(profile))


def _query_profile_files(profile: Profile) -> Any:
    from tui_train.places.profile_facts import read_profile_files

    return read_profile_files(profile)


def _query_variables(_profile: Profile) -> Any:
    from tui_train.facts.machine.inherited_settings import read_inherited_variables

    return read_inherited_variables()


def _query_engines(_profile: Profile) -> Any:
    from tui_train.facts.machine import container_images

    return container_images.read_engines()


def _query_resources_in_use(profile: Profile) -> Any:
    from tui_train.places.profile_facts import rendezvous_port
    from tui_train.runs.conflicts import resources_in_use

    found = resources_in_use(rendezvous_port(profile))
    if profile.hardware.scheduler == "none":
        return found
    from tui_train.places.profile_facts import resources_shared_with_nodes

    return resources_shared_with_nodes(found)


def _query_cards_in_queue(profile: Profile) -> Any:
    from tui_train.runner.queue.listing import list_cards_in_queue

    return list_cards_in_queue() if profile.hardware.scheduler == "none" else ()


def _query_hub_cache(profile: Profile) -> Any:
    from tui_train.facts.models import hub

    return hub.read_hub_cache(hub.hub_variables(profile))


def _query_image(profile: Profile) -> Any:
    from tui_train.places.profile_facts import read_chosen_image

    return read_chosen_image(profile)


def query_host_and_save_typed(profile: Profile, source: "FactsSource", typed_host: str) -> "Facts":
    """Return all facts of another machine; the host that was typed is saved once it has answered."""
    from tui_train.actions.machine_facts import probe_facts_for_profile
    from tui_train.profile import hosts

    found = probe_facts_for_profile(profile, source)
    if typed_host and typed_host == source.host and typed_host not in hosts.address_by_saved_host():
        with suppress(TuiTrainError):
            hosts.save_host(typed_host)
    return found


def import_query_modules() -> None:
    """Import what the questions need, once."""
    with IMPORT_LOCK:
        import tui_train.actions.machine_facts  # noqa: F401


# By the name of the part in Facts.
QUERY_BY_FACTS_PART: dict[str, Callable[[Profile], Any]] = {
    "machine": _query_machine,
    "toolchains": _query_toolchains,
    "paths": _query_profile_files,
    "variables": _query_variables,
    "engines": _query_engines,
    "images": _query_image,
    "resources_in_use": _query_resources_in_use,
    "cards_in_queue": _query_cards_in_queue,
    "hub": _query_hub_cache,
}

# Until these are there a plan is made without them: they may take long, and a start looks again.
FACTS_PARTS_NOT_AWAITED = frozenset({"data", "training_hosts"})
# Of these each answer is about something else, and none of them is forgotten.
_PARTS_MERGED_BY_KEY = frozenset({"hub_models", "help", "recipes", "data"})
_MERGED_PATH_FACTS = ("paths", "similar_paths", "unwritable", "free", "documents", "models", "sources", "checkpoints")
_PATH_FACTS_READ_WHOLE = ("presets", "wandb_key", "accelerate_config", "temporary_folder")


def facts_with_answer(facts: "Facts", facts_part: str, value: Any) -> "Facts":
    """Return the facts with the answer to a question about a part of them."""
    from tui_train.facts.scripts.script_help import facts_with_script_help
    from tui_train.facts.types import Facts, Machine

    if type(value) is Facts:
        return replace(
            value, help=facts.help, recipes=facts.recipes, training_hosts=facts.training_hosts, data=facts.data
        )
    if facts_part == "paths":
        # Older answers may come later than newer ones.
        gathered: Any = {name: {**getattr(facts, name), **getattr(value, name)} for name in _MERGED_PATH_FACTS}
        once = {name: getattr(value, name) for name in _PATH_FACTS_READ_WHOLE}
        return facts_with_script_help(replace(facts, **once, **gathered))
    if facts_part in _PARTS_MERGED_BY_KEY:
        return facts_with_script_help(replace(facts, **{facts_part: {**getattr(facts, facts_part), **value}}))
    if facts_part == "machine" and type(value) is not Machine:
        return replace(facts, machine=value.machine, cluster=value.cluster)
    return replace(facts, **{facts_part: value})
