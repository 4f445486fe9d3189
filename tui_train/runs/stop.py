"""Ending a run, and waiting until the driver counts no memory of it."""

import time
from collections.abc import Callable

from tui_train.base.errors import Unavailable
from tui_train.base.text import size
from tui_train.facts import probe
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.supervisor import state
from tui_train.supervisor.refused import Refused
from tui_train.supervisor.state import Status
from tui_train.supervisor.stop import stop as end

# A driver frees a card's memory a moment after its process is gone.
_RELEASE = 5.0


def stop(run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
    """End a run and every process of it, and return its state; `waiting` is called while it takes its time.

    It gets its grace to save and end in, which another stop joins; `at_once` it does not.

    Raises Unavailable when processes are left that cannot be ended, when the driver still counts their memory though
    they are gone, or when it runs elsewhere or is another user's.
    """
    now = status(run)
    before = frozenset(state.family(str(run.path), now).living()) if now.mark else frozenset()
    try:
        ended = end(str(run.path), waiting=waiting, at_once=at_once)
    except Refused as refused:
        raise Unavailable(refused.why, refused.remedy[:1].upper() + refused.remedy[1:] + ".") from None
    if before and run.plan().get("gpus"):
        _look_at_cards(before, waiting)
    return ended


def _look_at_cards(pids: frozenset[int], waiting: Callable[[], None]) -> None:
    """Wait until the driver counts no memory for processes that are gone; Unavailable where it goes on doing so."""
    deadline = time.monotonic() + _RELEASE
    while held := _held(pids):
        if time.monotonic() > deadline:
            remedy = "Wait a minute; if nvidia-smi shows it then, it hangs in the driver, and only a reboot helps."
            raise Unavailable(f"no process of the run was found, but {held[0]}", remedy)
        waiting()
        time.sleep(0.5)


def _held(pids: frozenset[int]) -> list[str]:
    return [
        f"GPU {gpu.index} still holds {size(process.memory)} for process {process.pid}"
        for gpu in probe.machine().gpus
        for process in gpu.processes
        if process.pid in pids
    ]
