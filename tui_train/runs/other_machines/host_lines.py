"""Messages of a host over ssh: lines of JSON of known types, and the bytes of files, bounded in size and in time."""

import math
import os
import select
import subprocess
import time
from typing import IO

from msgspec import Struct

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.parse import Unparsable, json_as
from tui_train.base.text import visible
from tui_train.runner.ssh import failure_advice
from tui_train.runner.state import Status

SILENCE_SECONDS = 60.0  # seconds without a byte after which a host is given up; it sends a beat every five
_MAX_LINE_BYTES = 8 << 20  # bytes of a line
_PIECE_BYTES = 1 << 16
_MAX_ERROR_LENGTH = 1000
# What ssh said is there when it has ended; the other side may keep that open.
_STDERR_WAIT_SECONDS = 2.0


class HostLine(Struct, frozen=True, kw_only=True):
    """One line of far_run.py: `error` is what it cannot do, and the others are what it answers."""

    error: str = ""
    gone: bool = False
    folder: str = ""
    started: bool = False
    said: str = ""
    # How a run stands.
    status: Status | None = None
    checkpoint: str = ""
    starts: int = 0
    limit: bool = False
    starting: bool = False
    # A piece of a log, in base64.
    file: str = ""
    at: int = 0
    data: bytes = b""
    # The files of an output folder, or one of them, whose name is in base64.
    files: int | None = None
    total: int = 0
    # What it leaves out of them.
    links: int = 0
    empty: int = 0
    others: int = 0
    name: bytes = b""
    size: int = 0
    end: bool = False
    # It still works.
    beat: bool = False


class RunGone(Unavailable):
    """The run's folder is not on its host any more."""


def parse_host_line(line: bytes) -> HostLine | None:
    """Return a line of the host's program, None for one of a login script."""
    try:
        return json_as(line, HostLine) if line.startswith(b"{") else None
    except Unparsable:
        return None


def refusal_error(host: str, line: HostLine) -> Unavailable:
    """Return what a host says that it cannot do, as an error."""
    kind = RunGone if line.gone else Unavailable
    return kind(f"{visible(host)}: {visible(line.error[:_MAX_ERROR_LENGTH])}", f"Look at it there: ssh {visible(host)}")


class HostStream:
    """The output of an ssh, by lines or pieces; NoAnswer where the host is silent or late, or a line has no end."""

    def __init__(self, host: str, child: subprocess.Popen[bytes], within_seconds: float = math.inf) -> None:
        """All is to come `within_seconds`."""
        self._host, self._child = host, child
        self._within, self._deadline = within_seconds, time.monotonic() + within_seconds
        self._buffer = bytearray()

    def read_line(self) -> bytes:
        """Return the next line, empty at the end."""
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _MAX_LINE_BYTES:
                raise NoAnswer(f"{visible(self._host)} sends a line without end", self._remedy)
            if not (piece := self._next_piece()):
                break
            self._buffer += piece
        line = bytes(self._buffer[: end + 1] if end >= 0 else self._buffer)
        del self._buffer[: len(line)]
        return line

    def read_piece(self, max_bytes: int) -> bytes:
        """Return the next bytes, at most so many; empty at the end."""
        if not self._buffer:
            self._buffer += self._next_piece()
        piece = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        return piece

    def failure_text(self) -> str:
        """Return what ssh, or the shell at its other end, said last, and what to do about it."""
        said = b""
        while len(said) < _PIECE_BYTES and (piece := _read_pipe(self._child.stderr, _STDERR_WAIT_SECONDS)):
            said += piece
        return failure_advice(said)

    def _next_piece(self) -> bytes:
        left = self._deadline - time.monotonic()
        piece = _read_pipe(self._child.stdout, min(SILENCE_SECONDS, left)) if left > 0 else None
        if piece is None:
            silent = left > SILENCE_SECONDS
            why = (
                f"gave no answer in {SILENCE_SECONDS:.0f} s" if silent else f"has not sent all in {self._within:.0f} s"
            )
            raise NoAnswer(f"{visible(self._host)} {why}", self._remedy)
        return piece

    @property
    def _remedy(self) -> str:
        return f"Check `ssh {visible(self._host)} true`."


def _read_pipe(pipe: IO[bytes] | None, seconds: float) -> bytes | None:
    """Return what a pipe has within some seconds, empty at its end; None for nothing yet."""
    assert pipe is not None, "both are pipes"  # noqa: S101 - for the type
    waits = select.poll()
    waits.register(pipe, select.POLLIN)
    return os.read(pipe.fileno(), _PIECE_BYTES) if waits.poll(seconds * 1000) else None


def start_ssh(command: list[str]) -> subprocess.Popen[bytes]:
    """Start an ssh whose output is read by a HostStream; OSError where there is none."""
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
        start_new_session=True,
    )  # fmt: skip
