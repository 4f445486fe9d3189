"""The runs as a list: each is read by itself, and one that is damaged says why and hides no other."""

from msgspec import Struct

from tui_train.base.text import visible
from tui_train.runs.rundir import RunDir, all_runs
from tui_train.runs.status import status
from tui_train.supervisor.state import Status


class Listed(Struct, frozen=True, kw_only=True):
    """A run as a list shows it: `status` is None where it cannot be known, `damage` says what cannot be read."""

    run: RunDir
    status: Status | None
    damage: str = ""

    @property
    def going(self) -> bool:
        """Whether something of it works that can be stopped."""
        return self.status is not None and (self.status.live or bool(self.status.leftover))


def read_run(run: RunDir) -> Listed:
    """Return a run with its state, or with what keeps that from being read."""
    try:
        events, damage = run.read_events()
        now = status(run)
        # Without one readable event nothing is known, not even that it was never started.
        known = now if events or not damage else None
        return Listed(run=run, status=known, damage=damage or run.read_plan()[1])
    except Exception as error:  # noqa: BLE001 - whatever is in this folder, the others are shown
        return Listed(run=run, status=None, damage=visible(f"{type(error).__name__}: {error}")[:200])


def read_runs(most: int | None = None) -> tuple[Listed, ...]:
    """Return the runs in the runs folder, newest first and at most so many."""
    return tuple(map(read_run, all_runs()[:most]))
