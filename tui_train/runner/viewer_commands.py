"""`status`, `stop`, `tail` and `follow` on a machine that has no tui-train."""

from __future__ import annotations

import json
import sys
import time
from typing import Iterator

from . import stop
from .logs.lines import MAX_LINE_LENGTH, lines_left_on_terminal
from .logs.progress import Progress, advance_progress
from .run import attempt_log_path, next_attempt_number
from .run_folder import state, supervisor_plan
from .run_folder.state import RunStatus
from .system import safe_open
from .system.refused import UNAVAILABLE_EXIT_CODE, Refused
from .system.safe_text import visible

_LOG_TAIL_BYTES = 1 << 20
_PROGRESS_TAIL_BYTES = 64 << 10
_POLL_SECONDS = 0.3
# A progress bar that never ends its line is shown as often, in seconds.
_PROGRESS_BAR_REFRESH_SECONDS = 10.0


def show_status(run_dir: str, *, as_json: bool) -> int:
    """Print the run's state."""
    return _print_status(state.read_status(run_dir), run_dir, as_json=as_json)


def stop_and_show(run_dir: str, *, as_json: bool, at_once: bool) -> int:
    """End the run, and print how it stands then."""
    return _print_status(stop.stop_run_and_processes(run_dir, at_once=at_once), run_dir, as_json=as_json)


def _print_status(now: state.RunStatus, run_dir: str, *, as_json: bool) -> int:
    _print_line(now.as_plain_data() if as_json else _run_status_text(now, run_dir))
    return 0


def show_tail(run_dir: str, *, as_json: bool, max_lines: int) -> int:
    """Print the last lines of the newest attempt's log."""
    number = _newest_attempt_number(run_dir)
    try:
        data = safe_open.read_bounded(attempt_log_path(run_dir, number), _LOG_TAIL_BYTES, from_end=True)
    except FileNotFoundError:
        data = b""
    except OSError as error:
        raise Refused(UNAVAILABLE_EXIT_CODE, _unreadable_log_text(run_dir, number, error)) from None
    lines = [shown for line in data.split(b"\n") for shown in lines_left_on_terminal(line)]
    shown = lines[:-1] if lines and not lines[-1] else lines
    for line in shown[-max_lines:] if max_lines else []:
        _print_line({"attempt": number, "line": line} if as_json else line)
    return 0


def follow_log(run_dir: str, *, as_json: bool) -> int:
    """Print the newest attempt's log and those after it as they are written, until the run has ended."""
    for number, line in _follow_lines(run_dir):
        _print_line({"attempt": number, "line": line} if as_json else line)
    return show_status(run_dir, as_json=as_json)


def _newest_attempt_number(run_dir: str) -> int:
    """Return the number of the newest attempt that has a log, 0 where there is none."""
    return next_attempt_number(run_dir) - 1


def _follow_lines(run_dir: str) -> Iterator[tuple[int, str]]:
    number, offset, rest, problem = max(1, _newest_attempt_number(run_dir)), 0, b"", ""
    shown_at = time.monotonic()
    while True:
        live = state.read_status(run_dir).is_live
        before, data = problem, b""
        try:
            data, problem = _read_log_piece(attempt_log_path(run_dir, number), offset), ""
        except OSError as error:
            problem = _unreadable_log_text(run_dir, number, error)
        if problem and problem != before:
            sys.stderr.write(f"launch.sh: {problem}\n")
        offset += len(data)
        whole, rest = _split_lines_and_rest(rest + data)
        if not whole and time.monotonic() - shown_at > _PROGRESS_BAR_REFRESH_SECONDS and (at := rest.rfind(b"\r")) > 0:
            whole, rest = [rest[:at]], rest[at:]
        for line in whole:
            shown_at = time.monotonic()
            for shown in lines_left_on_terminal(line):
                yield number, shown
        if data:
            continue
        if _newest_attempt_number(run_dir) > number or not live:
            yield from ((number, shown) for shown in (lines_left_on_terminal(rest) if rest else ()))
            if _newest_attempt_number(run_dir) == number:
                return
            number, offset, rest = number + 1, 0, b""
        else:
            time.sleep(_POLL_SECONDS)


def _split_lines_and_rest(data: bytes) -> tuple[list[bytes], bytes]:
    """Return the lines of some output, and the beginning of the next one; what has no end for too long is cut."""
    *whole, rest = data.split(b"\n")
    while len(rest) > MAX_LINE_LENGTH:
        # A progress bar that draws itself again and again is cut between two of its states.
        at = rest.rfind(b"\r", 1, MAX_LINE_LENGTH)
        at = at if at > 0 else MAX_LINE_LENGTH
        whole.append(rest[:at])
        rest = rest[at:]
    return whole, rest


def _read_log_piece(path: str, offset: int) -> bytes:
    """Return the next piece of a log, empty where there is none yet; OSError where it cannot be read."""
    try:
        with safe_open.open_regular_file(path) as file:
            file.seek(offset)
            return file.read(_LOG_TAIL_BYTES)
    except FileNotFoundError:
        return b""


def _unreadable_log_text(run_dir: str, number: int, error: OSError) -> str:
    return f"{visible(attempt_log_path(run_dir, number))} cannot be read: {error.strerror}"


def _run_status_text(status: RunStatus, run_dir: str) -> str:
    words = [f"{status.state} on {visible(status.host)}" if status.host else status.state]
    words += [f"waits for {visible(status.waits_for)}"] if status.state == "waiting" and status.waits_for else []
    if status.exit_code is not None:
        words.append(f"exit code {status.exit_code}")
    if status.leftover:
        words.append(f"processes that train on: {', '.join(map(str, status.leftover))}")
    if not status.attempts:
        return ", ".join(words)
    newest = status.attempts[-1]
    log = attempt_log_path(run_dir, newest.number)
    words += [f"resumed from step {newest.resumed}"] if newest.resumed else []
    return "\n".join((", ".join(words + _progress_texts(run_dir, log)), f"log: {visible(log)}"))


def _progress_texts(run_dir: str, log: str) -> list[str]:
    """Return the progress that the end of a log shows, in words."""
    try:
        reading = supervisor_plan.log_reading_options(supervisor_plan.read_plan(run_dir))
        pieces = safe_open.read_bounded(log, _PROGRESS_TAIL_BYTES, from_end=True).replace(b"\r", b"\n").split(b"\n")
    except (OSError, Refused):
        return []
    now = advance_progress(
        Progress(), [line for piece in pieces[:-1] for line in lines_left_on_terminal(piece)], reading
    )
    words = [f"step {now.step} of {now.steps}" if now.steps else f"step {now.step}"] if now.step else []
    return [*words, f"loss {now.last.loss:.4g}"] if now.last else words


def _print_line(value: object) -> None:
    sys.stdout.write((value if isinstance(value, str) else json.dumps(value)) + "\n")
    sys.stdout.flush()
