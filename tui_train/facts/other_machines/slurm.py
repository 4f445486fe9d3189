"""The Slurm cluster of this machine or a host: what it is asked, and the node that a training is planned for."""

import os
import pwd
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from tui_train.base.text import visible
from tui_train.facts.gpus.known_gpus import gpu_of_slurm_type
from tui_train.facts.machine.child_process import ALL_CANCELLED_EVENT, ChildResult, run_child
from tui_train.facts.other_machines.cluster import (
    SINFO_FORMAT,
    Cluster,
    NodeGroup,
    Partition,
    parse_gres_gpus,
    parse_sinfo,
)
from tui_train.facts.other_machines.submit_host import run_on_submit_host
from tui_train.facts.types import Gap, Gpu, Machine

_COMMAND_SECONDS = 10.0  # seconds for each of two questions
_MAX_CARDS = 64
# A variable of the user's would hide the other partitions.
_PARTITION_FILTER_VARIABLE = "SINFO_PARTITION"
_SINFO_COMMAND = ("sinfo", "--all", "--exact", "--noheader", f"--format={SINFO_FORMAT}")
_SACCTMGR_COMMAND = ("sacctmgr", "-nP", "show", "assoc", "user={user}", "format=account")


class SubmitHost(Struct, frozen=True):
    """A machine from which jobs are submitted, and its cluster."""

    machine: Machine
    cluster: Cluster


def read_cluster(host: str = "") -> Cluster:
    """Return what sinfo and sacctmgr say, here or on a host; takes up to 80 s, so never on a screen's thread."""
    sinfo, accounts = _query_host(host) if host else _query_this_machine()
    partitions = parse_sinfo(sinfo.out.decode("utf-8", "replace")) if sinfo.code == 0 else ()
    if not partitions:
        why = sinfo.why_unusable() if sinfo.code != 0 else "it lists no partition"
        return Cluster(problem=visible(f"sinfo{' on ' if host else ''}{host}: {why}"))
    lines = accounts.out.decode("utf-8", "replace").splitlines() if accounts.code == 0 else []
    return Cluster(
        partitions=partitions, accounts=tuple(sorted({visible(line.strip()) for line in lines if line.strip()}))
    )


def _query_host(host: str) -> tuple[ChildResult, ChildResult]:
    sinfo, accounts = run_on_submit_host(
        host, (_SINFO_COMMAND, _SACCTMGR_COMMAND), without_variables=_PARTITION_FILTER_VARIABLE,
        is_cancelled=ALL_CANCELLED_EVENT.is_set,
    )  # fmt: skip
    return sinfo, accounts


def _query_this_machine() -> tuple[ChildResult, ChildResult]:
    sinfo = run_child(["env", "-u", _PARTITION_FILTER_VARIABLE, *_SINFO_COMMAND], _COMMAND_SECONDS)
    if sinfo.code != 0:
        return sinfo, ChildResult()
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return sinfo, ChildResult()
    return sinfo, run_child([word.replace("{user}", user) for word in _SACCTMGR_COMMAND], _COMMAND_SECONDS)


def find_partitions(cluster: Cluster, partition_names: str) -> tuple[Partition, ...]:
    """Return the partitions of a value of --partition, the default one for an empty value."""
    wanted = set(partition_names.split(",")) if partition_names else set()
    return tuple(part for part in cluster.partitions if (part.name in wanted if wanted else part.default))


def possible_node_groups(cluster: Cluster, partition_names: str, gres: str = "") -> tuple[NodeGroup, ...]:
    """Return the kinds of nodes that a job may get: of its partitions, and with the GPUs that it names."""
    kinds = tuple(dict.fromkeys(kind for part in find_partitions(cluster, partition_names) for kind in part.nodes))
    requested = parse_gres_gpus(gres)
    return tuple(kind for kind in kinds if all(_has_gpus(kind, name, count) for name, count in requested))


def _has_gpus(node_group: NodeGroup, gpu_type: str, count: int) -> bool:
    return (dict(node_group.cards).get(gpu_type, 0) if gpu_type else node_group.gpus) >= count


def planned_node_group(cluster: Cluster, partition_names: str, gres: str = "") -> NodeGroup | None:
    """Return the kind of node that is planned for, None where there is none.

    Of several it is one with GPUs, then that whose GPUs have the least memory, so that the plan fits whichever it gets.
    """
    kinds = possible_node_groups(cluster, partition_names, gres)
    return min(
        kinds, key=lambda kind: (not kind.gpus, _smallest_gpu_memory(kind), kind.gpus, -kind.count), default=None
    )


def _smallest_gpu_memory(node_group: NodeGroup) -> int:
    return min((gpu_of_slurm_type(name).memory or 0 for name, _ in node_group.cards), default=0)


def planned_machine(this_machine: Machine, cluster: Cluster, partition_names: str, gres: str = "") -> Machine:
    """Return the machine that is planned for: a node that a job of these options may get, else this machine.

    It has the cards that Slurm counts, with what is known of their types, and nothing of this machine's.
    """
    if cluster.problem:
        gap = Gap("The cluster is not known", cluster.problem, "It is planned for nodes like the machine that submits.")
        return msgspec.structs.replace(this_machine, gaps=(gap, *this_machine.gaps))
    where = " or ".join(part.name for part in find_partitions(cluster, partition_names)) or partition_names
    node = planned_node_group(cluster, partition_names, gres) or NodeGroup(count=0)
    requested = parse_gres_gpus(gres)
    types = [name for name, count in (requested or node.cards) for _ in range(min(count, _MAX_CARDS))]
    if requested and not any(name for name, _ in requested):
        types = [name for name, count in node.cards for _ in range(count)][: sum(count for _, count in requested)]
    return Machine(
        hostname=visible(f"a node of {where}") if where else "a node",
        kernel=this_machine.kernel,
        cpu_count=node.cores,
        memory_total=node.memory,
        memory_available=node.memory,
        gpus=tuple(_planned_gpu(index, name) for index, name in enumerate(types[:_MAX_CARDS])),
    )


def _planned_gpu(index: int, slurm_type: str) -> Gpu:
    chip = gpu_of_slurm_type(slurm_type)
    name = visible(chip.name or slurm_type or "GPU of a type that Slurm does not name")
    return Gpu(
        index=index, uuid=f"slurm-{index}", name=name, compute_capability=chip.capability, memory_total=chip.memory,
        memory_free=chip.memory, sm_count=chip.sms, sm_clock_max=chip.clock,
    )  # fmt: skip


def last_gres_value(options: Iterable[str]) -> str:
    """Return the last value of --gres among options of sbatch, empty without one."""
    values = [option.partition("=")[2] for option in options if option.startswith(("--gres=", "--gre="))]
    return values[-1] if values else ""
