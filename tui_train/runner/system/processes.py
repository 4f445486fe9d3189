"""Living processes: one is identified by its number and its start; a run's processes carry its mark."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import Callable, NamedTuple

from . import cgroup
from .safe_text import as_valid_utf8, visible

MARK_VARIABLE = "TUI_TRAIN_RUN_ID"
# Seconds in which what a training has started ends after it.
LEFTOVER_WAIT_SECONDS = 2.0
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_MAX_ANCESTORS_FOLLOWED = 100
_MAX_COMMAND_WORDS, _MAX_COMMAND_CHARACTERS = 4, 60
# What SIGKILL does not end in so long hangs in a driver.
KILL_WAIT_SECONDS = 10.0


class ProcessStat(NamedTuple):
    """A living process: its parent, its group, and when it began, in clock ticks since boot."""

    parent: int
    group: int
    ticks: int


class Process(NamedTuple):
    """One very process: no later one of the same number began at the same tick."""

    pid: int = 0
    ticks: int = 0

    @property
    def is_alive(self) -> bool:
        """Return whether it still lives here; a zombie does not."""
        return self.pid > 0 and process_start_ticks(self.pid) == self.ticks


def become_subreaper() -> None:
    """Become the parent of all descendants whose own parent ends, so that none is lost from sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends; who that is now may be another one already."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def machine_and_boot_identity() -> str:
    """Return what no other machine has: its name, which clones share, with the id of its last boot."""
    return f"{os.uname().nodename} {machine_boot_id()}"


def lasting_machine_identity() -> str:
    """Return what tells this machine from others, also once it was booted again: its name, and its id if it has one."""
    return f"{os.uname().nodename} {machine_id()}".rstrip()


def machine_id() -> str:
    """Return the id of this machine's installation, empty where it has none."""
    try:
        with open("/etc/machine-id", encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def machine_boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def process_start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None when it is gone or only a zombie is left."""
    entry = read_process_stat(pid)
    return entry.ticks if entry else None


def process_with_pid(pid: int) -> Process:
    """Return the very process that has this number now; one without a number where none has."""
    ticks = process_start_ticks(pid)
    return Process() if ticks is None else Process(pid, ticks)


def read_process_stat(pid: int) -> ProcessStat | None:
    """Return what /proc says of a living process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return ProcessStat(int(fields[1]), int(fields[2]), int(fields[19]))


def process_age_seconds(ticks: int) -> float:
    """Return the seconds since a process began at these clock ticks after boot."""
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def process_uid(pid: int) -> int | None:
    """Return the effective user id of a process, None where it is not to be seen."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return next((int(line.split()[2]) for line in file if line.startswith(b"Uid:")), None)
    except OSError:
        return None


def command_text(pid: int) -> str:
    """Return the first words of a command, up to the first that is no option: what follows may be a secret."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = as_valid_utf8(os.fsdecode(file.read(1 << 12))).split("\0")
    except OSError:
        return ""
    shown = [os.path.basename(words[0])]
    for word in words[1:_MAX_COMMAND_WORDS]:
        shown.append(word.partition("=")[0] if word.startswith("-") else os.path.basename(word))
        if not word.startswith("-") or word == "-c":
            break
    return visible(" ".join(filter(None, shown)))[:_MAX_COMMAND_CHARACTERS]


NO_PROCESS = Process()


def is_or_descends_from(pid: int, ancestor: int) -> bool:
    """Return whether a process is another one, or was started by it: a Python may be a script that starts another."""
    for _ in range(_MAX_ANCESTORS_FOLLOWED):
        if pid == ancestor:
            return True
        entry = read_process_stat(pid)
        if entry is None or entry.parent <= 1:
            return False
        pid = entry.parent
    return False


class ProcessFamily:
    """The processes of a run: those with its mark, those of its group, what these started, and who was one once.

    A program may write over its mark, to show another title; whoever was seen once is known by its start. A group
    counts only while its `leader` is that very process, for its number may be another's by now. All descendants of
    `root` belong, but for `root` itself and those in `excluded`; so do all in the run's `cgroup`, where it has one.
    """

    def __init__(self, mark: str, leader: Process = NO_PROCESS, root: int = 0, cgroup: str = "") -> None:
        self.mark = mark
        self.leader = leader
        self.root = root
        self.cgroup = cgroup
        self.excluded: set[int] = set()
        self.seen_ticks: dict[int, int] = {}
        self._asked: set[Process] = set()

    def living_ticks_by_pid(self) -> dict[int, int]:
        """Return the ticks of each living process of the run by its pid."""
        stats = _process_stats_by_pid()
        leader_stat = stats.get(self.leader.pid)
        group = self.leader.pid if leader_stat and leader_stat.ticks == self.leader.ticks else -1
        members = {
            pid
            for pid, entry in stats.items()
            if entry.group == group or self.seen_ticks.get(pid) == entry.ticks or process_has_mark(pid, self.mark)
        }
        if self.cgroup:
            members |= cgroup.cgroup_member_pids(self.cgroup, self.mark) & stats.keys()
        if self.root:
            members |= {pid for pid, entry in stats.items() if entry.parent == self.root}
        outside = self.excluded | {self.root, os.getpid()}
        members -= outside
        while True:
            grown = {pid for pid, entry in stats.items() if entry.parent in members and pid not in members} - outside
            if not grown:
                break
            members |= grown
        living = {pid: stats[pid].ticks for pid in members}
        self.seen_ticks.update(living)
        return living

    def wait_until_gone(self, seconds: float, pause: Callable[[], object]) -> dict[int, int]:
        """Return who lives after so many seconds at most; each `pause` in between is a moment's."""
        return _repeat_while_processes_live(self.living_ticks_by_pid, seconds, pause)

    def terminate_until_gone(self, seconds: float, pause: Callable[[], object]) -> dict[int, int]:
        """Ask all to end, also those that appear meanwhile; return who lives after so many seconds at most."""
        return _repeat_while_processes_live(self.terminate, seconds, pause)

    def kill(self, pause: Callable[[], object], seconds: float = KILL_WAIT_SECONDS) -> dict[int, int]:
        """Kill all, also those that appear meanwhile; return who lives after so many seconds at most."""
        return _repeat_while_processes_live(self._send_kill, seconds, pause)

    def terminate(self) -> dict[int, int]:
        """Send SIGTERM to each process of the run that was not sent it before, and return all that live."""
        living = self.living_ticks_by_pid()
        for process in {Process(*item) for item in living.items()} - self._asked:
            send_signal(process, signal.SIGTERM)
            self._asked.add(process)
        return living

    def _send_kill(self) -> dict[int, int]:
        living = self.living_ticks_by_pid()
        for pid, ticks in living.items():
            send_signal(Process(pid, ticks), signal.SIGKILL)
        return living


def _repeat_while_processes_live(
    living_ticks_by_pid: Callable[[], dict[int, int]], seconds: float, pause: Callable[[], object]
) -> dict[int, int]:
    deadline = time.monotonic() + seconds
    while (living := living_ticks_by_pid()) and time.monotonic() < deadline:
        pause()
    return living


def reap_children() -> dict[int, int]:
    """Let go of all children that have ended, also orphans that came here; return their wait statuses by pid."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def send_signal(process: Process, signal_number: int) -> None:
    """Send a signal to the very process; nothing where it is gone. PermissionError where it is another user's."""
    if not process.is_alive:
        return
    try:
        os.kill(process.pid, signal_number)
    except ProcessLookupError:
        return


def process_has_mark(pid: int, run_mark: str) -> bool:
    """Tell whether a process has the mark of a run."""
    return bool(run_mark) and process_has_variable(pid, MARK_VARIABLE, run_mark)


def process_has_variable(pid: int, variable: str, value: str) -> bool:
    """Tell whether a process was given a variable with this value."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return os.fsencode(f"{variable}={value}") in file.read().split(b"\0")
    except OSError:
        return False


def _process_stats_by_pid() -> dict[int, ProcessStat]:
    entries: dict[int, ProcessStat] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            entry = read_process_stat(int(name))
            if entry:
                entries[int(name)] = entry
    return entries
