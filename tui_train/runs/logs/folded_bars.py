"""Folds the progress bars of a log: of the states of one bar that follow each other only the last is to be shown.

Other lines may stand between them, such as the losses that a trainer prints every ten steps.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runs.logs.logfile import BLOCK_BYTES, LogFile, LogLine

_BAR_SIGN = b"%|"
# What a bar of tqdm is of, its percentage, and of how many.
_BAR_PATTERN = re.compile(r"([^|%]{0,120}?) *(\d{1,3})%\|[^|]{0,400}\| *\d(?:[^/\s]{0,20}/([^\s\[]{1,20}))?")
_MAX_BLOCKS_KEPT = 16


class BarState(NamedTuple):
    """A state of a progress bar at the beginning of a line: which bar, and its percentage."""

    bar: tuple[str, str]
    percent: int


class _Block(NamedTuple):
    """The bars of a block: the states that lines begin with, by where these start, and whether it shows other text."""

    states: dict[int, BarState]
    has_other_text: bool


class FoldedBars:
    """Tells which lines of a log begin with a state of a bar that a later line continues.

    The later line is looked for in the same block and in the next one: what has to be read for an answer is bounded.
    """

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self._stamp = (0, 0)
        self._blocks: dict[int, _Block] = {}
        self._old_starts: dict[int, frozenset[int]] = {}

    def refresh(self, stamp: tuple[int, int]) -> None:
        """Forget what may have changed, given the log's present `change_stamp`."""
        (inode, size), self._stamp = self._stamp, stamp
        unchanged = size // BLOCK_BYTES if stamp[0] == inode and stamp[1] >= size else 0
        if stamp != (inode, size):
            self._blocks = {at: block for at, block in self._blocks.items() if at < unchanged}
            self._old_starts = {at: starts for at, starts in self._old_starts.items() if at + 1 < unchanged}

    def begins_with_old_state(self, line: LogLine) -> bool:
        """Tell whether a line begins with a state of a bar that a later line continues."""
        if _BAR_SIGN not in line.data:
            return False
        number = line.start // BLOCK_BYTES
        if number not in self._old_starts:
            _drop_oldest(self._old_starts)
            self._old_starts[number] = self._find_old_starts(number)
        return line.start in self._old_starts[number]

    def _find_old_starts(self, number: int) -> frozenset[int]:
        block, old = self._block(number), set[int]()
        # In a block of bars alone the last state stays: of each block something is shown.
        after = self._block(number + 1).states if block.has_other_text else {}
        following: dict[tuple[str, str], int] = {}
        for start, state in reversed([*block.states.items(), *after.items()]):
            if following.get(state.bar, -1) >= state.percent:
                old.add(start)
            following[state.bar] = state.percent
        return frozenset(old)

    def _block(self, number: int) -> _Block:
        if number not in self._blocks:
            _drop_oldest(self._blocks)
            states: dict[int, BarState] = {}
            has_other_text = False
            for line in self._lines_of_block(number):
                shown = lines_left_on_terminal(line.shown_data) if _BAR_SIGN in line.data else [""]
                state = bar_state(shown[0]) if shown else None
                if state:
                    states[line.start] = state
                has_other_text = has_other_text or len(shown) > (state is not None)
            self._blocks[number] = _Block(states, has_other_text)
        return self._blocks[number]

    def _lines_of_block(self, number: int) -> Iterator[LogLine]:
        begin = number * BLOCK_BYTES
        lines = takewhile(lambda line: line.start < begin + BLOCK_BYTES, self.log.forward(begin))
        return (line for line in lines if line.start >= begin and not line.is_hidden_bar_state)


def bar_state(text: str) -> BarState | None:
    """Return the state of a progress bar that a shown line begins with."""
    match = _BAR_PATTERN.match(text)
    return BarState((match[1], match[3] or ""), int(match[2])) if match else None


def _drop_oldest(kept: dict[int, Any]) -> None:
    if len(kept) >= _MAX_BLOCKS_KEPT:
        del kept[next(iter(kept))]
