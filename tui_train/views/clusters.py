"""A Slurm cluster in rows, for Hardware and `tui-train facts --slurm`: its partitions, limits, nodes and accounts."""

from tui_train.base.text import quantity, size_text, text_table, visible
from tui_train.facts.other_machines.cluster import Cluster, NodeGroup, Partition, Reservation, sbatch_time_limit_text

CLUSTER_TABLE_HEADER = ("partition", "time limit", "nodes idle", "GPUs of each", "cores", "memory")


def cluster_rows(cluster: Cluster) -> list[tuple[str, ...]]:
    """Return a row for each kind of node in each partition, under CLUSTER_TABLE_HEADER; safe to show."""
    return [
        _node_group_row(part, nodes) for part in cluster.partitions for nodes in part.nodes or (NodeGroup(count=0),)
    ]


def _node_group_row(partition: Partition, nodes: NodeGroup) -> tuple[str, ...]:
    out = f", {nodes.out} down" if nodes.out else ""
    mark = "*" if partition.default else ""
    idle = f"{nodes.idle} of {nodes.count}{out}"
    if not partition.up:
        idle = "takes no jobs" if partition.closed else f"down, of {nodes.count}"
    cores = str(nodes.cores) if nodes.count else "-"
    memory = size_text(nodes.memory) if nodes.memory else "-"
    return (
        f"{visible(partition.name)}{mark}",
        sbatch_time_limit_text(partition.limit) or "none",
        idle,
        _node_gpus_text(nodes),
        cores,
        memory,
    )


def _node_gpus_text(nodes: NodeGroup) -> str:
    """Return the GPUs of a node, as `4 a100`; a dash for none."""
    return ", ".join(f"{count} {visible(kind) or 'GPU'}" for kind, count in nodes.cards) or "-"


def partition_summary(partition: Partition) -> str:
    """Return a partition in a few words, without its name."""
    count, idle = sum(nodes.count for nodes in partition.nodes), sum(nodes.idle for nodes in partition.nodes)
    kinds = dict.fromkeys(_node_gpus_text(nodes) for nodes in partition.nodes if nodes.gpus_per_node)
    cards = f", with {' or '.join(kinds)}" if kinds else ", no GPUs"
    most = f", at most {sbatch_time_limit_text(partition.limit)}" if partition.limit is not None else ""
    down = "" if partition.up else "down, jobs wait: "
    return f"{down}{idle} of {quantity(count, 'node')} idle{cards}{most}{', the default' if partition.default else ''}"


def reservation_summary(reservation: Reservation) -> str:
    """Return whether a reservation is active, in which partition, until when, and who may use it."""
    where = f" in {reservation.partition}" if reservation.partition else ""
    until = f", until {reservation.ends}" if reservation.ends else ""
    whose = f", for {reservation.holders}" if reservation.holders else ""
    return visible(f"{'active' if reservation.active else 'not active now'}{where}{until}{whose}")


def accounts_text(cluster: Cluster) -> str:
    """Return the accounts in a line, empty where none is known."""
    return f"accounts: {', '.join(map(visible, cluster.accounts))}" if cluster.accounts else ""


def cluster_table_text(cluster: Cluster, max_width: int | None = None) -> str:
    """Return the cluster as a table."""
    if cluster.problem:
        return f"! The cluster is not known: {visible(cluster.problem)}"
    marked = ["* = the default partition"] if any(part.default for part in cluster.partitions) else []
    reserved = [f"reservation {visible(each.name)}: {reservation_summary(each)}" for each in cluster.reservations or ()]
    return "\n".join(
        filter(
            None,
            [
                text_table([CLUSTER_TABLE_HEADER, *cluster_rows(cluster)], max_width),
                *marked,
                accounts_text(cluster),
                f"QOS: {', '.join(map(visible, cluster.qos))}" if cluster.qos else "",
                *reserved,
            ],
        )
    )
