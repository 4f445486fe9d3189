"""Folds the progress bars of a log: of the states of one bar that follow each other only the last is to be shown.

Other lines may stand between them, such as the losses that a trainer prints every ten steps.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import NamedTuple

from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runs.logs.logfile import BLOCK_BYTES, LogFile, LogFileLine

_BAR_SIGN = b"%|"
# What a bar of tqdm is of, its percentage, and of how many.
_BAR_PATTERN = re.compile(r"([^|%]{0,120}?) *(\d{1,3})%\|[^|]{0,400}\| *\d(?:[^/\s]{0,20}/([^\s\[]{1,20}))?")
_MAX_BLOCKS_KEPT = 64

BarName = tuple[str, str]  # its caption, and of how many it is


class BarState(NamedTuple):
    """A state of a progress bar: which bar, and its percentage."""

    bar: BarName
    percent: int


class _BlockBars(NamedTuple):
    """The progress bars in a block of the log.

    `superseded_starts`: starts of lines whose bar goes on in the block; `first_percents`: percentages of the first
    states; `last_states`: the last states, by the starts of their lines.
    """

    superseded_starts: frozenset[int]
    first_percents: dict[BarName, int]
    last_states: dict[int, BarState]
    shows_other_text: bool


class FoldedBars:
    """Finds the lines of a log that begin with a state of a progress bar that a later line continues.

    The later line is looked for in the same block and in the next one: what has to be read for an answer is bounded.
    """

    def __init__(self, log: LogFile) -> None:
        self.log = log
        self._stamp = (0, 0)
        self._blocks: dict[int, _BlockBars] = {}

    def forget_changed_blocks(self, stamp: tuple[int, int]) -> None:
        """Forget what may have changed, given the log's present `change_stamp`."""
        (inode, size), self._stamp = self._stamp, stamp
        if stamp == (inode, size):
            return
        # The last line of a whole block may end in the next one.
        unchanged = size // BLOCK_BYTES - 1 if stamp[0] == inode and stamp[1] >= size else 0
        self._blocks = {number: block for number, block in self._blocks.items() if number < unchanged}

    def begins_with_superseded_state(self, line: LogFileLine) -> bool:
        """Return whether a line begins with a state of a progress bar that a later line continues."""
        if _BAR_SIGN not in line.data:
            return False
        number = line.start // BLOCK_BYTES
        block = self._block_bars(number)
        if line.start in block.superseded_starts:
            return True
        state = block.last_states.get(line.start)
        # In a block of bars alone the last state stays: of each block something is shown.
        if state is None or not block.shows_other_text:
            return False
        return self._block_bars(number + 1).first_percents.get(state.bar, -1) >= state.percent

    def _block_bars(self, number: int) -> _BlockBars:
        if number not in self._blocks:
            if len(self._blocks) >= _MAX_BLOCKS_KEPT:
                del self._blocks[next(iter(self._blocks))]
            self._blocks[number] = self._read_block_bars(number)
        return self._blocks[number]

    def _read_block_bars(self, number: int) -> _BlockBars:
        old, first, latest, shows_other_text = set[int](), dict[BarName, int](), dict[BarName, tuple[int, int]](), False
        for line in self._lines_of_block(number):
            shown = lines_left_on_terminal(line.shown_data) if _BAR_SIGN in line.data else [""]
            state = bar_state(shown[0]) if shown else None
            shows_other_text = shows_other_text or len(shown) > (state is not None)
            if state:
                before, percent = latest.get(state.bar, (-1, -1))
                if 0 <= percent <= state.percent:
                    old.add(before)
                first.setdefault(state.bar, state.percent)
                latest[state.bar] = line.start, state.percent
        last = {start: BarState(bar, percent) for bar, (start, percent) in latest.items()}
        return _BlockBars(frozenset(old), first, last, shows_other_text)

    def _lines_of_block(self, number: int) -> Iterator[LogFileLine]:
        begin = number * BLOCK_BYTES
        lines = takewhile(lambda line: line.start < begin + BLOCK_BYTES, self.log.lines_from(begin))
        return (line for line in lines if line.start >= begin and not line.is_hidden_bar_state)


def bar_state(text: str) -> BarState | None:
    """Return the state of a progress bar that a shown line begins with."""
    match = _BAR_PATTERN.match(text)
    return BarState((match[1], match[3] or ""), int(match[2])) if match else None
