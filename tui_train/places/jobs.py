"""Runs that were given to Slurm, here or on a host: what it says of their jobs, and how they are taken back."""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.text import visible
from tui_train.channel.session import machine_name
from tui_train.channel.slurm_commands import CommandResult, run_slurm_command
from tui_train.facts.other_machines.slurm import find_partitions, read_cluster
from tui_train.places.host_questions import ask_machine, unexpected_answer_remedy
from tui_train.places.receive_changes import UPDATE_TIMEOUT_SECONDS, receive_run_changes
from tui_train.places.remote_start import resolve_unconfirmed_start
from tui_train.profile.hosts import host_address
from tui_train.runner.questions.slurm import is_controller_down
from tui_train.runs.remote_run import RunLocation, read_remote_location, read_run_location
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import KnownJob, known_start_count, read_queued_job, write_known_job

_MAX_JOB_END_WAIT_SECONDS = 30.0
# Seconds in which a job that is completing usually leaves the queue.
_MAX_COMPLETING_SECONDS = 15.0
# Seconds in which the scheduler looks at a new job, and the reasons before it has.
_MAX_DECISION_SECONDS = 4.0
_UNDECIDED_REASONS = frozenset({"", "None", "PartitionConfig"})
# Why a job waits that nothing but its user ends.
_IMPOSSIBLE_REASON_PATTERN = re.compile(
    r"Partition(Time|Node)Limit|InvalidAccount|InvalidQOS|BadConstraints"
    r"|(Assoc|QOS)Max\w+Per(Job|Node)(Limit)?|QOSMin\w+"
)
# What lists the limit; the empty text is the beginning of any.
_REASON_PREFIXES_AND_COMMANDS = (
    ("QOS", "sacctmgr show qos"),
    ("Assoc", "sacctmgr show assoc"),
    ("", "scontrol show partition"),
)


def dry_run_job(script_text: str, host: str = "") -> None:
    """Ask `sbatch --test-only` whether Slurm would take a job; Unavailable where it refuses it."""
    done = run_slurm_command(host, ("sbatch", "--test-only"), script_text)
    if is_controller_down(done.error):
        raise NoAnswer(f"the job was not submitted: {done.last_error_text}", controller_remedy(host))
    if done.code and not _waits_for_unavailable_nodes(host, script_text, done.error):
        remedy = "Change nodes.count, hardware.gpus or the keys of `tui-train keys slurm`; `sinfo` lists what there is."
        raise Unavailable(f"Slurm refuses the job: {done.last_error_text.removeprefix('sbatch: ')}", remedy)


def _waits_for_unavailable_nodes(host: str, script_text: str, refusal: str) -> bool:
    """Return whether sbatch may take a job that its test refuses: it waits for nodes that are down or drained."""
    if "not available" not in refusal:
        return False
    names = re.search(r"^#SBATCH --partition=(\S+)$", script_text, re.MULTILINE)
    partitions = find_partitions(read_cluster(host), names[1] if names else "")
    return any(kind.out for partition in partitions for kind in partition.nodes)


def controller_remedy(host: str) -> str:
    """Return what to do where slurmctld does not answer."""
    login = f"ssh {host} " if host else ""
    return f"Try again once `{visible(login)}scontrol ping` says that it is UP; its administrator starts slurmctld."


def cancel_if_impossible(run: RunFolder) -> None:
    """Wait until the scheduler has said why a job that was just submitted waits, or some seconds.

    Unavailable where it would never start, once it is cancelled.
    """
    deadline = time.monotonic() + _MAX_DECISION_SECONDS
    while True:
        answers = True
        try:
            refresh_jobs([run])
        except Unavailable:
            # It is in the queue all the same.
            answers = False
        job = read_queued_job(run.path)
        decided = job is None or job.state != "PENDING" or job.reason not in _UNDECIDED_REASONS
        if not answers or decided or time.monotonic() > deadline:
            break
        time.sleep(0.2)
    if job and job.state == "PENDING" and _IMPOSSIBLE_REASON_PATTERN.fullmatch(job.reason):
        if not call_scancel(run, job).code:
            write_known_job(run.path, msgspec.structs.replace(job, state=""))
        command = next(words for kind, words in _REASON_PREFIXES_AND_COMMANDS if job.reason.startswith(kind))
        remedy = f"Change the keys of `tui-train keys slurm`; `{command}` lists the limits."
        raise Unavailable(f"Slurm would never start the job: {visible(job.reason)}", remedy)


def refresh_jobs(runs: Iterable[RunFolder], *, with_logs: bool = True) -> None:
    """Ask for starts that are not confirmed, and squeue, once a cluster, for jobs in the queue, and keep what is said.

    `with_logs`: what a job on a host wrote is taken as well. Unavailable where one gives no answer; the others are
    kept then, too.
    """
    asked: dict[tuple[str, str], list[tuple[RunFolder, KnownJob]]] = {}
    failed: list[Unavailable] = []
    for run in runs:
        try:
            resolve_unconfirmed_start(run)
        except Unavailable as error:
            failed.append(error)
            continue
        if job := read_queued_job(run.path):
            asked.setdefault((read_run_location(run.path).host, job.cluster), []).append((run, job))
    restarted: list[RunFolder] = []
    for (host, cluster), jobs in asked.items():
        try:
            listed = tuple(_queried_jobs(host, cluster, jobs))
        except Unavailable as error:
            failed.append(error)
            continue
        for run, job, listed_job in listed:
            try:
                restarted += [run] if _update_job_and_check_requeued(run, job, listed_job, with_logs=with_logs) else []
            except Unavailable as error:
                failed.append(error)
    if failed:
        raise failed[0]
    if restarted:
        refresh_jobs(restarted, with_logs=with_logs)


def _update_job_and_check_requeued(run: RunFolder, job: KnownJob, listed_job: KnownJob, *, with_logs: bool) -> bool:
    """Keep a job as it is listed now; return whether it was queued again since its host was heard last.

    `with_logs`: of one on a host that does not just wait, what it wrote is taken first: it has not left the queue
    before its end is known here.
    """
    begun, place = known_start_count(run.path), read_remote_location(run.path)
    if place and with_logs and {job.state, listed_job.state} != {"PENDING"}:
        answered, why = receive_run_changes(run, place, within_seconds=UPDATE_TIMEOUT_SECONDS)
        # A host that answers but has no such folder any more will never say how it ended.
        if why and (listed_job.state or not answered):
            raise Unavailable(f"{visible(run.name)} on {place.host}: {why}", f"Check `ssh {place.host} true`.")
    if listed_job != job:
        write_known_job(run.path, listed_job)
    return listed_job.state == "PENDING" and known_start_count(run.path) != begun


def _queried_jobs(
    host: str, cluster: str, jobs: Sequence[tuple[RunFolder, KnownJob]]
) -> Iterator[tuple[RunFolder, KnownJob, KnownJob]]:
    """Yield each job with its present entry in squeue."""
    asked = [(job.number, read_run_location(run.path).folder) for run, job in jobs]
    question = {"do": "jobs", "cluster": cluster, "jobs": asked}
    try:
        listed = ask_machine(RunLocation(host, ""), question).jobs
    except NoAnswer:
        raise
    except Unavailable as error:
        raise Unavailable(error.message, controller_remedy(host)) from None
    if len(listed) != len(jobs):
        raise NoAnswer(f"{machine_name(host)} sent no state of the jobs", unexpected_answer_remedy(host))
    for (run, job), found in zip(jobs, listed, strict=True):
        now = KnownJob(number=job.number, starts=job.starts, cluster=job.cluster, state="")
        if found and not found.state:
            now = msgspec.structs.replace(now, ended=found.ended)
        elif found:
            begun = known_start_count(run.path) if found.state == "PENDING" else job.starts
            now = msgspec.structs.replace(now, **msgspec.structs.asdict(found), starts=begun)
        yield run, job, now


def wait_while_completing(run: RunFolder) -> KnownJob | None:
    """Ask squeue for the job of a run that Slurm still has, None where it has none; Unavailable without an answer.

    One that is completing gets some seconds to leave, unless it is queued again.
    """
    deadline = time.monotonic() + _MAX_COMPLETING_SECONDS
    while True:
        refresh_jobs([run])
        job = read_queued_job(run.path)
        if job is None or job.state != "COMPLETING" or time.monotonic() > deadline:
            return job
        time.sleep(0.5)


def stop_job(run: RunFolder, *, at_once: bool, grace_seconds: float) -> None:
    """Take a run's job out of the queue, or have its training save and end, and wait until the job has ended."""
    try:
        refresh_jobs([run], with_logs=False)
    except Unavailable as error:
        raise type(error)(f"{visible(run.name)} was not stopped: {error.message}", error.remedy) from None
    job = read_queued_job(run.path)
    if job is None:
        return
    _cancel_if_not_training(run, job)
    cancelled_state = job.state
    # Only the script hears of it.
    _cancel(run, job, "--batch", f"--signal={'USR1' if at_once else 'TERM'}")
    for seconds in (
        (_MAX_JOB_END_WAIT_SECONDS if at_once else grace_seconds + _MAX_JOB_END_WAIT_SECONDS),
        grace_seconds + 2 * _MAX_JOB_END_WAIT_SECONDS,
    ):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(Unavailable):
                refresh_jobs([run], with_logs=False)
            job = read_queued_job(run.path)
            if job is None:
                return
            # It may be queued again meanwhile: after its time limit, a preemption, or the end of a node.
            if job.state != cancelled_state:
                _cancel_if_not_training(run, job)
                cancelled_state = job.state
            time.sleep(0.5)
        if job.state == "COMPLETING":
            return
        call_scancel(run, job)
    there = f"ssh {host} " if (host := read_run_location(run.path).host) else ""
    raise Unavailable(f"job {job.number} has not ended", f"Look at it: {there}scontrol show job {job.number}")


def _cancel_if_not_training(run: RunFolder, job: KnownJob) -> None:
    """Cancel a job that does not train: one that waits, whose nodes boot, or that may be queued again as it ends."""
    if job.state == "PENDING":
        # Its state may have changed meanwhile: one that trains is to save first.
        _cancel(run, job, "--state=PENDING")
    elif job.state in {"CONFIGURING", "COMPLETING"}:
        _cancel(run, job)


def _cancel(run: RunFolder, job: KnownJob, *options: str) -> None:
    """Call scancel; Unavailable where slurmctld does not answer, so that nothing was stopped."""
    done = call_scancel(run, job, *options)
    if done.code is None or is_controller_down(done.error):
        remedy = controller_remedy(read_run_location(run.path).host)
        raise Unavailable(f"job {job.number} was not stopped: {done.last_error_text}", remedy)


def call_scancel(run: RunFolder, job: KnownJob, *options: str) -> CommandResult:
    """Call scancel for a run's job where that was submitted."""
    host, cluster = read_run_location(run.path).host, (f"--clusters={job.cluster}",) if job.cluster else ()
    return run_slurm_command(host_address(host), ("scancel", *cluster, *options, job.number))
