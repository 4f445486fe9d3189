"""Stops a run, and waits until the driver has freed its memory."""

import time
from collections.abc import Callable

from tui_train.base.errors import Unavailable
from tui_train.base.text import size_text
from tui_train.facts.machine import probe
from tui_train.runner.run_folder import state
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.stop import stop_run_and_processes as end
from tui_train.runner.system.refused import Refused
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

# The driver frees memory shortly after the process has ended.
_MAX_MEMORY_RELEASE_SECONDS = 5.0
# How often a driver may not answer before its memory counts as unknown; each look takes about 8 seconds then.
_MAX_UNANSWERED_MEMORY_QUERIES = 2


def stop_local_run(
    run: RunFolder, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False
) -> RunStatus:
    """Stop a run with all its processes, and return its state; `while_waiting` is called while that takes time.

    It gets its grace period to save, which a second stop joins; with `at_once` it does not.

    Where the driver did not answer, so that their memory may still be taken, the state says so (`driver_silent`).
    Raises Unavailable when processes are left that cannot be ended, when the driver still counts their memory though
    they are gone, or when it runs elsewhere or is another user's.
    """
    status = read_status(run)
    before = (
        frozenset(state.process_family_of_run(str(run.path), status).living_ticks_by_pid())
        if status.mark
        else frozenset()
    )
    try:
        ended = end(str(run.path), while_waiting=while_waiting, at_once=at_once)
    except Refused as refused:
        raise Unavailable(refused.why, refused.remedy[:1].upper() + refused.remedy[1:] + ".") from None
    if before and run.plan().get("gpus"):
        return ended._replace(driver_silent=not _wait_until_memory_freed(before, while_waiting))
    return ended


def _wait_until_memory_freed(process_ids: frozenset[int], while_waiting: Callable[[], None]) -> bool:
    """Wait until the driver has freed the memory of ended processes; False where it does not answer.

    Raises Unavailable if it still counts their memory.
    """
    deadline = time.monotonic() + _MAX_MEMORY_RELEASE_SECONDS
    unanswered = 0
    while (holders := _memory_holder_texts(process_ids)) != []:
        if holders is None:
            unanswered += 1
            if unanswered >= _MAX_UNANSWERED_MEMORY_QUERIES:
                return False
        elif time.monotonic() > deadline:
            remedy = "Wait a minute; if nvidia-smi still shows it, it hangs in the driver: only a reboot frees it."
            raise Unavailable(f"all processes of the run have ended, but {holders[0]}", remedy)
        while_waiting()
        time.sleep(0.5)
    return True


def _memory_holder_texts(process_ids: frozenset[int]) -> list[str] | None:
    """Return in words which memory the processes hold; None where the driver does not say."""
    machine = probe.probe_machine()
    if not machine.gpus and any(gap.hides for gap in machine.gaps):
        return None
    return [
        f"GPU {gpu.index} still holds {size_text(process.memory)} for process {process.pid}"
        for gpu in machine.gpus
        for process in gpu.processes
        if process.pid in process_ids
    ]
