"""The results of a run on a host: where they are on this machine, and their way there."""

from collections.abc import Callable
from pathlib import Path

from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import read_regular, write_beside, writing
from tui_train.base.text import visible
from tui_train.runs import far
from tui_train.runs.mirror import Mirror
from tui_train.runs.place import Place, place_of
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status

_CHECKPOINTS = r"checkpoint-\d+"
# Holds the number of attempts whose results were fetched whole.
_FETCHED = "fetched"
# The runs that this process fetches now.
_UNDER_WAY: set[Path] = set()


def output_here(run: RunDir, output: str) -> Path:
    """Return where a run's output folder is on this machine: one of a host is in the run folder once it is fetched."""
    folder = output or "output"
    return run.path / (Path(folder).name if place_of(run.path) else folder)


def fetch(run: RunDir, *, checkpoints: bool = False, progress: Callable[[int], None] = lambda _taken: None) -> int:
    """Copy a run's output folder from its host, and return the bytes; `progress` is called with those so far.

    What a live run has made so far is copied as well, but not taken for its results.
    """
    place = place_of(run.path)
    if place is None:
        raise BadInput(f"{visible(run.name)} is on this machine", f"It is in {visible(str(run.path))}.")
    if run.path in _UNDER_WAY:
        raise Unavailable(f"{visible(run.name)} is being fetched", "Wait until that is done.")
    _UNDER_WAY.add(run.path)
    try:
        return _fetch(run, place, checkpoints=checkpoints, progress=progress)
    finally:
        _UNDER_WAY.discard(run.path)


def _fetch(run: RunDir, place: Place, *, checkpoints: bool, progress: Callable[[int], None]) -> int:
    # How it stands is heard with its results.
    Mirror(run, follow=False).once()
    now = status(run)
    output = str(run.plan().get("output") or "output")
    try:
        taken = far.fetch(place, output, run.path, without="" if checkpoints else _CHECKPOINTS, progress=progress)
    except Unavailable as error:
        if not now.live:
            raise
        raise Unavailable(error.message, "It still trains: fetch again when it has ended.") from None
    if not now.live:
        with writing(run.path / _FETCHED):
            write_beside(run.path / _FETCHED, str(len(now.attempts)).encode())
    return taken


def fetched(run: RunDir) -> bool:
    """Whether the results of a run's last attempt were fetched from its host."""
    try:
        return read_regular(run.path / _FETCHED, 64) == str(len(status(run).attempts)).encode()
    except OSError:
        return False
