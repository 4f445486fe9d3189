"""Lists the queue of this machine, and changes the places of this user's runs in it."""

from __future__ import annotations

from typing import Any

from ..queue.listing import list_waiting_starts, move_in_queue
from ..queue.tickets import queue_folder_path
from .answer_lines import RequestFailedError, require_run_folder, send_json_line


def send_queue(_question: dict[str, Any]) -> None:
    """Send what waits, in order."""
    try:
        send_json_line(waiting=list_waiting_starts())
    except OSError as error:
        raise RequestFailedError(f"cannot read the queue {queue_folder_path()}: {error.strerror}") from None


def move_run(question: dict[str, Any]) -> None:
    """Move a run to the front of this user's runs, or to their end."""
    run = require_run_folder(question)
    try:
        if not move_in_queue(str(run), to_front=question["front"]):
            raise RequestFailedError("it does not wait there")
    except OSError as error:
        raise RequestFailedError(f"cannot change the queue: {error.strerror}") from None
    send_json_line(moved=True)
