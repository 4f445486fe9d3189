"""The hosts that a profile names, asked as the host on which it starts reaches them."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tui_train.actions.host_data import facts_with_data_on_host
from tui_train.actions.machine_facts import place_for_profile
from tui_train.channel.ssh import is_host_name
from tui_train.facts.other_machines.training_hosts import probe_hosts
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.places.place import Place
from tui_train.plan.render.prepare import PreparedPlan, prepare_plan
from tui_train.profile.store import store_webhook_of_profile
from tui_train.profile.types import Container, Profile
from tui_train.setup.setup import Setup
from tui_train.trainers import profile_paths_to_check


class TrainingHostsQuestion(NamedTuple):
    """Question to the hosts, the first one by its name among them: whether they have a Python or an image, and paths.

    `python` is empty in a container. `asking_host` is the host that asks, empty for this machine.
    """

    hosts: tuple[str, ...]
    python: str
    paths: tuple[str, ...]
    asking_host: str
    container: Container


def training_hosts_question(profile: Profile, facts: Facts, named_place: Place) -> TrainingHostsQuestion | None:
    """Return what the other hosts of a profile are to be asked, None where there is nothing to ask."""
    named, chosen = profile.nodes.hosts, place_for_profile(profile, named_place)
    if len(named) < 2 or chosen.slurm or chosen.machine_file or not all(map(is_host_name, named)):
        return None
    setup = Setup(profile, facts)
    toolchain = setup.toolchain
    if setup.preset_error or toolchain is None:
        return None
    # In a container trains the Python of the image.
    python = toolchain.python if profile.container.engine == "none" else ""
    paths = tuple(path for path in profile_paths_to_check(profile) if path != profile.trainer.output)
    return TrainingHostsQuestion(named, python, paths, chosen.address, profile.container)


def probe_facts_for_start(
    profile: Profile, named_place: Place, on_wait: Callable[[str], None] = lambda _: None
) -> Facts:
    """Return the facts that a start needs, with the data of a host and what the other hosts of the profile say.

    Up to 90 s where they do not answer, and two minutes for the data; `on_wait` gets what may take longer, before that.
    """
    chosen = place_for_profile(profile, named_place)
    facts = chosen.probe_facts_for(profile, on_wait)
    if chosen.host and not chosen.slurm:
        facts = facts_with_data_on_host(profile, facts, chosen.host, on_wait)
    question = training_hosts_question(profile, facts, chosen)
    return msgspec.structs.replace(facts, training_hosts=probe_hosts(*question)) if question else facts


def prepare_plan_and_place(profile: Profile) -> tuple[PreparedPlan, Place]:
    """Return what starting a profile takes and what was found, and where it starts; takes up to some seconds."""
    kept = store_webhook_of_profile(profile)
    place = place_for_profile(kept)
    return prepare_plan(make_setup(kept, probe_facts_for_start(kept, place))), place
