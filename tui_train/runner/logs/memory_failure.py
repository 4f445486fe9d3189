"""Judgement whether GPU memory ended a training, by the last error of each process at the end of its log."""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from itertools import takewhile
from typing import NamedTuple

from ..system.safe_open import open_regular_file
from .lines import without_escape_sequences
from .memory_holders import other_holder_pid_if_certain
from .progress import Progress, advance_progress
from .tracebacks import FOLLOW_UP_KIND, GPU_MEMORY_KIND, LoggedError, parse_errors

_LOG_TAIL_BYTES = 4_000_000
# Of a training that goes on for so many losses after an error, that error was not the end.
_STEPS_PROVING_RECOVERY = 3
_HOST_MEMORY_PATTERN = re.compile(
    r"DefaultCPUAllocator: |Cannot allocate memory|(?:^|[^A-Za-z])MemoryError|oom[-_]kill"
    r"|exitcode .*: -9 |Signal 9 \(SIGKILL\)|killed by signal: Killed"
)
_ROOT_CAUSE_TEXT = "Root Cause (first observed failure)"
_ROOT_CAUSE_LINE_PATTERN = re.compile(r"^\s*(?P<name>host|rank|exitcode)\s*: (?P<value>\S+)")
_ROOT_CAUSE_BLOCK_LINE_COUNT = 8
# Signals that nothing but the machine or somebody sends: no error of the program's own came to its end.
_POSSIBLE_MEMORY_KILL_EXIT_CODES = frozenset({"-7", "-9", "-11"})


class MemoryFailure(NamedTuple):
    """How running out of memory ended a training.

    `phase` is where GPU memory ran out, empty unless that is what ended it. `foreign_pid` is the process of somebody
    else that fills the card. `maybe_out_of_host_memory` says that the host's memory may have run out.
    """

    phase: str = ""
    foreign_pid: str = ""
    maybe_out_of_host_memory: bool = False


def read_memory_failure(log: str, own_pids: Container[int]) -> MemoryFailure:
    """Return whether running out of memory ended the training of a log; `own_pids` are the run's own processes."""
    lines = _log_tail_lines(log)
    on_host = any(_HOST_MEMORY_PATTERN.search(line) is not None and "WARNING" not in line for line in lines)
    errors = parse_errors(lines)
    last = error_to_blame_for_end(lines, errors)
    if (
        last is None
        or last.kind != GPU_MEMORY_KIND
        or torchrun_root_cause(lines).get("exitcode") in _POSSIBLE_MEMORY_KILL_EXIT_CODES
        or _has_training_continued(lines[last.line_index + 1 :])
    ):
        return MemoryFailure(maybe_out_of_host_memory=on_host)
    before = [error for error in errors[: errors.index(last) + 1] if error.kind != FOLLOW_UP_KIND]
    return MemoryFailure(_phase_of_last_error(before), other_holder_pid_if_certain(last.message, own_pids), on_host)


def _log_tail_lines(log: str) -> list[str]:
    """Return the lines at a log's end, however it is written; none where it cannot be read."""
    try:
        with open_regular_file(log) as file:
            begin = max(0, file.seek(0, 2) - _LOG_TAIL_BYTES)
            file.seek(begin)
            data = file.read(_LOG_TAIL_BYTES)
    except OSError:
        return []
    if begin:
        data = data[data.find(b"\n") + 1 :]
    return without_escape_sequences(data.replace(b"\0", b"").replace(b"\r", b"\n").decode("utf-8", "replace")).split(
        "\n"
    )


def error_to_blame_for_end(lines: Sequence[str], logged: Sequence[LoggedError]) -> LoggedError | None:
    """Return which of the errors found in a log's lines ended the training, None where none is told.

    What torch's own hook printed was not caught: of those the rank decides that torchrun saw end first, else any that
    ran out of memory, for the others fail because it is gone. Else the last one decides.
    """
    errors = [error for error in logged if error.kind != FOLLOW_UP_KIND]
    last = {error.rank: error for error in errors if error.uncaught}
    root = torchrun_root_cause(lines).get("rank")
    if first := next((error for rank, error in last.items() if str(rank) == root), None):
        return first
    out_of_memory = [error for error in last.values() if error.kind == GPU_MEMORY_KIND]
    ended = out_of_memory or list(last.values()) or list(errors)
    return ended[-1] if ended else None


def _phase_of_last_error(errors: Sequence[LoggedError]) -> str:
    """Return the phase that the last error tells, or one before it which is of memory as well."""
    of_memory = takewhile(lambda error: error.kind == GPU_MEMORY_KIND, reversed(errors))
    return next((error.phase for error in of_memory if error.phase), "loss")


def torchrun_root_cause(lines: Sequence[str]) -> dict[str, str]:
    """Return host, rank and exit code of the process that torchrun saw end first; empty where it does not say."""
    at = next((index for index in range(len(lines) - 1, -1, -1) if _ROOT_CAUSE_TEXT in lines[index]), None)
    block = [] if at is None else lines[at : at + _ROOT_CAUSE_BLOCK_LINE_COUNT]
    return {match["name"]: match["value"] for match in map(_ROOT_CAUSE_LINE_PATTERN.match, block) if match}


def _has_training_continued(lines: Sequence[str]) -> bool:
    return advance_progress(Progress(), (line for line in lines if "oss" in line)).curve.size >= _STEPS_PROVING_RECOVERY
