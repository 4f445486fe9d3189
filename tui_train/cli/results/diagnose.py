"""`tui-train diagnose`: prints why a run failed."""

import shlex
import sys
import textwrap
import time
from typing import Any

import click
import msgspec

from tui_train.base.text import size_text, visible
from tui_train.cli.printing import clear_progress_line, print_json, print_progress
from tui_train.diagnose.log_reader import LogReadObserver
from tui_train.diagnose.run_diagnosis import diagnose_log_or_run
from tui_train.diagnose.types import FIRST_UNKNOWN_LINE_NUMBER, Diagnosis, failure_heading
from tui_train.profile.changes import Change
from tui_train.profile.fields import FieldValue
from tui_train.runner.logs.memory_patterns import TEXT_BY_MEMORY_PHASE
from tui_train.runs.follow import LogSilence
from tui_train.runs.health import STANDSTILL_MINUTES
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import slurm_end_reason
from tui_train.runs.status import read_status
from tui_train.views import plain_text

_TEXT_BY_RUN_STATE = {
    "new": "the run has not started",
    "queued": "the run waits in Slurm's queue",
    "waiting": "the run waits for its GPUs or CPU cores",
    "unconfirmed": "whether the run has started is not known",
    "running": "the run is training",
    "stopping": "the run is stopping",
    "finished": "the run finished",
    "stopped": "the run was stopped",
}


class DiagnosisAnswer(Diagnosis, frozen=True, kw_only=True, rename={"failure": "class"}):
    """A diagnosis, with the edits that may help; all null where nothing failed."""

    failure: str | None  # type: ignore[assignment]
    line: str | None  # type: ignore[assignment]
    line_number: int | None  # type: ignore[assignment]
    host: str | None  # type: ignore[assignment]
    cause: str | None  # type: ignore[assignment]
    remedy: str | None  # type: ignore[assignment]
    change: dict[str, FieldValue] | None = None  # type: ignore[assignment]


def print_diagnosis(reference: str, exit_code: int | None, *, as_json: bool) -> None:
    """Print why a log's training, or a run's last attempt, failed."""
    progress = LogReadProgressPrinter()
    name, run, diagnosis = diagnose_log_or_run(reference, exit_code, progress)
    progress.finish()
    if as_json:
        print_json(_diagnosis_data(diagnosis))
    else:
        click.echo(diagnosis_text(diagnosis, run) if diagnosis else _no_failure_text(name, run))
    if progress.stopped:
        sys.exit(130)


class LogReadProgressPrinter(LogReadObserver):
    """Prints the diagnosis of a large log's end and the progress of reading to stderr, on one line of a terminal."""

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._every = 0.5 if sys.stderr.isatty() else 5.0
        self._next = time.monotonic() + 1.0
        self._shown = ""

    def note_early_diagnosis(self, diagnosis: Diagnosis | None) -> None:
        """Print the diagnosis of the end."""
        shown = f"{failure_heading(diagnosis.failure)}: {diagnosis.cause}" if diagnosis else "no failure"
        click.echo(f"The log's end shows {shown}\nReading the rest; Ctrl-C stops it …", err=True)

    def note_bytes_read(self, read_bytes: int, total_bytes: int) -> None:
        """Print how much was read, now and then."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._every
        self._shown = (
            f"read {100 * read_bytes // total_bytes} % of {size_text(total_bytes)}"
            if total_bytes
            else f"read {size_text(read_bytes)}"
        )
        print_progress(self._shown)

    def finish(self) -> None:
        """End the line of progress, or print that not all was read."""
        if self._shown:
            clear_progress_line()
        if self.stopped:
            click.echo(f"Stopped: {self._shown or 'a part was read'}, and its end.", err=True)


def _no_failure_text(name: str, run: RunFolder | None) -> str:
    """Return the text for a log without a failure, and a run's earlier attempts that ran out of memory."""
    status = read_status(run) if run else None
    state = f"; {_TEXT_BY_RUN_STATE[status.state]}" if status and status.state in _TEXT_BY_RUN_STATE else ""
    if run and status and status.trains_unsupervised:
        state = f"; its supervisor was killed, and it trains on alone: `tui-train stop {visible(run.name)}` ends it"
    if run and status and status.is_live and status.attempts and not status.never_had_turn:
        minutes = LogSilence(run.attempt_log(status.attempts[-1].number), status.attempts[-1].started).minutes()
        state += f"; no output for {minutes} min" if minutes >= STANDSTILL_MINUTES else ""
    if run and status and not status.is_live and (why := slurm_end_reason(run.path)):
        state += f" ({why})"
    out_of_memory = [
        f"attempt {attempt.number} ran out of GPU memory {TEXT_BY_MEMORY_PHASE.get(attempt.phase, '')}".rstrip()
        for attempt in (status.attempts if status else ())
        if attempt.out_of_memory
    ]
    return "\n".join([f"{name}: no failure was found{state}.", *out_of_memory])


def _diagnosis_data(diagnosis: Diagnosis | None) -> dict[str, Any]:
    """Return a diagnosis as data for JSON; `class` is null where nothing failed."""
    if diagnosis is None:
        empty = dict.fromkeys(("class", "line", "line_number", "rank", "host", "cause", "remedy", "change"))
        return {**empty, "evidence": []}
    table = msgspec.to_builtins(diagnosis)
    table = {"class": table.pop("failure"), **table}
    table["line_number"] = diagnosis.line_number if diagnosis.line_number < FIRST_UNKNOWN_LINE_NUMBER else None
    table["change"] = dict(diagnosis.change.edits) if diagnosis.change else None
    return table


def diagnosis_text(diagnosis: Diagnosis, run: RunFolder | None = None) -> str:
    """Return a diagnosis in a few lines of at most 80 columns, and the command that tries its change on a run."""
    rank = f"rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    host = "" if run and run.plan().get("nodes", 1) == 1 else diagnosis.host
    where = " of ".join(filter(None, (rank, host)))
    line = f"{diagnosis.position_text}: {diagnosis.line}" if diagnosis.position_text else ""
    rows = [
        ("failed", failure_heading(diagnosis.failure) + (f", first on {where}" if where else "")),
        ("shown by", line),
        ("cause", diagnosis.cause),
        ("do", diagnosis.remedy),
        ("change", f"{diagnosis.change.title} ({diagnosis.change.why})" if diagnosis.change else ""),
        ("Slurm", slurm_end_reason(run.path) if run else ""),
        ("also", "; ".join(diagnosis.evidence)),
    ]
    lines = [
        textwrap.fill(text, 80, initial_indent=f"{label:<9} ", subsequent_indent=" " * 10, break_on_hyphens=False)
        for label, text in rows
        if text
    ]
    width = len(str(diagnosis.source[-1][0])) if diagnosis.source else 0
    for number, code in diagnosis.source:
        lines.append(f"{'':<9}{'>' if number == diagnosis.source_line else ' '}{number:>{width}}  {code}"[:80])
    if run and diagnosis.change and (command := retry_command(run, diagnosis.change)):
        # On one line, so that it can be copied.
        lines.append(f"try it    {command}")
    return "\n".join(lines)


def retry_command(run: RunFolder, change: Change) -> str:
    """Return the command that starts a run's profile with a change, empty where a value may be a secret."""
    options = plain_text.command_line_options_of_change(change)
    return f"tui-train run {visible(shlex.quote(str(run.profile_file)))} {options}" if options else ""
