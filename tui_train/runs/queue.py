"""Runs in Slurm's queue: the job of each, what squeue said of it last, and what is asked of Slurm."""

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
from tui_train.base.files import read_regular, write_beside, writing
from tui_train.base.text import visible
from tui_train.render.slurm import LIMIT
from tui_train.render.slurm import NAME as SCRIPT
from tui_train.runs.rundir import RunDir
from tui_train.runs.slurm_commands import NoAnswer, answer, at, last_line
from tui_train.runs.slurm_end import JOB, ended_by
from tui_train.supervisor import events
from tui_train.supervisor.state import Status

WHERE = "Slurm"
_MOST = 1 << 16
_CLUSTER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_PATIENCE = 30.0
_FIELDS = "%i|%T|%r|%S|%Z"
# Seconds in which the scheduler looks at a new job, and the reasons before it has.
_CONSIDERS = 4.0
_UNDECIDED = frozenset({"", "None", "PartitionConfig"})
# Those of a job that has ended, which squeue may still list for a while.
_ENDED = frozenset({
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED",
    "TIMEOUT",
})  # fmt: skip
# Seconds in which a job that is completing usually leaves the queue.
_LEAVES = 15.0
# Why a job waits that nothing but its user ends.
_NEVER = frozenset({
    "PartitionTimeLimit", "PartitionNodeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "InvalidAccount", "InvalidQOS", "BadConstraints",
})  # fmt: skip


class Job(Struct, frozen=True, kw_only=True):
    """A run's job as squeue said last: `state` is its word (empty: it has left the queue), `begins` its expected start.

    `starts` is how often the run had been started when the job was waiting. `number` is empty until sbatch has said it,
    `cluster` where the job is in the default one.
    """

    number: Annotated[str, Meta(pattern=r"^[0-9]{0,18}$")]
    starts: int
    cluster: Annotated[str, Meta(pattern=f"^({_CLUSTER.pattern})?$")] = ""
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
    return visible(
        ", ".join(filter(None, (f"job {job.number or '(number not known)'}", ended_by(folder), reason, begins)))
    )


def _starts(folder: Path) -> int:
    return sum(event.event == "run_started" for event in events.read(str(folder)))


def try_out(script: str) -> str:
    """Return what `sbatch --test-only` says of a job that Slurm would take; Unavailable where it refuses it."""
    done = answer(("sbatch", "--test-only"), given=script)
    said = last_line(done.stderr).removeprefix("sbatch: ")
    if done.returncode:
        remedy = "Change nodes.count, hardware.gpus or the keys of `tui-train keys slurm`; `sinfo` lists what there is."
        raise Unavailable(f"Slurm refuses the job: {said}", remedy)
    return said


def submit(run: RunDir) -> Job:
    """Submit a run's slurm.sh and return its job; Unavailable where Slurm refuses it, or would never start it.

    Where sbatch gives no answer the job may be queued: the run has a job then, without a number until squeue says it.
    """
    before = job_of(run.path)
    # Written first: whatever happens from here on, the folder of a job that Slurm took is known to have one.
    _keep(run, Job(number="", starts=_starts(run.path), cluster=_default_cluster()))
    try:
        number, cluster = _submitted(run)
    except NoAnswer as error:
        with suppress(Unavailable):
            refresh([run])
        job = job_of(run.path)
        if job is None or not job.number:
            # What squeue does not list yet may still come.
            _keep(run, Job(number="", starts=_starts(run.path), cluster=_default_cluster()))
            raise Unavailable(f"{error.message}: the job may be queued", "See what it became: tui-train runs") from None
    except Unavailable:
        _put_back(run, before)
        raise
    else:
        _keep(run, Job(number=number, starts=_starts(run.path), cluster=cluster))
    job = _considered(run)
    if job.state == "PENDING" and job.reason in _NEVER:
        if not _scancel(job).returncode:
            _keep(run, msgspec.structs.replace(job, state=""))
        remedy = "Change the keys of `tui-train keys slurm`; `scontrol show partition` lists the limits."
        raise Unavailable(f"Slurm would never start the job: {visible(job.reason)}", remedy)
    return job


def _submitted(run: RunDir) -> tuple[str, str]:
    """Return the number and the cluster of a submitted job; Unavailable where it was refused."""
    done = answer(("sbatch", "--parsable", SCRIPT), folder=run.path)
    number, _, cluster = (done.stdout.strip().splitlines() or [""])[-1].partition(";")
    if not done.returncode and number.isdigit():
        return number, cluster
    said = last_line(done.stderr)
    if "timed out" in said.lower():
        raise NoAnswer(f"sbatch: {said}", "Check `scontrol ping`.")
    raise Unavailable(f"Slurm refuses the job: {said}", "Fix that, then start again.")


def _default_cluster() -> str:
    """Return the one cluster that the user's variables name, empty for none or several."""
    chosen = os.environ.get("SBATCH_CLUSTERS") or os.environ.get("SLURM_CLUSTERS") or ""
    return chosen if _CLUSTER.fullmatch(chosen) and chosen != "all" else ""


def _put_back(run: RunDir, before: Job | None) -> None:
    if before:
        _keep(run, before)
    else:
        (run.path / JOB).unlink(missing_ok=True)


def _considered(run: RunDir) -> Job:
    """Return a job that was just submitted, once the scheduler has said why it waits, or soon after."""
    deadline = time.monotonic() + _CONSIDERS
    while True:
        answers = True
        try:
            refresh([run])
        except Unavailable:
            # It is in the queue all the same.
            answers = False
        job = job_of(run.path)
        assert job is not None, "it was just written"  # noqa: S101 - for the type
        decided = job.state != "PENDING" or job.reason not in _UNDECIDED
        if not answers or decided or time.monotonic() > deadline:
            return job
        time.sleep(0.2)


def refresh(runs: Iterable[RunDir]) -> None:
    """Ask squeue, once a cluster, for the jobs of runs that may be in the queue, and keep what it says.

    Unavailable where it gives no answer.
    """
    asked: dict[str, list[tuple[RunDir, Job]]] = {}
    for run in runs:
        if (job := job_of(run.path)) and job.state:
            asked.setdefault(job.cluster, []).append((run, job))
    for cluster, jobs in asked.items():
        rows = _rows(cluster, [job.number for _, job in jobs])
        for run, job in jobs:
            now = _as_listed(run, job, rows)
            if now != job:
                _keep(run, now)


def _rows(cluster: str, numbers: Sequence[str]) -> list[list[str]]:
    """Return what squeue says of jobs, a row each; of all jobs of the user where one has no number yet."""
    which = f"--jobs={','.join(sorted(set(numbers)))}" if all(numbers) else f"--user={os.getuid()}"
    done = answer(("squeue", *at(cluster), "-h", which, "-o", _FIELDS))
    # Of a single job that is long gone it says that there is none.
    if done.returncode and "Invalid job id" not in done.stderr:
        raise Unavailable(f"squeue: {last_line(done.stderr)}", "Check `squeue`.")
    return [line.split("|", 4) for line in done.stdout.splitlines() if line.count("|") > 3]


def _as_listed(run: RunDir, job: Job, rows: Sequence[list[str]]) -> Job:
    """Return a run's job as squeue lists it now."""
    folder = os.path.realpath(run.path)
    for number, state, reason, begins, submitted_in in rows:
        # Numbers come again, and a folder may be a copy: whose job it is, its folder says.
        ours = number.isdigit() and job.number in {"", number} and os.path.realpath(submitted_in) == folder
        if ours and state not in _ENDED:
            starts = _starts(run.path) if state == "PENDING" else job.starts
            now = Job(number=number, starts=starts, state=state, reason=reason, begins=begins)
            return msgspec.structs.replace(now, cluster=job.cluster)
    return Job(number=job.number, starts=job.starts, cluster=job.cluster, state="")


def held(run: RunDir) -> Job | None:
    """Ask squeue for the job of a run that Slurm still has, None where it has none; Unavailable without an answer.

    One that is completing gets some seconds to leave, unless it is queued again.
    """
    deadline = time.monotonic() + _LEAVES
    while True:
        refresh([run])
        job = _kept(run)
        if job is None or job.state != "COMPLETING" or time.monotonic() > deadline:
            return job
        time.sleep(0.5)


def in_queue(folder: Path) -> bool:
    """Return whether Slurm still had the job of a run folder when it was asked last."""
    job = job_of(folder)
    return job is not None and job.state != ""


def _kept(run: RunDir) -> Job | None:
    job = job_of(run.path)
    return job if job and job.state else None


def stop(run: RunDir, *, at_once: bool, grace: float, waiting: Callable[[], None]) -> None:
    """Take a run's job out of the queue, or have its training save and end, and wait until the job has ended."""
    refresh([run])
    job = _kept(run)
    if job is None:
        return
    _withdraw(job)
    withdrawn = job.state
    # Only the script hears of it.
    _scancel(job, "--batch", f"--signal={'USR1' if at_once else 'TERM'}")
    for seconds in ((_PATIENCE if at_once else grace + _PATIENCE), grace + 2 * _PATIENCE):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            waiting()
            with suppress(Unavailable):
                refresh([run])
            job = _kept(run)
            if job is None:
                return
            # It may be queued again meanwhile: after its time limit, a preemption, or the end of a node.
            if job.state != withdrawn:
                _withdraw(job)
                withdrawn = job.state
            time.sleep(0.5)
        if job.state == "COMPLETING":
            return
        _scancel(job)
    raise Unavailable(f"job {job.number} has not ended", f"Look at it: scontrol show job {job.number}")


def _withdraw(job: Job) -> None:
    """Cancel a job that does not train: one that waits, whose nodes boot, or that may be queued again as it ends."""
    if job.state == "PENDING":
        # Its state may have changed meanwhile: one that trains is to save first.
        _scancel(job, "--state=PENDING")
    elif job.state in {"CONFIGURING", "COMPLETING"}:
        _scancel(job)


def _scancel(job: Job, *options: str) -> subprocess.CompletedProcess[str]:
    return answer(("scancel", *at(job.cluster), *options, job.number))


def _keep(run: RunDir, job: Job) -> None:
    with writing(run.path / JOB):
        write_beside(run.path / JOB, msgspec.json.encode(job))
