"""The GPUs of the other hosts that train together: which ones, and how many a host could give."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from tui_train.facts.gpus import gpu_verdicts
from tui_train.facts.sets import recommended
from tui_train.facts.types import Gpu, Peer
from tui_train.resolve.idle import named
from tui_train.resolve.setup import Setup

# Hosts that are named in one sentence.
_NAMED = 4


class Choice(NamedTuple):
    """The cards that a host trains on, none where it has no such number; `able` is how many it could train on.

    `why` is why none of its cards can train.
    """

    cards: tuple[Gpu, ...]
    able: int
    why: str = ""


def choose(peer: Peer, wanted: int, names: Collection[str]) -> Choice:
    """Return the choice among a host's cards: those of the first host's kinds, else those recommended there."""
    gpus = peer.gpus
    verdicts = gpu_verdicts(gpus, peer.toolchain, peer.machine.driver_cuda if peer.machine else None)
    usable = tuple(gpu for gpu, verdict in zip(gpus, verdicts, strict=True) if verdict.kind != "blocked")
    if not usable:
        return Choice((), 0, next((reason for verdict in verdicts for reason in verdict.reasons), ""))
    alike = tuple(gpu for gpu in usable if gpu.name in names)
    # A busy card is no reason to say that the host has fewer.
    idle = [replace(gpu, processes=(), memory_free=None) for gpu in gpus]
    best = tuple(gpu for gpu in usable if gpu.uuid in recommended(idle, verdicts))
    cards = next((found for found in (alike, best) if len(found) == wanted), ())
    return Choice(cards, max(len(alike), len(best)))


def others(setup: Setup) -> tuple[tuple[str, ...], ...]:
    """Return the UUIDs of each host after the first; none for one that finds its own at the start, or on the CPU."""
    profile = setup.profile
    if not profile.nodes.hosts or not setup.gpus or setup.scheduled:
        return ()
    names = {gpu.name for gpu in setup.gpus}
    found = tuple(
        tuple(gpu.uuid for gpu in choose(setup.facts.peers.get(host, Peer()), wanted, names).cards)
        for host, wanted in zip(profile.nodes.hosts[1:], counts(setup)[1:], strict=True)
    )
    return found if any(found) else ()


def left_out(setup: Setup) -> Iterator[str]:
    """Yield a sentence for each set of cards that are not used on some of the other hosts."""
    hosts: dict[str, list[str]] = {}
    for host, used in zip(setup.profile.nodes.hosts[1:], others(setup), strict=False):
        gpus = [gpu for gpu in setup.facts.peers.get(host, Peer()).gpus if gpu.uuid not in used] if used else []
        if gpus:
            hosts.setdefault(named(gpus), []).append(host)
    for names, on in hosts.items():
        yield f"Left out on {', '.join(on[:_NAMED])}{' …' if len(on) > _NAMED else ''}: {names}."


def counts(setup: Setup) -> tuple[int, ...]:
    """Return the number of processes of each machine."""
    profile = setup.profile
    return profile.nodes.uneven or (setup.processes,) * profile.nodes.machines
