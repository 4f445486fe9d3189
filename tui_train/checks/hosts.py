"""Checks of the other hosts that a training is started on over ssh, against the first one."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tui_train.base.text import counted, visible
from tui_train.checks.finding import Finding
from tui_train.facts.types import Facts, Gpu, Peer, Toolchain
from tui_train.launchers import LAUNCHERS
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve.others import choose, counts
from tui_train.resolve.setup import Setup
from tui_train.trainers import trainer_of

# Hosts that are named in one finding.
_NAMED = 4
# Seconds after which clocks confuse whoever reads the logs.
_APART = 30.0
_INSTALL = "Install the same versions on all hosts."
_PACKAGES = ("trl", "peft", "deepspeed", "nemo_toolkit")


class _First(NamedTuple):
    """The host on which it starts, and what it trains with; `uneven`: the others may have numbers of their own."""

    host: str
    facts: Facts
    toolchain: Toolchain | None
    gpus: tuple[Gpu, ...]
    uneven: bool


class _Wrong(NamedTuple):
    """What is wrong with a host; an empty `remedy` is to see why it does not answer.

    `processes` is how many it could have instead, 0 where that would not help.
    """

    level: Literal["error", "warning"]
    what: str
    remedy: str
    processes: int = 0


def differences(setup: Setup) -> Iterator[Finding]:
    """Hosts that answer, and have what the first one trains with: Python, versions, GPUs, files, the time of day."""
    profile, facts = setup.profile, setup.facts
    first, *others = profile.nodes.hosts or ("",)
    known = {host: facts.peers[host] for host in others if host in facts.peers}
    if at := next((host for host, peer in known.items() if peer.is_first), ""):
        # The others are compared once the right one is first.
        yield _twice(profile, at) if _is_first(facts, first) else _wrong_order(profile, at)
        return
    by_fault: dict[_Wrong, list[str]] = {}
    able = LAUNCHERS[setup.launcher].UNEVEN and trainer_of(profile).uneven
    # A number of processes that is wrong for the first host is a finding of its own.
    compares = setup.device == "cuda" and (profile.nodes.uneven or setup.processes == len(setup.gpus))
    against = _First(first, facts, setup.toolchain, setup.gpus if compares else (), able)
    for host, wanted in zip(others, counts(setup)[1:], strict=False):
        for wrong in _wrong(facts.peers[host], wanted, against) if host in known else ():
            by_fault.setdefault(wrong, []).append(host)
    for wrong, names in by_fault.items():
        is_error = wrong.level == "error"
        remedy = wrong.remedy or f"On {first} `ssh -o BatchMode=yes {names[0]} true` must work. Then look again."
        yield Finding(
            level=wrong.level,
            key="nodes.hosts",
            message=visible(f"{_listed(names)}: {wrong.what}"),
            remedy=visible(remedy),
            machine=True,
            start=is_error,
            change=_instead(names, wrong.processes, setup) if is_error else None,
        )


def _is_first(facts: Facts, host: str) -> bool:
    return host in facts.peers and facts.peers[host].is_first


def _twice(profile: Profile, at: str) -> Finding:
    message = f"{profile.nodes.hosts[0]} and {at} are the same machine"
    return _misnamed(message, "Name each machine once.", _without(profile, [at]))


def _wrong_order(profile: Profile, at: str) -> Finding:
    hosts, counts = profile.nodes.hosts, profile.nodes.processes
    places = sorted(range(len(hosts)), key=lambda place: hosts[place] != at)
    values = (
        ("nodes.hosts", tuple(hosts[place] for place in places)),
        *((("nodes.processes", tuple(counts[place] for place in places)),) if len(counts) == len(hosts) else ()),
    )
    change = Change(visible(f"put {at} first"), "it starts the others", values)
    message = f"it would start on {at}, and {profile.nodes.hosts[0]} is named first"
    return _misnamed(message, "Name the host on which it starts first.", change)


def _misnamed(message: str, remedy: str, change: Change) -> Finding:
    return Finding(
        level="error",
        key="nodes.hosts",
        message=visible(message),
        remedy=remedy,
        machine=True,
        start=True,
        change=change,
    )


def _instead(names: list[str], processes: int, setup: Setup) -> Change:
    """Return the change that has some hosts train with a number of processes of their own, or leaves them out."""
    profile = setup.profile
    if not processes:
        return _without(profile, names)
    now = dict(zip(profile.nodes.hosts, profile.nodes.uneven, strict=False))
    counts = {host: now.get(host, setup.processes) for host in profile.nodes.hosts} | dict.fromkeys(names, processes)
    title = visible(f"{counted(processes, 'process', 'processes')} on {_listed(names)}")
    total = counted(sum(counts.values()), "process", "processes")
    return Change(title, f"{total} in all", (("nodes.processes", tuple(counts.values())),))


def _without(profile: Profile, names: list[str]) -> Change:
    """Return the change that leaves hosts out; the first one alone needs none to be named."""
    kept = [place for place, host in enumerate(profile.nodes.hosts) if host not in names]
    left = tuple(profile.nodes.hosts[place] for place in kept) if len(kept) > 1 else ()
    counts = tuple(count for place, count in enumerate(profile.nodes.processes) if left and place in kept)
    values = (("nodes.hosts", left), *((("nodes.processes", counts),) if profile.nodes.processes else ()))
    return Change(visible(f"train without {_listed(names)}"), "fewer machines", values)


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_NAMED])} and {counted(more, 'other')}"


def _wrong(peer: Peer, wanted: int, first: _First) -> Iterator[_Wrong]:
    if peer.problem:
        yield _Wrong("error", peer.problem, "")
        return
    if first.toolchain:
        yield from _python(peer, first.host, first.toolchain)
    if first.gpus:
        yield from _cards(peer, wanted, first)
    for path, state in peer.paths.items():
        if state in {"missing", "unreadable"} and first.facts.paths.get(path) in {"file", "folder"}:
            why = "there is no" if state == "missing" else "it may not read"
            yield _Wrong("error", f"{why} {path}", f"Copy it there from {first.host}, to the same path.")
    if abs(peer.ahead) > _APART:
        side = "ahead of" if peer.ahead > 0 else "behind"
        # To the minute, or equal faults of hosts would differ.
        apart = counted(max(1, round(abs(peer.ahead) / 60)), "minute")
        yield _Wrong(
            "warning",
            f"the clock is about {apart} {side} that of {first.host}",
            "Set it (NTP): times in the logs do not match.",
        )


def _python(peer: Peer, first: str, own: Toolchain) -> Iterator[_Wrong]:
    there, python = peer.toolchain, own.python
    if there is None or there.problem:
        missing = peer.paths.get(own.python) == "missing"
        words = f"there is no {python}" if missing else f"{python} does not run there"
        yield _Wrong("error", words, "Put the same environment at the same path there.")
        return
    if _release(there.torch) != _release(own.torch):
        yield _Wrong("error", f"{_named('torch', there.torch)}, {first} has {own.torch or 'none'}", _INSTALL)
    elif there.cuda != own.cuda:
        builds = f"torch for CUDA {there.cuda or 'none'}, {first} has it for {own.cuda or 'none'}"
        yield _Wrong("warning", builds, _INSTALL)
    ours, theirs = _versions(own), _versions(there)
    other = [name for name in ours if ours[name] != theirs[name]]
    if other:
        has = ", ".join(_named(name, theirs[name]) for name in other)
        yield _Wrong("warning", f"{has}; {first} has {', '.join(ours[name] or 'none' for name in other)}", _INSTALL)


def _release(version: str | None) -> str:
    """Return a version without what it was built for."""
    return (version or "").partition("+")[0]


def _versions(tool: Toolchain) -> dict[str, str]:
    """Return the versions of what must agree among processes, besides torch."""
    python = ".".join(tool.version.split(".")[:2])
    named = {"Python": python, "accelerate": tool.accelerate or "", "transformers": tool.transformers or ""}
    return named | {name: tool.packages.get(name, "") for name in _PACKAGES}


def _named(name: str, version: str | None) -> str:
    return f"{name} {version}" if version else f"no {name}"


def _cards(peer: Peer, wanted: int, first: _First) -> Iterator[_Wrong]:
    if peer.machine is None:
        remedy = f"nvidia-smi gives no answer there over ssh; {first.host} asks again at the start."
        yield _Wrong("warning", "its GPUs are not known", remedy)
        return
    names = dict.fromkeys(gpu.name for gpu in first.gpus)
    cards, able, why = choose(peer, wanted, names)
    if why:
        yield _Wrong("error", f"no GPU there can train: {why}", "Fix that, or leave it out.")
    elif not cards:
        has = counted(able, "GPU") if able else "no GPU"
        at = f"{first.host} trains on {wanted}" if wanted == len(first.gpus) else f"{wanted} are to train"
        own = "give each machine its own number (nodes.processes)"
        less = own if first.uneven else f"choose another number on {first.host} (hardware.gpus)"
        yield _Wrong("error", f"{has}, and {at}", f"Leave it out, or {less}.", able if first.uneven else 0)
    elif other := Counter(gpu.name for gpu in cards) - Counter({name: len(cards) for name in names}):
        kinds = ", ".join(f"{count} × {name}" for name, count in other.items())
        remedy = "The slowest sets the pace, and the memory estimate is for the GPUs of the first host."
        yield _Wrong("warning", f"{kinds}, and {first.host} trains on {', '.join(names)}", remedy)
