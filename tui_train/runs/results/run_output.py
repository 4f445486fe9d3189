"""Output that a run can go on from: its newest whole checkpoint, with its size."""

import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from tui_train.base.files import read_regular_file
from tui_train.runner import checkpoints
from tui_train.runner.planned import read_plan
from tui_train.runner.refused import Refused
from tui_train.runs.elsewhere import is_output_on_shared_disk, local_output_folder, read_place_elsewhere
from tui_train.runs.results.resuming import newest_checkpoint
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import read_status

# Holds the number of attempts whose results were fetched whole; anything else where some were.
FETCH_MARK_FILE = "fetched"
# A folder of more files than that is counted no further.
_MAX_FILES_COUNTED = 5000


class SavedCheckpoint(Struct, frozen=True, kw_only=True):
    """A file or folder: its path, its bytes on disk, and the step that its name has (0: none)."""

    path: str
    size: int
    step: int = 0


class RunOutput(Struct, frozen=True, kw_only=True):
    """Content of the output folder of a run, whose own is `folder`; None for what is not there.

    All paths are those on `host` (empty: this machine); `fetched` is where results from there are here;
    `fetching` are the bytes of those that are on their way (None: none are).
    """

    folder: str = ""
    host: str = ""
    fetched: str = ""
    fetching: int | None = None
    output: str = ""
    checkpoint: SavedCheckpoint | None = None


def find_run_output(run: RunDir, attempt_position: int) -> RunOutput:
    """Return what the attempt at a position of the plan, from 1, left; empty where there is no plan to tell."""
    try:
        plan = read_plan(str(run.path))
    except Refused:
        return RunOutput()
    newest = newest_checkpoint(run, attempt_position)
    if place := read_place_elsewhere(run.path):
        here, there = local_output_folder(run.path, plan.output), plan.output or f"{place.folder}/output"
        checkpoint = SavedCheckpoint(path=newest, size=0, step=checkpoints.step_in_name(newest)) if newest else None
        own = str(here) if are_results_here(run) else ""
        return RunOutput(folder=place.folder, host=place.host, fetched=own, output=there, checkpoint=checkpoint)
    output = plan.output or str(run.path / "output")
    return RunOutput(folder=str(run.path), output=output, checkpoint=_saved_checkpoint(newest))


def are_results_here(run: RunDir) -> bool:
    """Return whether the results of a run's last attempt are here: fetched from its host, or on a disk of both."""
    place = read_place_elsewhere(run.path)
    if place and is_output_on_shared_disk(place, str(run.plan().get("output") or "output")):
        return True
    try:
        return read_regular_file(run.path / FETCH_MARK_FILE, 64) == str(len(read_status(run).attempts)).encode()
    except OSError:
        return False


def _saved_checkpoint(path: str) -> SavedCheckpoint | None:
    if not path or not os.path.lexists(path):
        return None
    return SavedCheckpoint(path=path, size=sum(_file_sizes(Path(path))), step=checkpoints.step_in_name(path))


def _file_sizes(path: Path) -> Iterator[int]:
    """Yield the sizes of a file, or of a folder's files, of which no link is followed."""
    if not path.is_dir():
        yield path.lstat().st_size if path.is_file() else 0
        return
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            seen += 1
            if seen > _MAX_FILES_COUNTED:
                return
            try:
                yield Path(folder, name).lstat().st_size
            except OSError:
                continue
