"""State of the machine at the moment an attempt failed: what no log records."""

from __future__ import annotations

import os
import re
import time
from typing import NamedTuple

from .system import other_programs
from .system.cgroup_limits import cgroup_limits, count_oom_kills
from .system.paths import free_bytes_for_path

_MAX_RECORDED_BYTES = 2**53 - 1
KERNEL_LOG_PATH = "/dev/kmsg"
# Errors of the card, its link or its firmware. What a program does wrong (13, 31, 43, 45) is told by its own log.
_HARDWARE_XID_CODES = frozenset(
    {"48", "62", "63", "64", "74", "79", "92", "94", "95", "109", "119", "120", "140", "149"}
)
_XID_PATTERN = re.compile(
    r"NVRM: Xid \(PCI:[\dA-Fa-f:.]{4,20}\): (\d{1,4})[^\n]{0,300}|NVRM: GPU [^\n]{1,60}fallen off the bus"
)
_KERNEL_RECORD_PATTERN = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)", re.MULTILINE)
_MAX_RECORDS, _RECORD_BYTES = 50_000, 8192
_JOURNALCTL_TIMEOUT_SECONDS = 5


class MachineEvidence(NamedTuple):
    """The machine of a failure, in bytes; -1 where something is not known."""

    host: str
    free_disk: int
    """On the disk of the output."""
    free_shm: int
    memory_limit: int
    """That of the control group."""
    oom_kills: int
    """The kernel's kills in the control group while the attempt ran."""
    gpu_error: str = ""
    """The kernel's newest line about an error of a GPU while the attempt ran; empty: none is known."""


def read_machine_evidence(output: str, oom_kills_before: int | None, began: float | None = None) -> MachineEvidence:
    """Return this machine's state, with the OOM kills since there were `oom_kills_before`.

    `began` is the monotonic moment since which errors of GPUs count; None: they are not looked for.
    """
    return MachineEvidence(
        os.uname().nodename,
        _recordable_count(free_bytes_for_path(output)),
        _recordable_count(free_bytes_for_path("/dev/shm")),  # noqa: S108 - only asked
        _recordable_count(cgroup_limits().memory),
        _recordable_count(_oom_kills_since(oom_kills_before, count_oom_kills())),
        "" if began is None else gpu_error_since(began),
    )


def _oom_kills_since(oom_kills_before: int | None, oom_kills_now: int | None) -> int | None:
    """Return the kills meanwhile; None also where earlier ones hide whether another group had one."""
    if oom_kills_now is None or not oom_kills_before:
        return oom_kills_now
    return oom_kills_now - oom_kills_before if oom_kills_now > oom_kills_before else None


def _recordable_count(value: int | None) -> int:
    # What an event may hold: some network disks call themselves endless.
    return -1 if value is None else min(value, _MAX_RECORDED_BYTES)


def gpu_error_since(began: float) -> str:
    """Return the newest hardware error of a GPU since a monotonic moment; empty for none, or where none can be read."""
    try:
        lines = _kernel_lines_since(began)
    except OSError:
        lines = _journal_lines_since(time.time() - (time.monotonic() - began))
    matches = filter(None, map(_XID_PATTERN.search, lines))
    errors = [match[0] for match in matches if match[1] is None or match[1] in _HARDWARE_XID_CODES]
    return errors[-1] if errors else ""


def _kernel_lines_since(began: float) -> list[str]:
    """Return the kernel's records since then; OSError where this user may not read them."""
    descriptor = os.open(KERNEL_LOG_PATH, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    lines: list[str] = []
    try:
        for _ in range(_MAX_RECORDS):
            try:
                record = os.read(descriptor, _RECORD_BYTES)
            except BrokenPipeError:
                continue  # it was overwritten meanwhile
            except BlockingIOError:
                break
            if not record:
                break
            found = _KERNEL_RECORD_PATTERN.findall(record.decode(errors="replace"))
            lines += [text for microseconds, text in found if int(microseconds) / 1e6 >= began]
    finally:
        os.close(descriptor)
    return lines


def _journal_lines_since(epoch: float) -> list[str]:
    """Return what the journal has of the kernel since then: the groups adm and systemd-journal may read it."""
    command = ["journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat", f"--since=@{int(epoch)}"]
    return other_programs.run_program(command, _JOURNALCTL_TIMEOUT_SECONDS).out.splitlines()
