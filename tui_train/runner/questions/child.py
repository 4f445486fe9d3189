"""Runs a program that was sent along, for one answer, and leaves nothing of it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from typing import Any

from .answer_lines import HEARTBEAT_SECONDS, send_json_line

_CANNOT_START_EXIT_CODE = 127
_MAX_OUTPUT_CHARACTERS = 1 << 20


def send_child_output(question: dict[str, Any]) -> None:
    """Send what a `command` prints with these `variables`, and its exit code: null where it took more than `seconds`.

    Whoever asked may be gone: that is noticed, and then it is ended as well.
    """
    deadline = time.monotonic() + question["seconds"]
    try:
        child = subprocess.Popen(
            question["command"], env={**os.environ, **question["variables"]}, cwd="/", stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
    except (OSError, ValueError) as error:
        said = f"cannot be started: {getattr(error, 'strerror', None) or error}"
        send_json_line(code=_CANNOT_START_EXIT_CODE, out="", said=said)
        return
    code, texts = None, (b"", b"")
    try:
        while (left := deadline - time.monotonic()) > 0:
            with contextlib.suppress(subprocess.TimeoutExpired):
                texts = child.communicate(timeout=min(left, HEARTBEAT_SECONDS))
                code = child.returncode
                break
            send_json_line(beat=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    out, said = (text.decode(errors="replace")[-_MAX_OUTPUT_CHARACTERS:] for text in texts)
    send_json_line(code=code, out=out, said=said)
