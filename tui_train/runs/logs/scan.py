"""Searches a log of any size for expressions; runs as a child of the viewer, which a slow expression cannot block.

    python -m tui_train.runs.logs.scan find PATH OFFSET (down | up) EXPRESSION...  the nearest line, then around the end
    python -m tui_train.runs.logs.scan all PATH ABOVE BELOW EXPRESSION...          all lines, and on while the log grows

A line has to match every expression, as it is shown. Small letters stand for capitals as well, capitals do not. It
prints one JSON object a line. `all` writes where the lines start, 8 bytes each, little-endian: to the descriptor ABOVE
those of the present log, the last first, and to BELOW those that are added.
"""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tui_train.runner.lines import fold_carriage_returns
from tui_train.runs.logs.logfile import BLOCK, Line, LogFile

WINDOW = 4 << 20
_PAUSE_SECONDS = 0.2
_MAX_SPANS = 100
_LOOKAROUND = re.compile(r"\(\?|\\[AZB]|\\\d")
_WORDS = re.compile(r"[\w \-:/=,'\"%@<>!#&;~]+", re.ASCII)


class Scan:
    """Expressions to search for in one log."""

    def __init__(self, log: LogFile, expressions: Sequence[str]) -> None:
        """Compile them; re.error says why one cannot be."""
        self.log = log
        self._searches = [_compile(expression) for expression in expressions]
        # Whatever matches within a line matches there in many lines as well, unless it looks around or at their ends.
        # To search small letters in small letters is several times quicker than to pass over their case.
        quick = expressions[-1]
        self._small = quick == quick.lower()
        self._quick = None if _LOOKAROUND.search(quick) else re.compile(quick, re.MULTILINE)
        words = [expression for expression in expressions if _WORDS.fullmatch(expression)]
        self._words = [(text.encode(), text == text.lower()) for text in words]

    def lines(self, begin: int, end: int) -> Iterator[Line]:
        """Yield the lines that start within a window and match."""
        if self._may_match(self.log.window(begin, end - begin + 2 * BLOCK)):
            for line in self.log.forward(begin):
                if line.start >= end:
                    return
                if line.start >= begin and not line.hidden and self._matches(line):
                    yield line

    def spans(self, line: Line) -> list[list[tuple[int, int]]]:
        """Return where the last expression matches, for each of the lines that a line is shown as."""
        spans_by_line = [
            [match.span() for match in self._searches[-1].finditer(shown)]
            for shown in fold_carriage_returns(line.shown_data)
        ]
        return [[span for span in spans if span[0] < span[1]][:_MAX_SPANS] for spans in spans_by_line]

    def _matches(self, line: Line) -> bool:
        return any(
            all(search.search(shown) for search in self._searches) for shown in fold_carriage_returns(line.shown_data)
        )

    def _may_match(self, data: bytes) -> bool:
        """Return false where no line of some bytes can match; quicker than to look at each."""
        if b"\r" in data or b"\x1b" in data:
            return True
        if any(words not in (data.lower() if small else data) for words, small in self._words):
            return False
        text = data.decode(errors="replace")
        return self._quick is None or self._quick.search(text.lower() if self._small else text) is not None


def windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a stretch of the file, each within a whole window."""
    while begin < end:
        stop = min(end, (begin // WINDOW + 1) * WINDOW)
        yield begin, stop
        begin = stop


def find_nearest(scan: Scan, offset: int, *, up: bool, report: Callable[..., None]) -> None:
    """Tell the nearest line that starts at `offset` or after, or before it when going up; then around the end."""
    size = scan.log.size()
    parts = (*((part, False) for part in windows(offset, size)), *((part, True) for part in windows(0, offset)))
    if up:
        behind, before = ([*windows(offset, size)][::-1], [*windows(0, offset)][::-1])
        parts = (*((part, False) for part in before), *((part, True) for part in behind))
    done = 0
    for (begin, end), around in parts:
        matches = (
            [*scan.lines(begin, end)] if up else [line for line, _ in zip(scan.lines(begin, end), "1", strict=False)]
        )
        if matches:
            line = matches[-1]
            report(hit=line.start, end=line.end, spans=scan.spans(line), around=around, done=True)
            return
        done += end - begin
        report(percent=100 * done // max(1, size))
    report(done=True)


def collect_starts(scan: Scan, above: int, below: int, report: Callable[..., None]) -> None:
    """Write where all matching lines start, from the end of the log up and from there on down, until it shrinks."""
    size = scan.log.size()
    # A last line without its end may come to match.
    own_start = next((line.start for line in scan.log.backward(size)), 0)
    read = own_start
    for begin, end in reversed([*windows(0, own_start)]):
        _write_starts(above, [line.start for line in scan.lines(begin, end)][::-1])
        report(percent=100 * (own_start - begin) // max(1, own_start))
        read = _scan_added(scan, read, below)
    report(done=True)
    while read >= 0:
        read = _scan_added(scan, read, below)
        time.sleep(_PAUSE_SECONDS)


def _scan_added(scan: Scan, read: int, below: int) -> int:
    """Write where the matching lines start that are whole since, and return how far was read; -1: the log shrank."""
    size = scan.log.size()
    if size < read or read < 0:
        return -1
    tail = next(scan.log.backward(size), None)
    end = tail.start if tail and tail.end == size and not scan.log.window(size - 1, 1).endswith(b"\n") else size
    for begin, stop in windows(read, end):
        _write_starts(below, [line.start for line in scan.lines(begin, stop)])
    return max(read, end)


def _write_starts(file: int, starts: list[int]) -> None:
    data = b"".join(start.to_bytes(8, "little") for start in starts)
    while data:
        data = data[os.write(file, data) :]


def _compile(expression: str) -> re.Pattern[str]:
    return re.compile(expression, re.IGNORECASE if expression == expression.lower() else 0)


def _print_json(**news: object) -> None:
    sys.stdout.write(f"{json.dumps(news)}\n")
    sys.stdout.flush()


def _exit_with_parent(parent: int) -> None:
    """End when the viewer is gone, even while an expression keeps us busy."""

    def look(*_: object) -> None:
        if os.getppid() != parent:
            os._exit(0)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)


def main(kind: str, path: str, first: str, second: str, *expressions: str) -> None:
    """Look, and print what is found."""
    _exit_with_parent(os.getppid())
    os.nice(10)  # the training comes first
    try:
        scan = Scan(LogFile(Path(path)), expressions)
        if kind == "find":
            find_nearest(scan, int(first), up=second == "up", report=_print_json)
        else:
            collect_starts(scan, int(first), int(second), _print_json)
    except (re.error, RecursionError, OverflowError) as error:
        _print_json(error=str(error), done=True)
    except OSError as error:
        _print_json(error=error.strerror or str(error), done=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
