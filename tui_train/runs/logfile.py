"""A log of any size, read where one looks: its lines from any offset on, forward and backward, in constant memory."""

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tui_train.base.files import regular_size, unreadable
from tui_train.supervisor.regular import open_regular

# A line that is longer than this is cut where a block of this many bytes ends without a newline in it. So the cuts can
# be found from any place of the file, and a line below this length is never cut.
BLOCK = 1 << 16
_READ = 2 * BLOCK
# Of a progress bar that never ends its line one state is shown for as many blocks.
_BARS = 16


class Line(NamedTuple):
    """One line: `data` without its newline; it is `cut` where the file has more of it after `end`."""

    start: int
    end: int
    data: bytes
    cut: bool = False

    @property
    def hidden(self) -> bool:
        """Whether it is an earlier state of a progress bar that goes on."""
        return self.cut and b"\r" in self.data and self.end // BLOCK % _BARS != 0

    @property
    def whole(self) -> bytes:
        """What of it can be shown: without the state of a progress bar within which it was cut."""
        return self.data.rpartition(b"\r")[0] if self.cut and b"\r" in self.data else self.data


class LogFile:
    """The lines of a file that may grow, be emptied, be replaced or be gone; what is not there has no lines."""

    def __init__(self, path: Path) -> None:
        """Read nothing yet."""
        self.path = path

    def size(self) -> int:
        """Return the file's size in bytes, 0 while there is none."""
        return self.stamp()[1]

    def stamp(self) -> tuple[int, int]:
        """Return which file it is (0: none) and its size: what differs when something was written."""
        return regular_size(self.path)

    def problem(self) -> str:
        """Return why it cannot be read, though something is there; empty where it can."""
        return unreadable(self.path) if os.path.lexists(self.path) else ""

    def forward(self, offset: int) -> Iterator[Line]:
        """Yield the lines from the one that holds the byte at `offset` on, to the present end."""
        try:
            with open_regular(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if 0 <= offset < size:
                    yield from _lines(file, _start(file, offset), size)
        except OSError:
            return

    def backward(self, offset: int) -> Iterator[Line]:
        """Yield the lines that begin before `offset`, the last one first."""
        offset = min(offset, self.size())
        while offset > 0:
            before = (offset - 1) // BLOCK * BLOCK
            limit = offset
            found = [*takewhile(lambda line, limit=limit: line.start < limit, self.forward(before))]  # type: ignore[misc]
            if not found:
                return
            yield from reversed(found)
            offset = found[0].start

    def window(self, begin: int, length: int) -> bytes:
        """Return bytes as they are, fewer at the end and none where they cannot be read."""
        try:
            with open_regular(self.path) as file:
                return os.pread(file.fileno(), length, begin)
        except OSError:
            return b""


def _start(file: BinaryIO, offset: int) -> int:
    """Return where the line begins that holds the byte at an offset."""
    block = offset // BLOCK * BLOCK
    begin = max(0, block - BLOCK)
    newline = os.pread(file.fileno(), offset - begin, begin).rfind(b"\n")
    # Without a newline in the block before, it is cut where this one begins.
    return begin + newline + 1 if newline >= 0 else block


def _lines(file: BinaryIO, start: int, size: int) -> Iterator[Line]:
    base, data = start, b""
    while start < size:
        limit = min(start + BLOCK if start % BLOCK == 0 else (start // BLOCK + 2) * BLOCK, size)
        newline = data.find(b"\n", start - base, limit - base)
        if newline < 0 and base + len(data) < limit:
            base, data = start, os.pread(file.fileno(), _READ, start)
            newline = data.find(b"\n", 0, limit - base)
        if not data:
            return  # it was emptied meanwhile
        end = base + newline + 1 if newline >= 0 else min(limit, base + len(data))
        stop = base + newline if newline >= 0 else end
        yield Line(start, end, data[start - base : stop - base], cut=newline < 0 and end < size)
        start = end
