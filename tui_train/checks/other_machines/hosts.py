"""Checks of the other hosts that a training is started on over ssh, against the first one."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, error
from tui_train.facts.types import ContainerEngine, ContainerImage, Facts, Gpu, Toolchain, TrainingHost
from tui_train.launchers import LAUNCHERS
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.machine.other_hosts import choose_host_cards, processes_per_machine
from tui_train.setup.machine.toolchain import find_image
from tui_train.setup.setup import Setup

# Hosts that are named in one finding.
_MAX_NAMED_HOSTS = 4
# Seconds after which clocks confuse whoever reads the logs.
_MAX_CLOCK_OFFSET_SECONDS = 30.0
_SAME_VERSIONS_REMEDY = "Install the same versions on all hosts."
_COMPARED_PACKAGES = ("trl", "peft", "deepspeed", "nemo_toolkit")


class _FirstHost(NamedTuple):
    """The host on which it starts, and what it trains with; `allows_uneven`: the others may have numbers of their own.

    `imports` are the modules that the script needs and this host has.
    """

    host: str
    facts: Facts
    toolchain: Toolchain | None
    gpus: tuple[Gpu, ...]
    allows_uneven: bool
    imports: tuple[str, ...]
    image: ContainerImage | None
    """The image, where it trains in a container."""


class _HostProblem(NamedTuple):
    """A fault of a host; an empty `remedy` means: find out why it does not answer; `keys` as in Finding.

    `possible_process_count` is how many it could have instead, 0 where that would not help.
    """

    level: Literal["error", "warning"]
    message: str
    remedy: str
    possible_process_count: int = 0
    keys: str = ""


def host_differences(setup: Setup) -> Iterator[Finding]:
    """Hosts that do not answer, or differ from the first: Python or image, versions, GPUs, files, the time of day."""
    profile, facts = setup.profile, setup.facts
    first, *others = profile.nodes.hosts or ("",)
    answered = {host: facts.training_hosts[host] for host in others if host in facts.training_hosts}
    if real_first := next((host for host, peer in answered.items() if peer.is_first), ""):
        # The others are compared once the right one is first.
        yield (
            _machine_named_twice_finding(profile, first, real_first)
            if _is_first_host(facts, first)
            else _first_host_not_listed_first_finding(profile, real_first)
        )
        return
    # Of a host that was chosen just now the facts are still to come.
    if _is_first_host(facts, first) is False and not (profile.hardware.host and not facts.other_machine):
        yield _first_host_elsewhere_finding(facts, first)
        return
    for host, peer in answered.items():
        if peer.same_as:
            yield _machine_named_twice_finding(profile, peer.same_as, host)
    by_problem: dict[_HostProblem, list[str]] = {}
    allows_uneven = LAUNCHERS[setup.launcher].allows_uneven and setup.trainer.allows_uneven
    # A number of processes that is wrong for the first host is a finding of its own.
    compares = setup.device == "cuda" and (
        profile.nodes.uneven_processes or setup.first_machine_processes == len(setup.gpus)
    )
    imports = _imports_of_first_host(setup)
    image = find_image(setup.profile, facts) if setup.profile.container.engine != "none" else None
    gpus = setup.gpus if compares else ()
    first_host = _FirstHost(first, facts, setup.toolchain, gpus, allows_uneven, imports, image)
    for host, wanted in zip(others, processes_per_machine(setup)[1:], strict=False):
        for problem in _host_problems(facts.training_hosts[host], wanted, first_host) if host in answered else ():
            by_problem.setdefault(problem, []).append(host)
    for problem, names in by_problem.items():
        is_error = problem.level == "error"
        remedy, keys = problem.remedy, problem.keys
        if not remedy:
            login = f"On {first} `ssh -o BatchMode=yes {names[0]} true` must work without a password."
            remedy, keys = f"{login} Then run the command again.", f"{login} Then ask again (r on Hardware)."
        yield Finding(
            level=problem.level,
            key="nodes.hosts",
            message=f"{_host_list_text(names)}: {problem.message}",
            remedy=remedy,
            keys=keys,
            machine=True,
            start=is_error,
            change=_fewer_processes_or_hosts_change(names, problem.possible_process_count, setup) if is_error else None,
        )


def _imports_of_first_host(setup: Setup) -> tuple[str, ...]:
    needed = [each.module for each in setup.script_source.imports] if setup.script_source else []
    return tuple(name for name in needed if setup.toolchain and name in setup.toolchain.modules)


def _is_first_host(facts: Facts, host: str) -> bool | None:
    """Return whether a host is the machine on which the training starts; None where that is not known."""
    return facts.training_hosts[host].is_first if host in facts.training_hosts else None


def _first_host_elsewhere_finding(facts: Facts, first_host_name: str) -> Finding:
    where = facts.other_machine or "this machine"
    change = Change(f"start on {first_host_name}", "it starts the others", (("hardware.host", first_host_name),))
    message = f"the run would start on {where}, but the first of nodes.hosts is {first_host_name}"
    return _nodes_hosts_error(
        message,
        f"Start it on {first_host_name} (hardware.host), or put the machine that starts it first in nodes.hosts.",
        change,
    )


def _machine_named_twice_finding(profile: Profile, host: str, same_host: str) -> Finding:
    message = f"{host} and {same_host} are the same machine"
    return _nodes_hosts_error(
        message, "Name each machine once (nodes.hosts).", _without_hosts_change(profile, [same_host])
    )


def _first_host_not_listed_first_finding(profile: Profile, real_first: str) -> Finding:
    hosts, counts = profile.nodes.hosts, profile.nodes.processes
    places = sorted(range(len(hosts)), key=lambda place: hosts[place] != real_first)
    values = (
        ("nodes.hosts", tuple(hosts[place] for place in places)),
        *((("nodes.processes", tuple(counts[place] for place in places)),) if len(counts) == len(hosts) else ()),
    )
    change = Change(f"put {real_first} first", "it starts the others", values)
    message = f"the run would start on {real_first}, but the first of nodes.hosts is {profile.nodes.hosts[0]}"
    return _nodes_hosts_error(message, "Put the host that starts it first in nodes.hosts.", change)


def _nodes_hosts_error(message: str, remedy: str, change: Change) -> Finding:
    return error("nodes.hosts", message, remedy, machine=True, start=True, change=change)


def _fewer_processes_or_hosts_change(names: list[str], processes: int, setup: Setup) -> Change:
    """Return the change that has some hosts train with a number of processes of their own, or leaves them out."""
    profile = setup.profile
    if not processes:
        return _without_hosts_change(profile, names)
    current = dict(zip(profile.nodes.hosts, profile.nodes.uneven_processes, strict=False))
    counts = {host: current.get(host, setup.first_machine_processes) for host in profile.nodes.hosts} | dict.fromkeys(
        names, processes
    )
    title = f"{quantity(processes, 'process', 'processes')} on {_host_list_text(names)}"
    total = quantity(sum(counts.values()), "process", "processes")
    return Change(title, f"{total} in all", (("nodes.processes", tuple(counts.values())),))


def _without_hosts_change(profile: Profile, names: list[str]) -> Change:
    """Return the change that leaves hosts out; the first one alone needs none to be named."""
    kept = [place for place, host in enumerate(profile.nodes.hosts) if host not in names]
    hosts = tuple(profile.nodes.hosts[place] for place in kept) if len(kept) > 1 else ()
    counts = tuple(count for place, count in enumerate(profile.nodes.processes) if hosts and place in kept)
    values = (("nodes.hosts", hosts), *((("nodes.processes", counts),) if profile.nodes.processes else ()))
    return Change(f"train without {_host_list_text(names)}", "fewer machines", values)


def _host_list_text(names: list[str]) -> str:
    more = len(names) - _MAX_NAMED_HOSTS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:_MAX_NAMED_HOSTS])} and {quantity(more, 'other')}"


def _host_problems(host: TrainingHost, process_count: int, first_host: _FirstHost) -> Iterator[_HostProblem]:
    if host.problem:
        yield _HostProblem("error", host.problem, "")
        return
    if host.engine:
        yield from _container_problems(host.engine, host.image, first_host)
    elif first_host.toolchain:
        yield from _python_problems(host, first_host.host, first_host.toolchain)
        yield from _import_problems(host, first_host)
    if first_host.gpus:
        yield from _gpu_problems(host, process_count, first_host)
    for path, state in host.paths.items():
        if state in {"missing", "unreadable"} and first_host.facts.paths.get(path) in {"file", "folder"}:
            why = "there is no" if state == "missing" else "it may not read"
            yield _HostProblem("error", f"{why} {path}", f"Copy it there from {first_host.host}, to the same path.")
    if abs(host.clock_offset) > _MAX_CLOCK_OFFSET_SECONDS:
        side = "ahead of" if host.clock_offset > 0 else "behind"
        # To the minute, or equal faults of hosts would differ.
        apart = quantity(max(1, round(abs(host.clock_offset) / 60)), "minute")
        yield _HostProblem(
            "warning",
            f"the clock is about {apart} {side} that of {first_host.host}",
            "Set the clock there (NTP): times in the logs do not match.",
        )


def _container_problems(
    engine: ContainerEngine, image: ContainerImage | None, first_host: _FirstHost
) -> Iterator[_HostProblem]:
    if engine.problem or image is None:
        message = f"{engine.name} cannot be used: {engine.problem}"
        yield _HostProblem("error", message, "Fix that, or leave the host out.")
        return
    if first_host.gpus and not engine.gpus:
        message = f"{engine.name} cannot show the GPUs to a container: NVIDIA's Container Toolkit is not set up for it"
        yield _HostProblem("error", message, "Install nvidia-container-toolkit there, or leave the host out.")
    if image.missing:
        pull = f"Fetch it there: `{engine.name} pull {image.name}`."
        fetch = "Copy it there." if engine.name == "apptainer" else pull
        yield _HostProblem("error", f"the image {image.name} is not there", fetch)
    elif image.problem:
        yield _HostProblem("error", f"the image {image.name} cannot be read: {image.problem}", "Fix that there.")
    elif first_host.image and _are_different_images(image, first_host.image):
        message = f"{image.name} is another image there than on {first_host.host}"
        yield _HostProblem("error", message, "Put the same image on all hosts.")


def _are_different_images(image: ContainerImage, other: ContainerImage) -> bool:
    """Return whether two images of a name are not the same, as far as that is known: of a file the size."""
    is_file = image.engine == "apptainer"
    return image.size != other.size if is_file else bool(image.id and other.id) and image.id != other.id


def _python_problems(host: TrainingHost, first_name: str, first_toolchain: Toolchain) -> Iterator[_HostProblem]:
    toolchain, python = host.toolchain, first_toolchain.python
    if toolchain and toolchain.problem:
        yield _HostProblem(
            "warning",
            f"{python} could not be examined there: {toolchain.problem}",
            "The host is busy: run the command again.",
            keys="The host is busy: ask it again (r on Hardware).",
        )
        return
    if toolchain is None:
        missing = host.paths.get(first_toolchain.python) == "missing"
        words = f"there is no {python}" if missing else f"{python} does not run there"
        yield _HostProblem("error", words, "Put the same environment at the same path there.")
        return
    if _version_without_build(toolchain.torch) != _version_without_build(first_toolchain.torch):
        yield _HostProblem(
            "error",
            f"{_name_and_version_text('torch', toolchain.torch)}, {first_name} has {first_toolchain.torch or 'none'}",
            _SAME_VERSIONS_REMEDY,
        )
    elif toolchain.cuda != first_toolchain.cuda:
        builds = f"torch for CUDA {toolchain.cuda or 'none'}, {first_name} has it for {first_toolchain.cuda or 'none'}"
        yield _HostProblem("warning", builds, _SAME_VERSIONS_REMEDY)
    own_versions, host_versions = _compared_versions(first_toolchain), _compared_versions(toolchain)
    other = [name for name in own_versions if own_versions[name] != host_versions[name]]
    if other:
        has = ", ".join(_name_and_version_text(name, host_versions[name]) for name in other)
        yield _HostProblem(
            "warning",
            f"{has}; {first_name} has {', '.join(own_versions[name] or 'none' for name in other)}",
            _SAME_VERSIONS_REMEDY,
        )


def _import_problems(host: TrainingHost, first_host: _FirstHost) -> Iterator[_HostProblem]:
    modules = host.toolchain.modules if host.toolchain else ()
    # Of the others the versions are compared.
    compared = {*_compared_versions(host.toolchain), "torch"} if host.toolchain else set[str]()
    missing = [name for name in first_host.imports if modules and name not in {*modules, *compared}]
    if missing:
        message = f"there is no {', '.join(missing)}, which the script imports"
        yield _HostProblem("error", message, "Install the same packages on all hosts.")


def _version_without_build(version: str | None) -> str:
    return (version or "").partition("+")[0]


def _compared_versions(tool: Toolchain) -> dict[str, str]:
    """Return the versions of what must agree among processes, besides torch."""
    python = ".".join(tool.version.split(".")[:2])
    named = {"Python": python, "accelerate": tool.accelerate or "", "transformers": tool.transformers or ""}
    return named | {name: tool.packages.get(name, "") for name in _COMPARED_PACKAGES}


def _name_and_version_text(name: str, version: str | None) -> str:
    return f"{name} {version}" if version else f"no {name}"


def _gpu_problems(host: TrainingHost, process_count: int, first_host: _FirstHost) -> Iterator[_HostProblem]:
    if host.machine is None:
        remedy = f"nvidia-smi gave no answer there over ssh. {first_host.host} asks again when the run starts."
        yield _HostProblem("warning", "its GPUs are not known", remedy)
        return
    names = dict.fromkeys(gpu.name for gpu in first_host.gpus)
    cards, usable_count, why = choose_host_cards(host, process_count, names)
    if why:
        yield _HostProblem("error", f"no GPU there can train: {why}", "Fix that, or leave the host out (nodes.hosts).")
    elif not cards:
        has = quantity(usable_count, "GPU") if usable_count else "no GPU"
        expected = (
            f"{first_host.host} trains on {process_count}"
            if process_count == len(first_host.gpus)
            else f"{process_count} are to train"
        )
        uneven_remedy = "give each machine its own number (nodes.processes)"
        alternative = (
            uneven_remedy if first_host.allows_uneven else f"choose another number on {first_host.host} (hardware.gpus)"
        )
        yield _HostProblem(
            "error",
            f"{has}, and {expected}",
            f"Leave the host out (nodes.hosts), or {alternative}.",
            usable_count if first_host.allows_uneven else 0,
        )
    elif other := Counter(gpu.name for gpu in cards) - Counter({name: len(cards) for name in names}):
        kinds = ", ".join(f"{count} × {name}" for name, count in other.items())
        remedy = "The slowest sets the pace, and the memory estimate is for the GPUs of the first host."
        yield _HostProblem("warning", f"{kinds}, and {first_host.host} trains on {', '.join(names)}", remedy)
