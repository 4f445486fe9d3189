"""The state of the machine on which an attempt failed, as it was at that moment: what no log says."""

from __future__ import annotations

import os
from typing import NamedTuple

from .cgroup_limits import cgroup_limits, count_oom_kills
from .kernel_log import gpu_error_since
from .paths import free_bytes_for_path

_MAX_RECORDED_BYTES = 2**53 - 1


class MachineEvidence(NamedTuple):
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
    gpu_error: str = ""
    """The kernel's newest line about an error of a GPU while the attempt ran; empty: none is known."""


def read_machine_evidence(output: str, kills_before: int | None, began: float | None = None) -> MachineEvidence:
    """Return how this machine stands, with its kills since there were `kills_before`.

    `began` is the monotonic moment since which errors of GPUs count; None: they are not looked for.
    """
    return MachineEvidence(
        os.uname().nodename,
        _minus_one_if_unknown(free_bytes_for_path(output)),
        _minus_one_if_unknown(free_bytes_for_path("/tmp")),  # noqa: S108 - only asked
        _minus_one_if_unknown(free_bytes_for_path("/dev/shm")),  # noqa: S108 - only asked
        _minus_one_if_unknown(cgroup_limits().memory),
        _minus_one_if_unknown(_oom_kills_since(kills_before, count_oom_kills())),
        "" if began is None else gpu_error_since(began),
    )


def _oom_kills_since(kills_before: int | None, kills_now: int | None) -> int | None:
    """Return the kills meanwhile; None also where earlier ones hide whether another group had one."""
    if kills_now is None or not kills_before:
        return kills_now
    return kills_now - kills_before if kills_now > kills_before else None


def _minus_one_if_unknown(value: int | None) -> int:
    # What an event may hold: some network disks call themselves endless.
    return -1 if value is None else min(value, _MAX_RECORDED_BYTES)
