"""The shared memory of this machine, /dev/shm: its size, and whether it can be used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from .cgroup_limits import read_text

_SHARED_MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - read, never written


def read_shared_memory(
    folder: str = _SHARED_MEMORY_FOLDER, mounts_file: Path = Path("/proc/self/mountinfo")
) -> dict[str, Any]:
    """Return size and free bytes, why it cannot be used (empty: it can), and its file system; None: unknown."""
    try:
        status = os.statvfs(folder)
    except FileNotFoundError:
        return {"shm_problem": "does not exist"}
    except OSError:
        return {}
    problem = ""
    if status.f_flag & os.ST_RDONLY:
        problem = "is read-only"
    elif not os.access(folder, os.W_OK | os.X_OK):
        problem = "may not be written to by this user"
    return {
        # Without a limit it has no blocks.
        "shm_total": status.f_blocks * status.f_frsize or None,
        "shm_free": status.f_bavail * status.f_frsize if status.f_blocks else None,
        "shm_problem": problem,
        "shm_file_system": _file_system_of(os.path.realpath(folder), mounts_file),
    }


def _file_system_of(folder: str, mounts_file: Path) -> str:
    """Return the type of the file system that is mounted at a folder or nearest above it, empty if unknown."""
    nearest, found = "", ""
    for line in (read_text(mounts_file) or "").splitlines():
        before, _, after = line.partition(" - ")
        fields, types = before.split(), after.split()
        if len(fields) < 5 or not types:
            continue
        point = fields[4].rstrip("/")
        # Of several at one place the last one is on top.
        if f"{folder}/".startswith(f"{point}/") and len(point) >= len(nearest):
            nearest, found = point, types[0]
    return found
