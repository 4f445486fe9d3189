"""Questions of the wizard to a machine, part by part, and how an answer becomes part of the facts.

To import what they need takes long: a worker does it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from msgspec.structs import asdict, replace

from tui_train.base.errors import TuiTrainError
from tui_train.facts.machine import container_images, inherited_settings, probe
from tui_train.facts.models import hub
from tui_train.facts.other_machines import slurm
from tui_train.facts.scripts.script_help import facts_with_script_help
from tui_train.facts.types import Facts, Machine
from tui_train.places import profile_facts
from tui_train.places.place import Place
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.runner.queue import listing
from tui_train.runs import conflicts


def _query_machine(profile: Profile) -> Any:
    if profile.hardware.scheduler == "none":
        return probe.probe_machine()
    cluster = slurm.read_cluster()
    return slurm.SubmitHost(profile_facts.node_for_profile(probe.probe_machine(), cluster, profile), cluster)


def _query_resources_in_use(profile: Profile) -> Any:
    found = conflicts.resources_in_use(profile_facts.rendezvous_port(profile))
    return found if profile.hardware.scheduler == "none" else profile_facts.resources_shared_with_nodes(found)


def query_host_and_save_typed(profile: Profile, place: Place, typed_host: str) -> Facts:
    """Return all facts of another machine; the host that was typed is saved once it has answered."""
    found = place.probe_facts_for(profile)
    if typed_host and typed_host == place.host and typed_host not in hosts.address_by_saved_host():
        with suppress(TuiTrainError):
            hosts.save_host(typed_host)
    return found


# By the name of the part in Facts; `LOCAL_FACTS_PARTS` has the same.
QUERY_BY_FACTS_PART: dict[str, Callable[[Profile], Any]] = {
    "machine": _query_machine,
    "toolchains": lambda profile: probe.probe_toolchains(profile_facts.python_named_in_profile(profile)),
    "paths": profile_facts.read_profile_files,
    "variables": lambda _profile: inherited_settings.read_inherited_variables(),
    "engines": lambda _profile: container_images.read_engines(),
    "images": profile_facts.probe_chosen_image,
    "resources_in_use": _query_resources_in_use,
    "cards_in_queue": lambda profile: listing.list_cards_in_queue() if profile.hardware.scheduler == "none" else (),
    "hub": lambda profile: hub.read_hub_cache(hub.hub_variables(profile)),
}

# Until these are there a plan is made without them, which says so: they may take long.
FACTS_PARTS_NOT_AWAITED = frozenset({"data", "training_hosts"})
# Of these each answer is about something else, and none of them is forgotten.
_PARTS_MERGED_BY_KEY = frozenset({"hub_models", "help", "recipes", "data"})
# Of the others an answer has what one profile names, and older answers may come later than newer ones.
_PATH_FACTS_READ_WHOLE = frozenset({"presets", "communication", "wandb_key", "accelerate_config", "temporary_folder"})


def facts_with_answer(facts: Facts, facts_part: str, value: Any) -> Facts:
    """Return the facts with the answer to a question about a part of them."""
    if type(value) is Facts:
        return replace(
            value, help=facts.help, recipes=facts.recipes, training_hosts=facts.training_hosts, data=facts.data
        )
    if facts_part == "paths":
        read = {
            name: found if name in _PATH_FACTS_READ_WHOLE else {**getattr(facts, name), **found}
            for name, found in asdict(value).items()
        }
        return facts_with_script_help(replace(facts, **read))
    if facts_part in _PARTS_MERGED_BY_KEY:
        return facts_with_script_help(replace(facts, **{facts_part: {**getattr(facts, facts_part), **value}}))
    if facts_part == "machine" and type(value) is not Machine:
        return replace(facts, machine=value.machine, cluster=value.cluster)
    return replace(facts, **{facts_part: value})
