"""What a run leaves behind to go on from: its newest whole checkpoint, with its size."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tui_train.runs.fetching import fetched, output_here
from tui_train.runs.place import place_of
from tui_train.runs.resuming import newest_checkpoint
from tui_train.runs.rundir import RunDir
from tui_train.supervisor import checkpoints
from tui_train.supervisor.planned import Planned, read
from tui_train.supervisor.refused import Refused

# A folder of more files than that is counted no further.
_MOST_FILES = 5000


class Left(Struct, frozen=True, kw_only=True):
    """A file or folder: its path, its bytes on disk, and the step that its name has (0: none)."""

    path: str
    size: int
    step: int = 0


class Remains(Struct, frozen=True, kw_only=True):
    """What lies in the output folder of a run, whose own is `folder`; None for what is not there.

    All paths are those on `host` (empty: this machine); `fetched` is where results from there are here;
    `fetching` are the bytes of those that are on their way (None: none are).
    """

    folder: str = ""
    host: str = ""
    fetched: str = ""
    fetching: int | None = None
    output: str = ""
    checkpoint: Left | None = None


def remains(run: RunDir, position: int) -> Remains:
    """Return what the attempt at a position of the plan, from 1, left; empty where there is no plan to tell."""
    try:
        plan = read(str(run.path))
    except Refused:
        return Remains()
    if place := place_of(run.path):
        here, there = output_here(run, plan.output), plan.output or f"{place.folder}/output"
        newest = newest_checkpoint(run, position)
        checkpoint = Left(path=newest, size=0, step=checkpoints.step(newest)) if newest else None
        own = str(here) if fetched(run) else ""
        return Remains(folder=place.folder, host=place.host, fetched=own, output=there, checkpoint=checkpoint)
    output = plan.output or str(run.path / "output")
    return Remains(folder=str(run.path), output=output, checkpoint=_checkpoint(run, plan, position))


def _checkpoint(run: RunDir, plan: Planned, position: int) -> Left | None:
    rule = plan.attempts[position - 1].checkpoints if 0 < position <= len(plan.attempts) else None
    return _left(checkpoints.newest(rule, str(run.path))) if rule else None


def _left(path: str) -> Left | None:
    if not path or not os.path.lexists(path):
        return None
    return Left(path=path, size=sum(_sizes(Path(path))), step=checkpoints.step(path))


def _sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of a file, or of a folder's files, of which no link is followed."""
    if not path.is_dir():
        yield path.lstat().st_size if path.is_file() else 0
        return
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            seen += 1
            if seen > _MOST_FILES:
                return
            try:
                yield Path(folder, name).lstat().st_size
            except OSError:
                continue
