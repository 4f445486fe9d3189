"""Details of a result that take time to read: its curve, its files, and what differs from the run before."""

import shlex
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tui_train.base.own_command import own_command
from tui_train.base.text import display_path, visible
from tui_train.runner.logs.progress import Progress
from tui_train.runs.follow import read_progress
from tui_train.runs.results.result import RunResult
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.views.compare import ComparisonRow, settings_changed_between
from tui_train.views.evaluation import stored_verdict_text
from tui_train.views.previous_run import find_earlier_run_of_profile

_MAX_FILES_LISTED = 200


class ResultFile(NamedTuple):
    """A file that a run left, and its size in bytes."""

    path: str
    size: int


class ResultDetails(NamedTuple):
    """Details of a result that take time to read; `changes` are the settings that differ from the run before.

    `verdict` is that of the newest evaluation, empty for none.
    """

    progress: Progress = Progress()
    files: tuple[ResultFile, ...] = ()
    previous_run_name: str = ""
    changes: tuple[ComparisonRow, ...] = ()
    verdict: str = ""


def read_result_details(run: RunFolder, result: RunResult) -> ResultDetails:
    """Return the details of a run's result."""
    before = find_earlier_run_of_profile(run)
    return ResultDetails(
        read_progress(run, read_status(run).attempts),
        tuple(sorted(_result_files(result), key=lambda file: -file.size)),
        before.name if before else "",
        settings_changed_between(before, run) if before else (),
        stored_verdict_text(run, result),
    )


def _result_files(result: RunResult) -> Iterator[ResultFile]:
    """Yield the files of the weights' folder, or those that a script saved itself."""
    folder = Path(result.weights.path) if result.weights else None
    try:
        paths = [*folder.iterdir()] if folder else [*map(Path, result.saved)]
    except OSError:
        paths = []
    for path in paths[:_MAX_FILES_LISTED]:
        try:
            status = path.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) or folder is None:
            yield ResultFile(str(path), status.st_size)


def next_commands(run: RunFolder, result: RunResult, previous_run_name: str) -> Iterator[tuple[str, str]]:
    """Yield what can be done next on the command line, each a label and a command that is safe to show."""
    command, name = own_command(), visible(result.run)
    weights = result.weights
    if weights and not weights.problem and not weights.scores and not result.lacks_tokenizer:
        yield "Try", f"{command} try {name}"
    if weights and not weights.problem and weights.kind == "adapter":
        yield "Merge", f"{command} merge {name} FOLDER"
    if result.has_broken_loss:
        yield "Diagnose", f"{command} diagnose {name}"
    if previous_run_name:
        yield "Compare", f"{command} compare {visible(previous_run_name)} {name}"
    yield "Metrics", f"{command} metrics {name}"
    yield "Run again", f"{command} run {display_path(shlex.quote(str(run.profile_file)))}"
