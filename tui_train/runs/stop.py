"""Stops a run, and waits until the driver has freed its memory."""

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

# The driver frees memory shortly after the process has ended.
_RELEASE = 5.0


def stop(run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
    """Stop a run with all its processes, and return its state; `waiting` is called while that takes time.

    It gets its grace period to save, which a second stop joins; with `at_once` it does not.

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
    """Wait until the driver has freed the memory of ended processes; Unavailable if it does not."""
    deadline = time.monotonic() + _RELEASE
    while holders := _held(pids):
        if time.monotonic() > deadline:
            remedy = "Wait a minute; if nvidia-smi still shows it, it hangs in the driver, and only a reboot helps."
            raise Unavailable(f"all processes of the run have ended, but {holders[0]}", remedy)
        waiting()
        time.sleep(0.5)


def _held(pids: frozenset[int]) -> list[str]:
    return [
        f"GPU {gpu.index} still holds {size(process.memory)} for process {process.pid}"
        for gpu in probe.machine().gpus
        for process in gpu.processes
        if process.pid in pids
    ]
