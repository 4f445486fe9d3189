"""Which processes live: identity is pid + start time + boot; a run's processes carry its mark."""

import os
from pathlib import Path

_PROC = Path("/proc")


def boot_id() -> str:
    """Return what tells this boot of the machine from any other."""
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when a process began, in clock ticks since boot; None when it is gone or only a zombie is left."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def alive(pid: int, ticks: int, boot: str) -> bool:
    """Tell whether the very process still lives that was once seen with this pid, start time and boot."""
    return boot == boot_id() and start_ticks(pid) == ticks


def marked(mark: str) -> tuple[int, ...]:
    """Return the pids of all living processes of a run, whatever their session or parent."""
    wanted = f"TUI_TRAIN_RUN_ID={mark}".encode()
    found = []
    for entry in os.scandir(_PROC):
        if entry.name.isdigit():
            try:
                environment = (_PROC / entry.name / "environ").read_bytes()
            except OSError:
                continue
            if wanted in environment.split(b"\0") and start_ticks(int(entry.name)) is not None:
                found.append(int(entry.name))
    return tuple(found)
