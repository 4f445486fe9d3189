"""Memory of this machine, and what of it this process may use."""

import psutil

from tui_train.runner.cgroup_limits import cgroup_limits, least_known


def usable_memory_total() -> int | None:
    """Return the bytes of memory for this process, None if unknown."""
    return least_known(host_memory_total_and_available()[0], cgroup_limits().memory)


def host_memory_total_and_available() -> tuple[int | None, int | None]:
    """Return the total and available memory of the host in bytes, ignoring control groups."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, ValueError, KeyError, RuntimeError):
        return None, None
    return memory.total, memory.available
