"""Finds the rank for which the others wait, from times that torch measures in each.

Under DistributedDataParallel all ranks step at one pace, and wait for the slowest where they exchange gradients: the
slowest is the one whose own exchange is the shortest.
"""

import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from tui_train.base.text import visible
from tui_train.runs.ranks import MAX_RANKS

_EXCHANGE_LINE_START = "| pass "
_EXCHANGE_LINE_PATTERN = re.compile(
    r"rank (?P<rank>\d{1,6})/(?P<world>\d{1,6}) \| host (?P<host>[^|\n]{0,255}?) \| pass (?P<number>\d{1,12}):"
    r" (?P<exchange>\d{1,6}\.\d{1,6}) of (?P<whole>\d{1,6}\.\d{1,6}) s exchange gradients"
)
# One measured pass may be any; a slow rank is slow in two that follow each other.
_PASSES_COMPARED = 2
# Of a pass: a rank for which the others wait so long costs them as much.
_MIN_WAIT_SHARE = 0.1
# Less is how late a busy machine wakes a process.
_MIN_WAIT_SECONDS = 0.005


class _GradientExchange(NamedTuple):
    """Seconds in which a rank exchanges gradients, the wait for the others among them, and those of the whole pass."""

    host: str
    seconds: float
    pass_seconds: float


class SlowRankReader:
    """The rank that the others wait for, from the lines of an attempt so far."""

    def __init__(self) -> None:
        """Begin without passes."""
        self._passes: dict[int, dict[int, _GradientExchange]] = {}
        self._world_size = 0
        self.sentence = ""
        """The sentence that names it and its cost, empty if no rank is much slower."""

    def read(self, lines: Iterable[str]) -> None:
        """Read on in the log."""
        for line in lines:
            if _EXCHANGE_LINE_START in line:
                for match in _EXCHANGE_LINE_PATTERN.finditer(line):
                    self._add_exchange(match)

    def _add_exchange(self, match: re.Match[str]) -> None:
        rank, number, self._world_size = int(match["rank"]), int(match["number"]), int(match["world"])
        if rank >= min(self._world_size, MAX_RANKS):
            return
        exchange = _GradientExchange(visible(match["host"]), float(match["exchange"]), float(match["whole"]))
        self._passes.setdefault(number, {})[rank] = exchange
        complete = sorted(each for each, ranks in self._passes.items() if len(ranks) == self._world_size)
        # Ranks report the same passes; older ones are not needed any more.
        for old in [each for each in self._passes if complete and each < complete[-_PASSES_COMPARED:][0]]:
            del self._passes[old]
        if number in complete:
            self.sentence = self._slow_rank_sentence(complete[-_PASSES_COMPARED:])

    def _slow_rank_sentence(self, numbers: list[int]) -> str:
        slowest = {min(ranks, key=lambda rank: ranks[rank].seconds) for ranks in map(self._passes.__getitem__, numbers)}
        if len(numbers) < _PASSES_COMPARED or len(slowest) > 1:
            return ""
        rank = slowest.pop()
        waits = [_seconds_waited_for_rank(rank, self._passes[number]) for number in numbers]
        if any(waited <= max(_MIN_WAIT_SHARE * whole, _MIN_WAIT_SECONDS) for waited, whole in waits):
            return ""
        waited, whole = waits[-1]
        wait_text = f"the others wait {waited:.2g} of {whole:.2g} s for it in each step"
        return f"rank {rank} on {self._passes[numbers[-1]][rank].host} is slow: {wait_text}"


def _seconds_waited_for_rank(rank: int, exchanges: Mapping[int, _GradientExchange]) -> tuple[float, float]:
    """Return the seconds that the others wait for a rank in a pass, and those of the pass; zeros where it is alone."""
    others = [exchange for other, exchange in exchanges.items() if other != rank]
    if not others:
        return 0.0, 0.0
    waited = median(other.seconds for other in others) - exchanges[rank].seconds
    return waited, median(other.pass_seconds for other in others)
