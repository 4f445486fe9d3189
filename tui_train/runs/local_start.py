"""Starting a run so that it outlives us: a session of its own, its output in a file."""

import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Literal

from msgspec import Struct

from tui_train.base.errors import StartInterrupted, Unavailable
from tui_train.base.files import raising_cannot_write, read_error_reason
from tui_train.base.text import visible
from tui_train.runner.detached_start import (
    end_unreported_start,
    has_reported_start,
    start_detached,
    wait_until_reported,
)
from tui_train.runner.system.processes import Process
from tui_train.runner.system.safe_open import open_regular_file
from tui_train.runs.conflicts import lock_run_starts, refuse_if_conflicting
from tui_train.runs.interrupts import NO_INTERRUPTS, Interrupts
from tui_train.runs.results.resuming import resume_mode, resume_or_restart_remedy
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

WhenFree = Literal["", "chosen", "any"]
"""GPUs for which a start waits: the chosen ones, or any of their kind; empty: it does not wait."""


class StartOptions(Struct, frozen=True):
    """When a run begins, and how long it may take.

    It waits for its GPUs (`when_free`), a job for the end of another one by its number (`after_job`). It is ended
    `end_after` so many seconds (0: never), without time to save.
    """

    when_free: WhenFree = ""
    after_job: str = ""
    end_after: int = 0


START_AT_ONCE = StartOptions()
_START_OVER_REMEDY = "To train from step 0 again, run its profile: tui-train run PROFILE, or its folder's profile.toml."
_MIN_FREE_BYTES = 1 << 16
_POLL_SECONDS = 0.02


def start_run(
    run: RunFolder,
    *,
    resume: bool = False,
    when_free: WhenFree = "",
    end_after: int = 0,
    interrupts: Interrupts = NO_INTERRUPTS,
) -> None:
    """Start a run's launch.sh and return once it has reported itself; Unavailable carries what it said instead.

    It is waited for as long as it lives, for drivers and container engines may take their time; where the waiting is
    broken off (KeyboardInterrupt), it is ended. So it is where a signal is noted before it has reported itself: then
    StartInterrupted says that it was not started, or how it ended. Several machines resume from a checkpoint only when
    that is meant: `resume`. A single one always does. With `when_free` it waits for its GPUs or CPU cores.
    After `end_after` seconds (0: never) it is ended, without time to save.
    """
    if has_nothing_left_to_train(run):
        raise Unavailable(f"{visible(run.name)} has finished: there is nothing left to train", _START_OVER_REMEDY)
    name = run.name if run.events() else ""
    with lock_run_starts(lambda: interrupts.raise_if_start_interrupted(name)):
        refuse_if_conflicting(run, waits_for_gpus=bool(when_free))
        interrupts.raise_if_start_interrupted(name)
        launch_options = launch_script_options(run, resume=resume, when_free=when_free)
        _start_launch_script(run, interrupts, launch_options, end_after)


def has_nothing_left_to_train(run: RunFolder) -> bool:
    """Tell whether a run has finished that another start would only resume at its end."""
    return resume_mode(run) in {"told", "by itself"} and read_status(run).state == "finished"


def restart_difference_text(run: RunFolder) -> str:
    """Return in words what another start does that is more, or less, than going on; empty where it just goes on."""
    resume = resume_mode(run)
    words = {
        "by itself": "its trainer finds its newest checkpoint by itself.",
        "never": "its trainer cannot resume: it begins with the first step.",
    }
    notes = [words[resume]] if resume in words else []
    if _is_started_by_hand(run):
        option = " --resume" if resume == "told" else ""
        notes.append(f"Start it on the other machines as well: bash launch.sh --node-rank=N{option}")
    return " ".join(notes)


def _is_started_by_hand(run: RunFolder) -> bool:
    """Return whether each of several machines is started by hand."""
    plan = run.plan()
    return plan.get("nodes") not in {None, 1} and not plan.get("hosts") and not plan.get("slurm")


def launch_script_options(run: RunFolder, *, resume: bool, when_free: WhenFree) -> tuple[str, ...]:
    """Return the options of launch.sh: that it resumes is said where it does not by itself."""
    resumes = resume and _is_started_by_hand(run) and resume_mode(run) == "told"
    waits = {"chosen": ("--when-free",), "any": ("--when-free=any",), "": ()}[when_free]
    return (*(("--resume",) if resumes else ()), *waits)


def unfinished_wait_mode(run: RunFolder) -> WhenFree:
    """Return for which GPUs the last start of a run was still waiting when it ended; empty: it was not."""
    if not read_status(run).never_had_turn:
        return ""
    waits = next((event.waits for event in reversed(run.events()) if event.event == "run_started"), "")
    return "any" if waits == "any" else "chosen"


def _start_launch_script(run: RunFolder, interrupts: Interrupts, options: Sequence[str], end_after: int) -> None:
    if shutil.which("bash") is None:
        raise Unavailable("bash was not found", "Install bash.")
    if (status := read_status(run)).trains_unsupervised:
        pids = ", ".join(map(str, status.leftover))
        remedy = f"End these processes first: tui-train stop {visible(run.name)}"
        raise Unavailable(f"processes of an earlier start still train: {pids}", remedy)
    earlier_event_count = len(run.events())
    with raising_cannot_write(run.launch_log):
        run.launch_log.touch()
        offset = _launch_log_size(run.launch_log)
    launch_process = start_detached(str(run.path), options, end_after)
    if _wait_for_report(run, launch_process, earlier_event_count, interrupts):
        return
    interrupts.raise_if_start_interrupted(run.name if earlier_event_count else "")
    output = launch_log_text(run.launch_log, offset)
    if not output:
        # On a full disk it cannot even write that it cannot write.
        full = shutil.disk_usage(run.path).free < _MIN_FREE_BYTES
        output = "it cannot write, the disk is full" if full else "launch.sh ended without a word"
    raise Unavailable(f"the run did not start: {output}", "Fix that, then start the run again.")


def _launch_log_size(log: Path) -> int:
    """Return the size of launch.sh's log; Unavailable for a pipe or the like, at which launch.sh would wait."""
    try:
        with open_regular_file(log) as file:
            return os.fstat(file.fileno()).st_size
    except OSError as error:
        raise Unavailable(
            f"cannot use {visible(str(log))}: {read_error_reason(error)}", "Remove that file, then start the run again."
        ) from None


def launch_log_text(log: Path, offset: int = 0) -> str:
    """Return what launch.sh has written from an offset on, safe to show."""
    try:
        with open_regular_file(log) as file:
            file.seek(offset)
            return visible(file.read(4000).decode(errors="replace").strip())
    except OSError as error:
        return f"{visible(str(log))} cannot be read: {read_error_reason(error)}"


def _wait_for_report(run: RunFolder, launch_process: Process, earlier_event_count: int, interrupts: Interrupts) -> bool:
    """Wait until a launch.sh reports itself, or ends: tell which. Ends it where the waiting is broken off.

    Raises StartInterrupted where a signal was noted and it had reported itself when it ended.
    """
    where = (str(run.path), earlier_event_count, launch_process)
    reported = partial(has_reported_start, *where)

    def pause() -> None:
        if interrupts.number:
            raise _SignalReceived
        time.sleep(_POLL_SECONDS)

    try:
        return wait_until_reported(*where, pause)
    except _SignalReceived:
        end_unreported_start(launch_process, reported, lambda: interrupts.again)
    except BaseException:
        # It may have reported itself by now: then its training gets its time to save, like any other.
        with suppress(OSError, ValueError):
            end_unreported_start(launch_process, reported)
            if reported():
                _stop_started_run(run, NO_INTERRUPTS)
        raise
    if not reported():
        return False
    state = _stop_started_run(run, interrupts)
    remedy = resume_or_restart_remedy(run)
    raise StartInterrupted(
        f"{visible(run.name)} has {state} ({interrupts.signal_name} while it started)", remedy, interrupts.exit_code
    )


def _stop_started_run(run: RunFolder, interrupts: Interrupts) -> str:
    """End a run that had started when a signal came, and return its state; another signal takes its grace away."""
    interrupts.report(f"stopping {visible(run.name)}: it gets its time to save; Ctrl-C ends it at once")

    def waiting() -> None:
        if interrupts.again:
            raise _SignalReceived

    try:
        return stop_local_run(run, while_waiting=waiting, at_once=interrupts.again).state
    except _SignalReceived:
        return stop_local_run(run, at_once=True).state


class _SignalReceived(Exception):
    """A signal came while something was waited for."""
