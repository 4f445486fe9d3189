"""Runs a program that was sent along, and relays its messages as long as somebody reads them; nothing of it stays."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import IO, Any, BinaryIO, Iterator

from ..system.new_folder import new_folder
from .answer_lines import Heartbeat, RequestFailedError, send_json_line

_PIECE_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 20
_MAX_STDERR_BYTES, _STDERR_TAIL_BYTES = 64 << 20, 4096
_POLL_SECONDS = 0.5
# To let go of a large model takes its time.
_MAX_EXIT_SECONDS = 300.0
_TERMINATED_EXIT_CODE = 128 + signal.SIGTERM
# What the kernel takes first where memory ends.
_OOM_SCORE_ADJUSTMENT = "1000"


def run_program(question: dict[str, Any]) -> None:
    """Run `python` on the program `entry` of the `files` that were sent, with a `request` and these `variables`.

    Its lines are sent as they come, at the end its exit code and the end of its errors; what comes on the input is its
    input where it `has_stdin`. A folder that it is to make (`into`) is whole once it ends with 0, or not there at all.
    It may take `memory_limit` bytes of memory (0: any).
    """
    # So that what it started ends, and nothing is left, where whoever asks ends this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED_EXIT_CODE))
    with contextlib.ExitStack() as held:
        programs = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="tui-train-")))
        for name, text in question["files"].items():
            (programs / name).parent.mkdir(parents=True, exist_ok=True)
            (programs / name).write_text(text, encoding="utf-8")
        request, into = question["request"], question["into"]
        if into:
            request["into"] = str(held.enter_context(_new_folder_reporting_obstacles(into)))
        command = [question["python"], "-B", str(programs / question["entry"]), json.dumps(request)]
        errors = held.enter_context(tempfile.TemporaryFile())
        try:
            child = subprocess.Popen(
                command, env={**os.environ, **question["variables"]}, cwd="/", stdout=subprocess.PIPE, stderr=errors,
                stdin=subprocess.PIPE if question["has_stdin"] else subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise RequestFailedError(f"{command[0]} cannot be started: {why}") from None
        with _killing_at_exit(child):
            # It may have ended already, or belong to another user, as `sudo` does.
            with contextlib.suppress(OSError, ValueError):
                if limit := question["memory_limit"]:
                    resource.prlimit(child.pid, resource.RLIMIT_DATA, (limit, limit))
                Path(f"/proc/{child.pid}/oom_score_adj").write_text(_OOM_SCORE_ADJUSTMENT, encoding="ascii")
            if child.stdin is not None:
                threading.Thread(target=_relay_input, args=(child.stdin,), daemon=True).start()
            _relay_output(child, errors)
            _wait_for_exit(child)
        if into and child.returncode != 0:
            shutil.rmtree(request["into"], ignore_errors=True)
        said, code = _stderr_tail(errors), child.returncode
    send_json_line(ended=True, code=code, said=said)


def _stderr_tail(errors: BinaryIO) -> str:
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _STDERR_TAIL_BYTES))
    return errors.read(_STDERR_TAIL_BYTES).decode(errors="replace")


@contextlib.contextmanager
def _new_folder_reporting_obstacles(into: str) -> Iterator[Path]:
    """Yield the folder in which another one is made; what is in the way is said to who asked."""
    path = Path(into).expanduser()
    if not path.parent.is_dir():
        raise RequestFailedError(f"there is no folder {path.parent}")
    try:
        with new_folder(path) as beside:
            yield beside
    except OSError as error:
        raise RequestFailedError(f"{error.filename or into}: {error.strerror}") from None


@contextlib.contextmanager
def _killing_at_exit(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """End a program with all that it started, also where whoever asked is gone."""
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _relay_input(pipe: IO[bytes]) -> None:
    """Hand on what comes on the input; at its end, the program's ends as well."""
    with contextlib.suppress(OSError, ValueError):
        # Not by sys.stdin, whose lock an end of this process would wait for.
        while piece := os.read(0, _PIECE_BYTES):
            pipe.write(piece)
            pipe.flush()
    with contextlib.suppress(OSError):
        pipe.close()


def _relay_output(child: subprocess.Popen[bytes], errors: BinaryIO) -> None:
    """Send what a program prints, and between two lines now and then that it still works."""
    assert child.stdout is not None  # noqa: S101 - it is a pipe
    end, rest, heartbeat = child.stdout.fileno(), b"", Heartbeat()
    while True:
        if os.fstat(errors.fileno()).st_size > _MAX_STDERR_BYTES:
            last = (_stderr_tail(errors).strip().splitlines() or ["blanks"])[-1]
            raise RequestFailedError(f"it wrote more than {_MAX_STDERR_BYTES >> 20} MiB of errors: {last[:200]}")
        if not select.select([end], [], [], _POLL_SECONDS)[0]:
            heartbeat.send_if_due()
            continue
        piece = os.read(end, _PIECE_BYTES)
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            sys.stdout.buffer.write(line + b"\n")
        sys.stdout.buffer.flush()
        if lines:
            heartbeat.restart()
        if len(rest) > _MAX_LINE_BYTES:
            raise RequestFailedError("it wrote a line of more than 1 MiB")
        if not piece:
            return


def _wait_for_exit(child: subprocess.Popen[bytes]) -> None:
    """Wait until a program that prints no more has ended."""
    heartbeat, deadline = Heartbeat(), time.monotonic() + _MAX_EXIT_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=_POLL_SECONDS)
            return
        heartbeat.send_if_due()
    raise RequestFailedError("the program does not end")
