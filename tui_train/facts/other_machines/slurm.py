"""The Slurm cluster of this machine or a host: what it is asked, and the node that a training is planned for."""

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.channel.slurm_commands import run_slurm_commands
from tui_train.facts.gpus.known_gpus import gpu_of_slurm_type
from tui_train.facts.machine.child_process import CHILDREN_CANCELLED_EVENT
from tui_train.facts.other_machines.cluster import (
    SINFO_FORMAT,
    Cluster,
    NodeGroup,
    Partition,
    parse_gres_gpus,
    parse_reservations,
    parse_sinfo,
)
from tui_train.facts.types import FactGap, Gpu, Machine

_MAX_CARDS_PER_NODE = 64
# With fewer letters an option of sbatch may be another one.
_MIN_LETTERS_BY_OPTION = {"dependency": 3, "gres": 3, "qos": 1, "reservation": 3}
_SINFO_COMMAND = ("sinfo", "--all", "--exact", "--noheader", f"--format={SINFO_FORMAT}")
_SACCTMGR_COMMAND = ("sacctmgr", "-nP", "show", "assoc", "user={user}", "format=account,qos")
_RESERVATIONS_COMMAND = ("scontrol", "--oneliner", "show", "reservation")


class SubmitHost(Struct, frozen=True):
    """A machine from which jobs are submitted, and its cluster."""

    machine: Machine
    cluster: Cluster


def read_cluster(host: str = "") -> Cluster:
    """Return what Slurm says of itself, here or on a host; takes up to 110 s, so never on a screen's thread."""
    where = f"sinfo{' on ' if host else ''}{host}"
    try:
        sinfo, associations, reservations = run_slurm_commands(
            host,
            (_SINFO_COMMAND, _SACCTMGR_COMMAND, _RESERVATIONS_COMMAND),
            is_cancelled=CHILDREN_CANCELLED_EVENT.is_set,
        )
    except Unavailable as error:
        return Cluster(problem=visible(f"{where}: {error.message}"))
    partitions = parse_sinfo(sinfo.out) if sinfo.code == 0 else ()
    if not partitions:
        return Cluster(
            problem=visible(f"{where}: {sinfo.last_error_text if sinfo.code != 0 else 'it lists no partition'}")
        )
    rows = [line.partition("|") for line in associations.out.splitlines()] if associations.code == 0 else []
    return Cluster(
        partitions=partitions,
        accounts=_sorted_names(account for account, _, _ in rows),
        qos=_sorted_names(name for _, _, names in rows for name in names.split(",")),
        reservations=parse_reservations(reservations.out) if reservations.code == 0 else None,
    )


def _sorted_names(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({visible(text.strip()) for text in texts} - {""}))


def find_partitions(cluster: Cluster, partition_names: str) -> tuple[Partition, ...]:
    """Return the partitions of a value of --partition, the default one for an empty value."""
    wanted = set(partition_names.split(",")) if partition_names else set()
    return tuple(part for part in cluster.partitions if (part.name in wanted if wanted else part.default))


def possible_node_groups(cluster: Cluster, partition_names: str, gres: str = "") -> tuple[NodeGroup, ...]:
    """Return the kinds of nodes that a job may get: of its partitions, and with the GPUs that it names."""
    kinds = tuple(dict.fromkeys(kind for part in find_partitions(cluster, partition_names) for kind in part.nodes))
    requested = parse_gres_gpus(gres)
    return tuple(kind for kind in kinds if all(_has_node_gpus(kind, name, count) for name, count in requested))


def _has_node_gpus(node_group: NodeGroup, gpu_type: str, count: int) -> bool:
    return (dict(node_group.cards).get(gpu_type, 0) if gpu_type else node_group.gpus_per_node) >= count


def planned_node_group(cluster: Cluster, partition_names: str, gres: str = "") -> NodeGroup | None:
    """Return the kind of node that is planned for, None where there is none.

    Of several it is one with GPUs, then that whose GPUs have the least memory, so that the plan fits whichever it gets.
    """
    kinds = possible_node_groups(cluster, partition_names, gres)
    return min(
        kinds,
        key=lambda kind: (not kind.gpus_per_node, _smallest_gpu_memory(kind), kind.gpus_per_node, -kind.count),
        default=None,
    )


def _smallest_gpu_memory(node_group: NodeGroup) -> int:
    return min((gpu_of_slurm_type(name).memory_total or 0 for name, _ in node_group.cards), default=0)


def planned_machine(this_machine: Machine, cluster: Cluster, partition_names: str, gres: str = "") -> Machine:
    """Return the machine that is planned for: a node that a job of these options may get, else this machine.

    It has the cards that Slurm counts, with what is known of their types, and nothing of this machine's.
    """
    if cluster.problem:
        gap = FactGap(
            "The cluster is not known", cluster.problem, "The plan assumes nodes like the machine that submits."
        )
        return msgspec.structs.replace(this_machine, gaps=(gap, *this_machine.gaps))
    where = " or ".join(part.name for part in find_partitions(cluster, partition_names)) or partition_names
    node = planned_node_group(cluster, partition_names, gres) or NodeGroup(count=0)
    requested = parse_gres_gpus(gres)
    types = [name for name, count in (requested or node.cards) for _ in range(min(count, _MAX_CARDS_PER_NODE))]
    if requested and not any(name for name, _ in requested):
        types = [name for name, count in node.cards for _ in range(count)][: sum(count for _, count in requested)]
    return Machine(
        hostname=visible(f"a node of {where}") if where else "a node",
        kernel=this_machine.kernel,
        cpu_count=node.cores,
        memory_total=node.memory,
        memory_available=node.memory,
        gpus=tuple(_planned_gpu(index, name) for index, name in enumerate(types[:_MAX_CARDS_PER_NODE])),
    )


def _planned_gpu(index: int, slurm_type: str) -> Gpu:
    chip = gpu_of_slurm_type(slurm_type)
    name = visible(chip.name or slurm_type or "GPU of a type that Slurm does not name")
    return msgspec.structs.replace(chip, index=index, uuid=f"slurm-{index}", name=name, memory_free=chip.memory_total)


def is_sbatch_option(option: str, name: str) -> bool:
    """Return whether a word is an option of sbatch, which takes the beginning of a name for the whole."""
    given = option.partition("=")[0]
    return len(given) >= len("--") + _MIN_LETTERS_BY_OPTION[name] and f"--{name}".startswith(given)


def last_sbatch_option_values(options: Iterable[str], name: str) -> list[str]:
    """Return the values of the last of some options of sbatch with that name, which are separated by commas."""
    texts = [option.partition("=")[2] for option in options if is_sbatch_option(option, name)]
    return list(filter(None, texts[-1].split(","))) if texts else []


def last_gres_value(options: Iterable[str]) -> str:
    """Return the last value of --gres among options of sbatch, empty without one."""
    return ",".join(last_sbatch_option_values(options, "gres"))
