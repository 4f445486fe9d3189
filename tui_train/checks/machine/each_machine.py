"""The machines that train together, and a check on each of them, which reports once what is the same on several."""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import NamedTuple

from msgspec.structs import replace

from tui_train.base.text import names_text
from tui_train.checks.finding import CheckFunction, Finding
from tui_train.facts.types import Gpu, Machine
from tui_train.profile.types import Profile
from tui_train.setup.machine.communication import is_disabled_in_nccl
from tui_train.setup.machine.other_hosts import MAX_NAMED_HOSTS, choose_host_cards, processes_per_machine
from tui_train.setup.setup import Setup


class TrainingMachine(NamedTuple):
    """A machine that trains: its name among the hosts (empty for a single one), its cards and its processes."""

    host: str
    machine: Machine
    gpus: tuple[Gpu, ...]
    process_count: int


def _training_machines(setup: Setup) -> tuple[TrainingMachine, ...]:
    """Return the first machine and those of the other hosts that are known; none of a job of Slurm."""
    if setup.is_slurm_job:
        return ()
    first_host, *other_hosts = setup.profile.nodes.hosts or ("",)
    machines = [TrainingMachine(first_host, setup.facts.machine, setup.gpus, setup.first_machine_process_count)]
    names = {gpu.name for gpu in setup.gpus}
    for host, count in zip(other_hosts, processes_per_machine(setup)[1:], strict=False):
        peer = setup.facts.training_hosts.get(host)
        if peer and peer.machine:
            machines.append(TrainingMachine(host, peer.machine, choose_host_cards(peer, count, names).cards, count))
    return tuple(machines)


def may_exchange_through_host_memory(profile: Profile, each: TrainingMachine) -> bool:
    """Return whether NCCL may copy between the cards of a machine through the host's memory.

    It does not where all are known to have direct access to each other's.
    """
    indices = {gpu.index for gpu in each.gpus}
    direct = all(gpu.peers is not None and indices - {gpu.index} <= set(gpu.peers) for gpu in each.gpus)
    return each.process_count > 1 and (not direct or is_disabled_in_nccl(profile, "p2p"))


def on_each_machine(check: Callable[[Setup, TrainingMachine], Iterator[Finding]]) -> CheckFunction:
    """Make a check of one machine one of all machines of a training; where it has several hosts, they are named."""

    @wraps(check)
    def check_machines(setup: Setup) -> Iterator[Finding]:
        # A dict keeps their order; the parts of a card in MIG mode share its faults.
        hosts_by_finding: dict[Finding, dict[str, None]] = {}
        for each in _training_machines(setup):
            for finding in check(setup, each):
                hosts_by_finding.setdefault(finding, {})[each.host] = None
        for finding, hosts in hosts_by_finding.items():
            if not any(hosts):
                yield finding
                continue
            message = f"{names_text([*hosts], MAX_NAMED_HOSTS)}: {finding.message}"
            yield replace(finding, key="nodes.hosts", message=message)

    return check_machines
