"""A question to a machine, and its answer: lines of JSON, and bytes of files, bounded in size and in time.

A host is asked over ssh, and this machine in a child. All but one word goes through the standard input, so that any
login shell will do. First comes a small text that looks whether the machine has kept the runner of this version; where
it has not, that is sent once, and then it answers.
"""

import json
import math
import os
import select
import shlex
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import cache
from typing import IO, Any, TypeVar

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.base.text import visible
from tui_train.channel.runner_zip import runner_texts, runner_zip
from tui_train.channel.ssh import ssh_command_prefix
from tui_train.runner.compiled import RUNNER_MISSING_LINE, RUNNER_READY_LINE
from tui_train.runner.machines.ssh import (
    LOGIN_COMMAND,
    login_advice,
    login_control_path_pattern,
    remote_shell_line,
    ssh_command,
)

# The command on the host. No shell finds anything special in it but the quotes.
PYTHON_COMMAND = ("python3", "-IS", "-X", "utf8", "-c", "import sys;exec(sys.stdin.buffer.readline())")
MAX_SILENCE_SECONDS = 60.0  # seconds without a byte after which a host is given up; it sends a beat every five
_MAX_LINE_BYTES = 8 << 20
_MAX_PIECE_BYTES = 1 << 16
# What ssh said is there when it has ended; the other side may keep that open.
_STDERR_WAIT_SECONDS = 2.0
_CANCEL_POLL_SECONDS = 0.1
_LOCAL_END_SECONDS = 5.0
_Answer = TypeVar("_Answer")


class Session:
    """One question and what a machine answers to it, until it is closed.

    NoAnswer where the `host` (empty: this machine) is silent, late, or sends a line without end; Unavailable where
    there is no ssh.
    """

    def __init__(  # noqa: PLR0913 - each has a default but two
        self,
        host: str,
        question: Mapping[str, Any],
        *,
        asking_host: str | None = None,
        stdin_data: Iterable[bytes] = (),
        stays_open: bool = False,
        within_seconds: float = math.inf,
        silence_seconds: float | None = None,
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Start ssh: all is to come `within_seconds`, and never nothing for `silence_seconds` (None: a minute).

        `asking_host`: see `answering_python_command`. The pieces of `stdin_data` follow the question, and where it
        `stays_open` what is sent later.
        """
        self._asking_host = asking_host
        self.host, self._question, self._stdin_data = host, question, stdin_data
        self._stays_open = stays_open
        self.name = machine_name(host)
        self._within, self._deadline = within_seconds, time.monotonic() + within_seconds
        self._silence = MAX_SILENCE_SECONDS if silence_seconds is None else silence_seconds
        self._is_cancelled = is_cancelled
        self._buffer = bytearray()
        self._asked = self._heard = False
        try:
            self._child = subprocess.Popen(
                answering_python_command(host, asking_host),
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"ssh cannot be started: {error.strerror}", "Install the client of OpenSSH.") from None
        assert self._child.stdin and self._child.stdout and self._child.stderr, "all three are pipes"  # noqa: S101, PT018
        self._stdin, self._stdout, self._stderr = self._child.stdin, self._child.stdout, self._child.stderr
        os.set_blocking(self._stdin.fileno(), False)

    def kill(self) -> None:
        """End ssh: whoever reads gets no more."""
        self._child.kill()

    def close(self) -> None:
        """End ssh, and let go of it; what answers on this machine has some seconds to end what it started."""
        if self.host:
            self.kill()
        else:
            self._child.terminate()
        for pipe in (self._stdin, self._stdout, self._stderr):
            pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_LOCAL_END_SECONDS)
        self.kill()
        self._child.wait()

    def read_line(self) -> bytes:
        """Return the next line of the answer, empty at the end."""
        if not self._asked:
            self._send_question()
        line = self._next_line()
        self._heard = self._heard or bool(line)
        return line

    def lines(self, line_type: type[_Answer]) -> Iterator[_Answer]:
        """Yield the lines of the answer that are of a type; those of a login script are passed over."""
        while line := self.read_line():
            try:
                sent = parse_json_as(line, line_type)
            except Unparsable:
                continue
            yield sent

    def answers(self, line_type: type[_Answer]) -> Iterator[_Answer]:
        """Yield lines of a type until the reader has what it wants; NoAnswer where the answer ends before."""
        yield from self.lines(line_type)
        raise self.incomplete_answer_error()

    def send(self, data: bytes) -> None:
        """Send more, of a question that stays open; of one that is gone, the answer tells."""
        if not self._asked:
            self._send_question()
        self._write(data)

    def read_piece(self, max_bytes: int) -> bytes:
        """Return the next bytes of the answer, at most so many; empty at the end."""
        if not self._buffer:
            self._buffer += self._next_piece()
        piece = bytes(self._buffer[:max_bytes])
        del self._buffer[:max_bytes]
        return piece

    def failure_text(self) -> str:
        """Return what ssh, or the shell at its other end, said last, what it means, and whether to log in."""
        return login_advice(self.host, self._read_stderr(), self._asking_host or "")

    def incomplete_answer_error(self) -> NoAnswer:
        """Return why the answer has ended before it was whole."""
        text = self.failure_text()
        remedy = "Log in once, or set up a key (ssh-copy-id)." if LOGIN_COMMAND in text else self._remedy
        return NoAnswer(f"{self.name} did not answer: {text}", remedy)

    def _read_stderr(self) -> bytes:
        said = b""
        with suppress(NoAnswer):
            while len(said) < _MAX_PIECE_BYTES and (piece := self._read_pipe(self._stderr, _STDERR_WAIT_SECONDS)):
                said += piece
        return said

    def _send_question(self) -> None:
        """Send the question, and the runner where the host has none of this version; what comes before is dropped."""
        self._asked = True
        self._write(_starter_and_question_bytes(self._question))
        was_sent = False
        while line := self._next_line():
            # What a login script printed last may have had no end of line.
            if line.endswith(RUNNER_MISSING_LINE):
                if was_sent:
                    raise NoAnswer(f"{self.name} asks for the runner again", self._remedy)
                self._write(runner_zip())
                was_sent = True
            elif line.endswith(RUNNER_READY_LINE):
                # Of a host that is gone, the answer tells.
                all(map(self._write, self._stdin_data))
                break
        if not self._stays_open:
            self._stdin.close()

    def _next_line(self) -> bytes:
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > _MAX_LINE_BYTES:
                raise NoAnswer(f"{self.name} sends a line without end", self._remedy)
            if not (piece := self._next_piece()):
                break
            self._buffer += piece
        line = bytes(self._buffer[: end + 1] if end >= 0 else self._buffer)
        del self._buffer[: len(line)]
        return line

    def _next_piece(self) -> bytes:
        if (piece := self._read_pipe(self._stdout, self._silence)) is None:
            raise self._timeout_error()
        return piece

    def _write(self, data: bytes) -> bool:
        """Send bytes as the host takes them, and return whether it took them all."""
        left = memoryview(data)
        with suppress(BrokenPipeError):
            while left:
                if not self._wait_for_pipe(self._stdin, select.POLLOUT, self._silence):
                    raise self._timeout_error()
                with suppress(BlockingIOError):
                    left = left[os.write(self._stdin.fileno(), left[:_MAX_PIECE_BYTES]) :]
        return not left

    def _read_pipe(self, pipe: IO[bytes], seconds: float) -> bytes | None:
        """Return what a pipe has within some seconds, empty at its end; None for nothing yet."""
        return os.read(pipe.fileno(), _MAX_PIECE_BYTES) if self._wait_for_pipe(pipe, select.POLLIN, seconds) else None

    def _wait_for_pipe(self, pipe: IO[bytes], event: int, seconds: float) -> bool:
        """Return whether a pipe is ready within some seconds, and before the end of all."""
        poll, end = select.poll(), min(time.monotonic() + seconds, self._deadline)
        poll.register(pipe, event)
        while (left := end - time.monotonic()) > 0:
            if self._is_cancelled():
                raise NoAnswer(f"{self.name} was not waited for", self._remedy)
            if poll.poll(min(left, _CANCEL_POLL_SECONDS) * 1000):
                return True
        return False

    def _timeout_error(self) -> NoAnswer:
        late = time.monotonic() >= self._deadline
        seconds = self._within if late else self._silence
        what = "has not sent all" if late and self._heard else "gave no answer"
        return NoAnswer(f"{self.name} {what} in {seconds:.0f} s", self._remedy)

    @property
    def _remedy(self) -> str:
        return f"Check `ssh {self.name} true`." if self.host else "Try again."


def machine_name(host: str) -> str:
    """Return what a machine is called in a sentence."""
    return visible(host) or "this machine"


def answering_python_command(host: str, asking_host: str | None = None) -> Sequence[str]:
    """Return what starts the Python that answers for a host (empty: this machine).

    With an `asking_host` (empty: this machine) it is reached as a training there reaches the others.
    """
    if asking_host is None and not host:
        return (sys.executable, *PYTHON_COMMAND[1:])
    if asking_host is None:
        return (*ssh_command_prefix(host), remote_shell_line(PYTHON_COMMAND))
    words = ssh_command(host, PYTHON_COMMAND, login_control_path_pattern({} if asking_host else os.environ))
    # The keys of the wizard come first. The connection to an `asking_host` is shared with what comes later, and keeps
    # its priority.
    return (*ssh_command_prefix(asking_host), shlex.join(words)) if asking_host else ("nice", *words)


def ask_host(  # noqa: PLR0913 - each has a default but four
    host: str,
    question: Mapping[str, Any],
    answer_type: type[_Answer],
    answer_seconds: float,
    *,
    asking_host: str | None = None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> _Answer:
    """Return the answer of a host (empty: this machine) to a question; NoAnswer where it gives none in time."""
    # Nothing comes before the answer, which may take its time: a training that is stopped saves first.
    session = Session(
        host, question, asking_host=asking_host, within_seconds=answer_seconds, silence_seconds=math.inf,
        is_cancelled=is_cancelled,
    )  # fmt: skip
    with closing(session):
        return next(session.answers(answer_type))


def _starter_and_question_bytes(question: Mapping[str, Any]) -> bytes:
    """Return what the Python of a host is sent first: the text that finds the runner, a line, and the question."""
    first = {"checksum": f"{zlib.crc32(runner_zip()):08x}", "size": len(runner_zip()), "question": question}
    return _starter_code() + json.dumps(first).encode() + b"\n"


@cache
def _starter_code() -> bytes:
    text = f"{runner_texts()['runner/compiled.py']}\nsys.exit(answer_question(sys.stdin.buffer, sys.stdout.buffer))\n"
    too_old = 'sys.exit("python3 there is %d.%d: 3.8 or newer is needed" % sys.version_info[:2])'
    return f"exec({text!a}) if sys.version_info >= (3, 8) else {too_old}\n".encode()
