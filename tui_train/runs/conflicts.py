"""What live runs of this user have taken, and the start of one at a time, so that two cannot miss each other."""

import fcntl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tui_train.base.errors import Unavailable
from tui_train.base.places import runs_folder, trials_folder
from tui_train.base.text import visible
from tui_train.facts.ports import busy, clash, spellings
from tui_train.facts.types import Taken
from tui_train.runs.listing import Listed, read_run
from tui_train.runs.rundir import RunDir, all_runs
from tui_train.runs.status import continues

_NEWEST = 32
_LOOK = 0.05


def taken(port: int = 0) -> tuple[Taken, ...]:
    """Return what runs have that train, also without a supervisor; and `port`, where another program has it."""
    found = [wants(run) for run in (*all_runs(), *_trials()) if _trains(read_run(run))]
    if port and all(one.port != port for one in found) and busy(port):
        found.append(Taken(port=port))
    return tuple(found)


def _trains(listed: Listed) -> bool:
    """Tell whether a run trains; what a finished one left, a TensorBoard for one, does not."""
    return listed.status is not None and continues(listed.status)


def _trials() -> Iterator[RunDir]:
    """Yield the folders of the newest trials, for only these may still be under way."""
    folders = sorted(trials_folder().glob("*/trial-*"), key=lambda path: path.parent.name)
    yield from map(RunDir, folders[-_NEWEST:])


def wants(run: RunDir) -> Taken:
    """Return what a run has while it runs; nothing that its plan does not tell."""
    plan = run.plan()
    gpus, output, port = plan.get("gpus"), plan.get("output"), plan.get("port")
    return Taken(
        run=run.name if run.path.parent == runs_folder() else str(run.path),
        gpus=tuple(map(str, gpus)) if isinstance(gpus, list) else (),
        outputs=spellings(output) if isinstance(output, str) and "\0" not in output else (),
        port=port if isinstance(port, int) and 0 < port < 1 << 16 else 0,
    )


def refuse_clashes(run: RunDir) -> None:
    """Raise Unavailable where a run cannot start beside those that are live."""
    mine = wants(run)
    for other in taken(mine.port):
        if other.run != mine.run and (words := clash(mine, other)):
            raise Unavailable(words, remedy(other))


def remedy(other: Taken) -> str:
    """Return what to do about something that is taken."""
    if not other.run:
        return "Choose another port (nodes.port)."
    return f"Wait for it, end it (tui-train stop {visible(other.run)}), or choose another."


@contextmanager
def one_at_a_time(waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Keep other starts of this user waiting; where that cannot be done, they are not.

    `waiting` is called while another one starts; what it raises ends the waiting.
    """
    try:
        file = (runs_folder() / ".starting").open("ab")
    except OSError:
        yield
        return
    with file:
        # Some network file systems have no locks.
        with suppress(OSError):
            while not _locked(file.fileno()):
                waiting()
                time.sleep(_LOOK)
        yield


def _locked(file: int) -> bool:
    """Tell whether a file could be locked; OSError where there are no locks."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
