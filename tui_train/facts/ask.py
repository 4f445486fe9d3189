"""Asks a child process for one answer, and is done with it and all it started when the deadline comes."""

import contextlib
import os
import selectors
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, sleep
from typing import NamedTuple

# More than this is no answer but a program that will not stop.
_MOST = 2**20
_LATE = "it did not answer in time"
# Python waits for its threads when it ends, and they for their children.
GIVEN_UP = threading.Event()


class Answer(NamedTuple):
    """What a child wrote, and how it ended: `code` as subprocess has it; `late` if the deadline came first.

    `failure` says in words why there is no code: it was late, wrote without end, or could not be started.
    """

    out: bytes = b""
    error: bytes = b""
    code: int | None = None
    late: bool = False
    failure: str = ""

    def ending(self) -> str:
        """Return in words why the answer is no answer."""
        if self.failure:
            return self.failure
        said = self.error.decode("utf-8", "replace").strip().splitlines()
        last = f": {said[-1].strip()[:200]}" if said else ""
        if self.code is not None and self.code < 0:
            return f"it was ended by signal {-self.code}{last}"
        if self.code:
            return f"it ended with exit code {self.code}{last}"
        return f"it gave no usable answer{last}"


def give_up(*, now: bool = True) -> None:
    """End every question that is being asked, and those to come; or, with `now` false, let questions be asked again."""
    (GIVEN_UP.set if now else GIVEN_UP.clear)()


def ask(
    command: Sequence[str],
    deadline: float,
    changes: Mapping[str, str] | None = None,
    folder: str | None = "/",
    cancelled: Callable[[], bool] = lambda: False,
) -> Answer:
    """Run `command` with `changes` to the environment and return what it said within `deadline` seconds.

    It is given up as soon as `cancelled` tells so.
    It runs in `folder`, None for the current one, and in a process group of its own, which is killed at the end.
    """
    ends = monotonic() + deadline
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(changes or {})},
            cwd=folder,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        return Answer(failure=f"it cannot be started: {getattr(error, 'strerror', None) or error}")
    texts = (bytearray(), bytearray())
    try:
        failure = _listen(process, texts, ends, lambda: GIVEN_UP.is_set() or cancelled())
    finally:
        _kill(process)
    return Answer(
        bytes(texts[0]),
        bytes(texts[1]),
        None if failure else process.returncode,
        late=failure == _LATE,
        failure=failure,
    )


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        # The process is not reaped yet, so the number of its group cannot have gone to another.
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        # A process that hangs inside a driver cannot even be killed.
        process.wait(timeout=1)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def _listen(
    process: subprocess.Popen[bytes], texts: tuple[bytearray, bytearray], ends: float, given_up: Callable[[], bool]
) -> str:
    """Put what `process` writes into `texts` until it ends, or return why it is not worth waiting longer."""
    with selectors.DefaultSelector() as selector:
        for pipe, text in zip((process.stdout, process.stderr), texts, strict=True):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, text)
        more, ended = True, False
        # Something that the child left running may hold the pipes open: once it is over, what is there already is all.
        while selector.get_map() and (more or not ended):
            left = ends - monotonic()
            if left <= 0 or given_up():
                return _LATE
            ended = _ended(process)
            more = _read(selector, 0 if ended else min(left, 0.05))
            if max(map(len, texts)) > _MOST:
                return "it does not stop writing"
    while not _ended(process):
        if monotonic() > ends or given_up():
            return _LATE
        sleep(0.01)
    return ""


def _read(selector: selectors.BaseSelector, seconds: float) -> bool:
    """Wait at most `seconds` for something to read; return whether there was any."""
    events = selector.select(seconds)
    for key, _ in events:
        data = os.read(key.fd, 65536)
        key.data.extend(data)
        if not data:
            selector.unregister(key.fileobj)
    return bool(events)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process is over, leaving it for `wait` to reap."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
