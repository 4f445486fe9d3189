"""The shared memory of this machine, /dev/shm: its size, and whether it can be used."""

from __future__ import annotations

import os
from typing import Any

from .mounts import MOUNTS_FILE, file_system_of

_SHARED_MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - read, never written


def read_shared_memory(
    folder: str = _SHARED_MEMORY_FOLDER, mounts_file: str | os.PathLike[str] = MOUNTS_FILE
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
        "shm_file_system": file_system_of(folder, mounts_file),
    }
