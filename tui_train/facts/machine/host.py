"""The host without its GPUs: CPU, memory and shared memory, as available to this process."""

import math
import os
import platform
import socket
from pathlib import Path

from tui_train.facts.machine import logout
from tui_train.facts.machine.host_memory import host_memory_total_and_available
from tui_train.facts.types import Machine
from tui_train.runner.cgroup_limits import cgroup_limits, least_known, read_text
from tui_train.runner.safe_text import as_valid_utf8


def read_host() -> Machine:
    """Return this host without GPUs; never raises, unreadable fields are None or empty."""
    limits = cgroup_limits()
    total, available = host_memory_total_and_available()
    shm_total, shm_free = _shared_memory_size_and_free()
    return Machine(
        hostname=as_valid_utf8(platform.node()),
        kernel=as_valid_utf8(platform.release()),
        cpu_name=read_cpu_name(),
        cpu_count=count_usable_cpus(limits.cpus),
        memory_total=least_known(total, limits.memory),
        memory_available=least_known(available, limits.memory_free),
        shm_total=shm_total,
        shm_free=shm_free,
        interfaces=_network_interfaces(),
        logout=logout.read_logout_effect(),
    )


def count_usable_cpus(cpu_quota: float | None) -> int:
    """Return the number of CPUs for this process: its affinity, limited by `cpu_quota` rounded up."""
    try:
        count = len(os.sched_getaffinity(0))
    except OSError:
        count = os.cpu_count() or 1
    return count if cpu_quota is None else max(1, min(count, math.ceil(cpu_quota)))


def read_cpu_name(cpuinfo_file: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of the CPU, or the architecture if there is none, as on most ARM CPUs."""
    for line in (read_text(cpuinfo_file) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return as_valid_utf8(platform.machine())


def _shared_memory_size_and_free() -> tuple[int | None, int | None]:
    """Return the size and the free space of the shared memory file system, in bytes."""
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108 - read, never written
    except OSError:
        return None, None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _network_interfaces() -> tuple[str, ...]:
    """Return the names of the network interfaces."""
    try:
        return tuple(sorted(as_valid_utf8(name) for _, name in socket.if_nameindex()))
    except OSError:
        return ()
