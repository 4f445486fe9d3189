"""How a run stands, as its supervisor and everybody who looks at it say it."""

from tui_train.runs.rundir import RunDir
from tui_train.supervisor import state
from tui_train.supervisor.state import Status


def status(run: RunDir) -> Status:
    """Return how a run stands now."""
    return state.read(str(run.path))


def continues(now: Status) -> bool:
    """Tell whether a run's training may still write: under its supervisor, or without it where that was killed."""
    return now.live or now.trains_on
