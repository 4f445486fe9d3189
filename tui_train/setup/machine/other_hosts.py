"""The GPUs of the other hosts that train together: which ones, and how many a host could give."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tui_train.base.text import names_text
from tui_train.facts.gpus.gpu_sets import recommended_uuids
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.types import Gpu, TrainingHost
from tui_train.setup.machine.idle_cards import card_numbers_and_names_text
from tui_train.setup.setup import Setup

# Hosts that are named in one sentence.
MAX_NAMED_HOSTS = 4


class PlannedHostCards(NamedTuple):
    """The cards that a host trains on, none where it has no such number; `usable_count` is how many it could train on.

    `why` is why none of its cards can train.
    """

    cards: tuple[Gpu, ...]
    usable_count: int
    why: str = ""


def choose_host_cards(peer: TrainingHost, wanted_count: int, preferred_card_names: Collection[str]) -> PlannedHostCards:
    """Return the choice among a host's cards: those of the first host's kinds, else those recommended there."""
    gpus = peer.gpus
    verdicts = gpu_verdicts(gpus, peer.toolchain, peer.machine.driver_cuda if peer.machine else None)
    usable = tuple(gpu for gpu, verdict in zip(gpus, verdicts, strict=True) if verdict.kind != "blocked")
    if not usable:
        return PlannedHostCards((), 0, next((reason for verdict in verdicts for reason in verdict.reasons), ""))
    alike = tuple(gpu for gpu in usable if gpu.name in preferred_card_names)
    # A busy card is no reason to say that the host has fewer.
    idle = [replace(gpu, processes=(), memory_free=None) for gpu in gpus]
    best = tuple(gpu for gpu in usable if gpu.uuid in recommended_uuids(idle, verdicts))
    cards = next((candidate for candidate in (alike, best) if len(candidate) == wanted_count), ())
    return PlannedHostCards(cards, max(len(alike), len(best)))


def other_hosts_gpu_uuids(setup: Setup) -> tuple[tuple[str, ...], ...]:
    """Return the UUIDs of each host after the first; none for one that finds its own at the start, or on the CPU."""
    profile = setup.profile
    if not profile.nodes.hosts or not setup.gpus or setup.is_slurm_job:
        return ()
    names = {gpu.name for gpu in setup.gpus}
    uuids = tuple(
        tuple(
            gpu.uuid
            for gpu in choose_host_cards(setup.facts.training_hosts.get(host, TrainingHost()), wanted, names).cards
        )
        for host, wanted in zip(profile.nodes.hosts[1:], processes_per_machine(setup)[1:], strict=True)
    )
    return uuids if any(uuids) else ()


def other_hosts_left_out_sentences(setup: Setup) -> Iterator[str]:
    """Yield a sentence for each set of cards that are not used on some of the other hosts."""
    hosts: dict[str, list[str]] = {}
    for host, used in zip(setup.profile.nodes.hosts[1:], other_hosts_gpu_uuids(setup), strict=False):
        there = setup.facts.training_hosts.get(host, TrainingHost()).gpus if used else ()
        if gpus := [gpu for gpu in there if gpu.uuid not in used]:
            hosts.setdefault(card_numbers_and_names_text(gpus), []).append(host)
    for names, host_names in hosts.items():
        yield f"Left out on {names_text(host_names, MAX_NAMED_HOSTS)}: {names}."


def processes_per_machine(setup: Setup) -> tuple[int, ...]:
    """Return the number of processes of each machine."""
    profile = setup.profile
    return profile.nodes.uneven_processes or (setup.first_machine_process_count,) * profile.nodes.machine_count
