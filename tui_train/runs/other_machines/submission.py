"""Submits a run's job to Slurm, here or on a host, and waits until Slurm has considered it."""

import os
import time
from contextlib import suppress

import msgspec

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.text import visible
from tui_train.plan.render.slurm import SCRIPT_NAME as SCRIPT
from tui_train.runs.other_machines.place import read_place
from tui_train.runs.other_machines.queue import (
    CLUSTER_PATTERN,
    SlurmJob,
    call_scancel,
    read_job,
    refresh_jobs,
    slurm_host,
    start_count,
    write_job,
)
from tui_train.runs.other_machines.slurm_commands import last_output_line, run_slurm_command
from tui_train.runs.other_machines.slurm_end import JOB_FILE
from tui_train.runs.rundir import RunDir

# Seconds in which the scheduler looks at a new job, and the reasons before it has.
_DECISION_SECONDS = 4.0
_UNDECIDED_REASONS = frozenset({"", "None", "PartitionConfig"})
# Why a job waits that nothing but its user ends.
_IMPOSSIBLE_REASONS = frozenset({
    "PartitionTimeLimit", "PartitionNodeLimit", "AssocMaxWallDurationPerJobLimit", "QOSMaxWallDurationPerJobLimit",
    "InvalidAccount", "InvalidQOS", "BadConstraints",
})  # fmt: skip


def dry_run_job(script: str, host: str = "") -> str:
    """Return what `sbatch --test-only` says of a job that Slurm would take; Unavailable where it refuses it."""
    done = run_slurm_command(("sbatch", "--test-only"), host=host, stdin_data=script)
    answer_line = last_output_line(done.stderr).removeprefix("sbatch: ")
    if done.returncode:
        remedy = "Change nodes.count, hardware.gpus or the keys of `tui-train keys slurm`; `sinfo` lists what there is."
        raise Unavailable(f"Slurm refuses the job: {answer_line}", remedy)
    return answer_line


def submit_job(run: RunDir) -> SlurmJob:
    """Submit a run's slurm.sh and return its job; Unavailable where Slurm refuses it, or would never start it.

    Where sbatch gives no answer the job may be queued: the run has a job then, without a number until squeue says it.
    """
    before = read_job(run.path)
    # Written first: whatever happens from here on, the folder of a job that Slurm took is known to have one.
    write_job(run, SlurmJob(number="", starts=start_count(run.path), cluster=_only_cluster_in_environment(run)))
    try:
        number, cluster = _call_sbatch(run)
    except NoAnswer as error:
        with suppress(Unavailable):
            refresh_jobs([run])
        job = read_job(run.path)
        if job is None or not job.number:
            # What squeue does not list yet may still come.
            write_job(run, SlurmJob(number="", starts=start_count(run.path), cluster=_only_cluster_in_environment(run)))
            raise Unavailable(f"{error.message}: the job may be queued", "See what it became: tui-train runs") from None
    except Unavailable:
        _restore_job(run, before)
        raise
    else:
        write_job(run, SlurmJob(number=number, starts=start_count(run.path), cluster=cluster))
    job = _wait_for_decision(run)
    if job.state == "PENDING" and job.reason in _IMPOSSIBLE_REASONS:
        if not call_scancel(run, job).returncode:
            write_job(run, msgspec.structs.replace(job, state=""))
        remedy = "Change the keys of `tui-train keys slurm`; `scontrol show partition` lists the limits."
        raise Unavailable(f"Slurm would never start the job: {visible(job.reason)}", remedy)
    return job


def _call_sbatch(run: RunDir) -> tuple[str, str]:
    """Return the number and the cluster of a submitted job; Unavailable where it was refused."""
    if place := read_place(run.path):
        # squeue gives the folder as it is written here, whatever the links there.
        words = ("sbatch", "--parsable", f"--chdir={place.folder}", SCRIPT)
        done = run_slurm_command(words, host=place.host, folder=place.folder)
    else:
        done = run_slurm_command(("sbatch", "--parsable", SCRIPT), folder=str(run.path))
    number, _, cluster = (done.stdout.strip().splitlines() or [""])[-1].partition(";")
    if not done.returncode and number.isdigit():
        return number, cluster
    said = last_output_line(done.stderr)
    if not done.returncode or "timed out" in said.lower():
        # A program around sbatch may print no number: Slurm has taken the job all the same.
        raise NoAnswer(f"sbatch: {said}", "Check `scontrol ping`.")
    raise Unavailable(f"Slurm refuses the job: {said}", "Fix that, then start again.")


def _only_cluster_in_environment(run: RunDir) -> str:
    """Return the one cluster that the user's variables name, empty for none or several, and on a host."""
    if slurm_host(run.path):
        return ""
    chosen = os.environ.get("SBATCH_CLUSTERS") or os.environ.get("SLURM_CLUSTERS") or ""
    return chosen if CLUSTER_PATTERN.fullmatch(chosen) and chosen != "all" else ""


def _restore_job(run: RunDir, earlier_job: SlurmJob | None) -> None:
    if earlier_job:
        write_job(run, earlier_job)
    else:
        (run.path / JOB_FILE).unlink(missing_ok=True)


def _wait_for_decision(run: RunDir) -> SlurmJob:
    """Return a job that was just submitted, once the scheduler has said why it waits, or soon after."""
    deadline = time.monotonic() + _DECISION_SECONDS
    while True:
        answers = True
        try:
            refresh_jobs([run])
        except Unavailable:
            # It is in the queue all the same.
            answers = False
        job = read_job(run.path)
        assert job is not None, "it was just written"  # noqa: S101 - for the type
        decided = job.state != "PENDING" or job.reason not in _UNDECIDED_REASONS
        if not answers or decided or time.monotonic() > deadline:
            return job
        time.sleep(0.2)
