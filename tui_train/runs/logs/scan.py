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

from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runs.logs.logfile import BLOCK_BYTES, LogFile, LogFileLine

SCAN_WINDOW_BYTES = 4 << 20
_GROWTH_POLL_SECONDS = 0.2
_MAX_SPANS_PER_LINE = 100
_MAX_COUNTED_BYTES = 32 << 20  # of a log of which all matching lines are counted
_CONTEXT_DEPENDENT_EXPRESSION_PATTERN = re.compile(r"\(\?|\\[AZB]|\\\d")
_LITERAL_EXPRESSION_PATTERN = re.compile(r"[\w \-:/=,'\"%@<>!#&;~]+", re.ASCII)


class LogScan:
    """Expressions to search for in one log."""

    def __init__(self, log: LogFile, expressions: Sequence[str]) -> None:
        """Compile them; re.error says why one cannot be."""
        self.log = log
        self._searches = [
            re.compile(expression, re.IGNORECASE if expression == expression.lower() else 0)
            for expression in expressions
        ]
        # Whatever matches within a line matches there in many lines as well, unless it looks around or at their ends.
        # To search small letters in small letters is several times quicker than to pass over their case.
        quick = expressions[-1]
        self._small = quick == quick.lower()
        self._quick = None if _CONTEXT_DEPENDENT_EXPRESSION_PATTERN.search(quick) else re.compile(quick, re.MULTILINE)
        words = [expression for expression in expressions if _LITERAL_EXPRESSION_PATTERN.fullmatch(expression)]
        self._words = [(text.encode(), text == text.lower()) for text in words]

    def matching_lines(self, begin: int, end: int) -> Iterator[LogFileLine]:
        """Yield the lines that start within a window and match."""
        if self._may_contain_match(self.log.read_bytes(begin, end - begin + 2 * BLOCK_BYTES)):
            for line in self.log.lines_from(begin):
                if line.start >= end:
                    return
                if line.start >= begin and not line.is_hidden_bar_state and self._line_matches(line):
                    yield line

    def match_spans(self, line: LogFileLine) -> list[list[tuple[int, int]]]:
        """Return where the last expression matches, for each of the lines that a line is shown as."""
        spans_by_line = [
            [match.span() for match in self._searches[-1].finditer(shown)]
            for shown in lines_left_on_terminal(line.shown_data)
        ]
        return [[span for span in spans if span[0] < span[1]][:_MAX_SPANS_PER_LINE] for spans in spans_by_line]

    def _line_matches(self, line: LogFileLine) -> bool:
        return any(
            all(search.search(shown) for search in self._searches) for shown in lines_left_on_terminal(line.shown_data)
        )

    def _may_contain_match(self, data: bytes) -> bool:
        """Return false where no line of some bytes can match; quicker than to look at each."""
        if b"\r" in data or b"\x1b" in data:
            return True
        if any(words not in (data.lower() if small else data) for words, small in self._words):
            return False
        text = data.decode(errors="replace")
        return self._quick is None or self._quick.search(text.lower() if self._small else text) is not None


def split_into_windows(begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of a stretch of the file, each within a whole window."""
    while begin < end:
        stop = min(end, (begin // SCAN_WINDOW_BYTES + 1) * SCAN_WINDOW_BYTES)
        yield begin, stop
        begin = stop


def report_nearest_match(scan: LogScan, offset: int, *, upward: bool, report: Callable[..., None]) -> None:
    """Tell the nearest line that starts at `offset` or after, or before it when going up; then around the end.

    After it, which of how many lines it is.
    """
    size = scan.log.size()
    parts = (
        *((part, False) for part in split_into_windows(offset, size)),
        *((part, True) for part in split_into_windows(0, offset)),
    )
    if upward:
        behind, before = ([*split_into_windows(offset, size)][::-1], [*split_into_windows(0, offset)][::-1])
        parts = (*((part, False) for part in before), *((part, True) for part in behind))
    done = 0
    for (begin, end), around in parts:
        matches = (
            [*scan.matching_lines(begin, end)]
            if upward
            else [line for line, _ in zip(scan.matching_lines(begin, end), "1", strict=False)]
        )
        if matches:
            line = matches[-1]
            is_counted = size <= _MAX_COUNTED_BYTES
            hit = {"hit": line.start, "end": line.end, "spans": scan.match_spans(line), "around": around}
            report(**hit, done=not is_counted)
            if is_counted:
                starts = [each.start for part in split_into_windows(0, size) for each in scan.matching_lines(*part)]
                number = sum(start <= line.start for start in starts)
                report(**hit, number=number, line_count=len(starts), done=True)
            return
        done += end - begin
        report(percent=100 * done // max(1, size))
    report(done=True)


def write_match_starts(
    scan: LogScan, above_descriptor: int, below_descriptor: int, report: Callable[..., None]
) -> None:
    """Write where all matching lines start, from the end of the log up and from there on down, until it shrinks."""
    size = scan.log.size()
    # A last line without its end may come to match.
    own_start = next((line.start for line in scan.log.lines_before(size)), 0)
    read = own_start
    for begin, end in reversed([*split_into_windows(0, own_start)]):
        _write_line_starts(above_descriptor, [line.start for line in scan.matching_lines(begin, end)][::-1])
        report(percent=100 * (own_start - begin) // max(1, own_start))
        read = _write_added_line_starts(scan, read, below_descriptor)
    report(done=True)
    while read >= 0:
        read = _write_added_line_starts(scan, read, below_descriptor)
        time.sleep(_GROWTH_POLL_SECONDS)


def _write_added_line_starts(scan: LogScan, read_to: int, below_descriptor: int) -> int:
    """Write where the matching lines start that are whole since, and return how far was read; -1: the log shrank."""
    size = scan.log.size()
    if size < read_to or read_to < 0:
        return -1
    tail = next(scan.log.lines_before(size), None)
    end = tail.start if tail and tail.end == size and not scan.log.read_bytes(size - 1, 1).endswith(b"\n") else size
    for begin, stop in split_into_windows(read_to, end):
        _write_line_starts(below_descriptor, [line.start for line in scan.matching_lines(begin, stop)])
    return max(read_to, end)


def _write_line_starts(descriptor: int, starts: list[int]) -> None:
    data = b"".join(start.to_bytes(8, "little") for start in starts)
    while data:
        data = data[os.write(descriptor, data) :]


def _print_json(**news: object) -> None:
    sys.stdout.write(f"{json.dumps(news)}\n")
    sys.stdout.flush()


def _exit_with_parent(parent_id: int) -> None:
    """End when the viewer is gone, even while an expression keeps us busy."""

    def exit_if_orphaned(*_: object) -> None:
        if os.getppid() != parent_id:
            os._exit(0)

    signal.signal(signal.SIGALRM, exit_if_orphaned)
    signal.setitimer(signal.ITIMER_REAL, 1, 1)


def main(mode: str, path: str, first: str, second: str, *expressions: str) -> None:
    """Search, and print each match as a line of JSON."""
    _exit_with_parent(os.getppid())
    os.nice(10)  # the training comes first
    try:
        scan = LogScan(LogFile(Path(path)), expressions)
        if mode == "find":
            report_nearest_match(scan, int(first), upward=second == "up", report=_print_json)
        else:
            write_match_starts(scan, int(first), int(second), _print_json)
    except (re.error, RecursionError, OverflowError) as error:
        _print_json(error=str(error), done=True)
    except OSError as error:
        _print_json(error=error.strerror or str(error), done=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
