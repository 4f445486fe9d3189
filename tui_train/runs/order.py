"""The order of runs: each folder has a number, because clocks are set back and names use local time."""

from collections.abc import Iterable
from pathlib import Path

from tui_train.base.files import read_regular_file

RUN_NUMBER_FILE_NAME = ".number"
_RUN_NUMBER_LIMIT = 10**9
_MAX_NUMBER_FILE_BYTES = 16


def run_number(folder: Path) -> int:
    """Return a run's number, 0 (the oldest) if it has none."""
    try:
        text = read_regular_file(folder / RUN_NUMBER_FILE_NAME, _MAX_NUMBER_FILE_BYTES).strip()
    except OSError:
        return 0
    number = int(text) if text.isdigit() else 0
    return number if number < _RUN_NUMBER_LIMIT else 0


def next_run_number(folders: Iterable[Path]) -> int:
    """Return a number that makes a new run the newest of all."""
    return max(map(run_number, folders), default=0) + 1
