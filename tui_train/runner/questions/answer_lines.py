"""Lines of an answer, and what the answers about a run share."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any, Callable, TypeVar

PIECE_BYTES = 1 << 18
TIME_LIMIT_FILE_NAME = ".limit"  # what slurm.sh leaves where it ends a start near the time limit
# The files of a run folder that grow, and are sent to whoever follows the run.
SENT_FILE_PATTERN = re.compile(r"events\.jsonl|launch\.log|attempt-\d{1,6}\.log", re.ASCII)
HEARTBEAT_SECONDS = 5.0
_Result = TypeVar("_Result")


class RequestFailedError(Exception):
    """Request that cannot be done, in words; `gone` tells that the run folder is not there."""

    def __init__(self, words: str, *, gone: bool = False) -> None:
        super().__init__(words)
        self.gone = gone


def send_json_line(**fields: Any) -> None:
    """Send one line."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


class Heartbeat:
    """Beats where nothing else is sent for some seconds, so that a reader that is gone is noticed."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Note that something was sent."""
        self._last_sent = time.monotonic()

    def send_if_due(self) -> None:
        """Send a beat where the last line was sent some seconds ago."""
        if time.monotonic() - self._last_sent > HEARTBEAT_SECONDS:
            send_json_line(beat=True)
            self.restart()


def call_with_beats(function: Callable[[], _Result]) -> _Result:
    """Return what a function returns, however long it takes: meanwhile beats are sent."""
    # Of all that is asked, few questions need it.
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(function)
        while not result.done():
            wait((result,), HEARTBEAT_SECONDS)
            if not result.done():
                send_json_line(beat=True)
        return result.result()


def require_run_folder(question: dict[str, Any]) -> Path:
    """Return the run folder that a question names."""
    run = Path(question["folder"])
    if not (run / "launch.sh").is_file():
        raise RequestFailedError(f"{run} is gone", gone=True)
    return run


def count_reported_starts(run: Path) -> int:
    """Return how often a run has reported a start."""
    return read_piece(run / "events.jsonl", 0, 1 << 26).count(b'"event":"run_started"')


def file_size(path: Path) -> int:
    """Return the size of a regular file, 0 where there is none."""
    try:
        return path.lstat().st_size if path.is_file() else 0
    except OSError:
        return 0


def read_piece(path: Path, offset: int, max_bytes: int) -> bytes:
    """Return a piece of a file, empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(max_bytes)
    except OSError:
        return b""
