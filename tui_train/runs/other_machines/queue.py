"""Runs in Slurm's queue, here or on a host: the job of each, what squeue said of it last, and how it is stopped."""

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tui_train.base.errors import Unavailable
from tui_train.base.files import reporting_write_errors, write_atomically
from tui_train.base.parse import Unparsable, json_as, read_bytes
from tui_train.base.text import visible
from tui_train.plan.render.slurm import TIME_LIMIT_FILE_NAME
from tui_train.runner import events
from tui_train.runner.state import Status
from tui_train.runs.other_machines.feed import UPDATE_TIMEOUT_SECONDS, receive_from_host
from tui_train.runs.other_machines.place import read_host_report, read_place
from tui_train.runs.other_machines.slurm_commands import cluster_option, last_output_line, run_slurm_command
from tui_train.runs.other_machines.slurm_end import JOB_FILE, slurm_end_reason
from tui_train.runs.rundir import RunDir

SLURM_LABEL = "Slurm"
_MAX_JOB_FILE_BYTES = 1 << 16
CLUSTER_PATTERN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_END_WAIT_SECONDS = 30.0
_SQUEUE_FORMAT = "%i|%T|%r|%S|%Z"
# Those of a job that has ended, which squeue may still list for a while.
_ENDED_JOB_STATES = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
# Seconds in which a job that is completing usually leaves the queue.
_COMPLETING_SECONDS = 15.0


class SlurmJob(Struct, frozen=True, kw_only=True):
    """A run's job as squeue said last: `state` is its word (empty: it has left the queue), `begins` its expected start.

    `starts` is how often the run had been started when the job was waiting. `number` is empty until sbatch has
    said it, `cluster` where the job is in the default one.
    """

    number: Annotated[str, Meta(pattern=r"^[0-9]{0,18}$")]
    starts: int
    cluster: Annotated[str, Meta(pattern=f"^({CLUSTER_PATTERN.pattern})?$")] = ""
    state: str = "PENDING"
    reason: str = ""
    begins: str = ""


def read_job(run_folder: Path) -> SlurmJob | None:
    """Return the job of a run folder, None where Slurm has nothing to do with it."""
    try:
        return json_as(read_bytes(run_folder / JOB_FILE, _MAX_JOB_FILE_BYTES), SlurmJob)
    except Unparsable:
        return None


def cluster_title(host: str) -> str:
    """Return the cluster of this machine, or of a host, in words."""
    return f"{host} ({SLURM_LABEL})" if host else SLURM_LABEL


def slurm_host(run_folder: Path) -> str:
    """Return the host on which the commands of Slurm about a run are called, empty for this machine."""
    place = read_place(run_folder)
    return place.host if place else ""


def status_in_queue(folder: Path) -> Status | None:
    """Return the state of a run whose job waits, or has not started it yet; None for any other."""
    job = read_job(folder)
    if job is None or not job.state:
        return None
    # Near its time limit it has saved, and is about to be queued again.
    begun, again = _start_history(folder)
    waits = job.state != "COMPLETING" and begun == job.starts
    return Status("queued", host=cluster_title(slurm_host(folder))) if waits or again else None


def _start_history(folder: Path) -> tuple[int, bool]:
    """Return how often a run was started, and whether its last start was ended near the time limit."""
    place = read_place(folder)
    if place and not place.shared:
        last = read_host_report(folder)
        return (last.starts, last.limit and last.status.state == "stopped") if last else (0, False)
    logged = [event for event in events.read(str(folder)) if event.event in {"run_started", "run_ended"}]
    limited = bool(logged) and logged[-1].state == "stopped" and (folder / TIME_LIMIT_FILE_NAME).exists()
    return sum(event.event == "run_started" for event in logged), limited


def queue_summary(folder: Path) -> str:
    """Return why a job waits and when it may start, in words for a list; empty where Slurm does not say."""
    job = read_job(folder)
    if job is None:
        return ""
    begins = "" if job.begins in {"", "N/A"} else f"may start {job.begins.replace('T', ' ')}"
    reason = "" if job.reason in {"", "None"} else f"waits: {job.reason}"
    return visible(
        ", ".join(filter(None, (f"job {job.number or '(number not known)'}", slurm_end_reason(folder), reason, begins)))
    )


def start_count(folder: Path) -> int:
    """Return how often a run was started, as far as that is known here."""
    return _start_history(folder)[0]


def refresh_jobs(runs: Iterable[RunDir], *, with_logs: bool = True) -> None:
    """Ask squeue, once a cluster, for the jobs of runs that may be in the queue, and keep what it says.

    `with_logs`: what a job on a host wrote is taken as well. Unavailable where one gives no answer; the others are
    kept then, too.
    """
    asked: dict[tuple[str, str], list[tuple[RunDir, SlurmJob]]] = {}
    for run in runs:
        if (job := read_job(run.path)) and job.state:
            asked.setdefault((slurm_host(run.path), job.cluster), []).append((run, job))
    failed: list[Unavailable] = []
    restarted: list[RunDir] = []
    for (host, cluster), jobs in asked.items():
        try:
            rows = _squeue_rows(host, cluster, [job.number for _, job in jobs])
        except Unavailable as error:
            failed.append(error)
            continue
        for run, job in jobs:
            try:
                restarted += (
                    [run] if _update_job(run, job, _find_job_in_rows(run, job, rows), with_logs=with_logs) else []
                )
            except Unavailable as error:
                failed.append(error)
    if failed:
        raise failed[0]
    if restarted:
        refresh_jobs(restarted, with_logs=with_logs)


def _update_job(run: RunDir, job: SlurmJob, listed_job: SlurmJob, *, with_logs: bool) -> bool:
    """Keep a job as it is listed now; return whether it was queued again since its host was heard last.

    `with_logs`: of one on a host that does not just wait, what it wrote is taken first: it has not left the queue
    before its end is known here.
    """
    begun, place = start_count(run.path), read_place(run.path)
    if place and with_logs and {job.state, listed_job.state} != {"PENDING"}:
        answered, why, done = receive_from_host(run, place, within_seconds=UPDATE_TIMEOUT_SECONDS)
        # A host that answers but has no such folder any more will never say how it ended.
        if not done and (listed_job.state or not answered):
            raise Unavailable(f"{visible(run.name)} on {place.host}: {why}", f"Check `ssh {place.host} true`.")
    if listed_job != job:
        write_job(run, listed_job)
    return listed_job.state == "PENDING" and start_count(run.path) != begun


def _squeue_rows(host: str, cluster: str, numbers: Sequence[str]) -> list[list[str]]:
    """Return what squeue says of jobs, a row each; of all jobs of the user where one has no number yet."""
    user = "{user}" if host else str(os.getuid())
    which = f"--jobs={','.join(sorted(set(numbers)))}" if all(numbers) else f"--user={user}"
    done = run_slurm_command(("squeue", *cluster_option(cluster), "-h", which, "-o", _SQUEUE_FORMAT), host=host)
    # Of a single job that is long gone it says that there is none.
    if done.returncode and "Invalid job id" not in done.stderr:
        raise Unavailable(f"squeue: {last_output_line(done.stderr)}", "Check `squeue`.")
    return [line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") > 3]


def _find_job_in_rows(run: RunDir, job: SlurmJob, rows: Sequence[list[str]]) -> SlurmJob:
    """Return a run's job as squeue lists it now."""
    place = read_place(run.path)
    folder = place.folder if place else os.path.realpath(run.path)
    for number, state, reason, begins, submitted_in in rows:
        # Numbers come again, and a folder may be a copy: whose job it is, its folder says.
        its_own = (submitted_in if place else os.path.realpath(submitted_in)) == folder
        if its_own and number.isdigit() and job.number in {"", number} and state not in _ENDED_JOB_STATES:
            begun = start_count(run.path) if state == "PENDING" else job.starts
            now = SlurmJob(number=number, starts=begun, state=state, reason=reason, begins=begins)
            return msgspec.structs.replace(now, cluster=job.cluster)
    return SlurmJob(number=job.number, starts=job.starts, cluster=job.cluster, state="")


def wait_while_completing(run: RunDir) -> SlurmJob | None:
    """Ask squeue for the job of a run that Slurm still has, None where it has none; Unavailable without an answer.

    One that is completing gets some seconds to leave, unless it is queued again.
    """
    deadline = time.monotonic() + _COMPLETING_SECONDS
    while True:
        refresh_jobs([run])
        job = _queued_job(run)
        if job is None or job.state != "COMPLETING" or time.monotonic() > deadline:
            return job
        time.sleep(0.5)


def is_in_queue(run_folder: Path) -> bool:
    """Return whether Slurm still had the job of a run folder when it was asked last."""
    job = read_job(run_folder)
    return job is not None and job.state != ""


def _queued_job(run: RunDir) -> SlurmJob | None:
    job = read_job(run.path)
    return job if job and job.state else None


def stop_job(run: RunDir, *, at_once: bool, grace_seconds: float, while_waiting: Callable[[], None]) -> None:
    """Take a run's job out of the queue, or have its training save and end, and wait until the job has ended."""
    refresh_jobs([run], with_logs=False)
    job = _queued_job(run)
    if job is None:
        return
    _cancel_untrained_job(run, job)
    cancelled_state = job.state
    # Only the script hears of it.
    call_scancel(run, job, "--batch", f"--signal={'USR1' if at_once else 'TERM'}")
    for seconds in (
        (_END_WAIT_SECONDS if at_once else grace_seconds + _END_WAIT_SECONDS),
        grace_seconds + 2 * _END_WAIT_SECONDS,
    ):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while_waiting()
            with suppress(Unavailable):
                refresh_jobs([run], with_logs=False)
            job = _queued_job(run)
            if job is None:
                return
            # It may be queued again meanwhile: after its time limit, a preemption, or the end of a node.
            if job.state != cancelled_state:
                _cancel_untrained_job(run, job)
                cancelled_state = job.state
            time.sleep(0.5)
        if job.state == "COMPLETING":
            return
        call_scancel(run, job)
    there = f"ssh {host} " if (host := slurm_host(run.path)) else ""
    raise Unavailable(f"job {job.number} has not ended", f"Look at it: {there}scontrol show job {job.number}")


def _cancel_untrained_job(run: RunDir, job: SlurmJob) -> None:
    """Cancel a job that does not train: one that waits, whose nodes boot, or that may be queued again as it ends."""
    if job.state == "PENDING":
        # Its state may have changed meanwhile: one that trains is to save first.
        call_scancel(run, job, "--state=PENDING")
    elif job.state in {"CONFIGURING", "COMPLETING"}:
        call_scancel(run, job)


def call_scancel(run: RunDir, job: SlurmJob, *options: str) -> subprocess.CompletedProcess[str]:
    """Call scancel for a run's job where that was submitted."""
    return run_slurm_command(("scancel", *cluster_option(job.cluster), *options, job.number), host=slurm_host(run.path))


def write_job(run: RunDir, job: SlurmJob) -> None:
    """Write a run's job into its folder."""
    with reporting_write_errors(run.path / JOB_FILE):
        write_atomically(run.path / JOB_FILE, msgspec.json.encode(job))
