"""A log of any size: its lines from any offset, in both directions, in constant memory."""

import os
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import BinaryIO, NamedTuple

from tui_train.base.files import inode_and_size, why_unreadable
from tui_train.runner.system.safe_open import open_regular_file

# Longer lines are cut at the end of a block of this size that has no newline. So cuts can be found from any offset, and
# shorter lines are never cut.
BLOCK_BYTES = 1 << 16
_BYTES_PER_READ = 2 * BLOCK_BYTES
# Blocks per shown state of a progress bar without newlines.
_MAX_BLOCKS_PER_BAR_STATE = 16


class LogFileLine(NamedTuple):
    """One line: `data` without its newline; `cut`: it continues after `end`."""

    start: int
    end: int
    data: bytes
    cut: bool = False

    @property
    def is_hidden_bar_state(self) -> bool:
        """True for an earlier state of a progress bar that continues."""
        return self.cut and b"\r" in self.data and self.end // BLOCK_BYTES % _MAX_BLOCKS_PER_BAR_STATE != 0

    @property
    def shown_data(self) -> bytes:
        """The part to show: without a truncated state of a progress bar."""
        return self.data.rpartition(b"\r")[0] if self.cut and b"\r" in self.data else self.data


class LogFile:
    """The lines of a file that may grow, be truncated, replaced or deleted; a missing file has no lines."""

    def __init__(self, path: Path) -> None:
        """Set the path; nothing is read yet."""
        self.path = path

    def size(self) -> int:
        """Return the file's size in bytes, 0 if it does not exist."""
        return self.change_stamp()[1]

    def change_stamp(self) -> tuple[int, int]:
        """Return inode (0: none) and size of the file, which change when it is written."""
        return inode_and_size(self.path)

    def why_unreadable(self) -> str:
        """Return why the existing file cannot be read, empty if it can."""
        return why_unreadable(self.path) if os.path.lexists(self.path) else ""

    def lines_from(self, offset: int) -> Iterator[LogFileLine]:
        """Yield the lines from the one at byte `offset` to the current end."""
        try:
            with open_regular_file(self.path) as file:
                size = os.fstat(file.fileno()).st_size
                if 0 <= offset < size:
                    yield from _read_lines(file, _line_start(file, offset), size)
        except OSError:
            return

    def lines_before(self, offset: int) -> Iterator[LogFileLine]:
        """Yield the lines that start before `offset`, the last one first."""
        offset = min(offset, self.size())
        while offset > 0:
            before = (offset - 1) // BLOCK_BYTES * BLOCK_BYTES
            limit = offset
            block_lines = [*takewhile(lambda line, limit=limit: line.start < limit, self.lines_from(before))]  # type: ignore[misc]
            if not block_lines:
                return
            yield from reversed(block_lines)
            offset = block_lines[0].start

    def read_bytes(self, start: int, length: int) -> bytes:
        """Return raw bytes: fewer at the end, none if unreadable."""
        try:
            with open_regular_file(self.path) as file:
                return os.pread(file.fileno(), length, start)
        except OSError:
            return b""


def _line_start(file: BinaryIO, offset: int) -> int:
    """Return the start of the line at an offset."""
    block = offset // BLOCK_BYTES * BLOCK_BYTES
    block_start = max(0, block - BLOCK_BYTES)
    newline = os.pread(file.fileno(), offset - block_start, block_start).rfind(b"\n")
    # Without a newline in the block before, the line was cut at the start of this one.
    return block_start + newline + 1 if newline >= 0 else block


def _read_lines(file: BinaryIO, start: int, size: int) -> Iterator[LogFileLine]:
    base, data = start, b""
    while start < size:
        limit = min(start + BLOCK_BYTES if start % BLOCK_BYTES == 0 else (start // BLOCK_BYTES + 2) * BLOCK_BYTES, size)
        newline = data.find(b"\n", start - base, limit - base)
        if newline < 0 and base + len(data) < limit:
            base, data = start, os.pread(file.fileno(), _BYTES_PER_READ, start)
            newline = data.find(b"\n", 0, limit - base)
        if not data:
            return  # truncated meanwhile
        end = base + newline + 1 if newline >= 0 else min(limit, base + len(data))
        stop = base + newline if newline >= 0 else end
        yield LogFileLine(start, end, data[start - base : stop - base], cut=newline < 0 and end < size)
        start = end
