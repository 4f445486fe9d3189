"""The state of the machine on which an attempt failed, as it was at that moment: what no log says."""

from __future__ import annotations

import os
from typing import NamedTuple

from .cgroup_limits import cgroup_limits, count_oom_kills
from .paths import free_bytes

_MAX_BYTES = 2**53 - 1


class Evidence(NamedTuple):
    """The machine of a failure, in bytes; -1 where something is not known."""

    host: str
    free_disk: int
    """On the disk of the output."""
    free_tmp: int
    free_shm: int
    memory_limit: int
    """That of the control group."""
    oom_kills: int
    """The kernel's kills in the control group while the attempt ran."""


def read_evidence(output: str, kills_before: int | None) -> Evidence:
    """Return how this machine stands, with its kills since there were `kills_before`."""
    return Evidence(
        os.uname().nodename,
        _known(free_bytes(output)),
        _known(free_bytes("/tmp")),  # noqa: S108 - only asked
        _known(free_bytes("/dev/shm")),  # noqa: S108 - only asked
        _known(cgroup_limits().memory),
        _known(_kills_since(kills_before, count_oom_kills())),
    )


def _kills_since(before: int | None, now: int | None) -> int | None:
    """Return the kills meanwhile; None also where earlier ones hide whether another group had one."""
    if now is None or not before:
        return now
    return now - before if now > before else None


def _known(value: int | None) -> int:
    # What an event may hold: some network disks call themselves endless.
    return -1 if value is None else min(value, _MAX_BYTES)
