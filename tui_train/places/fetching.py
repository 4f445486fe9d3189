"""The results of a run on a host: where they are on this machine, and their way there."""

import base64
import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from msgspec import Struct

from tui_train.base.errors import AlreadyExists, BadInput, Unavailable
from tui_train.base.files import raising_cannot_write, write_atomically
from tui_train.base.text import visible
from tui_train.places.arriving import (
    files_already_here,
    has_fetch_list,
    lock_fetch_folder,
    make_overwrite_guard,
    move_fetched,
    read_announcement,
    receive_files,
)
from tui_train.places.asking import open_session, unreachable_remedy
from tui_train.places.mirror import update_copy
from tui_train.plan.render import LAUNCH_SCRIPT_FILE_NAME, PLAN_JSON_FILE_NAME, PROFILE_FILE_NAME, RUNNER_ZIP_FILE_NAME
from tui_train.runs.elsewhere import (
    HOST_REPORT_FILE_NAME,
    PLACE_FILE_NAME,
    START_FILE,
    RunPlace,
    is_output_on_shared_disk,
    local_output_folder,
    read_place_elsewhere,
)
from tui_train.runs.results.run_output import FETCH_MARK_FILE
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import read_status

_CHECKPOINT_NAME_PATTERN = r"checkpoint-\d+"
# What a run folder has of its own, by names that an output folder of the user's may have as well.
_RESERVED_FILE_NAMES = frozenset({
    LAUNCH_SCRIPT_FILE_NAME, PLAN_JSON_FILE_NAME, PROFILE_FILE_NAME, PLACE_FILE_NAME, HOST_REPORT_FILE_NAME, START_FILE,
    FETCH_MARK_FILE, RUNNER_ZIP_FILE_NAME, "supervisor",
})  # fmt: skip
# Files that are named as known: the others come again.
_MAX_FILES_NAMED_AS_KNOWN = 1 << 14
# The runs that this process fetches now.
_RUNS_BEING_FETCHED: set[Path] = set()


class FetchResult(Struct, frozen=True):
    """Result of a fetch: its bytes, and in words what is there besides and was left out."""

    size: int
    left_out: str


def fetch_results(
    run: RunDir, *, with_checkpoints: bool = False, on_progress: Callable[[int], None] = lambda _taken: None
) -> FetchResult:
    """Copy a run's output folder from its host; `on_progress` is called with the bytes so far.

    What a live run has made so far is copied as well, but not taken for its results.
    """
    place = read_place_elsewhere(run.path)
    if place is None:
        raise BadInput(f"{visible(run.name)} is on this machine", f"It is in {visible(str(run.path))}.")
    if run.path in _RUNS_BEING_FETCHED:
        raise Unavailable(f"{visible(run.name)} is being fetched", "Wait until that is done.")
    _RUNS_BEING_FETCHED.add(run.path)
    try:
        return _update_and_fetch(run, place, with_checkpoints=with_checkpoints, on_progress=on_progress)
    finally:
        _RUNS_BEING_FETCHED.discard(run.path)


def _update_and_fetch(
    run: RunDir, run_place: RunPlace, *, with_checkpoints: bool, on_progress: Callable[[int], None]
) -> FetchResult:
    # How it stands is heard with its results.
    if why := update_copy(run):
        raise Unavailable(why, unreachable_remedy(run_place))
    status = read_status(run)
    output = str(run.plan().get("output") or "output")
    if is_output_on_shared_disk(run_place, output):
        raise BadInput(
            f"{visible(run_place.host)} has its results on this very disk",
            f"They are in {visible(str(run.path / output))}.",
        )
    try:
        result = _copy_output(
            run,
            run_place,
            output,
            without_pattern="" if with_checkpoints else _CHECKPOINT_NAME_PATTERN,
            on_progress=on_progress,
        )
    except Unavailable as error:
        if not status.live:
            raise
        raise Unavailable(error.message, "It still trains: fetch again when it has ended.") from None
    _mark_fetched(run, "live" if status.live else str(len(status.attempts)))
    return result


def _copy_output(
    run: RunDir, run_place: RunPlace, output: str, *, without_pattern: str, on_progress: Callable[[int], None]
) -> FetchResult:
    """Copy the output folder from its host; what was fetched before stays until all is here."""
    target, taken = local_output_folder(run.path, output), 0
    if target.name in _RESERVED_FILE_NAMES or (
        os.path.lexists(target) and not os.path.lexists(run.path / FETCH_MARK_FILE)
    ):
        message = f"{visible(str(target))} is there already, and was not fetched"
        raise AlreadyExists(message, "Move it away, then fetch again.")
    if os.path.lexists(target) and not has_fetch_list(run.path):
        # Nothing tells its files from what was changed since.
        message = f"{visible(str(target))} was fetched by an earlier version: it is not replaced"
        raise AlreadyExists(message, "Move it away, then fetch again.")
    question = {"do": "fetch", "output": output, "without": without_pattern}
    with lock_fetch_folder(run.path) as folder:
        here = files_already_here(run.path, folder, target)
        known = dict(list(here.items())[:_MAX_FILES_NAMED_AS_KNOWN])
        known = {base64.b64encode(os.fsencode(name)).decode(): status for name, status in known.items()}
        with closing(open_session(run_place, {**question, "have": known})) as session:
            expected = read_announcement(session, run_place, folder)
            for taken in receive_files(session, expected, folder, here, make_overwrite_guard(run.path, target)):
                on_progress(taken)
        _mark_fetched(run, "live")
        move_fetched(run.path, folder, target)
    return FetchResult(taken, expected.left_out)


def _mark_fetched(run: RunDir, mark: str) -> None:
    with raising_cannot_write(run.path / FETCH_MARK_FILE):
        write_atomically(run.path / FETCH_MARK_FILE, mark.encode())
