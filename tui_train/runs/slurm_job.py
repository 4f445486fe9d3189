"""The Slurm job of a run, as last reported: its state, why it waits, and why Slurm ended it."""

import re
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from tui_train.base.text import visible
from tui_train.runner.detached_start import LAUNCH_LOG_NAME
from tui_train.runner.questions.answer_lines import TIME_LIMIT_FILE_NAME
from tui_train.runner.run_folder import events
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.system.safe_open import read_bounded
from tui_train.runs.remote_run import (
    read_host_report,
    read_remote_location,
    read_run_location,
    read_struct_file,
    write_struct_file,
)

SLURM_LABEL = "Slurm"
SLURM_JOB_FILE_NAME = "slurm.json"
_LAUNCHER_LOG_TAIL_BYTES = 64 << 10  # bytes at the end of the log
_SLURM_END_LINE_PATTERN = re.compile(
    rb"^slurmstepd\S*: error: \*\*\* (?:JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ DUE TO ([A-Z ]+)", re.MULTILINE
)
_FAILED_NODE_LINE_PATTERN = re.compile(rb"^srun: error: Node failure on (\S+)", re.MULTILINE)
_START_AND_END_EVENTS = frozenset({"run_started", "run_ended"})
# By these Slurm itself ends a job; of a failure the log tells more.
_ENDED_BY_SLURM_STATES = frozenset({"BOOT_FAIL", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"})
_CANCELLED_EXIT_CODE = 143
_MAX_CANCELLED_BY_LENGTH = 60
_FIRST_NODE_LINE_PATTERN = re.compile(rb"^\S+ slurm\.sh: job (\S+) on \S+, first (\S+)$", re.MULTILINE)
_ATTEMPT_LINE_PATTERN = re.compile(rb"^\S+ launch\.sh: attempt ", re.MULTILINE)


class KnownJob(Struct, frozen=True, kw_only=True):
    """A run's job as squeue said last: `state` is its word (empty: it has left the queue), `begins` its expected start.

    `ended` is Slurm's word for how it left the queue, such as `CANCELLED by alice`, empty where that is not known.

    `starts` is how often the run had been started when the job was waiting. `number` is empty where an earlier version
    did not hear it, `cluster` where the job is in the default one.
    """

    number: Annotated[str, Meta(pattern=r"^[0-9]{0,18}$")]
    starts: int
    cluster: Annotated[str, Meta(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})?$")] = ""
    state: str = "PENDING"
    reason: str = ""
    begins: str = ""
    ended: str = ""


def read_known_job(run_folder: Path) -> KnownJob | None:
    """Return the job of a run folder, None where Slurm has nothing to do with it."""
    return read_struct_file(run_folder / SLURM_JOB_FILE_NAME, KnownJob)


def write_known_job(run_folder: Path, job: KnownJob) -> None:
    """Write a run's job into its folder."""
    write_struct_file(run_folder / SLURM_JOB_FILE_NAME, job)


def read_queued_job(run_folder: Path) -> KnownJob | None:
    """Return the job of a run folder where Slurm still had it when it was asked last, else None."""
    job = read_known_job(run_folder)
    return job if job and job.state else None


def slurm_host_text(host: str) -> str:
    """Return the cluster of this machine, or of a host, in words."""
    return f"{host} ({SLURM_LABEL})" if host else SLURM_LABEL


def status_in_queue(folder: Path) -> RunStatus | None:
    """Return the state of a run whose job waits, or has not started it yet; None for any other."""
    job = read_queued_job(folder)
    if job is None:
        return None
    # Near its time limit it has saved, and is about to be queued again.
    begun, again = _start_count_and_if_near_limit(folder)
    waits = job.state != "COMPLETING" and begun == job.starts
    return RunStatus("queued", host=slurm_host_text(read_run_location(folder).host)) if waits or again else None


def _start_count_and_if_near_limit(folder: Path) -> tuple[int, bool]:
    """Return how often a run was started, and whether its last start was ended near the time limit."""
    place = read_remote_location(folder)
    if place and not place.shared:
        last = read_host_report(folder)
        return (last.starts, last.limit and last.status.state == "stopped") if last else (0, False)
    logged = [event for event in events.read_events(str(folder)) if event.event in _START_AND_END_EVENTS]
    limited = bool(logged) and logged[-1].state == "stopped" and (folder / TIME_LIMIT_FILE_NAME).exists()
    return sum(event.event == "run_started" for event in logged), limited


def known_start_count(folder: Path) -> int:
    """Return how often a run was started, as far as that is known here."""
    return _start_count_and_if_near_limit(folder)[0]


def queue_reason_text(folder: Path) -> str:
    """Return why a job waits and when it may start, in words for a list; empty where Slurm does not say."""
    job = read_known_job(folder)
    if job is None:
        return ""
    begins = "" if job.begins in {"", "N/A"} else f"may start {job.begins.replace('T', ' ')}"
    reason = "" if job.reason in {"", "None"} else f"waits: {job.reason}"
    return visible(
        ", ".join(filter(None, (f"job {job.number or '(number not known)'}", slurm_end_reason(folder), reason, begins)))
    )


def status_if_cancelled_in_queue(folder: Path) -> RunStatus | None:
    """Return the state of a run whose job was cancelled before it had ever started; None for any other."""
    job = read_known_job(folder)
    if job is None or job.state or not job.ended.startswith("CANCELLED") or known_start_count(folder):
        return None
    return RunStatus("stopped", exit_code=_CANCELLED_EXIT_CODE, host=slurm_host_text(read_run_location(folder).host))


def slurm_end_reason(run_folder: Path) -> str:
    """Return why Slurm ended the last start of a run's job, and on which node; empty where it did not."""
    if not (run_folder / SLURM_JOB_FILE_NAME).exists():
        return ""
    if why := _node_end_reason(run_folder):
        return why
    job = read_known_job(run_folder)
    if job is None:
        return ""
    if node := _node_lost_before_writing_end(run_folder, job):
        return f"its node {node} was lost"
    if not job.state and job.ended.startswith("CANCELLED"):
        waited = " while it waited" if job.starts == known_start_count(run_folder) else ""
        by = job.ended.removeprefix("CANCELLED")[:_MAX_CANCELLED_BY_LENGTH]
        return visible(f"job {job.number} was cancelled{by}{waited}")
    words = job.ended.lower().replace("_", " ")
    return f"Slurm ended job {job.number}: {words}" if job.ended in _ENDED_BY_SLURM_STATES else ""


def _node_end_reason(run_folder: Path) -> str:
    text = _tail_of_log(run_folder / LAUNCH_LOG_NAME)
    ends, begins = [*_SLURM_END_LINE_PATTERN.finditer(text)], [*_ATTEMPT_LINE_PATTERN.finditer(text)]
    if not ends or (begins and begins[-1].start() > ends[-1].start()):
        return ""
    node, why = (part.decode("ascii", "replace").strip() for part in ends[-1].groups())
    # The line names the node that wrote it, the first one; which one failed, srun says.
    since = text[begins[-1].start() :] if begins else text
    failed = dict.fromkeys(_FAILED_NODE_LINE_PATTERN.findall(since + b"\n" + _newest_attempt_tail(run_folder)))
    if failed and "NODE FAIL" in why:
        node = ", ".join(name.decode("ascii", "replace") for name in failed)
    return visible(f"Slurm ended it on {node}: {why.lower()}")


def _node_lost_before_writing_end(run_folder: Path, job: KnownJob) -> str:
    """Return the first node of a job, where it was lost with all that would have written the end of its last start."""
    again = job.state == "PENDING" and 0 < job.starts == known_start_count(run_folder)
    if not again and job.ended != "NODE_FAIL":
        return ""
    logged = [event.event for event in events.read_events(str(run_folder)) if event.event in _START_AND_END_EVENTS]
    text = _tail_of_log(run_folder / LAUNCH_LOG_NAME)
    begins = _FIRST_NODE_LINE_PATTERN.findall(text)
    # A new job, of a run that is resumed, says nothing of how the one before it has ended.
    if not begins or begins[-1][0] != job.number.encode() or logged[-1:] != ["run_started"]:
        return ""
    return visible(begins[-1][1].decode("ascii", "replace"))


def _newest_attempt_tail(run_folder: Path) -> bytes:
    logs = sorted(run_folder.glob("attempt-*.log"), key=lambda path: (len(path.name), path.name))
    return _tail_of_log(logs[-1]) if logs else b""


def _tail_of_log(log: Path) -> bytes:
    try:
        return read_bounded(log, _LAUNCHER_LOG_TAIL_BYTES, from_end=True)
    except OSError:
        return b""
