"""A viewer's side of a search: a child looks, and what it finds is read from here; see scan."""

import io
import os
import subprocess
import tempfile
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO

from msgspec import Struct

from tui_train.base.parse import parse_json_as
from tui_train.facts.machine.child_process import own_module_command_and_environment
from tui_train.runs.logs.logfile import LogFile, LogFileLine

_BYTES_PER_OFFSET = 8
_MAX_CANCEL_SECONDS = 0.5


class SearchUpdate(Struct, frozen=True, kw_only=True):
    """State of a search: how far it is, where it hit, `around` the end, or why it cannot be.

    `spans` are where the expression matches, for each line that the hit is shown as. After the hit comes, of a log that
    is not too large, which of how many lines it is.
    """

    percent: int = 0
    hit: int | None = None
    end: int = 0
    spans: tuple[tuple[tuple[int, int], ...], ...] = ()
    around: bool = False
    number: int = 0
    line_count: int = 0
    error: str = ""
    done: bool = False


class LogSearch:
    """A search in a child process, which ends with `cancel` or with us."""

    def __init__(self, mode: str, path: Path, first: object, second: object, *expressions: str) -> None:
        """Start it: the arguments are those of scan; OSError where it cannot be started."""
        self._finished = threading.Event()
        command, changes = own_module_command_and_environment(
            "tui_train.runs.logs.scan", mode, str(path), str(first), str(second), *expressions
        )
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **changes},
            pass_fds=(int(str(first)), int(str(second))) if mode == "all" else (),
            start_new_session=True,
        )
        self._out: IO[bytes] = self._child.stdout or io.BytesIO()

    def updates(self) -> Iterator[SearchUpdate]:
        """Yield what it tells until it has looked through all that was there; blocks, so it belongs in a thread."""
        try:
            # One that was ended while it wrote leaves half a line.
            while (line := self._read_line()).endswith(b"\n"):
                result = parse_json_as(line, SearchUpdate)
                yield result
                if result.done:
                    return
        finally:
            self._finished.set()

    def _read_line(self) -> bytes:
        try:
            return self._out.readline()
        except ValueError:
            # It was cancelled before anybody listened.
            return b""

    def cancel(self) -> None:
        """End the search and its updates now."""
        self._child.kill()
        self._finished.wait(_MAX_CANCEL_SECONDS)
        self._out.close()
        self._child.wait()


def start_nearest_search(path: Path, offset: int, expressions: Sequence[str], *, upward: bool) -> LogSearch:
    """Return a search for the nearest line from an offset on."""
    return LogSearch("find", path, offset, "up" if upward else "down", *expressions)


class FilteredLog:
    """The lines of a log that match expressions, as far as they are found; to be read as a LogFile is.

    Where they start is kept in unlinked files, so that memory stays constant however many they are.
    """

    def __init__(self, log: LogFile, expressions: Sequence[str]) -> None:
        """Begin to look; OSError where that cannot be."""
        self.log = log
        self._above: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - they live as long as this does
        self._below: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.search = LogSearch("all", log.path, self._above.fileno(), self._below.fileno(), *expressions)

    def close(self) -> None:
        """End the search; then there are no lines."""
        self.search.cancel()
        self._above.close()
        self._below.close()

    def size(self) -> int:
        """Return the log's size in bytes."""
        return self.log.size()

    def change_stamp(self) -> tuple[int, int]:
        """Return which file it is and how many lines were found: what differs when there are more."""
        return self.log.change_stamp()[0], self.line_count()

    def line_count(self) -> int:
        """Return how many lines were found so far."""
        return self._offset_count(self._above) + self._offset_count(self._below)

    def lines_from(self, offset: int) -> Iterator[LogFileLine]:
        """Yield the lines that start at `offset` or after."""
        for index in range(self._first_index_from(offset), self.line_count()):
            yield from islice(self.log.lines_from(self._line_start(index)), 1)

    def lines_before(self, offset: int) -> Iterator[LogFileLine]:
        """Yield the lines that start before `offset`, the last one first."""
        for index in range(self._first_index_from(offset) - 1, -1, -1):
            yield from islice(self.log.lines_from(self._line_start(index)), 1)

    def _first_index_from(self, offset: int) -> int:
        return bisect_left(range(self.line_count()), offset, key=self._line_start)

    def _line_start(self, index: int) -> int:
        above = self._offset_count(self._above)
        file, place = (self._above, above - 1 - index) if index < above else (self._below, index - above)
        return int.from_bytes(os.pread(file.fileno(), _BYTES_PER_OFFSET, place * _BYTES_PER_OFFSET), "little")

    @staticmethod
    def _offset_count(file: IO[bytes]) -> int:
        return os.fstat(file.fileno()).st_size // _BYTES_PER_OFFSET
