"""The host without its GPUs: CPU, memory and shared memory, as available to this process."""

import math
import os
import platform
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from tui_train.facts.machine import logout
from tui_train.facts.types import Machine

# "No limit" in cgroup v1: the largest page-aligned 63-bit number.
_UNLIMITED = 2**60


class CgroupLimits(NamedTuple):
    """Limits of the control groups of a process: CPUs, bytes, and bytes in use; None is "no limit"."""

    cpus: float | None = None
    memory: int | None = None
    memory_free: int | None = None


def read_host() -> Machine:
    """Return this host without GPUs; never raises, unreadable fields are None or empty."""
    limits = cgroup_limits()
    total, available = _memory()
    shm_total, shm_free = _shared_memory()
    return Machine(
        hostname=valid_utf8(platform.node()),
        kernel=valid_utf8(platform.release()),
        cpu_name=cpu_name(),
        cpu_count=usable_cpus(limits.cpus),
        memory_total=_minimum(total, limits.memory),
        memory_available=_minimum(available, limits.memory_free),
        shm_total=shm_total,
        shm_free=shm_free,
        interfaces=_interfaces(),
        logout=logout.read_logout(),
    )


def memory_total() -> int | None:
    """Return the bytes of memory for this process, None if unknown."""
    return _minimum(_memory()[0], cgroup_limits().memory)


def valid_utf8(text: str) -> str:
    """Return `text` with undecodable bytes replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def usable_cpus(quota: float | None) -> int:
    """Return the number of CPUs for this process: its affinity, limited by `quota` rounded up."""
    try:
        count = len(os.sched_getaffinity(0))
    except OSError:
        count = os.cpu_count() or 1
    return count if quota is None else max(1, min(count, math.ceil(quota)))


def cpu_name(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return the model name of the CPU, or the architecture if there is none, as on most ARM CPUs."""
    for line in (_read_text(cpuinfo) or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return valid_utf8(platform.machine())


def cgroup_limits(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> CgroupLimits:
    """Return the tightest limits of the control groups (v1 or v2) in `own` and of their parents.

    Source: "Control Group v2" and "CFS Bandwidth Control" in the kernel's admin guide.
    """
    limits = CgroupLimits()
    for line in (_read_text(membership) or "").splitlines():
        _, _, after_id = line.partition(":")
        controllers, _, path = after_id.partition(":")
        for base in _mount_points(root, controllers):
            for group in _group_and_parents(base, path):
                limits = _tighter_limits(limits, _limits_v1(group) if controllers else _limits_v2(group))
    return limits


def oom_kills(membership: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Return how often the kernel killed for lack of memory in this process's control group; None: unknown.

    0 only where it did so in no group: what was killed need not have run in this one.
    """
    for line in (_read_text(membership) or "").splitlines():
        _, _, after_id = line.partition(":")
        controllers, _, path = after_id.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        file = "memory.oom_control" if controllers else "memory.events"
        for base in _mount_points(root, controllers):
            counts = (_oom_kills(group / file) for group in _group_and_parents(base, path))
            own = next((count for count in counts if count is not None), None)
            if own:
                return own
            # Those of version 2 count for the groups below them too.
            if not controllers and own is not None:
                around = [_oom_kills(base / file), *map(_oom_kills, base.glob(f"*/{file}"))]
                return None if any(around) else 0
    return None


def _oom_kills(file: Path) -> int | None:
    pairs = (line.partition(" ") for line in (_read_text(file) or "").splitlines())
    return next((int(value) for name, _, value in pairs if name == "oom_kill" and value.strip().isdecimal()), None)


def _mount_points(root: Path, controllers: str) -> Iterator[Path]:
    """Yield possible mount points of these comma-separated controllers; none means cgroup v2."""
    if not controllers:
        yield from (root, root / "unified")
        return
    names = {controllers, *controllers.split(",")} & {controllers, "cpu", "memory"}
    yield from (root / name for name in sorted(names))


def _group_and_parents(base: Path, path: str) -> Iterator[Path]:
    """Yield the group `path` below `base` and its parents; a container may see only the top."""
    group = base / path.lstrip("/")
    while group != base:
        yield group
        group = group.parent
    yield base


def _limits_v2(group: Path) -> CgroupLimits:
    quota, _, period = (_read_text(group / "cpu.max") or "").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None
    return _limits_with_memory(cpus, group, "memory.max", "memory.current", "inactive_file")


def _limits_v1(group: Path) -> CgroupLimits:
    quota, period = _read_number(group / "cpu.cfs_quota_us"), _read_number(group / "cpu.cfs_period_us")
    cpus = quota / period if quota and period else None
    return _limits_with_memory(cpus, group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def _limits_with_memory(
    cpus: float | None, group: Path, limit_file: str, used_file: str, cache_key: str
) -> CgroupLimits:
    limit, used = _read_number(group / limit_file), _read_number(group / used_file)
    if limit is None or limit >= _UNLIMITED:
        return CgroupLimits(cpus)
    if used is None:
        return CgroupLimits(cpus, limit)
    cache = 0
    for line in (_read_text(group / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == cache_key and value.strip().isdecimal():
            # The kernel frees this part of the page cache before it kills a process.
            cache = int(value)
    return CgroupLimits(cpus, limit, max(0, limit - max(0, used - cache)))


def _tighter_limits(first: CgroupLimits, second: CgroupLimits) -> CgroupLimits:
    cpus = min((count for count in (first.cpus, second.cpus) if count is not None), default=None)
    return CgroupLimits(cpus, _minimum(first.memory, second.memory), _minimum(first.memory_free, second.memory_free))


def _minimum(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _memory() -> tuple[int | None, int | None]:
    """Return the total and available memory of the host in bytes, ignoring control groups."""
    try:
        memory = psutil.virtual_memory()
    except (OSError, ValueError, KeyError, RuntimeError):
        return None, None
    return memory.total, memory.available


def _shared_memory(folder: str = "/dev/shm") -> tuple[int | None, int | None]:  # noqa: S108  # read, never written
    """Return the size and the free space of the shared memory file system, in bytes."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None, None
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize


def _interfaces() -> tuple[str, ...]:
    """Return the names of the network interfaces."""
    try:
        return tuple(sorted(valid_utf8(name) for _, name in socket.if_nameindex()))
    except OSError:
        return ()


def _read_number(path: Path) -> int | None:
    """Return the decimal number in a file, None if there is none or it is negative."""
    content = (_read_text(path) or "").strip()
    return int(content) if content.isdecimal() else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
