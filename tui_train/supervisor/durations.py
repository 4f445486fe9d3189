"""How long something took, by the time since boot: a wall clock is set back and forward, and differs between hosts."""

from __future__ import annotations

import time

from .events import Event


def seconds_between(begin: Event, end: Event) -> float:
    """Return the seconds between two events that one start wrote, and so one boot; never less than 0."""
    if begin.uptime and end.uptime:
        return max(0.0, end.uptime - begin.uptime)
    return max(0.0, end.time - begin.time)


def seconds_since(begin: Event, *, is_local: bool) -> float:
    """Return the whole seconds since an event; `is_local` where it was written on this boot of this machine.

    Elsewhere the wall clocks of both have to do.
    """
    if is_local and begin.uptime:
        passed = time.clock_gettime(time.CLOCK_BOOTTIME) - begin.uptime
    else:
        passed = time.time() - begin.time
    return float(max(0, int(passed)))
