"""Reading a log that grows: by byte offset, in pieces of bounded size, carriage returns folded, never held whole."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tui_train.text import visible

_PIECE = 1 << 20
_SEEN = 1 << 16
_LONGEST = 4000
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])")
_BAR = re.compile(r"\d+/\d+ \[\d+:")
# What stands before it is of a bar below the first one: of an evaluation, of a file that is written.
_UP = "\x1b[A"


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
        return _last(self._rest[-_SEEN:].decode(errors="replace").split("\r"))

    @property
    def bar(self) -> str:
        """The training's own progress bar in the last line so far, empty when there is none."""
        return next((line for line in fold(self._rest[-_SEEN:]) if _BAR.search(line)), "")

    @property
    def behind(self) -> int:
        """Bytes that are written and not yet read."""
        size = self.size()
        return size - self.offset if size >= self.offset else size

    def _piece(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                if self.size() < self.offset:
                    # Someone emptied it, to free some space.
                    self.offset, self._rest = 0, b""
                file.seek(self.offset)
                piece = file.read(_PIECE)
        except OSError:
            return b""
        self.offset += len(piece)
        return piece

    def _drop_partial(self) -> None:
        before, newline, rest = self._piece().partition(b"\n")
        # Without a newline it is a progress bar, of which the end will do.
        self._rest = b"" if newline else before
        if newline:
            self.offset -= len(rest)
            self.skipped += len(before) + 1


def fold(line: bytes) -> list[str]:
    """Return a line as a terminal would leave it after its carriage returns; none where it would leave nothing.

    A bar that other words overwrite stays as a line before them: only it tells the step that they are about.
    """
    text = line.decode(errors="replace")
    if text.isprintable() and len(text) <= _LONGEST:
        return [text]
    versions = text.split("\r")
    own = [version.rpartition(_UP)[2] for version in versions]
    shown, bar = _last(own), _last([version for version in own if _BAR.search(version)])
    if not shown:
        return [] if len(versions) > 1 or _UP in versions[0] else [""]
    return [bar, shown] if bar and not _BAR.search(shown) else [shown]


def _last(versions: Iterable[str]) -> str:
    """Return the last that is not blank, safe to show and without escape sequences."""
    for version in reversed([*versions]):
        shown = visible(_ANSI.sub("", version[: 4 * _LONGEST]).expandtabs())[:_LONGEST]
        if shown.strip():
            return shown
    return ""
