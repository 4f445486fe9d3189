"""Other programs, asked for an answer: bounded in time and in what they say, and ended with all that they started."""

from __future__ import annotations

import os
import select
import shutil
import signal
import time
from contextlib import suppress
from typing import Callable, Mapping, NamedTuple, Sequence

# Of each of its two outputs; what is beyond is read and dropped.
_MAX_OUTPUT_BYTES = 1 << 20
# Seconds between two looks whether it has ended, or whether we are to stop.
_POLL_SECONDS = 0.02
# Seconds for a killed process to be gone; one that hangs in a driver never is.
_KILL_WAIT_SECONDS = 1.0


def _never_interrupted() -> bool:
    return False


# Set by whoever has signals to listen to: whether an answer is no longer of use.
is_interrupted: Callable[[], bool] = _never_interrupted

# Children that even SIGKILL did not end: they hang in a driver, and are no part of a training.
UNKILLABLE_PIDS: set[int] = set()


class ProgramAnswer(NamedTuple):
    """Exit code of a program as a shell counts it, and its output; the code is None where it did not end in time."""

    code: int | None
    out: str
    err: str


def find_on_path(program: str) -> str:
    """Return the path of a program on PATH, empty if there is none; an entry that is no absolute path is ignored.

    In a clone such an entry would start a program of the project.
    """
    folders = filter(os.path.isabs, os.environ.get("PATH", os.defpath).split(os.pathsep))
    return shutil.which(program, path=os.pathsep.join(folders)) or ""


def run_program(
    words: Sequence[str],
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    *,
    interruptible: bool = True,
) -> ProgramAnswer:
    """Return what a program answers within so many seconds.

    One that is out of time is killed with its whole group; so is, where it is `interruptible`, one whose answer is no
    longer of use (`is_interrupted`).
    """
    try:
        pid, *ends = spawn_program(words, os.environ if env is None else env)
    except OSError as error:
        return ProgramAnswer(None, "", str(error))
    output = {end: bytearray() for end in ends}
    code = None
    try:
        code = _collect_output(pid, output, time.monotonic() + timeout_seconds, interruptible=interruptible)
    finally:
        # Whatever a handler of signals raises meanwhile, nothing is left running.
        if code is None:
            kill_process_group(pid)
        for end in ends:
            os.close(end)
    out, err = (bytes(output[end]).decode("utf-8", "replace") for end in ends)
    return ProgramAnswer(code, out, err)


def spawn_program(words: Sequence[str], env: Mapping[str, str]) -> tuple[int, int, int]:
    """Start a program and return its number and the ends from which its output and its errors are read."""
    outputs = [os.pipe(), os.pipe()]
    try:
        pid = _spawn_with_outputs(words, env, [end for _, end in outputs])
    except OSError:
        for end, _ in outputs:
            os.close(end)
        raise
    finally:
        for _, end in outputs:
            os.close(end)
    return pid, outputs[0][0], outputs[1][0]


def shell_exit_code(wait_status: int) -> int:
    """Return the exit code of a wait status as a shell counts it: 128 and the signal for one that was killed."""
    return 128 + os.WTERMSIG(wait_status) if os.WIFSIGNALED(wait_status) else os.WEXITSTATUS(wait_status)


def _spawn_with_outputs(words: Sequence[str], env: Mapping[str, str], output_ends: Sequence[int]) -> int:
    """Start a program in a group of its own, with nothing of ours open but its two outputs."""
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
    ]
    actions += [(os.POSIX_SPAWN_DUP2, end, number) for number, end in enumerate(output_ends, start=1)]
    actions += [(os.POSIX_SPAWN_CLOSE, number) for number in _inheritable_descriptors()]
    # Python ignores these two, and whoever is started would inherit that.
    ignored = [signal.SIGPIPE, signal.SIGXFSZ]
    return os.posix_spawnp(words[0], list(words), dict(env), file_actions=actions, setpgroup=0, setsigdef=ignored)


def _inheritable_descriptors() -> list[int]:
    inherited = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                inherited.append(int(name))
        except OSError:
            continue
    return inherited


def _collect_output(pid: int, output: dict[int, bytearray], deadline: float, *, interruptible: bool) -> int | None:
    """Read both outputs until the program has ended; return its exit code, None where it did not in time."""
    poller = select.poll()
    unread = set(output)
    for end in unread:
        poller.register(end, select.POLLIN)
    while time.monotonic() < deadline and not (interruptible and is_interrupted()):
        if unread and _read_ready_outputs(poller, output, unread, _POLL_SECONDS):
            continue
        # A program may leave others that keep its outputs open: these are not waited for.
        code = _wait_for_exit_code(pid, 0.0 if unread else _POLL_SECONDS)
        if code is not None:
            while unread and _read_ready_outputs(poller, output, unread, 0.0):
                pass
            return code
    return None


def _read_ready_outputs(poller: select.poll, output: dict[int, bytearray], unread: set[int], seconds: float) -> bool:
    """Read what there is within so many seconds; False where there was nothing."""
    ready = poller.poll(seconds * 1000)
    for end, _ in ready:
        piece = os.read(end, 1 << 16)
        if piece:
            output[end] += piece[: _MAX_OUTPUT_BYTES - len(output[end])]
        else:
            poller.unregister(end)
            unread.discard(end)
    return bool(ready)


def _wait_for_exit_code(pid: int, timeout_seconds: float) -> int | None:
    """Return a child's exit code, None while it lives after so many seconds."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            ended, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            # Somebody else has collected it, and knows how it ended.
            return 1
        if ended:
            return shell_exit_code(status)
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.002)


def kill_process_group(pid: int) -> None:
    """Kill a child with its whole group; one that hangs in a driver stays, and is among `UNKILLABLE_PIDS`."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if _wait_for_exit_code(pid, _KILL_WAIT_SECONDS) is None:
        UNKILLABLE_PIDS.add(pid)
