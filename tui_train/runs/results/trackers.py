"""Lines that open what a training reported to its trackers, quoted for a shell on this machine."""

from pathlib import PurePosixPath

from msgspec import Struct

from tui_train.facts.machine.exclusive_resources import is_port_in_use
from tui_train.plan.render.quoting import quoted_with_home, quoted_word
from tui_train.profile.types import WANDB_OFFLINE_MODES, Profile
from tui_train.runs.remote_run import RunLocation

_TENSORBOARD_PORT, _TRACKIO_PORT = 6006, 7860
_MAX_PORTS_TRIED = 20


class TrackerLine(Struct, frozen=True):
    """A tracker and the command that opens it or sends on what it kept; without a command, `where` it is shown."""

    tracker: str
    command: str = ""
    where: str = ""


class ReportingRun(Struct, frozen=True):
    """A run as far as it decides where its trackers are: where it is, its output, and the Python that trained.

    Without a `python`, as in an image, a tracker's program is started by its name.
    """

    profile: Profile
    place: RunLocation
    output: str
    python: str = ""


def tracker_lines(run: ReportingRun) -> tuple[TrackerLine, ...]:
    """Return how each tracker of a run is opened, by the Python that trained, through ssh where that is on a host."""
    return tuple(_LINE_BY_TRACKER[name](run) for name in run.profile.tracking.chosen_trackers)


def _tensorboard_line(run: ReportingRun) -> TrackerLine:
    folder = run.output if run.output.startswith("~/") else str(PurePosixPath(run.place.folder, run.output))
    line = f"{_program_command(run, 'tensorboard', 'tensorboard.main')} --logdir {quoted_with_home(folder)}"
    port = _free_local_port(_TENSORBOARD_PORT) if run.place.host else 0
    # Without a port it takes another one where that is in use, to which nothing leads from here.
    return TrackerLine(
        "tensorboard", _command_from_this_machine(f"{line} --port {port}" if port else line, run.place, port, port)
    )


def _wandb_line(run: ReportingRun) -> TrackerLine:
    mode = run.profile.trainer.environment.get("WANDB_MODE", "").lower()
    if mode not in WANDB_OFFLINE_MODES:
        where = "nowhere (WANDB_MODE=disabled)" if mode == "disabled" else "at W&B, as its log says"
        return TrackerLine("wandb", where=where)
    kept = quoted_with_home(str(PurePosixPath(run.place.folder, "wandb", "offline-run-")))
    return TrackerLine(
        "wandb", _command_from_this_machine(f"{_program_command(run, 'wandb', 'wandb')} sync {kept}*", run.place)
    )


def _trackio_line(run: ReportingRun) -> TrackerLine:
    environment, project = run.profile.trainer.environment, run.profile.tracking.project
    if space := environment.get("TRACKIO_SPACE_ID"):
        return TrackerLine("trackio", where=f"in the Space {space} of the Hub")
    if environment.get("TRACKIO_SERVER_URL"):
        return TrackerLine("trackio", where="on the server in TRACKIO_SERVER_URL")
    # Where it keeps its projects, if the profile says so.
    kept = [f"{name}={quoted_word(environment[name])}" for name in ("TRACKIO_DIR", "HF_HOME") if name in environment]
    shown = f"show --project {quoted_word(project)}" if project else "show"
    line = " ".join([*kept, _program_command(run, "trackio", "trackio.cli"), shown])
    port = _free_local_port(_TRACKIO_PORT) if run.place.host else 0
    return TrackerLine("trackio", _command_from_this_machine(line, run.place, port, _TRACKIO_PORT))


_LINE_BY_TRACKER = {"tensorboard": _tensorboard_line, "wandb": _wandb_line, "trackio": _trackio_line}


def _program_command(run: ReportingRun, name: str, module: str) -> str:
    return f"{quoted_with_home(run.python)} -m {module}" if run.python else name


def _free_local_port(first: int) -> int:
    """Return the first port from one on that nothing on this machine listens on; that one where all are in use."""
    return next((port for port in range(first, first + _MAX_PORTS_TRIED) if not is_port_in_use(port)), first)


def _command_from_this_machine(line: str, place: RunLocation, port: int = 0, port_there: int = 0) -> str:
    """Return a line for a run's machine as it is typed on this one, where a `port` leads to the one there."""
    if not place.host:
        return line
    # With a terminal, for Ctrl-C to end there what it started.
    forward = f"-L {port}:localhost:{port_there} " if port else ""
    return f"ssh -t {forward}-- {quoted_word(place.host)} {quoted_word(line)}"
