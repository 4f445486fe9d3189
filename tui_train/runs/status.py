"""The status of a run, the same for its supervisor and all viewers."""

from tui_train.runs.rundir import RunDir
from tui_train.supervisor import state
from tui_train.supervisor.state import Status


def status(run: RunDir) -> Status:
    """Return the current status of a run."""
    return state.read(str(run.path))


def continues(now: Status) -> bool:
    """Return whether a run's training may still write, with its supervisor or after that was killed."""
    return now.live or now.trains_on


def took(now: Status) -> float | None:
    """Return how long a run trained, in seconds: its last start, or all attempts where it was resumed."""
    known = [attempt.seconds for attempt in now.attempts if attempt.seconds is not None]
    return max(sum(known), now.seconds or 0.0) if known else now.seconds
