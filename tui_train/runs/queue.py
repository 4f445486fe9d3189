"""Runs in Slurm's queue: the job of each, what squeue said of it last, and what is asked of Slurm."""

import os
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from tui_train.base.errors import Unavailable
from tui_train.base.files import read_regular, write_beside, writing
from tui_train.base.text import visible
from tui_train.render.slurm import LIMIT
from tui_train.render.slurm import NAME as SCRIPT
from tui_train.runs.rundir import RunDir
from tui_train.supervisor import events
from tui_train.supervisor.state import Status

JOB = "slurm.json"
WHERE = "Slurm"
_MOST = 1 << 16
_PATIENCE = 30.0
_FIELDS = "%i|%T|%r|%S|%Z"
# Seconds in which the scheduler looks at a new job, and the reasons before it has.
_CONSIDERS = 4.0
_UNDECIDED = frozenset({"", "None", "PartitionConfig"})
# Why a job waits that nothing but its user ends.
_NEVER = frozenset({
    "PartitionTimeLimit", "PartitionNodeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "InvalidAccount", "InvalidQOS", "BadConstraints",
})  # fmt: skip


class Job(Struct, frozen=True, kw_only=True):
    """A run's job as squeue said last: `state` is its word (empty: it has left the queue), `begins` its expected start.

    `starts` is how often the run had been started when the job was waiting.
    """

    number: Annotated[str, Meta(pattern=r"^[0-9]{1,18}$")]
    starts: int
    state: str = "PENDING"
    reason: str = ""
    begins: str = ""


def job_of(folder: Path) -> Job | None:
    """Return the job of a run folder, None where Slurm has nothing to do with it."""
    try:
        return msgspec.json.decode(read_regular(folder / JOB, _MOST), type=Job)
    except (OSError, msgspec.MsgspecError):
        return None


def status_in_queue(folder: Path) -> Status | None:
    """Return the state of a run whose job waits, or has not started it yet; None for any other."""
    job = job_of(folder)
    if job is None or not job.state:
        return None
    logged = events.read(str(folder))
    starts = [event for event in logged if event.event in {"run_started", "run_ended"}]
    # Near its time limit it has saved, and is about to be queued again.
    again = bool(starts) and starts[-1].state == "stopped" and (folder / LIMIT).exists()
    waits = job.state != "COMPLETING" and sum(event.event == "run_started" for event in starts) == job.starts
    return Status("queued", host=WHERE) if waits or again else None


def words(folder: Path) -> str:
    """Return why a job waits and when it may start, in words for a list; empty where Slurm does not say."""
    job = job_of(folder)
    if job is None:
        return ""
    begins = "" if job.begins in {"", "N/A"} else f"may start {job.begins.replace('T', ' ')}"
    reason = "" if job.reason in {"", "None"} else f"waits: {job.reason}"
    return visible(", ".join(filter(None, (f"job {job.number}", reason, begins))))


def _starts(folder: Path) -> int:
    return sum(event.event == "run_started" for event in events.read(str(folder)))


def try_out(script: str) -> str:
    """Return what `sbatch --test-only` says of a job that Slurm would take; Unavailable where it refuses it."""
    done = _run(("sbatch", "--test-only"), given=script)
    said = visible(_last(done.stderr).removeprefix("sbatch: "))
    if done.returncode:
        remedy = "Change nodes.count, hardware.gpus or the keys of `tui-train keys slurm`; `sinfo` lists what there is."
        raise Unavailable(f"Slurm refuses the job: {said}", remedy)
    return said


def submit(run: RunDir) -> Job:
    """Submit a run's slurm.sh and return its job; Unavailable where Slurm refuses it, or would never start it."""
    starts = _starts(run.path)
    done = _run(("sbatch", "--parsable", SCRIPT), folder=run.path)
    number = done.stdout.strip().partition(";")[0]
    if done.returncode or not number.isdigit():
        raise Unavailable(f"Slurm refuses the job: {visible(_last(done.stderr))}", "Fix that, then start again.")
    _keep(run, Job(number=number, starts=starts))
    job = _considered(run)
    if job.state == "PENDING" and job.reason in _NEVER:
        _run(("scancel", number))
        _keep(run, msgspec.structs.replace(job, state=""))
        remedy = "Change the keys of `tui-train keys slurm`; `scontrol show partition` lists the limits."
        raise Unavailable(f"Slurm would never start the job: {visible(job.reason)}", remedy)
    return job


def _considered(run: RunDir) -> Job:
    """Return a job that was just submitted, once the scheduler has said why it waits, or soon after."""
    deadline = time.monotonic() + _CONSIDERS
    while True:
        refresh([run])
        job = job_of(run.path)
        assert job is not None, "it was just written"  # noqa: S101 - for the type
        if job.state != "PENDING" or job.reason not in _UNDECIDED or time.monotonic() > deadline:
            return job
        time.sleep(0.2)


def refresh(runs: Iterable[RunDir]) -> None:
    """Ask squeue for the jobs of runs that may be in the queue, and keep what it says; Unavailable without one."""
    jobs = {job.number: (run, job) for run in runs if (job := job_of(run.path)) and job.state}
    if not jobs:
        return
    done = _run(("squeue", "-h", f"--jobs={','.join(jobs)}", "-o", _FIELDS))
    # Of a single job that is long gone it says that there is none.
    if done.returncode and "Invalid job id" not in done.stderr:
        raise Unavailable(f"squeue: {visible(_last(done.stderr))}", "Check `squeue`.")
    said = {line.partition("|")[0]: line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") > 3}
    for number, (run, job) in jobs.items():
        _, state, reason, begins, folder = said.get(number, (number, "", "", "", ""))
        # Numbers come again, and a folder may be a copy: whose job it is, its folder says.
        state = state if os.path.realpath(folder) == os.path.realpath(run.path) else ""
        starts = _starts(run.path) if state == "PENDING" else job.starts
        now = Job(number=number, starts=starts, state=state, reason=reason, begins=begins)
        if now != job:
            _keep(run, now)


def stop(run: RunDir, *, at_once: bool, grace: float, waiting: Callable[[], None]) -> None:
    """Take a run's job out of the queue, or have its training save and end, and wait until the job has ended."""
    refresh([run])
    job = job_of(run.path)
    if job is None or not job.state:
        return
    # Each only where the job is in that state, which may change meanwhile; only the script hears of the second.
    _run(("scancel", "--state=PENDING", job.number))
    _run(("scancel", "--batch", f"--signal={'USR1' if at_once else 'TERM'}", job.number))
    for seconds in ((_PATIENCE if at_once else grace + _PATIENCE), grace + 2 * _PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            waiting()
            refresh([run])
            job = job_of(run.path)
            if job is None or job.state in {"", "COMPLETING"}:
                return
            time.sleep(0.5)
        _run(("scancel", job.number))
    raise Unavailable(f"job {job.number} has not ended", f"Look at it: scontrol show job {job.number}")


def _keep(run: RunDir, job: Job) -> None:
    with writing(run.path / JOB):
        write_beside(run.path / JOB, msgspec.json.encode(job))


def _run(words: Sequence[str], *, given: str = "", folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Return what a command of Slurm answers; Unavailable where it is missing or takes too long."""
    try:
        return subprocess.run(
            words, input=given, cwd=folder, capture_output=True, text=True, errors="replace", timeout=_PATIENCE,
            check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{words[0]} gave no answer in {_PATIENCE:.0f} s", "Check `scontrol ping`.") from None
    except OSError as error:
        remedy = "Run this where jobs are submitted: on a login node of the cluster."
        raise Unavailable(f"{words[0]} cannot be started: {error.strerror}", remedy) from None


def _last(said: str) -> str:
    return (said.strip().splitlines() or ["it does not say why"])[-1][:300]
