"""How a host says that a run stands, as it is kept here: what is possible, with text that is safe to show."""

from typing import Any

import msgspec

from tui_train.base.files import reporting_write_errors, write_atomically
from tui_train.base.text import visible
from tui_train.runner.state import UNCONFIRMED_STATE
from tui_train.runs.other_machines.host_lines import HostLine
from tui_train.runs.other_machines.place import REPORT_FILE, HostReport
from tui_train.runs.rundir import RunDir

_MAX_GRACE_SECONDS = 3600


def parse_report(line: HostLine, reported_at: float) -> HostReport | None:
    """Return what a line says of a run, None where it says nothing, or what no supervisor writes."""
    if line.status is None:
        return None
    status = _with_visible_texts(line.status)
    if line.starting and not status.live:
        status = status._replace(state=UNCONFIRMED_STATE)
    try:
        return HostReport(
            at=reported_at,
            status=status._replace(grace=min(status.grace, _MAX_GRACE_SECONDS)),
            checkpoint=visible(line.checkpoint),
            starts=max(0, line.starts),
            limit=line.limit,
        )
    except ValueError:
        return None


def _with_visible_texts(value: Any) -> Any:
    """Return a value with its texts made visible."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple):
        parts = [_with_visible_texts(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value


def write_report(run: RunDir, report: HostReport) -> None:
    """Write what was heard of a run into its folder here."""
    with reporting_write_errors(run.path / REPORT_FILE):
        write_atomically(run.path / REPORT_FILE, msgspec.json.encode(report))
