"""Reading a log of any size in bounded memory: its head, its tail, and between them what signatures are about."""

import codecs
import errno
import gzip
import io
import os
import re
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import reason
from tui_train.base.text import visible
from tui_train.diagnose.middle import ESCAPE, Middle, Numbered
from tui_train.diagnose.types import Line
from tui_train.supervisor.lines import origin
from tui_train.supervisor.regular import open_regular

_BLOCK = 128 * 1024
_TAIL_BLOCKS = 4
_LONGEST = 1500
_SAMPLE = 4096
# What programs print besides letters: it moves the cursor, or colours.
_LAYOUT = frozenset(b"\t\n\r\b\f\v\a\x1b")
# A pipe that a shell has opened for us, as in `diagnose <(zcat log.gz)`, is like standard input.
_GIVEN = re.compile(r"(?:/dev|/proc/self)/fd/(\d{1,9})", re.ASCII)
_HOLE = 1 << 20


def lines_of(path: str) -> tuple[Line, ...]:
    """Return the lines of a log that matter, `-` being standard input; NotFound or BadInput where it cannot be read."""
    name = "standard input" if path == "-" else visible(path)
    try:
        with _opened(path) as file:
            return lines(_text(file, name))
    except FileNotFoundError:
        raise NotFound(f"no log {name}", "Name a log file, or a run: see `tui-train runs`.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInput(f"{name} is a truncated gzip file", "Name the uncompressed log.") from None
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {reason(error)}", "Name a log that you may read.") from None


def _opened(path: str) -> BinaryIO:
    """Open a regular file, or a stream that is open for us already; OSError where it is neither."""
    given = _GIVEN.fullmatch("/dev/fd/0" if path in {"-", "/dev/stdin"} else path)
    if path == os.devnull:
        return io.BytesIO()
    if given is None:
        return io.BufferedReader(_Dense(path))
    # It is not ours to close.
    return open(int(given[1]), "rb", closefd=False)


class _Dense(io.RawIOBase):
    """A regular file without its large holes, whatever size they pretend: they hold zeros, and no end of a line."""

    def __init__(self, path: str) -> None:
        self._file = open_regular(path)

    def readable(self) -> bool:
        """Return true, which a buffer asks for."""
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Fill a buffer; 0 at the end."""
        at = self._file.tell()
        try:
            data = os.lseek(self._file.fileno(), at, os.SEEK_DATA)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return 0
            # A file system that knows of no holes.
            data = at
        self._file.seek(data if data - at > _HOLE else at)
        return self._file.readinto(buffer)

    def close(self) -> None:
        """Close the file itself."""
        self._file.close()
        super().close()


class _Begun:
    """A stream whose start was read already."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.start: bytes = file.read(_SAMPLE)

    def read(self, size: int) -> bytes:
        start, self.start = self.start[:size], self.start[size:]
        rest: bytes = self._file.read(size - len(start))
        return start + rest


def _text(file: Any, name: str, *, unpacked: bool = False) -> Any:
    """Return a log as UTF-8, whatever it is kept as; BadInput for what is no text."""
    begun = _Begun(file)
    if begun.start.startswith(b"\x1f\x8b") and not unpacked:
        return _text(gzip.GzipFile(fileobj=begun), name, unpacked=True)  # type: ignore[call-overload]
    if begun.start[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
        ours, theirs = codecs.lookup("utf-8"), codecs.lookup("utf-16")
        recoded = codecs.StreamRecoder(begun, *ours[:2], theirs.streamreader, ours.streamwriter, "replace")  # type: ignore[arg-type]
        begun = _Begun(recoded)
    # Zeros are what is left of a log that was cut short while it was written.
    sample = begun.start.replace(b"\0", b"")
    if sum(byte < 32 and byte not in _LAYOUT for byte in sample) * 20 > len(sample):
        raise BadInput(f"{name} is not text", "Name the log of a training: what it printed.")
    return begun


def lines(file: BinaryIO) -> tuple[Line, ...]:
    """Return head and tail of a stream, and of what lies between the lines that matter; numbered as in the whole."""
    head: list[Numbered] = []
    tail: deque[tuple[int, bytes]] = deque()
    middle = Middle()
    for number, block in _blocks(file):
        if number == 1 and not head:
            head = list(_split(number, block))
            continue
        tail.append((number, block))
        if len(tail) > _TAIL_BLOCKS:
            middle.read(_split(*tail.popleft()))
    last = [line for numbered in tail for line in _split(*numbered)]
    return tuple(line for number, raw in (*head, *middle.kept(), *last) for line in _cleaned(number, raw))


def _blocks(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines); a line longer than a block is cut into several."""
    number, rest = 1, b""
    while chunk := file.read(_BLOCK):
        block, newline, rest = (rest + chunk).rpartition(b"\n")
        if not newline:
            block, rest = rest, b""
        yield number, block
        number += block.count(b"\n") + 1
    if rest:
        yield number, rest


def _split(number: int, block: bytes) -> Iterator[Numbered]:
    """Yield (number, line) with each line cut to a length."""
    for offset, line in enumerate(block.split(b"\n")):
        yield number + offset, line if len(line) <= _LONGEST else line[: _LONGEST // 2] + b" " + line[-_LONGEST // 2 :]


def _cleaned(number: int, raw: bytes) -> Iterable[Line]:
    """Return what a terminal would have shown of a line, after its carriage returns."""
    for piece in ESCAPE.sub(b"", raw).split(b"\r"):
        rank, text = origin(piece.decode("utf-8", "replace").replace("\0", ""))
        if text.strip():
            yield Line(number, text.rstrip(), rank)
