"""Reading a log that grows: by byte offset, in pieces of bounded size, carriage returns folded, never held whole."""

import re
from pathlib import Path

from tui_train.text import visible

_PIECE = 1 << 20
_LONGEST = 4000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])")


class Tail:
    """The lines of one growing file from `offset` on; a last line without its newline is given as it stands so far."""

    def __init__(self, path: Path, *, last: int | None = None) -> None:
        """Begin at the file's start, or `last` bytes before its present end (then at the next whole line)."""
        self.path = path
        self.offset = 0
        self.skipped = 0
        self._rest = b""
        if last is not None:
            self.skip(last)

    def size(self) -> int:
        """Return the file's size in bytes, 0 while there is none."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def read(self) -> list[str]:
        """Return the whole lines of the next piece (at most 1 MiB), safe to show; empty when there is nothing new."""
        piece = self._piece()
        if not piece:
            return []
        whole, newline, rest = (self._rest + piece).rpartition(b"\n")
        self._rest = rest[-_PIECE:]
        return [clean(line) for line in whole.split(b"\n")] if newline else []

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
        return clean(self._rest)

    @property
    def behind(self) -> int:
        """Bytes that are written and not yet read."""
        return max(0, self.size() - self.offset)

    def _piece(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                piece = file.read(_PIECE)
        except OSError:
            return b""
        self.offset += len(piece)
        return piece

    def _drop_partial(self) -> None:
        before, newline, rest = self._piece().partition(b"\n")
        self._rest = b""
        if newline:
            self.offset -= len(rest)
            self.skipped += len(before) + 1


def clean(line: bytes) -> str:
    """Return a line as a terminal would leave it after its carriage returns, without escape sequences."""
    text = _ANSI.sub("", line.decode(errors="replace"))
    versions = [version for version in text.rstrip("\r").split("\r") if version.strip()]
    shown = versions[-1] if versions else ""
    return visible(shown.expandtabs())[:_LONGEST]
