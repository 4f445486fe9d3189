"""Which processes live: identity is pid + start time + boot; a run's processes carry its mark."""

import os
from pathlib import Path

_PROC = Path("/proc")


def boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None when it is gone or only a zombie is left."""
    stat = _stat(pid)
    return int(stat[19]) if stat else None


def _stat(pid: int) -> list[str]:
    """Return /proc/PID/stat from the state on (parent, group, session …), nothing for what is gone or a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def alive(pid: int, ticks: int, boot: str) -> bool:
    """Tell whether the very process still lives that was once seen with this pid, start time and boot."""
    return boot == boot_id() and start_ticks(pid) == ticks


def marked(mark: str, leader: int = 0) -> tuple[int, ...]:
    """Return the pids of all living processes of a run, whatever their session or parent.

    They carry its mark, belong to the process group that `leader` began, or were started by one that does: a program
    may write over its mark, to show another title.
    """
    wanted = f"TUI_TRAIN_RUN_ID={mark}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in os.scandir(_PROC):
        if entry.name.isdigit() and (stat := _stat(int(entry.name))):
            pid = int(entry.name)
            parents[pid] = int(stat[1])
            if (leader and int(stat[2]) == leader) or wanted in _environment(pid):
                found.add(pid)
    while grown := {pid for pid, parent in parents.items() if parent in found and pid not in found}:
        found |= grown
    return tuple(sorted(found))


def _environment(pid: int) -> list[bytes]:
    try:
        return (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return []
