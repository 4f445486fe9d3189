"""Reads a growing log in pieces of bounded size, with carriage returns folded."""

from collections.abc import Iterator
from pathlib import Path

from tui_train.base.files import inode_and_size, read_error_reason
from tui_train.runner.logs.lines import (
    last_nonblank_version_as_plain_text,
    lines_left_on_terminal,
    progress_bar_in_line,
)
from tui_train.runner.system.safe_open import open_regular_file

_PIECE_BYTES = 1 << 20
_MAX_BAR_BYTES = 1 << 16


class LogTail:
    """The lines of one growing file from `offset` on, with the incomplete last line."""

    def __init__(self, path: Path, *, last_bytes: int | None = None) -> None:
        """Start at the beginning of the file, or at the first full line in its last `last_bytes`."""
        self.path = path
        self.offset = 0
        self.skipped = 0
        # Why the last read failed, as text.
        self.problem = ""
        self._rest = b""
        if last_bytes is not None:
            self.skip_to_last(last_bytes)

    def size(self) -> int:
        """Return the file's size in bytes, 0 if it does not exist."""
        return inode_and_size(self.path)[1]

    def next_lines(self) -> list[str]:
        """Return the full lines of the next piece (at most 1 MiB), safe to show; `unread_bytes` are left."""
        piece = self._read_piece()
        complete, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest[-_PIECE_BYTES:]
        return [folded for line in complete.split(b"\n") for folded in lines_left_on_terminal(line)] if newline else []

    def remaining_lines(self) -> Iterator[str]:
        """Yield all full lines up to the current end."""
        before = -1
        while self.offset != before:
            before = self.offset
            yield from self.next_lines()

    def skip_to_last(self, last_bytes: int) -> None:
        """Continue at the first full line in the last `last_bytes` of the file."""
        start = self.size() - last_bytes
        if start > self.offset:
            self.skipped += start - self.offset
            self.offset = start
            self._drop_partial_line()

    @property
    def unfinished_line(self) -> str:
        """The incomplete last line: a progress bar."""
        return last_nonblank_version_as_plain_text(self._rest[-_MAX_BAR_BYTES:].decode(errors="replace").split("\r"))

    @property
    def progress_bar(self) -> str:
        """The progress bar in the incomplete last line, empty if there is none."""
        return progress_bar_in_line(self._rest[-_MAX_BAR_BYTES:])

    @property
    def unread_bytes(self) -> int:
        """The number of bytes not yet read; 0 if they cannot be read (see `problem`)."""
        if self.problem:
            return 0
        size = self.size()
        return size - self.offset if size >= self.offset else size

    def _read_piece(self) -> bytes:
        try:
            with open_regular_file(self.path) as file:
                if self.size() < self.offset:
                    # Truncated by the user, to free space.
                    self.offset, self._rest = 0, b""
                file.seek(self.offset)
                piece = file.read(_PIECE_BYTES)
        except OSError as error:
            # It does not exist yet.
            self.problem = "" if isinstance(error, FileNotFoundError) else read_error_reason(error)
            return b""
        self.problem = ""
        self.offset += len(piece)
        return piece

    def _drop_partial_line(self) -> None:
        before, newline, rest = self._read_piece().partition(b"\n")
        # Without a newline it is a progress bar, whose end is enough.
        self._rest = b"" if newline else before
        if newline:
            self.offset -= len(rest)
            self.skipped += len(before) + 1
