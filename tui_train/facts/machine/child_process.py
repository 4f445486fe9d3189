"""Runs a child process for one answer, and kills it with its descendants at the deadline."""

import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple, TypeVar

from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.facts.machine import child_memory_limit

_PACKAGE_PARENT_FOLDER = Path(__file__).resolve().parents[3]
# Bytes; a child that writes more is considered out of control.
_MAX_OUTPUT_BYTES = 2**20
DEADLINE_PASSED_REASON = "no answer in time"
# At exit Python waits for its threads, and they wait for their children.
CHILDREN_CANCELLED_EVENT = threading.Event()
# Runs the program whose text is the first argument. Not `-I`: a training also finds libraries through PYTHONPATH and
# the user site folder.
RUN_PROGRAM_TEXT_CODE = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv[1], 'program.py', 'exec'))"
)
_Answer = TypeVar("_Answer")


def search_paths_without_relative(variables: Mapping[str, str]) -> dict[str, str]:
    """Return PATH and PYTHONPATH without relative entries: in a clone they would start its programs and modules."""
    return {
        name: os.pathsep.join(filter(os.path.isabs, variables[name].split(os.pathsep)))
        for name in ("PATH", "PYTHONPATH")
        if name in variables
    }


def folders_of_relative_python_paths(folder: Path) -> tuple[str, ...]:
    """Return the folders that relative entries of PYTHONPATH name for a program that starts in `folder`."""
    text = os.environ.get("PYTHONPATH", "")
    entries = map(Path, text.split(os.pathsep) if text else ())
    return tuple(os.path.realpath(folder / entry) for entry in entries if not entry.is_absolute())


def own_module_command_and_environment(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs a module of this package with this Python, and its environment changes."""
    command = [sys.executable, "-B", "-m", module, *arguments]
    if sys.version_info >= (3, 11):
        command.insert(1, "-P")
    return command, {"PYTHONPATH": os.pathsep.join(_import_path_without_current_folder())}


def _import_path_without_current_folder() -> list[str]:
    """Return the import path of this process without the current folder, which could contain a `psutil.py`."""
    current = Path.cwd()
    folders = [
        folder
        for folder in sys.path
        if folder and (Path(folder) == _PACKAGE_PARENT_FOLDER or Path(folder).absolute() != current)
    ]
    return folders if str(_PACKAGE_PARENT_FOLDER) in folders else [*folders, str(_PACKAGE_PARENT_FOLDER)]


class ChildResult(NamedTuple):
    """The output of a child and its exit code, as in subprocess.

    `failure` is why there is no code: late, too much output, or not started. `memory_limit` is how many bytes
    it could take.
    """

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int | None = None
    failure: str = ""
    memory_limit: int = 0

    @property
    def timed_out(self) -> bool:
        """Whether the deadline came first."""
        return self.failure == DEADLINE_PASSED_REASON

    def last_answer(self, answer_type: type[_Answer]) -> _Answer | None:
        """Return the last line that is such an answer in JSON, None without one: libraries print lines of their own."""
        for line in reversed(self.stdout.splitlines()):
            with suppress(Unparsable):
                return parse_json_as(line, answer_type)
        return None

    def why_unusable(self) -> str:
        """Return the reason why there is no usable answer, as text."""
        if self.failure:
            return self.failure
        lines = self.stderr.decode("utf-8", "replace").strip().splitlines()
        last_line = f": {lines[-1].strip()[:200]}" if lines else ""
        if why := child_memory_limit.out_of_memory_reason(self.exit_code, last_line, self.memory_limit):
            return why
        if self.exit_code is not None and self.exit_code < 0:
            return f"it was ended by signal {-self.exit_code}{last_line}"
        if self.exit_code:
            return f"it ended with exit code {self.exit_code}{last_line}"
        return f"no usable answer{last_line}"


def set_children_cancelled(*, cancelled: bool = True) -> None:
    """Cancel all running and future questions; with `cancelled` false, allow questions again."""
    (CHILDREN_CANCELLED_EVENT.set if cancelled else CHILDREN_CANCELLED_EVENT.clear)()


def run_child(  # noqa: PLR0913 - each has a default but two
    command: Sequence[str],
    deadline: float,
    env_changes: Mapping[str, str] | None = None,
    folder: str | None = "/",
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    memory_limit: int | None = None,
) -> ChildResult:
    """Run `command` with `env_changes` to the environment and return its output within `deadline` seconds.

    It is given up as soon as `is_cancelled` is true, or at exit. It runs in `folder`, None for the current
    one, and in a process group of its own, which is killed at the end. It may take as much `memory_limit` as reading
    does, or other bytes than that.
    """
    end_time = monotonic() + deadline
    memory_limit = child_memory_limit.memory_limit_for_reading() if memory_limit is None else memory_limit
    try:
        env_changes = {**search_paths_without_relative(os.environ), **(env_changes or {})}
        process = child_memory_limit.start_with_memory_limit(command, memory_limit, env_changes, folder)
    except (OSError, ValueError) as error:
        return ChildResult(failure=f"cannot be started: {getattr(error, 'strerror', None) or error}")
    texts = (bytearray(), bytearray())
    try:
        failure = _collect_output(process, texts, end_time, lambda: CHILDREN_CANCELLED_EVENT.is_set() or is_cancelled())
    finally:
        child_memory_limit.kill_and_close(process, 1.0)
    code = None if failure else process.returncode
    return ChildResult(bytes(texts[0]), bytes(texts[1]), code, failure, memory_limit)


def _collect_output(
    process: subprocess.Popen[bytes],
    outputs: tuple[bytearray, bytearray],
    end_time: float,
    is_cancelled: Callable[[], bool],
) -> str:
    """Collect the output of `process` in `outputs` until it ends, or return why it was given up."""
    with selectors.DefaultSelector() as selector:
        for pipe, text in zip((process.stdout, process.stderr), outputs, strict=True):
            if pipe is not None:
                selector.register(pipe, selectors.EVENT_READ, text)
        is_open, ended = True, False
        # Descendants of the child may hold the pipes open: once it has ended, only what is there is read.
        while selector.get_map() and (is_open or not ended):
            remaining = end_time - monotonic()
            if remaining <= 0 or is_cancelled():
                return DEADLINE_PASSED_REASON
            ended = _has_ended(process)
            is_open = _wait_and_read_available(selector, 0 if ended else min(remaining, 0.05))
            if max(map(len, outputs)) > _MAX_OUTPUT_BYTES:
                return f"it wrote more than {_MAX_OUTPUT_BYTES >> 20} MiB"
    while not _has_ended(process):
        if monotonic() > end_time or is_cancelled():
            return DEADLINE_PASSED_REASON
        sleep(0.01)
    return ""


def _wait_and_read_available(selector: selectors.BaseSelector, seconds: float) -> bool:
    """Wait at most `seconds` for output; return whether there was any."""
    events = selector.select(seconds)
    for key, _ in events:
        data = os.read(key.fd, 65536)
        key.data.extend(data)
        if not data:
            selector.unregister(key.fileobj)
    return bool(events)


def _has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Return whether the process has ended, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
