"""Sends the state of a run, and the changes in its folder until it has ended."""

from __future__ import annotations

import base64
import json
import time
import zlib
from pathlib import Path
from typing import Any, Iterator

from ..run_folder import checkpoints, state, supervisor_plan
from ..system.paths import runs_folder
from .answer_lines import (
    PIECE_BYTES,
    SENT_FILE_PATTERN,
    TIME_LIMIT_FILE_NAME,
    Heartbeat,
    count_reported_starts,
    file_size,
    read_piece,
    require_run_folder,
    send_json_line,
)
from .run_start import hold_start_lock

_POLL_SECONDS = 0.4


def send_status(question: dict[str, Any]) -> None:
    """Send how the run stands."""
    standing, _ = _run_state_and_whether_live(require_run_folder(question))
    send_json_line(**standing)


def send_status_of_newest_runs(question: dict[str, Any]) -> None:
    """Send how each run on this machine stands, the newest first, not more than the `most`."""
    folder = Path(runs_folder())
    names = sorted(path.parent.name for path in folder.glob("[!.]*/launch.sh"))
    for name in names[: -1 - question["most"] : -1]:
        try:
            send_json_line(run=name, status=state.read_status(str(folder / name)))
        except Exception:  # noqa: BLE001 - whatever is in this folder, the others are sent
            send_json_line(run=name)
    send_json_line(end=True)


def send_changes(question: dict[str, Any]) -> None:
    """Send what is new in the folder, until the run has ended; `have` says how much of each file is there already.

    Without it (null) no files are sent: whoever asks reads them himself.
    """
    run, have, last_sent, heartbeat = require_run_folder(question), question["have"], "", Heartbeat()
    sent_bytes = {**have} if have is not None else None
    while True:
        # What is written between the two looks is sent before the end is told.
        standing, live = _run_state_and_whether_live(run)
        more = False
        for name, at, data in _unsent_pieces(run, sent_bytes) if sent_bytes is not None else ():
            send_json_line(file=name, at=at, data=base64.b64encode(zlib.compress(data, 1)).decode())
            more = True
        if (changed := json.dumps(standing)) != last_sent:
            send_json_line(**standing)
            last_sent = changed
            heartbeat.restart()
        if not more and (question["once"] or not live):
            send_json_line(end=True)
            return
        heartbeat.send_if_due()
        time.sleep(0 if more else _POLL_SECONDS)


def _unsent_pieces(run: Path, sent_bytes: dict[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the next piece of each file that has grown, with its name and offset; one that shrank begins again."""
    for name in sorted(path.name for path in run.iterdir() if SENT_FILE_PATTERN.fullmatch(path.name)):
        length, offset = file_size(run / name), sent_bytes.get(name, 0)
        offset = 0 if length < offset else offset
        if length > offset and (data := read_piece(run / name, offset, PIECE_BYTES)):
            yield name, offset, data
            sent_bytes[name] = offset + len(data)


def _run_state_and_whether_live(run: Path) -> tuple[dict[str, Any], bool]:
    """Return how a run stands, and whether it is live or being started."""
    # Before the state, so that whoever gets both never takes a run that has ended for one that was not started.
    begun, near_limit = count_reported_starts(run), (run / TIME_LIMIT_FILE_NAME).exists()
    with hold_start_lock(run, wait_for_lock=False) as lock:
        starting = lock < 0
    found = state.read_status(str(run))
    standing = {
        "status": found, "checkpoint": _newest_checkpoint(run, found), "starts": begun, "limit": near_limit,
        "starting": starting,
    }  # fmt: skip
    return standing, found.is_live or found.trains_unsupervised or starting


def _newest_checkpoint(run: Path, status: state.RunStatus) -> str:
    try:
        position = status.attempts[-1].position if status.attempts else 0
        return checkpoints.newest_checkpoint_of_attempt(supervisor_plan.read_plan(str(run)), position, str(run))
    except Exception:  # noqa: BLE001 - what is wrong with the plan is not asked here
        return ""
