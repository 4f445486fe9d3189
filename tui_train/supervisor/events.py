"""events.jsonl: what happened in a run folder, one JSON object a line, appended and never rewritten."""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, NamedTuple

from . import regular

NAME = "events.jsonl"
# What other programs read as a whole number.
_MOST = 2**63


class Event(NamedTuple):
    """One line; `time` is in seconds since the epoch, `uptime` since that machine booted, an exit code of -1 is none.

    `resumed` is the step of the checkpoint that an attempt was given, `ignored_checkpoint` tells that it did not load
    it. `next` is the attempt that follows after an out-of-memory, 0 for none.
    """

    time: float = 0.0
    event: str = ""
    uptime: float = 0.0
    mark: str = ""
    script: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    grace: int = 20
    attempt: int = 0
    leader: int = 0
    leader_ticks: int = 0
    position: int = 0
    exit_code: int = -1
    out_of_memory: bool = False
    resumed: int = 0
    ignored_checkpoint: bool = False
    phase: str = ""
    next: int = -1
    state: str = ""
    signal: str = ""
    engine: str = ""
    container: str = ""


_TYPES = {name: type(value) for name, value in Event._field_defaults.items()}


def read(folder: str) -> tuple[Event, ...]:
    """Return what happened so far; a line that is not whole, or not ours, is passed over."""
    try:
        data = regular.read(os.path.join(folder, NAME), end=True)
    except OSError:
        return ()
    return tuple(event for line in data.split(b"\n") if line.strip() for event in _event(line))


def _event(line: bytes) -> tuple[Event, ...]:
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(told, dict) or not isinstance(told.get("event"), str):
        return ()
    known = {name: value for name, value in told.items() if name in _TYPES}
    if not all(_fits(value, _TYPES[name]) for name, value in known.items()):
        return ()
    return (Event(**known),)


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return isinstance(value, (int, float)) and type(value) is not bool and -_MOST < value < _MOST
    return type(value) is kind and (not isinstance(value, int) or -_MOST < value < _MOST)


class Journal:
    """events.jsonl, as the supervisor writes it; `reserve` is a file that is given up where the disk is full."""

    def __init__(self, folder: str, reserve: str) -> None:
        self.path = os.path.join(folder, NAME)
        self.reserve = reserve

    def append(self, event: str, **told: object) -> None:
        """Add a line; OSError where even the last reserve does not suffice."""
        values = {"time": time.time(), "uptime": time.clock_gettime(time.CLOCK_BOOTTIME), "event": event, **told}
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        try:
            self._write(line)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(self.reserve)
            self._write(line)

    def _write(self, line: bytes) -> None:
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            # A line that a full disk or a power cut left torn would swallow this one.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError("the line was not written whole")
        finally:
            os.close(descriptor)
