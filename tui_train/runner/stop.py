"""Ending a run from outside: its supervisor is asked first, and nothing with its mark is left behind."""

from __future__ import annotations

import signal
import time
from typing import Callable

from .containers import container
from .run_folder import state
from .run_folder.state import RunStatus
from .system import cgroup, runner_command
from .system.processes import Process, ProcessFamily, send_signal
from .system.refused import BUSY_RESOURCE_EXIT_CODE, UNAVAILABLE_EXIT_CODE, Refused
from .system.safe_text import visible
from .system.signals import END_AT_ONCE_SIGNAL

_SUPERVISOR_SECONDS_BEYOND_GRACE = 40.0


def stop_run_and_processes(
    run_dir: str, *, while_waiting: Callable[[], None] = lambda: None, at_once: bool = False
) -> RunStatus:
    """End a run and every process of it, and return its state; `while_waiting` is called while it takes its time.

    It gets its grace to save and end in, which another stop joins; `at_once` it does not.

    Raises Refused when processes are left that cannot be ended, or when it runs elsewhere or is another user's.
    """
    try:
        return _stop_run_of_this_user(run_dir, while_waiting, at_once)
    except PermissionError:
        remedy = "ask whoever started it to stop it"
        raise Refused(UNAVAILABLE_EXIT_CODE, "the run belongs to another user", remedy) from None


def _stop_run_of_this_user(run_dir: str, while_waiting: Callable[[], None], at_once: bool) -> RunStatus:
    now = state.read_status(run_dir)
    if now.host:
        remedy = f"stop it there (tui-train stop, or python3 {runner_command.RUNNER_ZIP_NAME} stop in its folder)"
        raise Refused(
            BUSY_RESOURCE_EXIT_CODE, f"it runs on {visible(now.host)}, which cannot be reached from here", remedy
        )
    family = state.process_family_of_run(run_dir, now)
    if now.is_live:
        supervisor = Process(now.pid, now.ticks)
        family.living_ticks_by_pid()
        if at_once:
            send_signal(supervisor, END_AT_ONCE_SIGNAL)
        elif now.state != "stopping":
            send_signal(supervisor, signal.SIGTERM)
        # One that was suspended would never hear of it.
        send_signal(supervisor, signal.SIGCONT)
        deadline = time.monotonic() + now.grace + _SUPERVISOR_SECONDS_BEYOND_GRACE
        while (now := state.read_status(run_dir)).is_live and time.monotonic() < deadline:
            while_waiting()
            time.sleep(0.1)
        if now.is_live:
            send_signal(supervisor, signal.SIGKILL)
            now = state.read_status(run_dir)
    if now.container and not now.is_live:
        _end_container_of_run(now)
    left = _end_process_family(family, while_waiting, 0.0 if at_once else float(now.grace)) if now.mark else ()
    if left:
        pids = " ".join(map(str, left))
        raise Refused(UNAVAILABLE_EXIT_CODE, f"processes of the run are left ({pids})", f"end them: kill -9 {pids}")
    empty = cgroup.is_cgroup_empty(now.cgroup, now.mark)
    cgroup.remove_cgroup(now.cgroup, now.mark)
    return state.read_status(run_dir)._replace(empty=empty)


def _end_container_of_run(status: RunStatus) -> None:
    """Stop and remove the container of a run whose supervisor is gone; what its engine does not end, signals do."""
    if container.is_run_container_name(status.engine, status.container):
        container.stop_container(status.engine, status.container, status.grace)
        container.remove_container(status.engine, status.container)


def _end_process_family(family: ProcessFamily, while_waiting: Callable[[], None], grace: float) -> tuple[int, ...]:
    """Ask each once, then kill, whatever is left of a run whose supervisor is gone; return what cannot be ended."""

    def pause() -> None:
        while_waiting()
        time.sleep(0.1)

    left = family.terminate_until_gone(grace, pause) if grace else family.living_ticks_by_pid()
    return tuple(sorted(family.kill(pause, _SUPERVISOR_SECONDS_BEYOND_GRACE) if left else left))
