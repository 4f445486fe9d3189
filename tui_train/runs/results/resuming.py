"""The checkpoint and output from which a run resumes, or why it cannot."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tui_train.base.files import read_regular_file
from tui_train.base.text import visible
from tui_train.runner.run_folder import checkpoints
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.run_folder.supervisor_plan import CheckpointLayout, read_plan
from tui_train.runner.system.refused import Refused
from tui_train.runs.remote_run import (
    is_output_in_shared_run_folder,
    local_output_folder,
    read_host_report,
    read_remote_location,
)
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

NO_CHECKPOINT_REASON = "has no complete checkpoint"
PRESET_CANNOT_RESUME_REASON = (
    "cannot resume: the script is given no checkpoint; if it has an argument for one, docs/scripts.md says how to pass"
    " that"
)
# Holds the number of attempts whose results were fetched whole; anything else where some were.
FETCH_MARK_FILE = "fetched"
# A folder of more files than that is counted no further.
_MAX_FILES_COUNTED = 5000
_COMPLETE_CHECKPOINT_TEXT = "complete checkpoint"


class SavedCheckpoint(Struct, frozen=True, kw_only=True):
    """A file or folder: its path, its bytes on disk, and the step that its name has (0: none)."""

    path: str
    size: int
    step: int = 0


class RunOutput(Struct, frozen=True, kw_only=True):
    """Content of the output folder of a run, whose own is `folder`; None for what is not there.

    All paths are those on `host` (empty: this machine); `fetched` is where results from there are here;
    `fetching` are the bytes of those that are on their way (None: none are). `awaited` is what a checkpoint is called,
    empty where the preset knows of none.
    """

    folder: str = ""
    host: str = ""
    fetched: str = ""
    fetching: int | None = None
    output: str = ""
    checkpoint: SavedCheckpoint | None = None
    awaited: str = ""


def resume_mode(run: RunFolder) -> Literal["told", "by itself", "never"]:
    """Return how another start goes on: `told` its checkpoint, `by itself`, or `never`: from step 0."""
    plan = run.plan()
    if plan.get("resumes_itself"):
        return "by itself"
    attempts: Any = plan.get("attempts")
    first = attempts[0] if isinstance(attempts, list) and attempts else {}
    return "told" if isinstance(first, dict) and first.get("checkpoints") else "never"


def resume_or_restart_remedy(run: RunFolder) -> str:
    """Return the command that goes on with a run that was stopped, or starts over where it takes no checkpoint."""
    if resume_mode(run) == "never":
        return _train_again_text(run)
    return f"Resume it: tui-train resume {visible(run.name)}"


def train_again_remedy(run: RunFolder) -> str:
    """Return the commands that train from step 0: in a new run folder, or in this one."""
    same_folder = f"In the same folder, overwriting what it saved: tui-train resume {visible(run.name)} --force"
    return f"{_train_again_text(run)}\n  {same_folder}"


def _train_again_text(run: RunFolder) -> str:
    return f"Train again: tui-train run {visible(shlex.quote(str(run.profile_file)))}"


def why_not_resumable(run: RunFolder, status: RunStatus) -> str:
    """Return why another start would not go on where a run ended, as words after "it"; empty where it would.

    Without a checkpoint it begins with NO_CHECKPOINT_REASON, and names what one would be.
    """
    if status.is_live or status.leftover:
        return "still runs"
    if status.never_had_turn:
        # Another start waits again.
        return ""
    if status.state not in {"failed", "stopped", "lost"} or not status.attempts:
        return "has finished" if status.state == "finished" else "was never started"
    how = resume_mode(run)
    if how == "never":
        return PRESET_CANNOT_RESUME_REASON
    position = status.attempts[-1].position
    if how == "by itself" or newest_checkpoint(run, position):
        return ""
    awaited = find_run_output(run, position).awaited
    return NO_CHECKPOINT_REASON + (f": none is a {awaited}" if awaited not in {"", _COMPLETE_CHECKPOINT_TEXT} else "")


def newest_checkpoint(run: RunFolder, attempt_position: int) -> str:
    """Return the newest whole checkpoint of the attempt at a position of the plan, from 1; empty: there is none."""
    if read_remote_location(run.path):
        heard = read_host_report(run.path)
        return heard.checkpoint if heard else ""
    try:
        return checkpoints.newest_checkpoint_of_attempt(read_plan(str(run.path)), attempt_position, str(run.path))
    except Refused:
        return ""


def find_run_output(run: RunFolder, attempt_position: int) -> RunOutput:
    """Return what the attempt at a position of the plan, from 1, left; empty where there is no plan to tell."""
    try:
        plan = read_plan(str(run.path))
    except Refused:
        return RunOutput()
    if place := read_remote_location(run.path):
        newest = newest_checkpoint(run, attempt_position)
        here, there = local_output_folder(run.path, plan.output), plan.output or f"{place.folder}/output"
        checkpoint = SavedCheckpoint(path=newest, size=0, step=checkpoints.step_in_name(newest)) if newest else None
        own = str(here) if are_results_here(run) else ""
        return RunOutput(folder=place.folder, host=place.host, fetched=own, output=there, checkpoint=checkpoint)
    output = plan.output or str(run.path / "output")
    newest = checkpoints.newest_checkpoint_of_attempt(plan, attempt_position, str(run.path))
    rule = plan.checkpoint_layout(attempt_position)
    return RunOutput(
        folder=str(run.path),
        output=output,
        checkpoint=_saved_checkpoint(newest),
        awaited=_awaited_checkpoint_text(run, rule) if rule else "",
    )


def _awaited_checkpoint_text(run: RunFolder, rule: CheckpointLayout) -> str:
    """Return what a user's own script has to write: `checkpoint-STEP with trainer_state.json`; other trainers do."""
    profile = run.read_profile()
    if profile is None or profile.trainer.kind != "script":
        return _COMPLETE_CHECKPOINT_TEXT
    holds = f" with {' and '.join(rule.complete)}" if rule.complete else ""
    return visible((rule.file or f"{rule.prefix}STEP{rule.suffix}") + holds)


def are_results_here(run: RunFolder) -> bool:
    """Return whether the results of a run's last attempt are here: fetched from its host, or on a disk of both."""
    place = read_remote_location(run.path)
    if place and is_output_in_shared_run_folder(place, str(run.plan().get("output") or "output")):
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
