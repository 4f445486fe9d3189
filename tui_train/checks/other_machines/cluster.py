"""Checks of what a job asks for against what the Slurm cluster has."""

from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, error, warning
from tui_train.checks.other_machines.slurm import rounded_up_time_limit_seconds
from tui_train.facts.other_machines.cluster import (
    Cluster,
    NodeGroup,
    Partition,
    parse_gres_gpus,
    sbatch_time_limit_text,
)
from tui_train.facts.other_machines.slurm import (
    find_partitions,
    is_sbatch_option,
    last_gres_value,
    last_sbatch_option_values,
    possible_node_groups,
)
from tui_train.facts.types import Facts
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup

_LIST_CLUSTER_REMEDY = "`tui-train facts --slurm` lists what there is."


def unavailable_partition(setup: Setup) -> Iterator[Finding]:
    """Partitions that do not exist, or take no jobs."""
    cluster, names = setup.facts.cluster, setup.profile.slurm.partition
    if cluster is None or cluster.problem:
        return
    by_name = {part.name: part for part in cluster.partitions}
    default = next((part.name for part in cluster.partitions if part.default), "")
    change = Change(f"partition {default}", "the cluster's default", (("slurm.partition", ""),)) if default else None
    for name in filter(None, names.split(",")):
        if name not in by_name:
            message = f"the cluster has no partition {name}"
            remedy = f"Choose one of these (slurm.partition): {', '.join(by_name)}."
            yield error("slurm.partition", message, remedy, machine=True, change=change)
        elif by_name[name].closed:
            message = f"the partition {name} takes no new jobs: Slurm refuses this one"
            remedy = "Choose another partition (slurm.partition)."
            yield error("slurm.partition", message, remedy, machine=True, change=change)
        elif not by_name[name].up:
            message = f"the partition {name} is down: the job waits until it is up"
            remedy = "To start sooner, choose another partition (slurm.partition)."
            yield warning("slurm.partition", message, remedy)
    if not names and not default:
        message = "no partition is chosen, and the cluster has no default"
        remedy = f"Choose one of these (slurm.partition): {', '.join(by_name)}."
        yield error("slurm.partition", message, remedy, machine=True)


def unknown_account(setup: Setup) -> Iterator[Finding]:
    """An account that is none of the user's."""
    facts = setup.facts
    accounts, name = facts.cluster.accounts if facts.cluster else (), setup.profile.slurm.account
    if accounts and name and name not in accounts:
        message = f"you have no account {name}"
        change = Change("your default account", "Slurm knows it", (("slurm.account", ""),))
        remedy = f"Choose one of these (slurm.account): {', '.join(accounts)}."
        yield error("slurm.account", message, remedy, machine=True, change=change)


def unknown_qos(setup: Setup) -> Iterator[Finding]:
    """A quality of service (--qos) that the user's accounts do not have."""
    known, options = setup.facts.cluster.qos if setup.facts.cluster else (), setup.profile.slurm.options
    for name in last_sbatch_option_values(options, "qos") if known else ():
        if name not in known:
            message = f"your accounts have no QOS {name}: Slurm may refuse the job"
            remedy = f"Choose one of these (--qos in slurm.options): {', '.join(known)}."
            yield warning(
                "slurm.options", message, remedy, machine=True, change=_remove_slurm_option_change(options, "qos")
            )


def unknown_reservation(setup: Setup) -> Iterator[Finding]:
    """A reservation that Slurm does not list for this user."""
    cluster, options = setup.facts.cluster, setup.profile.slurm.options
    if cluster is None or cluster.reservations is None:
        return
    there = [reservation.name for reservation in cluster.reservations]
    for name in last_sbatch_option_values(options, "reservation"):
        if name not in there:
            message = f"the cluster has no reservation {name}"
            remedy = f"Choose one of these (--reservation in slurm.options): {', '.join(there) or 'none'}."
            yield error(
                "slurm.options",
                message,
                remedy,
                machine=True,
                change=_remove_slurm_option_change(options, "reservation"),
            )


def _remove_slurm_option_change(options: tuple[str, ...], name: str) -> Change:
    others = tuple(option for option in options if not is_sbatch_option(option, name))
    return Change(f"without --{name}", "Slurm's default", (("slurm.options", others),))


def time_limit_above_partition_limit(setup: Setup) -> Iterator[Finding]:
    """A time limit that no chosen partition allows."""
    profile = setup.profile
    chosen = _chosen_partitions(profile, setup.facts)
    requested, limits = rounded_up_time_limit_seconds(profile.slurm.time), [part.limit for part in chosen]
    longest = max((limit for limit in limits if limit is not None), default=None)
    if requested is None or None in limits or longest is None or requested <= longest:
        return
    names = ", ".join(part.name for part in chosen)
    change = Change(
        f"time limit {sbatch_time_limit_text(longest)}",
        f"the longest in {names}",
        (("slurm.time", sbatch_time_limit_text(longest)),),
    )
    message = f"the time limit is above that of {names}, {sbatch_time_limit_text(longest)}"
    # A quality of service may allow more than its partition.
    allowed = any(option.startswith("--q") for option in profile.slurm.options)
    remedy = (
        "Shorten slurm.time: near the limit the run saves, is queued again and resumes. Or choose another partition."
    )
    yield (warning if allowed else error)("slurm.time", message, remedy, machine=True, change=change)


def unavailable_nodes(setup: Setup) -> Iterator[Finding]:
    """More nodes than there are with the GPUs that are asked for."""
    profile, facts = setup.profile, setup.facts
    chosen, gres = _chosen_partitions(profile, facts), last_gres_value(profile.slurm.options)
    if facts.cluster is None or not chosen:
        return
    names = ", ".join(part.name for part in chosen)
    matching = possible_node_groups(facts.cluster, profile.slurm.partition, gres)
    if not matching:
        message = f"no node of {names} has the GPUs of --gres={gres}"
        all_nodes = possible_node_groups(facts.cluster, profile.slurm.partition)
        remedy = (
            f"Its nodes have: {'; '.join(map(_gpu_types_and_counts_text, all_nodes)) or 'none'}. {_LIST_CLUSTER_REMEDY}"
        )
        others = tuple(option for option in profile.slurm.options if not option.startswith("--gre"))
        change = Change("any GPU", "Slurm chooses one that is free", (("slurm.options", others),))
        yield error("slurm.options", message, remedy, machine=True, change=change)
        return
    available = sum(kind.count for kind in matching)
    if profile.nodes.count > available:
        message = f"{quantity(profile.nodes.count, 'node')} are asked for, and {names} has {available} of that kind"
        change = Change(quantity(available, "node"), f"all that {names} has", (("nodes.count", available),))
        yield error("nodes.count", message, "Ask for fewer nodes (nodes.count).", machine=True, change=change)
    elif profile.nodes.count > available - (unavailable := sum(kind.out for kind in matching)):
        message = (
            f"{unavailable} of {quantity(available, 'node')} of {names} are down or taken out (drained): the job waits "
            "until they are back"
        )
        remedy = "`sinfo -R` says why they are out. To start sooner, choose another partition (slurm.partition)."
        yield warning("slurm.partition", message, remedy, machine=True)
    yield from _mixed_gpu_types_warning(matching, names, setup)


def _mixed_gpu_types_warning(
    matching_nodes: tuple[NodeGroup, ...], partition_names: str, setup: Setup
) -> Iterator[Finding]:
    """Say which GPUs a job may get where it names no type, and nodes have several."""
    profile = setup.profile
    types = dict.fromkeys(kind for node in matching_nodes for kind, _ in node.cards)
    named = any(kind for kind, _ in parse_gres_gpus(last_gres_value(profile.slurm.options)))
    if named or len(types) < 2 or setup.device != "cuda" or not setup.gpus:
        return
    max_count = {kind: max(dict(node.cards).get(kind, 0) for node in matching_nodes) for kind in types if kind}
    count = len(setup.gpus)
    fits = [kind for kind, there in max_count.items() if there >= count]
    type_list = ", ".join(filter(None, types))
    message = f"{partition_names} has GPUs of several types, and the job may get any: {type_list}"
    change = None
    if fits:
        options = (option for option in profile.slurm.options if not option.startswith("--gre"))
        best = max(fits, key=lambda kind: sum(node.count for node in matching_nodes if kind in dict(node.cards)))
        edits = (("slurm.options", (*options, f"--gres=gpu:{best}:{count}")),)
        change = Change(f"only {best}", "so that the plan is for what it gets", edits)
    remedy = "Name the type in slurm.options: --gres=gpu:TYPE:COUNT."
    yield warning("slurm.options", message, remedy, change=change)


def _chosen_partitions(profile: Profile, facts: Facts) -> tuple[Partition, ...]:
    return find_partitions(facts.cluster or Cluster(), profile.slurm.partition)


def _gpu_types_and_counts_text(node: NodeGroup) -> str:
    return ", ".join(f"gpu:{kind}:{count}" if kind else f"gpu:{count}" for kind, count in node.cards) or "none"
