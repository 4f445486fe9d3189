"""Bounds work on what others wrote, such as a model's chat template, in memory and time; and the life of a child."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# A chat of 16 MiB takes a tenth of both.
MAX_MEMORY_BYTES = 2**29
MAX_SECONDS = 5.0
_PR_SET_PDEATHSIG = 1


class BoundError(Exception):
    """A bound that was met, in words about what met it."""


@contextlib.contextmanager
def limit_memory_and_time(max_bytes: int = MAX_MEMORY_BYTES, max_seconds: float = MAX_SECONDS) -> Iterator[None]:
    """Raise BoundError where the work takes so many more bytes or seconds; the time counts in the main thread only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = _data_segment_bytes() + max_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most if soft == resource.RLIM_INFINITY else min(most, soft), hard))
    try:
        with _interrupt_after(max_seconds):
            yield
    except MemoryError:
        raise BoundError(f"it took more than {max_bytes >> 20} MiB of memory") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@contextlib.contextmanager
def _interrupt_after(seconds: float) -> Iterator[None]:
    """Interrupt what this thread does after some seconds; what it calls in C or Rust returns first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def raise_bound_error(_number: int, _frame: Any) -> None:
        raise BoundError(f"it took more than {seconds:g} seconds")

    before = signal.signal(signal.SIGALRM, raise_bound_error)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _data_segment_bytes() -> int:
    """Return the bytes of this process that count for RLIMIT_DATA."""
    return int(Path("/proc/self/statm").read_text("ascii").split()[5]) * os.sysconf("SC_PAGE_SIZE")


def limit_process_to_half_of_memory() -> None:
    """Bound what this process may take to half of the machine's memory, but 4 GiB at least."""
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most, (_, hard) = max(2**32, machine // 2), resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def end_with_parent() -> None:
    """Let Linux kill this process when its parent is gone: nobody would read its answer."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def memory_bound_text() -> str:
    """Return how much memory this process may take, as `4 GiB`, empty where there is no bound."""
    soft = resource.getrlimit(resource.RLIMIT_DATA)[0]
    return "" if soft == resource.RLIM_INFINITY else f"{soft / 2**30:.0f} GiB"
