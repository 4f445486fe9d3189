"""Takes what a host sends of a run on it: the new pieces of its logs and events, and how it stands."""

import base64
import contextlib
import json
import os
import re
import subprocess
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from tui_train.base.files import write_beside
from tui_train.runs.far import words
from tui_train.runs.place import HEARD, Heard, Place
from tui_train.runs.rundir import RunDir
from tui_train.supervisor.ssh import lost
from tui_train.supervisor.state import Status

_SENT = re.compile(r"events\.jsonl|launch\.log|attempt-\d{1,6}\.log", re.ASCII)
_MOST = 8 << 20  # bytes of one piece


def feed(
    run: RunDir,
    place: Place,
    *,
    once: bool,
    begun: Callable[[subprocess.Popen[bytes]], object] = lambda _child: None,
    answers: Callable[[], object] = lambda: None,
) -> tuple[bool, str, bool]:
    """Take what the host sends until it stops; return whether it answered, why it stopped, and whether it was done.

    It is done when the run has ended; with `once` as soon as all is here. `begun` gets the process that listens, and
    `answers` is called when the host does.
    """
    have = {path.name: path.stat().st_size for path in run.path.iterdir() if _SENT.fullmatch(path.name)}
    question = {"do": "feed", "folder": place.folder, "have": have, "once": once}
    answered, wrong = False, ""
    try:
        child = subprocess.Popen(
            words(place.host, question), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return False, str(error.strerror), False
    begun(child)
    assert child.stdout is not None  # noqa: S101 - for the type
    assert child.stderr is not None  # noqa: S101
    with child:
        while line := child.stdout.readline(_MOST):
            told = _parsed(line)
            if told is None:
                continue
            if not answered:
                answered = True
                answers()
            wrong = str(told["error"]) if "error" in told else wrong
            if told.get("end"):
                return True, "", True
            _take(run, told)
        said = child.stderr.read(1 << 16)
    return answered, wrong or lost(said), False


def _take(run: RunDir, told: dict[str, Any]) -> None:
    """Write a piece of a file, or how the run stands."""
    with contextlib.suppress(KeyError, TypeError, ValueError, zlib.error, OSError, msgspec.MsgspecError):
        if "file" in told and _SENT.fullmatch(told["file"]):
            _write(run, told["file"], int(told["at"]), zlib.decompress(base64.b64decode(told["data"])))
        elif "status" in told:
            heard = Heard(
                at=time.time(),
                status=msgspec.convert(told["status"], Status),
                checkpoint=str(told.get("checkpoint", "")),
                starts=int(told.get("starts", 0)),
                limit=bool(told.get("limit")),
            )
            write_beside(run.path / HEARD, msgspec.json.encode(heard))


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _write(run: RunDir, name: str, at: int, data: bytes) -> None:
    """Write bytes at their place in a file that grows; what begins again begins from nothing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if at == 0 else 0)
    opened = os.open(run.path / name, flags, 0o644)
    try:
        if os.fstat(opened).st_size >= at:
            os.pwrite(opened, data, at)
    finally:
        os.close(opened)
