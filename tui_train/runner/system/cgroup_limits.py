"""CPUs, memory and processes that this process may use: those of the host, and the limits of its control groups."""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, NamedTuple

# "No limit" in cgroup v1: the largest page-aligned 63-bit number.
_UNLIMITED_BYTES = 2**60


class CgroupLimits(NamedTuple):
    """Limits of the control groups of a process: CPUs, bytes, free bytes, free tasks; None is "no limit".

    A task is a process or a thread.
    """

    cpus: float | None = None
    memory: int | None = None
    memory_free: int | None = None
    free_tasks: int | None = None


def cgroup_limits(
    membership_file: Path = Path("/proc/self/cgroup"), cgroup_root: Path = Path("/sys/fs/cgroup")
) -> CgroupLimits:
    """Return the tightest limits of the control groups (v1 or v2) in `membership_file` and of their parents.

    Source: "Control Group v2" and "CFS Bandwidth Control" in the kernel's admin guide.
    """
    limits = CgroupLimits()
    for line in (read_text(membership_file) or "").splitlines():
        _, _, after_id = line.partition(":")
        controllers, _, path = after_id.partition(":")
        for base in _possible_mount_points(cgroup_root, controllers):
            for group in _group_and_parents(base, path):
                limits = _tighter_limits(limits, _read_limits_v1(group) if controllers else _read_limits_v2(group))
    return limits


def count_oom_kills(
    membership_file: Path = Path("/proc/self/cgroup"), cgroup_root: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return how often the kernel killed for lack of memory in this process's control group; None: unknown.

    0 only where it did so in no group: what was killed need not have run in this one.
    """
    for line in (read_text(membership_file) or "").splitlines():
        _, _, after_id = line.partition(":")
        controllers, _, path = after_id.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        file = "memory.oom_control" if controllers else "memory.events"
        for base in _possible_mount_points(cgroup_root, controllers):
            counts = (_read_oom_kills(group / file) for group in _group_and_parents(base, path))
            own = next((count for count in counts if count is not None), None)
            if own:
                return own
            # Those of version 2 count for the groups below them too.
            if not controllers and own is not None:
                around = [_read_oom_kills(base / file), *map(_read_oom_kills, base.glob(f"*/{file}"))]
                return None if any(around) else 0
    return None


def _read_oom_kills(file: Path) -> int | None:
    pairs = (line.partition(" ") for line in (read_text(file) or "").splitlines())
    return next((int(value) for name, _, value in pairs if name == "oom_kill" and value.strip().isdecimal()), None)


def _possible_mount_points(cgroup_root: Path, controllers: str) -> Iterator[Path]:
    """Yield possible mount points of these comma-separated controllers; none means cgroup v2."""
    if not controllers:
        yield from (cgroup_root, cgroup_root / "unified")
        return
    names = {controllers, *controllers.split(",")} & {controllers, "cpu", "memory", "pids"}
    yield from (cgroup_root / name for name in sorted(names))


def _group_and_parents(mount_point: Path, path: str) -> Iterator[Path]:
    """Yield the group `path` below `mount_point` and its parents; a container may see only the top."""
    group = mount_point / path.lstrip("/")
    while group != mount_point:
        yield group
        group = group.parent
    yield mount_point


def _read_limits_v2(group: Path) -> CgroupLimits:
    quota, _, period = (read_text(group / "cpu.max") or "").strip().partition(" ")
    cpus = int(quota) / int(period) if quota.isdecimal() and period.isdecimal() and int(period) else None
    return _read_memory_and_task_limits(cpus, group, "memory.max", "memory.current", "inactive_file")


def _read_limits_v1(group: Path) -> CgroupLimits:
    quota, period = _read_number(group / "cpu.cfs_quota_us"), _read_number(group / "cpu.cfs_period_us")
    cpus = quota / period if quota and period else None
    return _read_memory_and_task_limits(
        cpus, group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
    )


def _read_memory_and_task_limits(
    cpus: float | None, group: Path, limit_file: str, used_file: str, cache_key: str
) -> CgroupLimits:
    limit, used = _read_number(group / limit_file), _read_number(group / used_file)
    free_tasks = _read_free_tasks(group)
    if limit is None or limit >= _UNLIMITED_BYTES:
        return CgroupLimits(cpus, free_tasks=free_tasks)
    if used is None:
        return CgroupLimits(cpus, limit, free_tasks=free_tasks)
    cache = 0
    for line in (read_text(group / "memory.stat") or "").splitlines():
        key, _, value = line.partition(" ")
        if key == cache_key and value.strip().isdecimal():
            # The kernel frees this part of the page cache before it kills a process.
            cache = int(value)
    return CgroupLimits(cpus, limit, max(0, limit - max(0, used - cache)), free_tasks)


def _read_free_tasks(group: Path) -> int | None:
    """Return how many processes and threads a group may still have; both versions name the files alike."""
    limit, used = _read_number(group / "pids.max"), _read_number(group / "pids.current")
    return None if limit is None or used is None else max(0, limit - used)


def _tighter_limits(first: CgroupLimits, second: CgroupLimits) -> CgroupLimits:
    cpus = min((count for count in (first.cpus, second.cpus) if count is not None), default=None)
    return CgroupLimits(
        cpus,
        smallest_known(first.memory, second.memory),
        smallest_known(first.memory_free, second.memory_free),
        smallest_known(first.free_tasks, second.free_tasks),
    )


def smallest_known(*values: int | None) -> int | None:
    """Return the least of what is known, None where nothing is."""
    return min((value for value in values if value is not None), default=None)


def _read_number(path: Path) -> int | None:
    """Return the decimal number in a file, None if there is none or it is negative."""
    content = (read_text(path) or "").strip()
    return int(content) if content.isdecimal() else None


def read_text(path: Path) -> str | None:
    """Return the text of a file, None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (OSError, ValueError):
        return None
