"""Checks of the other hosts that a training is started on over ssh, against the first one."""

from collections import Counter
from collections.abc import Iterator
from typing import Literal, NamedTuple

from tui_train.base.text import names_text, quantity
from tui_train.checks.finding import Finding, error
from tui_train.facts.types import ContainerEngine, ContainerImage, Facts, Gpu, Toolchain, TrainingHost
from tui_train.launchers import LAUNCHERS
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.machine.other_hosts import MAX_NAMED_HOSTS, choose_host_cards, processes_per_machine
from tui_train.setup.machine.toolchain import find_image
from tui_train.setup.setup import Setup

# Seconds after which clocks confuse whoever reads the logs.
_MAX_CLOCK_OFFSET_SECONDS = 30.0
_SAME_VERSIONS_REMEDY = "Install the same versions on all hosts."
_COMPARED_PACKAGES = ("trl", "peft", "deepspeed", "nemo_toolkit")


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
    for host, wanted in zip(others, processes_per_machine(setup)[1:], strict=False):
        for problem in _host_problems(answered[host], wanted, setup) if host in answered else ():
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
            message=f"{names_text(names, MAX_NAMED_HOSTS)}: {problem.message}",
            remedy=remedy,
            keys=keys,
            machine=True,
            start=is_error,
            change=_fewer_processes_or_hosts_change(names, problem.possible_process_count, setup) if is_error else None,
        )


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
    indexes = sorted(range(len(hosts)), key=lambda index: hosts[index] != real_first)
    values = (
        ("nodes.hosts", tuple(hosts[index] for index in indexes)),
        *((("nodes.processes", tuple(counts[index] for index in indexes)),) if len(counts) == len(hosts) else ()),
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
    counts = {
        host: current.get(host, setup.first_machine_process_count) for host in profile.nodes.hosts
    } | dict.fromkeys(names, processes)
    title = f"{quantity(processes, 'process', 'processes')} on {names_text(names, MAX_NAMED_HOSTS)}"
    total = quantity(sum(counts.values()), "process", "processes")
    return Change(title, f"{total} in all", (("nodes.processes", tuple(counts.values())),))


def _without_hosts_change(profile: Profile, names: list[str]) -> Change:
    """Return the change that leaves hosts out; the first one alone needs none to be named."""
    kept = [index for index, host in enumerate(profile.nodes.hosts) if host not in names]
    hosts = tuple(profile.nodes.hosts[index] for index in kept) if len(kept) > 1 else ()
    counts = tuple(count for index, count in enumerate(profile.nodes.processes) if hosts and index in kept)
    values = (("nodes.hosts", hosts), *((("nodes.processes", counts),) if profile.nodes.processes else ()))
    return Change(f"train without {names_text(names, MAX_NAMED_HOSTS)}", "fewer machines", values)


def _host_problems(host: TrainingHost, process_count: int, setup: Setup) -> Iterator[_HostProblem]:
    first = setup.profile.nodes.hosts[0]
    if host.problem:
        yield _HostProblem("error", host.problem, "")
        return
    gpus = _compared_gpus(setup)
    if host.engine:
        yield from _container_problems(host.engine, host.image, setup)
    elif setup.toolchain:
        yield from _python_problems(host, first, setup.toolchain)
        yield from _import_problems(host, setup)
    if gpus:
        yield from _gpu_problems(host, process_count, gpus, setup)
    for path, state in host.paths.items():
        if state in {"missing", "unreadable"} and setup.facts.paths.get(path) in {"file", "folder"}:
            why = "there is no" if state == "missing" else "it may not read"
            yield _HostProblem("error", f"{why} {path}", f"Copy it there from {first}, to the same path.")
    if abs(host.clock_offset) > _MAX_CLOCK_OFFSET_SECONDS:
        side = "ahead of" if host.clock_offset > 0 else "behind"
        # To the minute, or equal faults of hosts would differ.
        apart = quantity(max(1, round(abs(host.clock_offset) / 60)), "minute")
        yield _HostProblem(
            "warning",
            f"the clock is about {apart} {side} that of {first}",
            "Set the clock there (NTP): times in the logs do not match.",
        )


def _compared_gpus(setup: Setup) -> tuple[Gpu, ...]:
    """Return the first host's GPUs, none where its own number of processes is wrong: that is a finding of its own."""
    uneven = setup.profile.nodes.uneven_processes
    compares = setup.device == "cuda" and (uneven or setup.first_machine_process_count == len(setup.gpus))
    return setup.gpus if compares else ()


def _container_problems(engine: ContainerEngine, image: ContainerImage | None, setup: Setup) -> Iterator[_HostProblem]:
    first_image = find_image(setup.profile, setup.facts)
    if engine.problem or image is None:
        message = f"{engine.name} cannot be used: {engine.problem}"
        yield _HostProblem("error", message, "Fix that, or leave the host out.")
        return
    if _compared_gpus(setup) and not engine.gpus:
        message = f"{engine.name} cannot show the GPUs to a container: NVIDIA's Container Toolkit is not set up for it"
        yield _HostProblem("error", message, "Install nvidia-container-toolkit there, or leave the host out.")
    if image.missing:
        pull = f"Fetch it there: `{engine.name} pull {image.name}`."
        fetch = "Copy it there." if engine.name == "apptainer" else pull
        yield _HostProblem("error", f"the image {image.name} is not there", fetch)
    elif image.problem:
        yield _HostProblem("error", f"the image {image.name} cannot be read: {image.problem}", "Fix that there.")
    elif first_image and _are_different_images(image, first_image):
        message = f"{image.name} is another image there than on {setup.profile.nodes.hosts[0]}"
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


def _import_problems(host: TrainingHost, setup: Setup) -> Iterator[_HostProblem]:
    modules = host.toolchain.modules if host.toolchain else ()
    imports = [each.module for each in setup.script_source.imports] if setup.script_source else []
    first_has = setup.toolchain.modules if setup.toolchain else ()
    # Of the others the versions are compared.
    compared = {*_compared_versions(host.toolchain), "torch"} if host.toolchain else set[str]()
    missing = [name for name in imports if name in first_has and name not in {*modules, *compared}]
    if modules and missing:
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


def _gpu_problems(
    host: TrainingHost, process_count: int, first_gpus: tuple[Gpu, ...], setup: Setup
) -> Iterator[_HostProblem]:
    first = setup.profile.nodes.hosts[0]
    allows_uneven_processes = (
        LAUNCHERS[setup.launcher].allows_uneven_processes and setup.trainer.allows_uneven_processes
    )
    if host.machine is None:
        remedy = f"nvidia-smi gave no answer there over ssh. {first} asks again when the run starts."
        yield _HostProblem("warning", "its GPUs are not known", remedy)
        return
    names = dict.fromkeys(gpu.name for gpu in first_gpus)
    cards, usable_count, why = choose_host_cards(host, process_count, names)
    if why:
        yield _HostProblem("error", f"no GPU there can train: {why}", "Fix that, or leave the host out (nodes.hosts).")
    elif not cards:
        has = quantity(usable_count, "GPU") if usable_count else "no GPU"
        expected = (
            f"{first} trains on {process_count}"
            if process_count == len(first_gpus)
            else f"{process_count} are to train"
        )
        alternative = f"choose another number on {first} (hardware.gpus)"
        if allows_uneven_processes:
            alternative = "give each machine its own number (nodes.processes)"
        yield _HostProblem(
            "error",
            f"{has}, and {expected}",
            f"Leave the host out (nodes.hosts), or {alternative}.",
            usable_count if allows_uneven_processes else 0,
        )
    elif other := Counter(gpu.name for gpu in cards) - Counter({name: len(cards) for name in names}):
        kinds = ", ".join(f"{count} × {name}" for name, count in other.items())
        remedy = "The slowest sets the pace, and the memory estimate is for the GPUs of the first host."
        yield _HostProblem("warning", f"{kinds}, and {first} trains on {', '.join(names)}", remedy)
