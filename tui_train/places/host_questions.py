"""Questions to a machine about the runs on it, and the lines with which it answers."""

import base64
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from tui_train.base.errors import NoAnswer, NotFound, Unavailable
from tui_train.base.files import raising_cannot_write
from tui_train.base.text import visible
from tui_train.channel.session import Session, ask_host, machine_name
from tui_train.facts.machine.child_process import ChildResult, run_child
from tui_train.facts.other_machines import remote
from tui_train.plan.run_files import RenderedFile
from tui_train.profile.hosts import host_address
from tui_train.runner.queue.listing import WaitingStart
from tui_train.runner.run_folder.state import UNCONFIRMED_STATE, RunStatus
from tui_train.runs.incomplete_runs import INCOMPLETE_RUN_PREFIX
from tui_train.runs.local_start import START_AT_ONCE, StartOptions
from tui_train.runs.remote_run import HostReport, RunLocation, UnconfirmedStart, read_run_location
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.runs.status import ListedRun

_ANSWER_TIMEOUT_SECONDS = 60.0
# How a run stands is known at once; the connection may take its time.
_STATUS_TIMEOUT_SECONDS = 30.0
_MAX_LISTED_RUNS = 200
_MAX_SIZE_SECONDS = 120.0  # in which a host counts the files of a folder, however often it says that it still does
_MAX_ERROR_LENGTH = 1000
_MAX_GRACE_SECONDS = 3600


class ListedJob(Struct, frozen=True):
    """A job as squeue lists it; one that has left the queue has no state, and `ended` is how it did."""

    number: str
    state: str
    reason: str
    begins: str
    ended: str = ""


class HostMessage(Struct, frozen=True, kw_only=True):
    """One line of a host: `error` is what it cannot do, and the others are what it answers."""

    error: str = ""
    gone: bool = False
    folder: str = ""
    # The folder of that name is the sender's own, and what this machine calls itself.
    shared: bool = False
    node: str = ""
    # What became of a start: why it is not known, whether it was made, what was said, and the job that it has.
    unclear: str = ""
    started: bool = False
    said: str = ""
    job: str = ""
    cluster: str = ""
    # How Slurm lists jobs, in the order in which they were asked for.
    jobs: tuple[ListedJob | None, ...] = ()
    # What waits for GPUs or CPU cores, in order.
    waiting: tuple[WaitingStart, ...] = ()
    run: str = ""
    # How a run stands.
    status: RunStatus | None = None
    checkpoint: str = ""
    starts: int = 0
    limit: bool = False
    starting: bool = False
    # A piece of a log, in base64.
    file: str = ""
    at: int = 0
    data: bytes = b""
    # The files of an output folder, or one of them, whose name is in base64.
    files: int | None = None
    total: int = 0
    # What it leaves out of them.
    links: int = 0
    empty: int = 0
    others: int = 0
    name: bytes = b""
    size: int = 0
    # When it was changed last, in nanoseconds.
    mtime: int = 0
    # It is here already.
    kept: bool = False
    end: bool = False
    # It still works.
    beat: bool = False


class RunFolderGone(Unavailable):
    """The run's folder is not on its host any more."""


class StartUnderWay(NoAnswer):
    """A start is under way there, or Slurm may yet list its job: what became of it is still to be seen."""


def first_host_message(session: Session) -> HostMessage:
    """Return the first line that says more than that the machine still works."""
    return next(line for line in session.answers(HostMessage) if not line.beat)


def refusal_error(place: RunLocation, line: HostMessage) -> Unavailable:
    """Return a machine's refusal of a question about a run, as an error."""
    name = machine_name(place.host)
    if line.gone and place.node and line.node and line.node != place.node:
        message = f"{name} is another machine than the one on which {visible(Path(place.folder).name)} was started"
        return Unavailable(message, f"Save the machine under its new ssh name: tui-train hosts add {name} NAME")
    kind = RunFolderGone if line.gone else Unavailable
    return kind(f"{name}: {visible(line.error[:_MAX_ERROR_LENGTH])}", unexpected_answer_remedy(place.host))


def unexpected_answer_remedy(host: str) -> str:
    """Return how to look at a machine whose answer is not an expected one."""
    return f"Look at it there: ssh {visible(host)}" if host else "Look at the run's folder there."


def unreachable_remedy(place: RunLocation) -> str:
    """Return what to do where the machine of a run does not answer."""
    if not place.host:
        return "Try again."
    name = visible(place.host)
    others = (read_run_location(run.path) for run in list_runs())
    new = (other.host for other in others if other.is_on_same_machine(place) and other.host != place.host)
    add = f"tui-train hosts add {name} {visible(next(new, 'NAME'))}"
    return f"Try again once `ssh {name} true` works; where it has another name by now: {add}"


def open_session(
    place: RunLocation,
    question: Mapping[str, Any],
    *,
    within_seconds: float = math.inf,
    asking_host: str | None = None,
) -> Session:
    """Ask the machine of a run about its folder; from an `asking_host` it is reached by its name there."""
    address = host_address(place.host) if asking_host is None else place.host
    asked = {"folder": place.folder, **question}
    return Session(address, asked, within_seconds=within_seconds, asking_host=asking_host)


def ask_machine(
    place: RunLocation,
    question: Mapping[str, Any],
    *,
    within_seconds: float = _ANSWER_TIMEOUT_SECONDS,
) -> HostMessage:
    """Return the line with which the machine of a run answers; NoAnswer where it does not, Unavailable for a no."""
    asked = {"folder": place.folder, **question}
    answer = ask_host(host_address(place.host), asked, HostMessage, within_seconds)
    if answer.error:
        raise refusal_error(place, answer)
    return answer


def parse_host_report(line: HostMessage, reported_at: float) -> HostReport | None:
    """Return what a line says of a run, None where it says nothing, or what no supervisor writes."""
    if line.status is None:
        return None
    status = _with_visible_texts(line.status)
    if line.starting and not status.is_live:
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


def create_run_folder_on_host(host: str, run: RunFolder, files: Sequence[RenderedFile]) -> RunLocation:
    """Write files into a run folder of the same name on a host, whole or not at all, unless it has that very folder."""
    mark = run.path / f".sent-{secrets.token_hex(8)}"
    seen = mark.with_name(f"{mark.name}-seen")
    with raising_cannot_write(mark):
        mark.touch(exist_ok=False)
    try:
        place = _send_folder(host, run.name, mark.name, files)
        if place.shared and not seen.exists():
            raise Unavailable(
                f"{visible(host)} says that it has this very folder, and has not", unexpected_answer_remedy(host)
            )
        return place
    finally:
        mark.unlink(missing_ok=True)
        seen.unlink(missing_ok=True)


def _send_folder(host: str, name: str, mark: str, files: Sequence[RenderedFile]) -> RunLocation:
    contents = {file.path: base64.b64encode(file.content).decode() for file in files}
    question = {"do": "put", "name": name, "half_made": INCOMPLETE_RUN_PREFIX, "mark": mark, "files": contents}
    answer = ask_machine(RunLocation(host, ""), question)
    if not answer.folder.startswith("/") or visible(answer.folder) != answer.folder:
        raise Unavailable(f"{host} names no folder for the run", unexpected_answer_remedy(host))
    return RunLocation(host, answer.folder, answer.shared, visible(answer.node))


def list_runs_on_host(host: str) -> tuple[ListedRun, ...]:
    """Return the runs on a host, whoever started them, the newest first, without what their folders hold."""
    found: list[ListedRun] = []
    question = {"do": "runs", "most": _MAX_LISTED_RUNS}
    with closing(Session(host, question, within_seconds=_ANSWER_TIMEOUT_SECONDS)) as session:
        for sent in session.answers(HostMessage):
            if sent.end:
                break
            if not sent.run or "/" in sent.run or len(found) >= _MAX_LISTED_RUNS:
                continue
            report = parse_host_report(sent, time.time())
            # No folder of this machine can have that path.
            folder = Path("/dev/null", visible(sent.run))
            damage = "" if report else "its state cannot be read"
            found.append(ListedRun(run=RunFolder(folder), status=report.status if report else None, damage=damage))
    return tuple(found)


def find_runs_on_host(host: str, references: Sequence[str]) -> tuple[RunLocation, ...]:
    """Return runs on a host by their names, or the beginnings of these; NotFound where one names none, or several."""
    names = [listed.run.name for listed in list_runs_on_host(host)]
    found = []
    for reference in references:
        matching = [name for name in names if name == reference] or [
            name for name in names if reference and name.startswith(reference)
        ]
        if len(matching) != 1:
            count = f"{len(matching)} runs" if matching else "no run"
            remedy = f"List them: tui-train runs --on {visible(host)}"
            raise NotFound(f"{visible(reference)} is {count} on {visible(host)}", remedy)
        found.append(RunLocation(host, matching[0]))
    return tuple(dict.fromkeys(found))


def ask_report(place: RunLocation) -> HostReport:
    """Return the state of a run from its host."""
    report = parse_host_report(
        ask_machine(place, {"do": "status"}, within_seconds=_STATUS_TIMEOUT_SECONDS), time.time()
    )
    if report is None:
        raise NoAnswer(f"{place.host} sent no state of the run", unexpected_answer_remedy(place.host))
    return report


def ask_start(
    place: RunLocation,
    asked: UnconfirmedStart,
    launch_options: Sequence[str] = (),
    options: StartOptions = START_AT_ONCE,
    *,
    only_look: bool = False,
) -> HostMessage:
    """Have a run started, once however often it is asked for, and return what became of it.

    `launch_options` are those of its launch.sh. With `only_look` it is only asked, and a start that has not come there
    by now is not made any more. NoAnswer where that is not known, StartUnderWay where the host does not know it yet.
    """
    question = {
        "do": "start", "id": asked.id, "slurm": asked.slurm, "options": launch_options, "look": only_look,
        "after_job": options.after_job, "end_after": options.end_after,
    }  # fmt: skip
    answer = ask_machine(
        place, question, within_seconds=_STATUS_TIMEOUT_SECONDS if only_look else _ANSWER_TIMEOUT_SECONDS
    )
    if answer.unclear:
        raise StartUnderWay(visible(answer.unclear[:_MAX_ERROR_LENGTH]), unexpected_answer_remedy(place.host))
    return answer


def ask_stop(place: RunLocation, *, at_once: bool, grace_seconds: float) -> None:
    """End a run where it is, and wait until it has saved."""
    ask_machine(place, {"do": "stop", "now": at_once}, within_seconds=_ANSWER_TIMEOUT_SECONDS + grace_seconds)


def ask_queue(host: str) -> tuple[WaitingStart, ...]:
    """Return what waits for GPUs or CPU cores of a host, in order."""
    return ask_machine(RunLocation(host, ""), {"do": "queue"}, within_seconds=_STATUS_TIMEOUT_SECONDS).waiting


def ask_queue_move(place: RunLocation, *, to_front: bool) -> None:
    """Move a run that waits where it is before or after all others of its user."""
    ask_machine(place, {"do": "move", "front": to_front}, within_seconds=_STATUS_TIMEOUT_SECONDS)


def ask_removal(
    place: RunLocation, *, ended: bool = False, asking_host: str | None = None, within_seconds: float = math.inf
) -> None:
    """Remove the folder of a run that was never started, or has `ended`, from its host; by default it takes its time.

    `asking_host` is the one from which that host is reached, by its name there.
    """
    _ask_with_heartbeats(place, {"do": "drop", "ended": ended}, asking_host, within_seconds=within_seconds)


def ask_removable_size(place: RunLocation) -> int:
    """Return the bytes that a run's folder takes on its host; Unavailable where it cannot be removed there."""
    return _ask_with_heartbeats(place, {"do": "size"}, within_seconds=_MAX_SIZE_SECONDS).size


def _ask_with_heartbeats(
    place: RunLocation,
    question: Mapping[str, Any],
    asking_host: str | None = None,
    *,
    within_seconds: float = math.inf,
) -> HostMessage:
    """Return the answer of a machine that says meanwhile that it still works; NoAnswer where it is silent or late."""
    with closing(open_session(place, question, within_seconds=within_seconds, asking_host=asking_host)) as session:
        answer = first_host_message(session)
    if answer.error:
        raise refusal_error(place, answer)
    return answer


def make_command_runner(host: str) -> Callable[[Sequence[str], float], ChildResult]:
    """Return a function that runs a command on a host within so many seconds; empty for this machine."""
    return partial(remote.run_on_machine, host_address(host)) if host else run_child
