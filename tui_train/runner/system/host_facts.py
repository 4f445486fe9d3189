"""This machine without its cards: its name, processors, memory and shared memory, as this process may use them."""

from __future__ import annotations

import math
import os
import platform
import re
import socket
from pathlib import Path
from typing import Any

from .cgroup_limits import cgroup_limits, least_known, read_text
from .logout import read_logout_effect
from .safe_text import as_valid_utf8

_MEMORY_LINE_PATTERN = re.compile(r"^(MemTotal|MemAvailable): *(\d{1,15}) kB$", re.MULTILINE)


def read_host_facts() -> dict[str, Any]:
    """Return what is known, in bytes; never raises, what is unreadable is None or empty."""
    limits = cgroup_limits()
    total, available = _memory_total_and_available()
    shm_total, shm_free = _shared_memory_size_and_free()
    return {
        "hostname": as_valid_utf8(platform.node()),
        "kernel": as_valid_utf8(platform.release()),
        "cpu_name": read_cpu_name(),
        "cpu_count": count_usable_cpus(limits.cpus),
        "memory_total": least_known(total, limits.memory),
        "memory_available": least_known(available, limits.memory_free),
        "shm_total": shm_total,
        "shm_free": shm_free,
        "interfaces": _network_interfaces(),
        "logout": read_logout_effect(),
    }


def _network_interfaces() -> list[str]:
    try:
        return sorted(as_valid_utf8(name) for _, name in socket.if_nameindex())
    except OSError:
        return []


def usable_memory_total() -> int | None:
    """Return the bytes of memory for this process, None if unknown."""
    return least_known(_memory_total_and_available()[0], cgroup_limits().memory)


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


def _memory_total_and_available() -> tuple[int | None, int | None]:
    """Return the total and available memory of the host in bytes, ignoring control groups."""
    found = _MEMORY_LINE_PATTERN.findall(read_text(Path("/proc/meminfo")) or "")
    sizes = {name: int(kibibytes) * 1024 for name, kibibytes in found}
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def _shared_memory_size_and_free() -> tuple[int | None, int | None]:
    """Return the size and the free space of the shared memory file system, in bytes."""
    try:
        status = os.statvfs("/dev/shm")  # noqa: S108 - read, never written
    except OSError:
        return None, None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
