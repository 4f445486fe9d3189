"""events.jsonl: what happened in a run folder, one JSON object a line, appended and never rewritten."""

from __future__ import annotations

import json
import os
import time
from typing import Any, NamedTuple

from ..system import safe_open, untrusted_json
from .lock import drop_disk_reserve

JOURNAL_FILE_NAME = "events.jsonl"
# What other programs read as a whole number; what the system calls a process; of what age a calendar knows.
_MAX_INTEGER = 2**53
_MAX_VALUE_BY_EVENT_FIELD = {"inode": 2**64, "pid": 2**31, "leader": 2**31, "grace": 10**9}
MAX_UNIX_TIME = 1e11


class JournalEvent(NamedTuple):
    """One line of the journal."""

    time: float = 0.0
    """Seconds since the epoch."""
    event: str = ""
    uptime: float = 0.0
    """Seconds since that machine booted."""
    mark: str = ""
    script: str = ""
    pid: int = 0
    start_ticks: int = 0
    boot_id: str = ""
    host: str = ""
    grace: int = 20
    attempt: int = 0
    inode: int = 0
    """That of the run folder, which no copy of it has."""
    leader: int = 0
    leader_ticks: int = 0
    position: int = 0
    exit_code: int = -1
    """-1: none."""
    out_of_memory: bool = False
    resumed: int = 0
    """The step of the checkpoint that an attempt was given."""
    ignored_checkpoint: bool = False
    """The attempt did not load that checkpoint."""
    phase: str = ""
    next: int = -1
    """The attempt that follows after an out-of-memory, 0 for none."""
    state: str = ""
    signal: str = ""
    engine: str = ""
    container: str = ""
    cgroup: str = ""
    """An attempt's own."""
    left: str = ""
    """The processes that an attempt left, as `pid:ticks`."""
    why: str = ""
    """Why no attempt followed one that ran out of memory, or what a start waits for."""
    waits: str = ""
    """The start waits for the "chosen" GPUs, "any" of their kind, or CPU cores, until wait_ended."""
    gpus: str = ""
    """The UUIDs that a start got which had waited, with commas."""
    free_disk: int = -1
    """Of the machine on which an attempt failed, as runner/machine_evidence.py reads it; -1: not known."""
    free_shm: int = -1
    memory_limit: int = -1
    oom_kills: int = -1
    gpu_error: str = ""
    joules: float = 0.0
    """What the metered cards drew."""
    metered: int = 0
    """How many of its cards were metered."""
    cards: int = 0


_TYPE_BY_EVENT_FIELD = {name: type(value) for name, value in JournalEvent._field_defaults.items()}


def read_events(folder: str) -> tuple[JournalEvent, ...]:
    """Return what happened so far; a line that is not whole, or not ours, is passed over."""
    return read_events_and_damage(folder)[0]


def read_events_and_damage(folder: str) -> tuple[tuple[JournalEvent, ...], str]:
    """Return what happened so far, and why not all of it can be read; a line still being written is no damage."""
    try:
        data = safe_open.read_bounded(
            os.path.join(folder, JOURNAL_FILE_NAME), safe_open.DEFAULT_MAX_BYTES + 1, from_end=True
        )
    except FileNotFoundError:
        return (), ""
    except OSError as error:
        return (), f"{JOURNAL_FILE_NAME}: {error.strerror}"
    events, damage = [], ""
    if len(data) > safe_open.DEFAULT_MAX_BYTES:
        damage = f"{JOURNAL_FILE_NAME}: it is larger than {safe_open.DEFAULT_MAX_BYTES >> 20} MiB"
    *complete, rest = data.split(b"\n")
    for number, line in enumerate((*complete, rest), 1):
        event = _parse_event(line)
        if event:
            events.append(event)
        elif not damage and line.strip() and number <= len(complete):
            damage = f"{JOURNAL_FILE_NAME}, line {number}: it is no event"
    return tuple(events), damage


def _parse_event(line: bytes) -> JournalEvent | None:
    try:
        values = untrusted_json.parse_json(line)
    except untrusted_json.Unparsable:
        return None
    if not isinstance(values.get("event"), str):
        return None
    fields = {name: value for name, value in values.items() if name in _TYPE_BY_EVENT_FIELD}
    if not all(_is_valid_event_field(name, value) for name, value in fields.items()):
        return None
    return JournalEvent(**fields)


def _is_valid_event_field(name: str, value: Any) -> bool:
    kind = _TYPE_BY_EVENT_FIELD[name]
    if kind is float:
        return isinstance(value, (int, float)) and type(value) is not bool and 0 <= value < MAX_UNIX_TIME
    if kind is str:
        return safe_open.is_valid_text(value)
    return type(value) is kind and (
        not isinstance(value, int) or -1 <= value < _MAX_VALUE_BY_EVENT_FIELD.get(name, _MAX_INTEGER)
    )


class Journal:
    """events.jsonl, as the supervisor writes it: in the folder that it holds open, wherever that is moved."""

    def __init__(self, folder: str) -> None:
        self.path = folder
        self._folder = -1
        self._had_links = False

    def hold_folder_open(self) -> None:
        """Open the folder, by which viewers know who writes there; OSError where it is not there."""
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Some file systems in user space count no links of any folder.
        self._had_links = os.fstat(self._folder).st_nlink > 0

    def is_folder_deleted(self) -> bool:
        """Tell whether the folder was deleted, and not only moved; false where its disk is away for a moment."""
        try:
            return self._had_links and os.fstat(self._folder).st_nlink == 0
        except OSError:
            return False

    def append(self, event: str, **details: object) -> None:
        """Add a line; OSError where even the last reserve does not suffice."""
        values = {**event_times(), "event": event, **details}
        line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
        try:
            self._append_line(line)
        except OSError:
            drop_disk_reserve(self._folder)
            self._append_line(line)

    def _append_line(self, line: bytes) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(JOURNAL_FILE_NAME, flags, 0o644, dir_fd=self._folder)
        try:
            # A line that a full disk or a power cut left torn would swallow this one.
            size = os.fstat(descriptor).st_size
            if size and os.pread(descriptor, 1, size - 1) != b"\n":
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError("the line was not written whole")
        finally:
            os.close(descriptor)


def event_times() -> dict[str, float]:
    """Return the times that an event of now has, in seconds: since 1970, and since boot."""
    return {"time": time.time(), "uptime": time.clock_gettime(time.CLOCK_BOOTTIME)}


def seconds_between_events(begin: JournalEvent, end: JournalEvent) -> float:
    """Return the seconds between two events that one start wrote, and so one boot; never less than 0.

    By the time since boot, where both have it: a wall clock is set back and forward.
    """
    if begin.uptime and end.uptime:
        return max(0.0, end.uptime - begin.uptime)
    return max(0.0, end.time - begin.time)


def seconds_since_event(begin: JournalEvent, *, is_local: bool) -> float:
    """Return the whole seconds since an event; `is_local` where it was written on this boot of this machine.

    Elsewhere the wall clocks of both have to do.
    """
    if is_local and begin.uptime:
        passed = time.clock_gettime(time.CLOCK_BOOTTIME) - begin.uptime
    else:
        passed = time.time() - begin.time
    return float(max(0, int(passed)))
