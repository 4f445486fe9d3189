"""State of a run: what its events say, and whether the process that wrote them still works."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..system.processes import Process, ProcessFamily, process_has_mark
from . import events, lock_owner
from .events import JournalEvent
from .lock_owner import LockOwner

# A job that waits in a queue is only known to viewers.
LIVE_RUN_STATES = frozenset({"queued", "waiting", "running", "stopping", "unconfirmed"})
# Its start was sent to another machine, which has not said whether it began: only viewers know that.
UNCONFIRMED_STATE = "unconfirmed"
_ENDED_RUN_STATES = frozenset({"finished", "failed", "stopped"})
RUN_STATES = frozenset({"new", "lost", *LIVE_RUN_STATES, *_ENDED_RUN_STATES})


class AttemptStatus(NamedTuple):
    """One attempt; what is known only at its end is None while it runs."""

    number: int
    position: int
    """Its place in the plan, from 1."""
    started: float
    ended: float | None = None
    exit_code: int | None = None
    out_of_memory: bool = False
    phase: str = ""
    """Where it ran out of GPU memory."""
    resumed: int = 0
    """The step of the checkpoint that it was given; 0: none."""
    ignored_checkpoint: bool = False
    """It did not load that checkpoint."""
    seconds: float | None = None
    stopped: bool = False
    """The run was ended with it."""
    joules: float | None = None
    """What its cards drew; None: not metered."""
    all_metered: bool = False
    """All its cards were."""


class RunStatus(NamedTuple):
    """A run's state (new, unconfirmed, queued, waiting, running, stopping, or how it ended) and its attempts."""

    state: str
    attempts: tuple[AttemptStatus, ...] = ()
    started: float | None = None
    """A date, by a clock that may be set."""
    ended: float | None = None
    """A date, by a clock that may be set."""
    exit_code: int | None = None
    pid: int = 0
    ticks: int = 0
    mark: str = ""
    leader: int = 0
    leader_ticks: int = 0
    grace: int = 20
    """Seconds that its training gets to end by itself."""
    leftover: tuple[int, ...] = ()
    """Processes that train on though what started them is gone."""
    engine: str = ""
    """The container engine of `container`."""
    container: str = ""
    """The name of a container that may train on although what started it is gone."""
    host: str = ""
    """The other machine on which it runs, empty for this one."""
    inode: int = 0
    seconds: float | None = None
    """How long the last start took, or has taken so far; None: not known."""
    cgroup: str = ""
    """The newest attempt's own, empty for none."""
    left: tuple[Process, ...] = ()
    """The processes that there were at the end."""
    empty: bool = False
    """The cgroup was read after a stop, and nobody was in it."""
    why: str = ""
    """Why no attempt followed one that ran out of GPU memory."""
    driver_silent: bool = False
    """After a stop the NVIDIA driver did not say whether its memory is free."""
    never_had_turn: bool = False
    """Its last start waits for GPUs or CPU cores, or ended while it did."""
    waits_for: str = ""
    """What it waits for, in words."""
    gpus: tuple[str, ...] = ()
    """The UUIDs that its last start got which had waited."""

    def as_plain_data(self) -> dict[str, object]:
        """Return it as plain data, for JSON."""
        return {**self._asdict(), "attempts": [attempt._asdict() for attempt in self.attempts]}

    @property
    def is_live(self) -> bool:
        """True while its supervisor works, or will."""
        return self.state in LIVE_RUN_STATES

    @property
    def trains_unsupervised(self) -> bool:
        """True while processes train on though their supervisor is gone."""
        return self.state == "lost" and bool(self.leftover)

    @property
    def has_surely_ended(self) -> bool:
        """True where no process can be left: its supervisor, parent of all orphans, or a cgroup saw none.

        Otherwise a process that cleared its environment and left its group is not seen.
        """
        return self.empty or (self.ended is not None and not self.left)


def is_valid_status(status: RunStatus) -> bool:
    """Tell whether a status that another machine sent has dates and numbers that a calendar and the system take."""
    pids = (status.pid, status.leader, *status.leftover)
    return (
        status.state in RUN_STATES
        and all(-1 <= pid < 2**31 for pid in pids)
        and all(map(_is_valid_status_value, status))
    )


def _is_valid_status_value(value: object) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_valid_status_value, value))
    if isinstance(value, float):
        return 0 <= value < events.MAX_UNIX_TIME
    # The largest is an inode.
    return not isinstance(value, int) or -1 <= value < 2**64


def read_status(run_dir: str, logged: tuple[JournalEvent, ...] | None = None) -> RunStatus:
    """Return the present state of the run in a folder; `logged`: its events, where they are read already."""
    logged = events.read_events(run_dir) if logged is None else logged
    attempts = _attempt_statuses(logged)
    owner = lock_owner.read_lock_owner(os.path.join(run_dir, lock_owner.LOCK_FOLDER_NAME))
    last, later = _last_start_and_later_events(logged)
    if last is None or (owner and owner.mark != last.mark):
        # Events were lost, or the start has not written its first: whoever holds the folder is the second witness.
        if owner and _is_supervisor_working(run_dir, owner):
            return _build_status(run_dir, owner, _start_event_from_owner(owner), (), attempts)
        owner = None
    if last is None:
        if not any(event.event == "run_ended" for event in logged):
            return RunStatus("new", attempts)
        last = JournalEvent()
    return _build_status(run_dir, owner or _owner_from_start_event(last), last, later, attempts)


def _last_start_and_later_events(
    logged: tuple[JournalEvent, ...],
) -> tuple[JournalEvent | None, tuple[JournalEvent, ...]]:
    """Return the last run_started, None where there is none, and what came after it."""
    for index in range(len(logged) - 1, -1, -1):
        if logged[index].event == "run_started":
            return logged[index], logged[index + 1 :]
    return None, logged


def _start_event_from_owner(owner: LockOwner) -> JournalEvent:
    return JournalEvent(mark=owner.mark, pid=owner.pid, start_ticks=owner.ticks, boot_id=owner.boot, host=owner.host)


def _owner_from_start_event(last: JournalEvent) -> LockOwner:
    """Return who run_started names, as if a lock named it; one on another boot is gone."""
    return lock_owner.process_of_this_machine_as_owner(Process(last.pid, last.start_ticks), last.boot_id, last.mark)


def process_family_of_run(run_dir: str, status: RunStatus) -> ProcessFamily:
    """Return the processes of a run; none where another user could have written who they are.

    A leader that events.jsonl names counts only where it is this folder's.
    """
    leader = Process(status.leader, status.leader_ticks)
    if not _is_original_folder(run_dir, status) or not _belongs_to_this_user(run_dir):
        return ProcessFamily("")
    ours = leader.is_alive and (process_has_mark(leader.pid, status.mark) or _has_stdout_in_folder(leader.pid, run_dir))
    members = ProcessFamily(status.mark, leader if ours else Process(), cgroup=status.cgroup)
    members.seen_ticks.update(status.left)
    return members


def last_start_status(run_dir: str) -> RunStatus:
    """Return the state of the last start, whichever process holds the folder now."""
    last, later = _last_start_and_later_events(events.read_events(run_dir))
    return _build_status(run_dir, _owner_from_start_event(last), last, later, ()) if last else RunStatus("new")


def _is_original_folder(run_dir: str, status: RunStatus) -> bool:
    """Tell whether this is the folder that the run was started in, and no copy of it.

    Who holds it is known to be at work there, also where run_started was lost.
    """
    try:
        return status.inode == os.stat(run_dir).st_ino or (status.is_live and not status.inode)
    except OSError:
        return False


def _belongs_to_this_user(run_dir: str) -> bool:
    """Tell whether what a folder says of processes was written by this user."""
    try:
        owners = {os.stat(path).st_uid for path in (run_dir, os.path.join(run_dir, events.JOURNAL_FILE_NAME))}
    except FileNotFoundError:
        # Removed under a live run.
        return os.path.isdir(run_dir) and os.stat(run_dir).st_uid == os.geteuid()
    except OSError:
        return False
    return owners == {os.geteuid()}


def _build_status(
    run_dir: str,
    owner: LockOwner,
    last_start_event: JournalEvent,
    later_events: tuple[JournalEvent, ...],
    attempts: tuple[AttemptStatus, ...],
) -> RunStatus:
    end = next(
        (event for event in later_events if event.event == "run_ended" and event.state in _ENDED_RUN_STATES), None
    )
    lead = next((event for event in later_events[::-1] if event.leader), JournalEvent())
    newest = next((event for event in later_events[::-1] if event.event.startswith("attempt_")), None)
    inside = newest if newest and newest.event == "attempt_started" and not end else JournalEvent()
    # On a full disk the first of the two may be missing.
    wait_end = next((event for event in later_events if event.event in ("wait_ended", "attempt_started")), None)
    waited = bool(last_start_event.waits) and wait_end is None
    # The wait is no part of a training's time.
    begin = wait_end if wait_end and last_start_event.waits else last_start_event
    now = RunStatus(
        state="lost",
        attempts=attempts,
        started=begin.time or None,
        ended=end.time if end else None,
        exit_code=end.exit_code if end else None,
        pid=owner.pid,
        ticks=owner.ticks,
        mark=last_start_event.mark,
        inode=last_start_event.inode,
        grace=last_start_event.grace,
        engine=inside.engine,
        container=inside.container,
        cgroup=lead.cgroup,
        left=_processes_left_by_run(end) if end else (),
        why=end.why if end else "",
        never_had_turn=waited,
        waits_for=_waiting_reason(later_events) if waited else "",
        gpus=tuple(wait_end.gpus.split(",")) if wait_end and wait_end.gpus else (),
    )
    # Numbers of processes mean something only on the host and the boot that gave them.
    if owner.is_local:
        now = now._replace(leader=lead.leader, leader_ticks=lead.leader_ticks)
    if end:
        now = now._replace(
            state=end.state,
            seconds=events.seconds_between_events(begin, end) if begin.time else None,
        )
        left = process_family_of_run(run_dir, now).living_ticks_by_pid() if owner.is_local and now.left else {}
        return now._replace(leftover=tuple(sorted(left)))
    seconds = events.seconds_since_event(begin, is_local=owner.is_local) if begin.time else None
    if _is_supervisor_working(run_dir, owner):
        is_stopping = any(event.event == "stopping" for event in later_events)
        state = "stopping" if is_stopping else "waiting" if waited else "running"
        return now._replace(state=state, host="" if owner.is_local else owner.host, seconds=seconds)
    left = process_family_of_run(run_dir, now).living_ticks_by_pid() if owner.is_local else {}
    return now._replace(leftover=tuple(sorted(left)), seconds=seconds if left else None)


def _waiting_reason(later_events: tuple[JournalEvent, ...]) -> str:
    return next((event.why for event in later_events[::-1] if event.event == "waiting"), "")


def _processes_left_by_run(end: JournalEvent) -> tuple[Process, ...]:
    """Return the processes that run_ended names; what is none is passed over."""
    pairs = (word.partition(":") for word in end.left.split())
    return tuple(Process(int(pid), int(ticks)) for pid, _, ticks in pairs if _is_decimal(pid) and _is_decimal(ticks))


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def _is_supervisor_working(run_dir: str, owner: LockOwner) -> bool:
    """Tell whether a supervisor still works: one here by its process, one elsewhere by its lock."""
    if not owner.is_local:
        return lock_owner.is_owner_working(os.path.join(run_dir, lock_owner.LOCK_FOLDER_NAME), owner)
    return owner.process.is_alive and _may_hold_folder_open(owner.pid, run_dir)


def _may_hold_folder_open(pid: int, run_dir: str) -> bool:
    """Tell whether a process has a folder open, as the supervisor has; another user's, which hides that, may."""
    try:
        folder = os.stat(run_dir)
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return True
    for name in names:
        try:
            entry = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        if (entry.st_dev, entry.st_ino) == (folder.st_dev, folder.st_ino):
            return True
    return False


def _has_stdout_in_folder(pid: int, run_dir: str) -> bool:
    try:
        return os.path.dirname(os.readlink(f"/proc/{pid}/fd/1")) == os.path.realpath(run_dir)
    except OSError:
        return False


def _attempt_statuses(logged: tuple[JournalEvent, ...]) -> tuple[AttemptStatus, ...]:
    attempts: dict[int, AttemptStatus] = {}
    begun: dict[int, JournalEvent] = {}
    for event in logged:
        if event.event == "attempt_started":
            begun[event.attempt] = event
            attempts[event.attempt] = AttemptStatus(event.attempt, event.position, event.time, resumed=event.resumed)
        elif event.event == "attempt_ended" and event.attempt in attempts:
            attempts[event.attempt] = attempts[event.attempt]._replace(
                ended=event.time,
                exit_code=event.exit_code,
                out_of_memory=event.out_of_memory,
                phase=event.phase,
                ignored_checkpoint=event.ignored_checkpoint,
                seconds=events.seconds_between_events(begun[event.attempt], event),
            )
        elif event.event == "energy" and event.attempt in attempts:
            whole = 0 < event.cards <= event.metered
            attempts[event.attempt] = attempts[event.attempt]._replace(joules=event.joules, all_metered=whole)
        elif event.event == "run_ended" and event.state == "stopped" and attempts:
            newest = max(attempts)
            attempts[newest] = attempts[newest]._replace(stopped=True)
    return tuple(attempts.values())
