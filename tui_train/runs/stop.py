"""Ending a run: its launch.sh is asked first, and nothing with its mark is left behind."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable

from tui_train.errors import Unavailable
from tui_train.facts import probe
from tui_train.runs.processes import marked
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import Status, status
from tui_train.text import size

_PATIENCE = 40.0
# A driver frees a card's memory a moment after its process is gone.
_RELEASE = 5.0
_ENGINES = frozenset({"docker", "podman"})
# As launch.sh names them: events.jsonl is a file that others may have written.
_NAME = re.compile(r"tui-train-[\w.-]+", re.ASCII)


def stop(run: RunDir, *, waiting: Callable[[], None] = lambda: None, at_once: bool = False) -> Status:
    """End a run and every process of it, and return its state; `waiting` is called while it takes its time.

    It gets its grace to save and end in; told again, `at_once`, it does not.

    Raises Unavailable when processes are left that cannot be ended, when the driver still counts their memory though
    they are gone, or when it is another user's run.
    """
    now = status(run)
    before = marked(now.mark, now.leader) if now.mark else ()
    if now.live:
        if now.state != "stopping" or at_once:
            _signal(now.pid, signal.SIGTERM)
        deadline = time.monotonic() + now.grace + _PATIENCE
        while (now := status(run)).live and time.monotonic() < deadline:
            waiting()
            time.sleep(0.1)
        if now.live:
            _signal(now.pid, signal.SIGKILL)
    if now.container and not now.live:
        _end_container(now, waiting)
    left = _end(now, waiting, 0.0 if at_once else float(now.grace)) if now.mark else ()
    if left:
        pids = ", ".join(map(str, left))
        raise Unavailable(f"processes of the run are left: {pids}", f"End them: kill -9 {' '.join(map(str, left))}")
    if before and run.plan().get("gpus"):
        _look_at_cards(frozenset(before), waiting)
    return status(run)


def _look_at_cards(pids: frozenset[int], waiting: Callable[[], None]) -> None:
    """Wait until the driver counts no memory for processes that are gone; Unavailable where it goes on doing so."""
    deadline = time.monotonic() + _RELEASE
    while held := _held(pids):
        if time.monotonic() > deadline:
            remedy = "Wait a minute; if nvidia-smi shows it then, it hangs in the driver, and only a reboot helps."
            raise Unavailable(f"no process of the run is left, but {held[0]}", remedy)
        waiting()
        time.sleep(0.5)


def _held(pids: frozenset[int]) -> list[str]:
    return [
        f"GPU {gpu.index} still holds {size(process.memory)} for process {process.pid}"
        for gpu in probe.machine().gpus
        for process in gpu.processes
        if process.pid in pids
    ]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        raise Unavailable("the run belongs to another user", "Ask whoever started it to stop it.") from None


def _end_container(now: Status, waiting: Callable[[], None]) -> None:
    """Stop and remove the container of a run whose launch.sh is gone; what its engine does not end, signals do."""
    if now.engine not in _ENGINES or not _NAME.fullmatch(now.container):
        return
    for words in (("stop", "-t", str(now.grace)), ("rm", "-f")):
        try:
            asked = subprocess.Popen(
                [now.engine, *words, now.container],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        deadline = time.monotonic() + now.grace + _PATIENCE
        while asked.poll() is None and time.monotonic() < deadline:
            waiting()
            time.sleep(0.05)
        if asked.poll() is None:
            asked.kill()
        asked.wait()


def _end(now: Status, waiting: Callable[[], None], grace: float) -> tuple[int, ...]:
    """Ask each once, then kill, whatever is left of a run whose launch.sh is gone; return what cannot be ended."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, _PATIENCE)):
        told: set[int] = set()
        deadline = time.monotonic() + seconds
        while (found := marked(now.mark, now.leader)) and time.monotonic() < deadline:
            for pid in set(found) - told:
                _signal(pid, number)
            told.update(found)
            waiting()
            time.sleep(0.1)
    return marked(now.mark, now.leader)
