"""The hosts that a profile names, asked as the host on which it starts reaches them."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from tui_train.base.ssh import is_host
from tui_train.facts.peers import peers
from tui_train.facts.types import Facts
from tui_train.profile import hosts
from tui_train.profile.types import Profile
from tui_train.resolve.setup import Setup
from tui_train.trainers import paths_of
from tui_train.workflow.machines import Source, facts_for, source_for


class Asking(NamedTuple):
    """What the hosts are asked, the first one by its name among them as well: whether they have a Python and paths.

    `first` is the host that asks, empty for this machine.
    """

    hosts: tuple[str, ...]
    python: str
    paths: tuple[str, ...]
    first: str


def asking(profile: Profile, facts: Facts, source: Source) -> Asking | None:
    """Return what the other hosts of a profile are to be asked, None where there is nothing to ask."""
    named, chosen = profile.nodes.hosts, source_for(profile, source)
    if len(named) < 2 or chosen.slurm or chosen.machine or not all(map(is_host, named)):
        return None
    setup = Setup(profile, facts)
    toolchain = setup.toolchain
    if setup.problem or toolchain is None or profile.container.engine != "none":
        return None
    paths = tuple(path for path in paths_of(profile) if path != profile.trainer.output)
    return Asking(named, toolchain.python, paths, hosts.address_of(chosen.host) if chosen.host else "")


def facts_to_start(profile: Profile, source: Source, waits: Callable[[str], None] = lambda _: None) -> Facts:
    """Return the facts that a start needs, with what the other hosts say; up to 90 s where they do not answer.

    `waits` gets what may take longer, before it does.
    """
    facts = facts_for(profile, source, waits)
    asked = asking(profile, facts, source)
    return msgspec.structs.replace(facts, peers=peers(*asked)) if asked else facts
