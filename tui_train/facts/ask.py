"""Runs a child process for one answer, and kills it with its descendants at the deadline."""

import os
import selectors
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic, sleep
from typing import NamedTuple

from tui_train.facts import bounded

# Bytes; a child that writes more is considered out of control.
_MOST = 2**20
TIMED_OUT = "no answer in time"
NOT_STARTED = "cannot be started"
# At exit Python waits for its threads, and they wait for their children.
ALL_CANCELLED = threading.Event()


def without_current_folder(variables: Mapping[str, str]) -> dict[str, str]:
    """Return PATH and PYTHONPATH without relative entries: in a clone they would start its programs and modules."""
    kept = {}
    for name in ("PATH", "PYTHONPATH"):
        if name in variables:
            kept[name] = os.pathsep.join(filter(os.path.isabs, variables[name].split(os.pathsep)))
    return kept


def find_on_path(program: str) -> str:
    """Return the path of a program on PATH, empty if there is none; relative entries of PATH are ignored."""
    return shutil.which(program, path=without_current_folder({"PATH": os.defpath, **os.environ})["PATH"]) or ""


class ChildResult(NamedTuple):
    """The output of a child and its exit code, as in subprocess; `late` if the deadline came first.

    `failure` is why there is no code: it was late, wrote too much, or could not be started. `memory` is how many bytes
    it could take.
    """

    out: bytes = b""
    error: bytes = b""
    code: int | None = None
    late: bool = False
    failure: str = ""
    memory: int = 0

    def ending(self) -> str:
        """Return the reason why there is no usable answer, as text."""
        if self.failure:
            return self.failure
        lines = self.error.decode("utf-8", "replace").strip().splitlines()
        last = f": {lines[-1].strip()[:200]}" if lines else ""
        if why := bounded.out_of_memory_reason(self.code, last, self.memory):
            return why
        if self.code is not None and self.code < 0:
            return f"it was ended by signal {-self.code}{last}"
        if self.code:
            return f"it ended with exit code {self.code}{last}"
        return f"no usable answer{last}"


def cancel_children(*, now: bool = True) -> None:
    """Cancel all running and future questions; with `now` false, allow questions again."""
    (ALL_CANCELLED.set if now else ALL_CANCELLED.clear)()


def run_child(  # noqa: PLR0913 - each has a default but two
    command: Sequence[str],
    deadline: float,
    changes: Mapping[str, str] | None = None,
    folder: str | None = "/",
    *,
    cancelled: Callable[[], bool] = lambda: False,
    memory: int | None = None,
    given: bytes = b"",
    lasting: bool = False,
) -> ChildResult:
    """Run `command` with `changes` to the environment and return its output within `deadline` seconds.

    `given` is its input. It is given up as soon as `cancelled` tells so, and with the program unless it is `lasting`.
    It runs in `folder`, None for the current one, and in a process group of its own, which is killed at the end. It may
    take as much `memory` as reading does, or other bytes than that.
    """
    ends = monotonic() + deadline
    memory = bounded.reading_limit() if memory is None else memory
    try:
        changes = {**without_current_folder(os.environ), **(changes or {})}
        with _input(given) as stdin:
            process = bounded.start_limited(command, memory, changes, folder, stdin=stdin)
    except (OSError, ValueError) as error:
        return ChildResult(failure=f"{NOT_STARTED}: {getattr(error, 'strerror', None) or error}")
    texts = (bytearray(), bytearray())
    try:
        failure = _listen(process, texts, ends, lambda: (ALL_CANCELLED.is_set() and not lasting) or cancelled())
    finally:
        bounded.kill_and_close(process, 1.0)
    return ChildResult(
        bytes(texts[0]),
        bytes(texts[1]),
        None if failure else process.returncode,
        late=failure == TIMED_OUT,
        failure=failure,
        memory=memory,
    )


@contextmanager
def _input(given: bytes) -> Iterator[int]:
    """Yield what a child reads its input from, however slowly."""
    if not given:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(given)
        file.seek(0)
        yield file.fileno()


def _listen(
    process: subprocess.Popen[bytes], texts: tuple[bytearray, bytearray], ends: float, given_up: Callable[[], bool]
) -> str:
    """Collect the output of `process` in `texts` until it ends, or return why it was given up."""
    with selectors.DefaultSelector() as selector:
        for pipe, text in zip((process.stdout, process.stderr), texts, strict=True):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, text)
        is_open, ended = True, False
        # Descendants of the child may hold the pipes open: once it has ended, only what is there is read.
        while selector.get_map() and (is_open or not ended):
            remaining = ends - monotonic()
            if remaining <= 0 or given_up():
                return TIMED_OUT
            ended = _ended(process)
            is_open = _read(selector, 0 if ended else min(remaining, 0.05))
            if max(map(len, texts)) > _MOST:
                return f"it wrote more than {_MOST >> 20} MiB"
    while not _ended(process):
        if monotonic() > ends or given_up():
            return TIMED_OUT
        sleep(0.01)
    return ""


def _read(selector: selectors.BaseSelector, seconds: float) -> bool:
    """Wait at most `seconds` for output; return whether there was any."""
    events = selector.select(seconds)
    for key, _ in events:
        data = os.read(key.fd, 65536)
        key.data.extend(data)
        if not data:
            selector.unregister(key.fileobj)
    return bool(events)


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
