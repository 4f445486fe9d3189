"""What `tui-train diagnose` prints."""

import shlex
import textwrap
from typing import Any

import click
import msgspec

from tui_train.base.text import visible
from tui_train.diagnose.evidence import of_reference
from tui_train.diagnose.types import Diagnosis
from tui_train.profile import fields
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.supervisor.memory_words import WHERE

_STATES = {
    "new": "it has not begun",
    "running": "it trains",
    "stopping": "it is being stopped",
    "finished": "it finished",
    "stopped": "it was stopped",
}


def diagnose(reference: str, exit_code: int | None, *, as_json: bool) -> None:
    """Print why a log's training, or a run's last attempt, failed."""
    name, run, found = of_reference(reference, exit_code)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(data(found)), indent=2).decode("utf-8", "replace"))
    else:
        click.echo(words(found, run) if found else _nothing(name, run))


def _nothing(name: str, run: RunDir | None) -> str:
    """Return in words that nothing failed, and which attempts of a run had to be given up before."""
    now = status(run) if run else None
    state = f"; {_STATES[now.state]}" if now and now.state in _STATES else ""
    given_up = [
        f"attempt {attempt.number} ran out of GPU memory {WHERE.get(attempt.phase, '')}".rstrip()
        for attempt in (now.attempts if now else ())
        if attempt.out_of_memory
    ]
    return "\n".join([f"{name}: no failure was found{state}.", *given_up])


def data(found: Diagnosis | None) -> dict[str, Any]:
    """Return a diagnosis as JSON has it; `class` is null where nothing failed."""
    if found is None:
        empty = dict.fromkeys(("class", "line", "line_number", "rank", "host", "cause", "remedy", "change"))
        return {**empty, "evidence": []}
    told = msgspec.to_builtins(found)
    told = {"class": told.pop("failure"), **told}
    told["change"] = dict(found.change.edits) if found.change else None
    return told


def words(found: Diagnosis, run: RunDir | None = None) -> str:
    """Return a diagnosis in a few lines of at most 80 columns, and the command that tries its change on a run."""
    rank = f"rank {found.rank}" if found.rank is not None else ""
    where = " of ".join(filter(None, (rank, found.host)))
    line = f"line {found.line_number}: {found.line}" if found.line_number else ""
    rows = [
        ("failed", found.failure.replace("_", " ") + (f", first on {where}" if where else "")),
        ("shown by", line),
        ("cause", found.cause),
        ("do", found.remedy),
        ("change", f"{found.change.title} ({found.change.why})" if found.change else ""),
        ("also", "; ".join(found.evidence)),
    ]
    lines = [
        textwrap.fill(text, 80, initial_indent=f"{label:<9} ", subsequent_indent=" " * 10, break_on_hyphens=False)
        for label, text in rows
        if text
    ]
    if run and found.change:
        # Whole, so that it can be copied.
        edits = [f"--set {shlex.quote(f'{key}={fields.show(value)}')}" for key, value in found.change.edits]
        profile = shlex.quote(str(run.profile))
        lines.append(visible(f"try it    tui-train run {profile} {' '.join(edits)}"))
    return "\n".join(lines)
