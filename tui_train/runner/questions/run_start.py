"""Takes a run folder from another machine, starts the run in it, and ends it."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

from ..detached_start import LAUNCH_LOG_NAME, end_unreported_start, start_detached, wait_until_reported
from ..run_folder import events
from ..run_folder.state import read_status
from ..run_folder.supervisor_plan import read_plan
from ..stop import stop_run_and_processes
from ..system.folder_usage import folder_usage
from ..system.paths import runs_folder
from ..system.processes import Process, lasting_machine_identity
from ..system.refused import Refused
from .answer_lines import (
    PIECE_BYTES,
    RequestFailedError,
    call_with_beats,
    count_reported_starts,
    file_size,
    read_piece,
    require_run_folder,
    send_json_line,
)
from .slurm import find_submission_outcome, submit_job

_MAX_LAUNCH_OUTPUT_BYTES = 4000
# Seconds for a start under way to end, and between two looks.
_MAX_START_END_SECONDS, _POLL_SECONDS = 45.0, 0.05


def receive_run(question: dict[str, Any]) -> None:
    """Write `files`, in base64 by their paths, into a new run folder, whole or not at all.

    Where the sender's own folder, in which there is the file `mark`, is that very folder, nothing is to be written.
    """
    parent = Path(runs_folder())
    mark = parent / question["name"] / question["mark"]
    if mark.is_file():
        # By this the sender sees that it is true.
        mark.rename(f"{mark}-seen")
        send_json_line(folder=str(mark.parent), shared=True, node=lasting_machine_identity())
        return
    half_made = parent / question["half_made"]
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        half_made = Path(tempfile.mkdtemp(dir=str(parent), prefix=question["half_made"]))
        for name, content in question["files"].items():
            _write_run_file(half_made, name, base64.b64decode(content))
        half_made.rename(parent / question["name"])
    except OSError as error:
        raise RequestFailedError(f"{error.filename or parent}: {error.strerror}") from None
    finally:
        shutil.rmtree(str(half_made), ignore_errors=True)
    send_json_line(folder=str(parent / question["name"]), node=lasting_machine_identity())


def _write_run_file(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    if ".." in path.parts or path == Path(name):
        raise RequestFailedError(f"{name!r} is no file of a run")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(0o755 if name == "launch.sh" else 0o644)


def start_run(question: dict[str, Any]) -> None:
    """Start a run by launch.sh, or as a job of `slurm`, once for each `id`: asked again, it is told what came of it.

    With `look` it is not started: then a start of that id that has not been made is never made, so that what is told is
    true for good. Until it is known, the answer is why it is `unclear`.
    """
    run = require_run_folder(question)
    with hold_start_lock(run, wait_for_lock=not question["look"]) as lock:
        if lock < 0:
            send_json_line(unclear="it is about to start")
            return
        # Another ask may have had it removed while this one waited.
        run = require_run_folder(question)
        kept = run / f".start-{question['id']}"
        start = _read_start_record(kept)
        if not start:
            start = {"at": time.time(), "starts": count_reported_starts(run)}
            if question["look"]:
                start.update(started=False, said="the start was not heard of there")
            _write_start_record(kept, start)
            if not question["look"]:
                start.update(
                    submit_job(run, lock, question["after_job"])
                    if question["slurm"]
                    else _start_launch_script(run, question, kept, start)
                )
        elif "started" not in start:
            # Whoever was to make it came to no end, or did not know.
            start.pop("unclear", None)
            if count_reported_starts(run) > start["starts"]:
                start.update(started=True)
            elif question["slurm"]:
                start.update(find_submission_outcome(run, start["at"]))
            elif Process(*start.get("launcher", (0, 0))).is_alive:
                start.update(unclear="it is about to start")
            else:
                start.update(started=False, said="it was cut short")
        # On a full disk it is looked for again.
        with contextlib.suppress(RequestFailedError):
            _write_start_record(kept, start)
    send_json_line(**{name: value for name, value in start.items() if name not in {"at", "starts", "launcher"}})


def _read_start_record(kept: Path) -> dict[str, Any]:
    """Return what is known of a start, nothing where it was not asked for."""
    start: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        start = json.loads(read_piece(kept, 0, PIECE_BYTES))
    return start


def _write_start_record(kept: Path, start: dict[str, Any]) -> None:
    beside = kept.with_name(f"{kept.name}.new")
    try:
        beside.write_text(json.dumps(start), encoding="utf-8")
        beside.replace(kept)
    except OSError as error:
        raise RequestFailedError(f"{kept.parent}: {error.strerror}") from None


def _start_launch_script(run: Path, question: dict[str, Any], kept: Path, start: dict[str, Any]) -> dict[str, Any]:
    """Start launch.sh in a session of its own, and wait until it has reported itself, or has ended.

    Its process is kept with the start: whoever waits here may be killed before it reports itself.
    """
    if shutil.which("bash") is None:
        raise RequestFailedError("bash was not found")
    log, before = run / LAUNCH_LOG_NAME, len(events.read_events(str(run)))
    offset = file_size(log)
    launcher = start_detached(str(run), question["options"], question["end_after"])
    start["launcher"] = [launcher.pid, launcher.ticks]
    with contextlib.suppress(RequestFailedError):
        _write_start_record(kept, start)
    if wait_until_reported(str(run), before, launcher, lambda: time.sleep(_POLL_SECONDS)):
        return {"started": True}
    output = read_piece(log, offset, _MAX_LAUNCH_OUTPUT_BYTES).decode(errors="replace").strip()
    return {"started": False, "said": output or "launch.sh ended without a word"}


@contextlib.contextmanager
def hold_start_lock(run: Path, *, wait_for_lock: bool = True) -> Iterator[int]:
    """Hold the right to start a run, and yield its lock.

    Without `wait_for_lock` it only looks, and yields -1 where the lock is held.
    """
    folder = os.open(str(run), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        lock = folder
        try:
            fcntl.flock(folder, fcntl.LOCK_EX if wait_for_lock else fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            lock = -1
        except OSError:
            # Some network disks have no locks; the run's own keeps a second start out.
            pass
        yield lock
    finally:
        os.close(folder)


def send_run_size(question: dict[str, Any]) -> None:
    """Send the bytes that the folder of a run takes, which has ended and can be removed."""
    run = _require_own_run_folder(question)
    _refuse_if_at_work(run)
    send_json_line(size=_require_removable(run), folder=str(run))


def _require_own_run_folder(question: dict[str, Any]) -> Path:
    """Return the run folder that a question names, also by its name alone: one of this user's runs, nothing else."""
    parent = runs_folder()
    run = require_run_folder({"folder": os.path.join(parent, question["folder"])})
    if run.is_symlink() or run.name.startswith(".") or os.path.realpath(str(run.parent)) != os.path.realpath(parent):
        raise RequestFailedError(f"{run} is no run folder in {parent}: remove it there by hand")
    return run


def _refuse_if_at_work(run: Path) -> None:
    status = read_status(str(run))
    if status.is_live or status.leftover or status.container:
        raise RequestFailedError(f"{run} is at work")
    job = find_submission_outcome(run, 0) if (run / "slurm.sh").exists() else {}
    if job.get("started"):
        raise RequestFailedError(f"{run} is in Slurm's queue, as job {job['job']}: scancel {job['job']}")
    if job.get("unclear"):
        raise RequestFailedError(f"{run} may be in Slurm's queue: {job['unclear']}")


def _refuse_if_copy_at_work(run: Path) -> None:
    """Refuse where another machine's start has processes or a container here: its supervisor is not in this copy."""
    from ..machines.node import earlier_start_problem

    engine = ""
    with contextlib.suppress(Refused):
        engine = read_plan(str(run)).engine
    if problem := earlier_start_problem(engine, str(run)):
        raise RequestFailedError(f"{run} is in use: {problem}")


def _require_removable(run: Path) -> int:
    """Return the bytes on disk of a run's folder, all of which can be removed."""
    usage = call_with_beats(lambda: folder_usage(str(run)))
    if usage.protected_folder:
        why = f"{usage.protected_folder} belongs to another user, or may not be changed"
        raise RequestFailedError(f"{run} cannot be removed: {why}; remove that folder first, with sudo")
    return usage.size


def remove_run(question: dict[str, Any]) -> None:
    """Remove the folder of a run, unless something was started in it; where that has `ended`, also then."""
    run = _require_own_run_folder(question)
    # A start that is under way has the lock until it has reported itself.
    with hold_start_lock(run):
        # Another ask may have removed it while this one waited.
        run = _require_own_run_folder(question)
        was_started = any((run / name).exists() for name in ("events.jsonl", ".lock"))
        if question["ended"]:
            _refuse_if_at_work(run)
        elif not was_started:
            _refuse_if_copy_at_work(run)
        if question["ended"] or not was_started:
            _require_removable(run)
            if failed := call_with_beats(lambda: _remove_folder(run)):
                raise RequestFailedError(f"not all of {run} could be removed: {failed[0]} is left")
    send_json_line(dropped=True)


def _remove_folder(run: Path) -> list[str]:
    """Remove a run's folder, and return what could not be removed; then it is still known as a run."""
    failed: list[str] = []

    def note(_call: object, path: str, _error: object) -> None:
        failed.append(path)

    try:
        entries = [entry for entry in run.iterdir() if entry.name != "launch.sh"]
    except OSError:
        return [str(run)]
    for entry in entries:
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(str(entry), onerror=note)
        else:
            try:
                entry.unlink()
            except OSError:
                failed.append(str(entry))
    if not failed:
        shutil.rmtree(str(run), onerror=note)
    return failed


def stop_run(question: dict[str, Any]) -> None:
    """End a run, also one that hangs before it has reported itself, and say so when it has ended."""
    run = require_run_folder(question)
    _end_starts_under_way(run)
    stop_run_and_processes(str(run), at_once=question["now"])
    send_json_line(stopped=True)


def _end_starts_under_way(run: Path) -> None:
    """End each launch.sh that has not reported itself, and wait until whoever started it has noted that."""
    deadline = time.monotonic() + _MAX_START_END_SECONDS
    while True:
        for kept in run.glob(".start-*"):
            _end_start_under_way(run, _read_start_record(kept))
        with hold_start_lock(run, wait_for_lock=False) as lock:
            if lock >= 0:
                return
        if time.monotonic() > deadline:
            raise RequestFailedError("a start is under way there, and does not end")
        time.sleep(_POLL_SECONDS)


def _end_start_under_way(run: Path, start: dict[str, Any]) -> None:
    if "started" not in start:
        starts: int = start.get("starts", 0)
        end_unreported_start(Process(*start.get("launcher", (0, 0))), lambda: count_reported_starts(run) > starts)
