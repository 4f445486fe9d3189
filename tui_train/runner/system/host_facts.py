"""This machine without its cards: its name, processors, memory, limits and clock, as this process may use them."""

from __future__ import annotations

import contextlib
import math
import os
import re
import socket
import time
from pathlib import Path
from typing import Any, Iterable

from .cgroup_limits import cgroup_limits, read_text, smallest_known
from .logout import read_logout_effect
from .mounts import MOUNTS_FILE, file_system_of
from .numa import read_numa_nodes
from .process_limits import read_process_limits
from .safe_text import as_valid_utf8

_MEMORY_LINE_PATTERN = re.compile(r"^(MemTotal|MemAvailable): *(\d{1,15}) kB$", re.MULTILINE)
# What an installation or each boot writes: with a clock behind these, no certificate is valid yet.
_CLOCK_REFERENCE_FILES = (
    "/etc/ld.so.cache",
    "/var/lib/dpkg/status",
    "/var/log/wtmp",
    "/var/lib/systemd/timesync/clock",
)
_INFINIBAND_FOLDER = Path("/sys/class/infiniband")
_SHARED_MEMORY_FOLDER = "/dev/shm"  # noqa: S108 - read, never written


def read_machine_facts() -> dict[str, Any]:
    """Return what is known, in bytes; never raises, what is unreadable is None or empty."""
    limits = cgroup_limits()
    total, available = _memory_total_and_available()
    return {
        "hostname": as_valid_utf8(os.uname().nodename),
        "kernel": as_valid_utf8(os.uname().release),
        "architecture": as_valid_utf8(os.uname().machine),
        "cpu_name": read_cpu_name(),
        "cpu_count": count_usable_cpus(limits.cpus),
        "memory_total": smallest_known(total, limits.memory),
        "memory_available": smallest_known(available, limits.memory_free),
        "interfaces": _network_interfaces(),
        "logout": read_logout_effect(),
        **read_shared_memory_facts(),
        **read_process_limits(limits.free_tasks),
        "numa_nodes": read_numa_nodes(),
        "rdma_devices": read_rdma_devices(),
        "clock_behind": read_clock_lag(),
    }


def read_shared_memory_facts(
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


def _network_interfaces() -> list[str]:
    try:
        return sorted(as_valid_utf8(name) for _, name in socket.if_nameindex())
    except OSError:
        return []


def usable_memory_total() -> int | None:
    """Return the bytes of memory for this process, None if unknown."""
    return smallest_known(_memory_total_and_available()[0], cgroup_limits().memory)


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
    return as_valid_utf8(os.uname().machine)


def _memory_total_and_available() -> tuple[int | None, int | None]:
    """Return the total and available memory of the host in bytes, ignoring control groups."""
    found = _MEMORY_LINE_PATTERN.findall(read_text(Path("/proc/meminfo")) or "")
    sizes = {name: int(kibibytes) * 1024 for name, kibibytes in found}
    return sizes.get("MemTotal"), sizes.get("MemAvailable")


def read_rdma_devices(devices_folder: Path = _INFINIBAND_FOLDER) -> list[str]:
    """Return the InfiniBand and RoCE devices that have an active port, which are those that NCCL takes."""
    states = devices_folder.glob("*/ports/*/state")
    try:
        active = {file.parents[2].name for file in states if "ACTIVE" in (read_text(file) or "")}
    except OSError:
        return []
    return sorted(map(as_valid_utf8, active))


def read_clock_lag(dated_files: Iterable[str] = _CLOCK_REFERENCE_FILES) -> float:
    """Return by how many seconds the clock is at least behind: it is before files of this system; 0 if it is not."""
    dates = []
    for name in dated_files:
        with contextlib.suppress(OSError):
            dates.append(os.stat(name).st_mtime)
    return max(0.0, max(dates, default=0.0) - time.time())
