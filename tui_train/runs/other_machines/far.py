"""Requests to a host over ssh about the runs on it: take one, start it, stop it, tell how it stands."""

import io
import secrets
import tarfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.files import reporting_write_errors
from tui_train.base.text import visible
from tui_train.channel.session import Session, ask
from tui_train.plan.render import SCRIPT_NAME, File
from tui_train.runs.incomplete_runs import INCOMPLETE_PREFIX
from tui_train.runs.listing import ListedRun
from tui_train.runs.other_machines.heard import parse_report
from tui_train.runs.other_machines.host_lines import HostLine, parse_host_line, refusal_error
from tui_train.runs.other_machines.place import HostReport, RunPlace
from tui_train.runs.rundir import RunDir

_ANSWER_TIMEOUT_SECONDS = 60.0
_MAX_LISTED_RUNS = 200
# How a run stands is known at once; the connection may take its time.
_STATUS_TIMEOUT_SECONDS = 30.0


def create_on_host(host: str, run: RunDir, files: Sequence[File]) -> RunPlace:
    """Write files into a run folder of the same name on a host, whole or not at all, unless it has that very folder."""
    mark = run.path / f".sent-{secrets.token_hex(8)}"
    seen = mark.with_name(f"{mark.name}-seen")
    with reporting_write_errors(mark):
        mark.touch(exist_ok=False)
    try:
        place = _send_folder(host, run.name, mark.name, files)
        if place.shared and not seen.exists():
            raise Unavailable(
                f"{visible(host)} says that it has this very folder, and has not", f"Look there: ssh {host}"
            )
        return place
    finally:
        mark.unlink(missing_ok=True)
        seen.unlink(missing_ok=True)


def _send_folder(host: str, name: str, mark: str, files: Sequence[File]) -> RunPlace:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for file in files:
            data = file.content
            info = tarfile.TarInfo(file.path)
            info.size, info.mode = len(data), 0o755 if file.path == SCRIPT_NAME else 0o644
            tar.addfile(info, io.BytesIO(data))
    question = {"do": "put", "name": name, "half_made": INCOMPLETE_PREFIX, "mark": mark}
    answer = _ask_host(host, question, stdin_data=packed.getvalue())
    if not answer.folder.startswith("/") or visible(answer.folder) != answer.folder:
        raise Unavailable(f"{host} names no folder for the run", f"Look at it there: ssh {host}")
    return RunPlace(host, answer.folder, answer.shared, visible(answer.node))


def start_on_host(place: RunPlace, detach_script: str, options: Sequence[str], earlier_starts: int) -> str:
    """Start a run on its host; return why it did not start, empty where it did. NoAnswer where that is not known.

    `earlier_starts` is how often it was started so far: a start that is asked for twice is made once.
    """
    question = {
        "do": "start",
        "folder": place.folder,
        "between": detach_script,
        "options": options,
        "starts": earlier_starts,
    }
    answer = _ask_host(place.host, question)
    return "" if answer.started else visible(answer.said) or "launch.sh ended without a word"


def list_on_host(host: str) -> tuple[ListedRun, ...]:
    """Return the runs on a host, whoever started them, the newest first, without what their folders hold."""
    found: list[ListedRun] = []
    question = {"do": "runs", "most": _MAX_LISTED_RUNS}
    with closing(Session(host, question, within_seconds=_ANSWER_TIMEOUT_SECONDS)) as session:
        while line := session.read_line():
            sent = parse_host_line(line)
            if sent and sent.end:
                return tuple(found)
            if sent is None or not sent.run or "/" in sent.run or len(found) >= _MAX_LISTED_RUNS:
                continue
            report = parse_report(sent, time.time())
            # No folder of this machine can have that path.
            folder = Path("/dev/null", visible(sent.run))
            damage = "" if report else "its state cannot be read"
            found.append(ListedRun(run=RunDir(folder), status=report.status if report else None, damage=damage))
        raise session.lost_error()


def ask_host_report(place: RunPlace) -> HostReport:
    """Return how a run stands on its host."""
    answer = _ask_host(place.host, {"do": "status", "folder": place.folder}, deadline=_STATUS_TIMEOUT_SECONDS)
    report = parse_report(answer, time.time())
    if report is None:
        raise NoAnswer(f"{place.host} sent no state of the run", f"Look at it there: ssh {place.host}")
    return report


def remove_on_host(place: RunPlace) -> None:
    """Remove the folder of a run that was never started from its host."""
    _ask_host(place.host, {"do": "drop", "folder": place.folder})


def stop_on_host(place: RunPlace, *, at_once: bool, grace_seconds: float) -> None:
    """End a run on its host, and wait until it has saved."""
    _ask_host(
        place.host,
        {"do": "stop", "folder": place.folder, "now": at_once},
        deadline=_ANSWER_TIMEOUT_SECONDS + grace_seconds,
    )


def _ask_host(
    host: str, question: dict[str, Any], *, stdin_data: bytes = b"", deadline: float = _ANSWER_TIMEOUT_SECONDS
) -> HostLine:
    """Return the line with which a host answers; NoAnswer where it does not, Unavailable for what it cannot do."""
    answer = ask(host, question, HostLine, deadline, stdin_data=stdin_data)
    if answer.error:
        raise refusal_error(host, answer)
    return answer
