"""The list of runs; each is read separately, so a damaged one does not hide the others."""

from msgspec import Struct

from tui_train.base.text import visible
from tui_train.runner.state import RunStatus
from tui_train.runs.rundir import RunDir, list_runs
from tui_train.runs.status import read_status


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run in a list: `status` is None if unknown, `damage` is what cannot be read."""

    run: RunDir
    status: RunStatus | None
    damage: str = ""

    @property
    def stoppable(self) -> bool:
        """True while it has processes that can be stopped."""
        return self.status is not None and (self.status.live or bool(self.status.leftover))


def read_listed_run(run: RunDir) -> ListedRun:
    """Return a run with its state, or with the reason why that cannot be read."""
    try:
        events, damage = run.read_events()
        status = read_status(run)
        # Without a readable event it is unknown even whether it was started.
        known = status if events or not damage else None
        return ListedRun(run=run, status=known, damage=damage or run.read_plan()[1])
    except Exception as error:  # noqa: BLE001 - whatever is in this folder, the others are shown
        return ListedRun(run=run, status=None, damage=visible(f"{type(error).__name__}: {error}")[:200])


def read_listed_runs(limit: int | None = None) -> tuple[ListedRun, ...]:
    """Return the newest runs in the runs folder, at most `limit`."""
    return tuple(map(read_listed_run, list_runs()[:limit]))
