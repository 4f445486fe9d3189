"""Limits that a training inherits from this process: open files, locked memory, processes and threads."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import Any

from .cgroup_limits import read_text, smallest_known

# CAP_IPC_LOCK, CAP_SYS_ADMIN and CAP_SYS_RESOURCE of linux/capability.h.
_CAN_LOCK_MEMORY, _IS_SYSTEM_ADMIN, _CAN_EXCEED_LIMITS = 14, 21, 24
# Some systems write "no limit" as a number.
_UNLIMITED = 2**60
# Above it the processes of a user are not counted: that would take long, and no training has so many.
_MAX_COUNTED_TASK_LIMIT = 16384


def read_process_limits(free_tasks_of_groups: int | None) -> dict[str, Any]:
    """Return the soft limits; None where there is none, it does not hold for this user, or it is unknown.

    `free_tasks_of_groups`: how many processes and threads the control groups still allow.
    """
    capabilities = _effective_capabilities()
    exempt_from_task_limit = (
        os.getuid() == 0 or capabilities >> _IS_SYSTEM_ADMIN & 1 or capabilities >> _CAN_EXCEED_LIMITS & 1
    )
    return {
        "max_open_files": _soft_limit(resource.RLIMIT_NOFILE),
        "max_locked_bytes": None if capabilities >> _CAN_LOCK_MEMORY & 1 else _soft_limit(resource.RLIMIT_MEMLOCK),
        "free_tasks": smallest_known(free_tasks_of_groups, None if exempt_from_task_limit else _free_tasks_of_user()),
    }


def _soft_limit(kind: int) -> int | None:
    soft = resource.getrlimit(kind)[0]
    return None if soft == resource.RLIM_INFINITY or soft >= _UNLIMITED else soft


def _effective_capabilities() -> int:
    """Return the capabilities in force as a bit mask, 0 where they are unknown."""
    found = re.search(r"^CapEff:\s*([0-9a-f]{1,16})$", read_text(Path("/proc/self/status")) or "", re.MULTILINE)
    return int(found.group(1), 16) if found else 0


def _free_tasks_of_user() -> int | None:
    """Return how many processes and threads this user may still start, None for more than any training has."""
    limit = _soft_limit(resource.RLIMIT_NPROC)
    if limit is None or limit > _MAX_COUNTED_TASK_LIMIT:
        return None
    try:
        used = sum(_count_threads(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return None
    return max(0, limit - used)


def _count_threads(pid: str) -> int:
    """Return the threads of a process of this user, 0 for that of another one."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.getuid():
            return 0
        return len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return 0
