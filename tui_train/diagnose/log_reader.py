"""Reading a log of any size in bounded memory: its head, its tail, and between them what signatures are about."""

import codecs
import errno
import gzip
import io
import itertools
import os
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from tui_train.base.errors import BadInput, NotFound
from tui_train.base.files import read_error_reason
from tui_train.base.text import visible
from tui_train.diagnose.log_middle import TERMINAL_ESCAPE_PATTERN, KeptMiddleLines, NumberedLine, shortened_lines
from tui_train.diagnose.types import FIRST_UNKNOWN_LINE_NUMBER, Diagnosis, LogLine
from tui_train.runner.logs.lines import split_rank_and_text
from tui_train.runner.system.safe_open import open_regular_file

_BLOCK_BYTES = 128 * 1024
_TAIL_BLOCK_COUNT = 4
_PEEKED_START_BYTES = 4096
# What programs print besides letters: it moves the cursor, or colours.
_ALLOWED_CONTROL_BYTES = frozenset(b"\t\n\r\b\f\v\a\x1b")
# A pipe that a shell has opened for us, as in `diagnose <(zcat log.gz)`, is like standard input.
# A machine's name as pdsh writes it, a container's as Docker Compose and kubectl do.
_HOST_PREFIX_PATTERN = re.compile(
    r"((?:[A-Za-z0-9][\w.-]{0,79}(?:: | *\| )|\[\w{1,20}/[\w./-]{1,160}\] ))"
    r'(?:\[(?:rank|default)?\d{1,5}\]: ?)?(?:Traceback \(most recent call last\)|  File "|\[\d{4}-\d\d-\d\d )'
)
_DESCRIPTOR_PATH_PATTERN = re.compile(r"(?:/dev|/proc/self)/fd/(\d{1,9})", re.ASCII)
_MIN_HOLE_BYTES = 1 << 20
# Of a larger log so much of its end is read first.
_LARGE_LOG_END_BYTES = 16 << 20
_MIN_LARGE_LOG_BYTES = 256 << 20


class LogReadObserver:
    """Observer of the reading of a large log: gets an early diagnosis, then the progress. `stopped`: not read whole."""

    stopped = False

    def note_early_diagnosis(self, diagnosis: Diagnosis | None) -> None:
        """Take what the beginning and the end of the log show."""

    def note_bytes_read(self, read_bytes: int, total_bytes: int) -> None:
        """Take how many bytes were read, of how many (0: unknown); StopReading ends the reading."""


class StopReading(Exception):
    """Nobody waits for the rest of a log any more."""


class LargeLogStopper(LogReadObserver):
    """Observer that ends the reading of a large log after its beginning and end."""

    def note_bytes_read(self, read_bytes: int, total_bytes: int) -> None:
        """End the reading of a large log."""
        if total_bytes >= _MIN_LARGE_LOG_BYTES:
            raise StopReading


def read_relevant_log_lines(
    path: str,
    observer: LogReadObserver | None = None,
    diagnose: Callable[[tuple[LogLine, ...]], Diagnosis | None] = lambda _: None,
) -> tuple[LogLine, ...]:
    """Return the lines of a log that matter, `-` being standard input; NotFound or BadInput where it cannot be read.

    Who watches is told first what the end of a large log shows, diagnosed by `diagnose`, and ends the reading of the
    rest by Ctrl-C or StopReading.
    """
    name = "standard input" if path == "-" else visible(path)
    try:
        with _open_log(path) as file:
            size = (
                file.raw.size if isinstance(file, io.BufferedReader) and isinstance(file.raw, _FileWithoutHoles) else 0
            )
            text = _open_as_utf8(file, name)
            if observer is None:
                return relevant_log_lines(text)
            end: tuple[LogLine, ...] = ()
            if size >= _MIN_LARGE_LOG_BYTES and text.plain:
                with _open_log(path) as again:
                    end = _lines_of_start_and_end(again, size)
                try:
                    observer.note_early_diagnosis(diagnose(end))
                except (KeyboardInterrupt, StopReading):
                    observer.stopped = True
                    return end
            return relevant_log_lines(text, end, observer, lambda: (file.tell() if size else 0, size))
    except FileNotFoundError:
        raise NotFound(f"there is no file {name}", "Name a log file, or a run: see `tui-train runs`.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInput(f"{name} is a truncated gzip file", "Name the uncompressed log.") from None
    except OSError as error:
        raise BadInput(f"{name} cannot be read: {read_error_reason(error)}", "Name a log that you may read.") from None


def _open_log(path: str) -> BinaryIO:
    """Open a regular file, or a stream that is open for us already; OSError where it is neither."""
    match = _DESCRIPTOR_PATH_PATTERN.fullmatch("/dev/fd/0" if path in {"-", "/dev/stdin"} else path)
    if path == os.devnull:
        return io.BytesIO()
    if match is None:
        return io.BufferedReader(_FileWithoutHoles(path))
    # It is not ours to close.
    return open(int(match[1]), "rb", closefd=False)


class _FileWithoutHoles(io.RawIOBase):
    """A regular file without its large holes, whatever size they pretend: they hold zeros, and no end of a line."""

    def __init__(self, path: str) -> None:
        self._file = open_regular_file(path)
        self.size = os.fstat(self._file.fileno()).st_size

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
        self._file.seek(data if data - at > _MIN_HOLE_BYTES else at)
        return self._file.readinto(buffer)

    def seekable(self) -> bool:
        """Return true: a buffer then tells where it is."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file."""
        return self._file.seek(offset, whence)

    def close(self) -> None:
        """Close the file itself."""
        self._file.close()
        super().close()


class _PeekedStream:
    """A stream whose start was read already; `plain`: as it lies on the disk."""

    def __init__(self, file: Any, *, plain: bool = False) -> None:
        self._file = file
        self.plain = plain
        self.start: bytes = file.read(_PEEKED_START_BYTES)

    def read(self, size: int) -> bytes:
        start, self.start = self.start[:size], self.start[size:]
        rest: bytes = self._file.read(size - len(start))
        return start + rest


def _open_as_utf8(file: Any, name: str, *, unpacked: bool = False) -> Any:
    """Return a log as UTF-8, whatever it is kept as; BadInput for what is no text."""
    begun = _PeekedStream(file, plain=not unpacked)
    if begun.start.startswith(b"\x1f\x8b") and not unpacked:
        return _open_as_utf8(gzip.GzipFile(fileobj=begun), name, unpacked=True)  # type: ignore[call-overload]
    if begun.start[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
        ours, theirs = codecs.lookup("utf-8"), codecs.lookup("utf-16")
        recoded = codecs.StreamRecoder(begun, *ours[:2], theirs.streamreader, ours.streamwriter, "replace")  # type: ignore[arg-type]
        begun = _PeekedStream(recoded)
    # Zeros are what is left of a log that was cut short while it was written.
    sample = begun.start.replace(b"\0", b"")
    if sum(byte < 32 and byte not in _ALLOWED_CONTROL_BYTES for byte in sample) * 20 > len(sample):
        raise BadInput(f"{name} is not text", "Name the log of a training: what it printed.")
    return begun


def relevant_log_lines(
    file: BinaryIO,
    tail_if_stopped: tuple[LogLine, ...] = (),
    observer: LogReadObserver | None = None,
    bytes_read_and_total: Callable[[], tuple[int, int]] = lambda: (0, 0),
    first_number: int = 1,
) -> tuple[LogLine, ...]:
    """Return head and tail of a stream, and of what lies between the lines that matter; numbered from the first.

    The stream of which `bytes_read_and_total` tells how much was read may be left by who observes it: then
    `tail_if_stopped` takes the place of its tail.
    """
    head: list[NumberedLine] = []
    tail: deque[tuple[int, bytes]] = deque()
    middle, taken = KeptMiddleLines(), 0
    try:
        for number, block in _read_blocks(file, first_number):
            if number == first_number and not head:
                head = _numbered_lines(number, block)
                continue
            tail.append((number, block))
            if len(tail) > _TAIL_BLOCK_COUNT:
                middle.keep_relevant_lines(*tail.popleft())
                taken += _BLOCK_BYTES
                if observer:
                    observer.note_bytes_read(bytes_read_and_total()[0] or taken, bytes_read_and_total()[1])
    except (KeyboardInterrupt, StopReading):
        if not observer or (
            tail_if_stopped and bytes_read_and_total()[0] > bytes_read_and_total()[1] - _LARGE_LOG_END_BYTES
        ):
            raise
        observer.stopped = True
    last = [line for numbered in tail for line in _numbered_lines(*numbered)]
    cleaned = tuple(
        line for number, raw in (*head, *middle.kept_lines(), *last) for line in _lines_as_terminal_shows(number, raw)
    )
    cleaned = _without_host_prefixes(cleaned)
    return (
        (*cleaned, *(line for line in tail_if_stopped if line.number >= FIRST_UNKNOWN_LINE_NUMBER))
        if observer and observer.stopped
        else cleaned
    )


def _without_host_prefixes(lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    """Return lines without the name of a machine or container before each, which a traceback or a record shows."""
    prefixes = tuple({match[1] for line in lines if (match := _HOST_PREFIX_PATTERN.match(line.text))})
    if not prefixes:
        return lines
    return tuple(_without_host_prefix(line, prefixes) for line in lines)


def _without_host_prefix(line: LogLine, prefixes: tuple[str, ...]) -> LogLine:
    prefix = max((prefix for prefix in prefixes if line.text.startswith(prefix)), key=len, default="")
    if not prefix:
        return line
    rank, text = split_rank_and_text(line.text[len(prefix) :])
    return LogLine(line.number, text, line.rank if rank is None else rank)


def _lines_of_start_and_end(file: BinaryIO, size: int) -> tuple[LogLine, ...]:
    """Return the lines that matter of the first block and the end of a large log."""
    head = [
        line
        for numbered in itertools.islice(_read_blocks(file), 1)
        for raw in _numbered_lines(*numbered)
        for line in _lines_as_terminal_shows(*raw)
    ]
    file.seek(size - _LARGE_LOG_END_BYTES)
    file.readline(_BLOCK_BYTES)
    return (*head, *relevant_log_lines(file, first_number=FIRST_UNKNOWN_LINE_NUMBER))


def _read_blocks(file: BinaryIO, first_number: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield (number of the first line, whole lines); a line longer than a block is cut into several."""
    rest = b""
    while chunk := file.read(_BLOCK_BYTES):
        block, newline, rest = (rest + chunk).rpartition(b"\n")
        if not newline:
            block, rest = rest, b""
        yield first_number, block
        first_number += block.count(b"\n") + 1
    if rest:
        yield first_number, rest


def _numbered_lines(first_number: int, block: bytes) -> list[NumberedLine]:
    """Return (number, line) of a block, with each line cut to a length."""
    return [*enumerate(shortened_lines(block), first_number)]


def _lines_as_terminal_shows(number: int, raw_line: bytes) -> Iterable[LogLine]:
    """Return what a terminal would have shown of a line, after its carriage returns."""
    for piece in TERMINAL_ESCAPE_PATTERN.sub(b"", raw_line).split(b"\r"):
        rank, text = split_rank_and_text(piece.decode("utf-8", "replace").replace("\0", ""))
        if text.strip():
            yield LogLine(number, text.rstrip(), rank)
