"""Starts launch.sh so that it outlives whoever starts it: a session of its own, its output in a file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Callable, Sequence

from .run_folder import events
from .system.processes import Process, is_or_descends_from, process_start_ticks, send_signal

LAUNCH_LOG_NAME = "launch.log"
# Seconds for a start that is broken off to end by itself.
_MAX_END_SECONDS = 10.0
# Seconds after its time limit in which a run ends by itself, before it is killed.
_MAX_SECONDS_BEYOND_LIMIT = 30
_POLL_SECONDS = 0.02
# The shell between leaves at once, so that the run is nobody's child and no zombie stays; job control, so that the run
# does not begin with the keyboard's signals ignored.
_DETACHING_SCRIPT = 'set -m; log=$1; shift; "$0" "$@" < /dev/null >> "$log" 2>&1 & echo "$!"'


def start_detached(run_dir: str, options: Sequence[str], end_after: int = 0) -> Process:
    """Start the launch.sh of a run folder, and return its process; OSError where there is no bash.

    After `end_after` seconds, where that is not 0, it is ended without time to save, whoever is there to ask for it.
    """
    log, script = os.path.join(run_dir, LAUNCH_LOG_NAME), os.path.join(run_dir, "launch.sh")
    limit = ["timeout", f"--kill-after={_MAX_SECONDS_BEYOND_LIMIT}", str(end_after)] if end_after else []
    program = [*limit, "bash", script]
    child = subprocess.run(
        ["bash", "-c", _DETACHING_SCRIPT, program[0], log, *program[1:], *options],
        cwd="/",
        # Of several machines, the one that plans is the first.
        env={"TUI_TRAIN_NODE_RANK": "0", **os.environ, **({"TUI_TRAIN_GRACE": "0"} if end_after else {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=False,
        start_new_session=True,
    )
    pid = int(child.stdout) if child.stdout.strip().isdigit() else 0
    return Process(pid, process_start_ticks(pid) or 0)


def has_reported_start(run_dir: str, earlier_event_count: int, launch_process: Process) -> bool:
    """Return whether a launch.sh has reported its start; another start of the same folder may come between, and win."""
    new = events.read_events(run_dir)[earlier_event_count:]
    return any(event.event == "run_started" and is_or_descends_from(event.pid, launch_process.pid) for event in new)


def wait_until_reported(
    run_dir: str, earlier_event_count: int, launch_process: Process, pause: Callable[[], object]
) -> bool:
    """Wait until a launch.sh has reported its start, with a `pause` after each look; False where it ended without."""
    while True:
        # In this order: it may report itself and end between the two.
        gone = not launch_process.is_alive
        if has_reported_start(run_dir, earlier_event_count, launch_process):
            return True
        if gone:
            return False
        pause()


def end_unreported_start(
    launch_process: Process, has_reported: Callable[[], bool], is_hurried: Callable[[], bool] = lambda: False
) -> None:
    """End a launch.sh that is about to start, and wait for its end, or until it has reported itself after all.

    It is killed where it does not listen, and as soon as `is_hurried` says so.
    """
    for number in (signal.SIGTERM, signal.SIGKILL):
        # What has reported itself has a training, which would go on without it.
        if number == signal.SIGKILL and has_reported():
            return
        deadline = time.monotonic() + _MAX_END_SECONDS
        with contextlib.suppress(PermissionError):
            send_signal(launch_process, number)
        while (
            launch_process.is_alive and time.monotonic() < deadline and not (is_hurried() and number == signal.SIGTERM)
        ):
            if has_reported():
                return
            time.sleep(_POLL_SECONDS)
