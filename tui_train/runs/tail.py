"""Reading a log that grows: by byte offset, in pieces of bounded size, carriage returns folded, never held whole."""

from collections.abc import Iterator
from pathlib import Path

from tui_train.base.files import reason, regular_size
from tui_train.supervisor.lines import bar, fold, last_of
from tui_train.supervisor.regular import open_regular

_PIECE = 1 << 20
_SEEN = 1 << 16


class Tail:
    """The lines of one growing file from `offset` on; a last line without its newline is given as it stands so far."""

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        """Begin at the file's start, or `last` bytes before its present end (then at the next whole line)."""
        self.path = path
        self.offset = 0
        self.skipped = 0
        # Why the last read failed, in words.
        self.problem = ""
        self._rest = b""
        if last is not None:
            self.skip(last)

    def size(self) -> int:
        """Return the file's size in bytes, 0 while there is none."""
        return regular_size(self.path)[1]

    def read(self) -> list[str]:
        """Return the whole lines of the next piece (at most 1 MiB), safe to show; `behind` tells of more."""
        piece = self._piece()
        whole, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest[-_PIECE:]
        return [shown for line in whole.split(b"\n") for shown in fold(line)] if newline else []

    def lines(self) -> Iterator[str]:
        """Yield the whole lines of all that is there by now."""
        before = -1
        while self.offset != before:
            before = self.offset
            yield from self.read()

    def skip(self, last: int) -> None:
        """Go on `last` bytes before the file's present end, at the next whole line."""
        begin = self.size() - last
        if begin > self.offset:
            self.skipped += begin - self.offset
            self.offset = begin
            self._drop_partial()

    @property
    def unfinished(self) -> str:
        """The last line so far, while its newline is not written: a progress bar at work."""
        return last_of(self._rest[-_SEEN:].decode(errors="replace").split("\r"))

    @property
    def bar(self) -> str:
        """The training's own progress bar in the last line so far, empty when there is none."""
        return bar(self._rest[-_SEEN:])

    @property
    def behind(self) -> int:
        """Bytes that are written and not yet read; 0 while they cannot be read, see `problem`."""
        if self.problem:
            return 0
        size = self.size()
        return size - self.offset if size >= self.offset else size

    def _piece(self) -> bytes:
        try:
            with open_regular(self.path) as file:
                if self.size() < self.offset:
                    # Someone emptied it, to free some space.
                    self.offset, self._rest = 0, b""
                file.seek(self.offset)
                piece = file.read(_PIECE)
        except OSError as error:
            # One that is not there yet has nothing to read.
            self.problem = "" if isinstance(error, FileNotFoundError) else reason(error)
            return b""
        self.problem = ""
        self.offset += len(piece)
        return piece

    def _drop_partial(self) -> None:
        before, newline, rest = self._piece().partition(b"\n")
        # Without a newline it is a progress bar, of which the end will do.
        self._rest = b"" if newline else before
        if newline:
            self.offset -= len(rest)
            self.skipped += len(before) + 1
