"""collective_timeout_detail: which rank an exchange between the GPUs waited for, by what the ranks say together."""

import re
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tui_train.diagnose.failure_details import FailureDetail
from tui_train.diagnose.types import LogLine

_TIMEOUT_PATTERN = re.compile(
    r"\[Rank (?P<rank>\d{1,6})\] Watchdog caught collective operation timeout: WorkNCCL\((?:\w+=\w+, ?)*?"
    r"SeqNum=(?P<sequence>\d{1,12}), OpType=(?P<operation>\w{1,40}),(?P<sizes>[^)\n]{0,60}?)Timeout\(ms\)="
)
_GROUP_PATTERN = re.compile(r"\[PG (?:ID|GUID)? ?(?P<group>[^\]\n]{0,60}?) Rank (?P<rank>\d{1,6})\]")
_MAX_NAMED_RANKS = 4


class _Timeout(Struct, frozen=True):
    rank: int
    sequence: int
    operation: str
    sizes: str
    group: str

    @property
    def text(self) -> str:
        return f"rank {self.rank} in {self.sequence} ({self.operation})"


def collective_timeout_detail(lines: Sequence[LogLine], world_size: int) -> FailureDetail | None:
    """Return what the timeouts of several ranks say together, None where they are of one rank, or of several groups."""
    timeouts = _first_timeout_by_rank(lines)
    ranks, groups = set(timeouts), {timeout.group for timeout in timeouts.values()}
    if len(ranks) < 2 or len(groups) > 1:
        return None
    ordered = sorted(timeouts.values(), key=lambda timeout: (timeout.sequence, timeout.rank))
    first = ordered[0]
    other = next(
        (
            timeout
            for timeout in ordered
            if (timeout.sequence, timeout.operation, timeout.sizes) != (first.sequence, first.operation, first.sizes)
        ),
        None,
    )
    if other:
        return FailureDetail(
            failure="nccl_timeout",
            cause=f"The ranks went different ways: {first.text}, {other.text}. Each waits for the others in another "
            "exchange.",
            remedy="Let every rank do the same: no `if rank == 0` around saving, evaluation or generation (FSDP and "
            "ZeRO 3 gather the weights on all ranks), no layer or step that depends on a rank's own data, and equally "
            "many batches on each (drop_last, DistributedSampler).",
        )
    known = {line.rank for line in lines if line.rank is not None} | set(range(world_size if world_size > 1 else 0))
    if missing := known - ranks:
        waited_for = _rank_list_text(missing).lower()
        verb = "is" if len(missing) == 1 else "are"
        return FailureDetail(
            failure="nccl_timeout",
            cause=f"{_rank_list_text(ranks)} waited in exchange {first.sequence} ({first.operation}) for "
            f"{waited_for}, which {verb} stuck, slow or gone.",
            remedy=f"Look at {waited_for}: the last lines, the machine, and where the process is (`py-spy dump --pid "
            "PID`); raise the timeout (ddp_timeout) only for long work of one rank alone.",
        )
    return FailureDetail(
        failure="nccl_timeout",
        cause=f"{_rank_list_text(ranks)} are all in exchange {first.sequence} ({first.operation}): it hangs between "
        "the GPUs or in the network, unless another machine has a rank that reports nothing.",
        remedy="On one machine try NCCL_P2P_DISABLE=1 (trainer.environment; it hangs so where IOMMU or ACS is on); "
        "over several NCCL_IB_DISABLE=1, and look at the machine that is missing in this log. `tui-train doctor` tests "
        "it.",
    )


def _first_timeout_by_rank(lines: Iterable[LogLine]) -> dict[int, _Timeout]:
    timeouts: dict[int, _Timeout] = {}
    group_by_rank: dict[int, str] = {}
    for line in lines:
        if match := _TIMEOUT_PATTERN.search(line.text):
            rank = int(match["rank"])
            timeout = _Timeout(rank, int(match["sequence"]), match["operation"], match["sizes"].strip(" ,"), "")
            timeouts.setdefault(rank, timeout)
        elif (match := _GROUP_PATTERN.search(line.text)) and int(match["rank"]) in timeouts:
            group_by_rank.setdefault(int(match["rank"]), match["group"])
    # A rank that does not say its group is taken to be of the others'.
    known = set(group_by_rank.values())
    default = known.pop() if len(known) == 1 else ""
    return {
        rank: _Timeout(rank, timeout.sequence, timeout.operation, timeout.sizes, group_by_rank.get(rank, default))
        for rank, timeout in timeouts.items()
    }


def _rank_list_text(ranks: Iterable[int]) -> str:
    """Return ranks in words: Rank 3, Ranks 0, 1, 2, or Ranks 0 to 63."""
    ordered = sorted(ranks)
    if len(ordered) == 1:
        return f"Rank {ordered[0]}"
    if len(ordered) <= _MAX_NAMED_RANKS:
        return "Ranks " + ", ".join(map(str, ordered))
    if ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"Ranks {ordered[0]} to {ordered[-1]}"
    return "Ranks " + ", ".join(map(str, ordered[:_MAX_NAMED_RANKS])) + f" and {len(ordered) - _MAX_NAMED_RANKS} others"
