"""Facts of a Slurm cluster: partitions and limits, kinds of nodes and GPUs, the user's accounts."""

import re
from collections import Counter

import msgspec
from msgspec import Struct

# What sinfo is asked for, in this order.
SINFO_FORMAT = "%P|%a|%l|%D|%T|%c|%m|%G"
_SINFO_COLUMNS = SINFO_FORMAT.count("|") + 1
_TIME_LIMIT_PATTERN = re.compile(r"(?:(\d{1,18})-)?(\d{1,18})(?::(\d{1,18}))?(?::(\d{1,18}))?", re.ASCII)
_GRES_GPUS_PATTERN = re.compile(r"gpu(?::((?=[\w.-]*[A-Za-z])[\w.-]+))?(?::(\d{1,4}))?", re.ASCII)
_NODE_STATE_PATTERN = re.compile(r"([a-z]+)(\S*)", re.ASCII)
# Nodes on which no job starts until somebody acts.
_UNAVAILABLE_STATES = frozenset(
    {"down", "drained", "draining", "fail", "failing", "error", "unknown", "maint", "inval", "future"}
)


class NodeGroup(Struct, frozen=True, kw_only=True):
    """Nodes of a partition that are alike: how many, how many of them are idle, and how many take no job.

    `cards` are the GPUs of each by type (empty: not named) and count, `memory` is in bytes, None where Slurm does not
    know it.
    """

    count: int
    idle: int = 0
    out: int = 0
    cores: int = 1
    memory: int | None = None
    cards: tuple[tuple[str, int], ...] = ()

    @property
    def gpus_per_node(self) -> int:
        """GPUs of each node."""
        return sum(count for _, count in self.cards)


class Partition(Struct, frozen=True, kw_only=True):
    """A partition: whether it is the `default` and starts jobs (`up`), and its time limit in seconds (None: none).

    One that is `closed` (drained or inactive) takes no new jobs, where any other that is not up lets them wait.
    """

    name: str
    default: bool = False
    up: bool = True
    closed: bool = False
    limit: int | None = None
    nodes: tuple[NodeGroup, ...] = ()


class Reservation(Struct, frozen=True, kw_only=True):
    """Nodes that are kept for somebody for a time: whether that is now (`active`), when it ends, and its partition.

    `holders` are the users, groups and accounts that may use it, separated by commas, empty where Slurm names none.
    """

    name: str
    active: bool = False
    ends: str = ""
    partition: str = ""
    holders: str = ""


class Cluster(Struct, frozen=True, kw_only=True):
    """The partitions of a cluster and the accounts and QOS of the user (empty: unknown), and its reservations.

    `reservations` are None where they are not known; `problem` is why the cluster is not.
    """

    partitions: tuple[Partition, ...] = ()
    accounts: tuple[str, ...] = ()
    qos: tuple[str, ...] = ()
    reservations: tuple[Reservation, ...] | None = None
    problem: str = ""


def parse_sinfo(text: str) -> tuple[Partition, ...]:
    """Return the partitions in the lines of sinfo, in their order; what is no such line is left out."""
    partitions: dict[str, Partition] = {}
    counts: dict[tuple[str, NodeGroup], list[int]] = {}
    for line in text.splitlines():
        cells = line.split("|", _SINFO_COLUMNS - 1)
        if len(cells) < _SINFO_COLUMNS:
            continue
        marked_name, availability, limit, count_text, state_text, cores, megabytes, gres = cells
        state = _NODE_STATE_PATTERN.fullmatch(state_text.lower())
        if state is None or not count_text.isdecimal():
            continue
        name, count = marked_name.removesuffix("*"), int(count_text)
        partition = Partition(
            name=name,
            default=marked_name != name,
            up=availability == "up",
            closed=availability.startswith(("drain", "inact")),
            limit=parse_time_limit(limit),
        )
        partitions.setdefault(name, partition)
        kind = NodeGroup(
            count=0,
            cores=int(cores) if cores.isdecimal() else 1,
            cards=parse_gres_gpus(gres),
            memory=int(megabytes) * 2**20 or None if megabytes.isdecimal() else None,
        )
        # One that does not answer is marked by *.
        out = state[1] in _UNAVAILABLE_STATES or "*" in state[2]
        tally = counts.setdefault((name, kind), [0, 0, 0])
        tally[0] += count
        tally[1] += count if state[1] == "idle" and not out else 0
        tally[2] += count if out else 0
    for (name, kind), (total, idle, unavailable) in counts.items():
        if total:
            nodes = msgspec.structs.replace(kind, count=total, idle=idle, out=unavailable)
            partition = partitions[name]
            partitions[name] = msgspec.structs.replace(partition, nodes=(*partition.nodes, nodes))
    return tuple(partitions.values())


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Return the reservations in what `scontrol --oneliner show reservation` says."""
    found = []
    for line in text.splitlines():
        values = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if name := values.get("ReservationName"):
            partition = values.get("PartitionName", "").replace("(null)", "")
            active, ends = values.get("State") == "ACTIVE", values.get("EndTime", "").replace("T", " ")
            named = (values.get(key, "") for key in ("Users", "Groups", "Accounts"))
            holders = ",".join(each for each in named if each not in {"", "(null)"})
            found.append(Reservation(name=name, active=active, ends=ends, partition=partition, holders=holders))
    return tuple(found)


def parse_time_limit(limit: str) -> int | None:
    """Return a time limit as sinfo writes it or sbatch takes it, in seconds; None for none.

    It is MINUTES[:SECONDS], HOURS:MINUTES:SECONDS or DAYS-HOURS[:MINUTES[:SECONDS]].
    """
    match = _TIME_LIMIT_PATTERN.fullmatch(limit)
    if match is None:
        return None
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] or match[4]:
        return ((days * 24 + first) * 60 + second) * 60 + third
    return first * 60 + second


def sbatch_time_limit_text(seconds: int | None) -> str:
    """Return seconds as sbatch takes a time limit, [DAYS-]HOURS:MINUTES:SECONDS; empty for none."""
    if seconds is None:
        return ""
    days, rest = divmod(seconds, 86400)
    return (f"{days}-" if days else "") + f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


def parse_gres_gpus(gres: str) -> tuple[tuple[str, int], ...]:
    """Return the GPUs in a value of --gres or of sinfo's, by type and count."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    matches = map(_GRES_GPUS_PATTERN.fullmatch, plain.split(","))
    counted = Counter[str]()
    for match in filter(None, matches):
        counted[match[1] or ""] += int(match[2] or 1)
    return tuple((kind, count) for kind, count in counted.items() if count)
