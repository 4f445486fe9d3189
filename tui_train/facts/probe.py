"""Finds out about this machine, its Pythons and the user's paths; what may hang or crash is asked in a child."""

import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import monotonic
from typing import cast

import msgspec

from tui_train.base.parse import Unparsable, json_as
from tui_train.base.places import environments_folder
from tui_train.facts import host
from tui_train.facts.ask import ask
from tui_train.facts.child import silent
from tui_train.facts.trust import distrust
from tui_train.facts.types import Gap, Machine, PathState, Toolchain
from tui_train.supervisor import regular
from tui_train.target.survey import state

_ROOT = Path(__file__).resolve().parent.parent.parent
_SOURCE = _ROOT / "tui_train" / "target" / "probe.py"
# `-I` would hide the user's PYTHONPATH and site folder, in which a training finds its libraries.
RUN = "import sys; sys.path[:] = [p for p in sys.path if p]; exec(compile(sys.argv[1], 'probe.py', 'exec'))"
_TOO_OLD = (b"SyntaxError", b"ImportError: cannot import name 'metadata'")
_ON_PATH = "PATH"
_HERE = {".venv": ".venv here", "venv": "venv here"}
_AT_ONCE = 8
_MOST_NOTED = 1 << 18


def machine(deadline: float = 8.0) -> Machine:
    """Return this host and its cards within about `deadline` seconds; what could not be found out is a Gap."""
    started = monotonic()
    command, changes = child_command("tui_train.facts.child", "machine", f"{deadline * 0.75:.2f}")
    answer = ask(command, deadline, changes)
    try:
        return json_as(answer.out, Machine)
    except Unparsable:
        pass
    if answer.late:
        gap = Gap(
            "The NVIDIA cards could not be read in time",
            f"the driver, or this machine, is too slow or hangs: no answer for {monotonic() - started:.0f} s",
            silent(deadline).remedy,
            hides=True,
        )
    else:
        gap = Gap(
            "The NVIDIA cards cannot be read",
            answer.ending(),
            "See whether `nvidia-smi` works; if it does, please report this.",
            hides=True,
        )
    return msgspec.structs.replace(host.read(), gaps=(gap,))


def child_command(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command that runs one of our modules with this Python, and what it changes in the environment."""
    command = [sys.executable, "-B", "-m", module, *arguments]
    if sys.version_info >= (3, 11):
        command.insert(1, "-P")
    return command, {"PYTHONPATH": os.pathsep.join(_import_path())}


def _import_path() -> list[str]:
    """Return where this process imports from, without the current folder: a user's `psutil.py` there is not ours."""
    here = Path.cwd()
    folders = [folder for folder in sys.path if folder and (Path(folder) == _ROOT or Path(folder).absolute() != here)]
    return folders if str(_ROOT) in folders else [*folders, str(_ROOT)]


def toolchains(extra: Sequence[str] = (), deadline: float = 8.0) -> tuple[Toolchain, ...]:
    """Return the Pythons that could train, `extra` (paths of interpreters) and those found, best first.

    Of several that lead to one environment the first is kept; one that cannot be asked says so in `problem`.
    """
    ends = monotonic() + deadline
    found: dict[str, str] = {}
    for label, python in (*((("chosen", python)) for python in extra), *_candidates()):
        found.setdefault(str(Path(python).expanduser().absolute()), label)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = list(pool.map(lambda entry: _trusted(entry[0], entry[1], ends - monotonic()), found.items()))
    of_prefix: dict[str, Toolchain] = {}
    for prefix, toolchain in asked:
        of_prefix.setdefault(prefix, toolchain)
    return tuple(sorted(of_prefix.values(), key=rank))


def _trusted(python: str, label: str, deadline: float) -> tuple[str, Toolchain]:
    """Return what `_asked` does; one that only lies here is not started where others could have put it there."""
    if label in _HERE.values() and (problem := distrust(Path(python).parent.parent)):
        return python, Toolchain(python=python, label=label, problem=problem)
    return _asked(python, label, deadline)


def toolchain(python: str, deadline: float = 5.0) -> Toolchain:
    """Return what the interpreter `python`, a path or a name on PATH, has; `problem` says why it cannot be asked."""
    named = os.sep in python
    where = python if named else shutil.which(python) or python
    return _asked(str(Path(where).expanduser().absolute()), "" if named else _ON_PATH, deadline)[1]


def paths(names: Iterable[str]) -> dict[str, PathState]:
    """Return the state of each path, as the profile spells it: `~` is the home, else relative to the current folder."""
    return {name: cast("PathState", state(name)) for name in names}


def source() -> str:
    """Return the text of the probe that runs in the training interpreter."""
    return _SOURCE.read_text(encoding="utf-8")


def _candidates() -> Iterator[tuple[str, str]]:
    """Yield label and path of every interpreter worth asking, the likeliest first."""
    if sys.executable:
        yield "this environment", sys.executable
    for variable, kind in (("VIRTUAL_ENV", "active venv"), ("CONDA_PREFIX", "active conda env")):
        prefix = os.environ.get(variable)
        if prefix:
            yield f"{kind} ({Path(prefix).name})", str(Path(prefix) / "bin" / "python")
    for name, label in _HERE.items():
        if Path(name, "pyvenv.cfg").exists() or Path(name, "bin", "python").exists():
            yield label, str(Path(name, "bin", "python"))
    yield from _made_here()
    for name in ("python3", "python"):
        python = shutil.which(name)
        if python:
            yield _ON_PATH, python
    for folder in _conda_environments():
        if Path(folder, "bin", "python").exists():
            yield f"conda env ({Path(folder).name})", str(Path(folder, "bin", "python"))


def _made_here() -> Iterator[tuple[str, str]]:
    for python in sorted(environments_folder().glob("*/bin/python")):
        yield f"env {python.parent.parent.name}", str(python)


def _conda_environments() -> list[str]:
    """Return the folders that conda notes in the user's home, one a line."""
    try:
        noted = regular.read(Path("~/.conda/environments.txt").expanduser(), _MOST_NOTED).decode("utf-8", "replace")
    except (OSError, RuntimeError):
        return []
    return [line.strip() for line in noted.splitlines() if line.strip()]


def _asked(python: str, label: str, deadline: float) -> tuple[str, Toolchain]:
    """Return the real path of the interpreter's `sys.prefix` (its own path where it cannot tell) and what it has.

    What PATH leads to may be a shim that chooses by the current folder, so the child runs there, imports nothing from
    there, and the interpreter behind the shim is the one that is kept.
    """
    if problem := _not_executable(Path(python)):
        return python, Toolchain(python=python, label=label, problem=problem)
    answer = ask([python, "-B", "-c", RUN, source()], deadline, folder=None)
    for line in reversed(answer.out.splitlines()):
        told = decoded(line)
        if told is not None:
            kept = told.executable if label == _ON_PATH and told.executable else python
            return told.prefix, msgspec.structs.replace(told.toolchain, python=kept, label=label)
    last = (answer.error.strip().splitlines() or [b""])[-1]
    problem = "it is older than Python 3.8" if last.startswith(_TOO_OLD) else answer.ending()
    if RUN.encode()[:20] in answer.error or source().encode()[:60] in answer.error:
        # It took the program for something else, and said it back.
        problem = "it is no Python"
    return python, Toolchain(python=python, label=label, problem=problem)


def _not_executable(python: Path) -> str:
    """Return why a path cannot be started as a program, empty where it may be one, or is not there."""
    try:
        if python.is_dir():
            return "is a folder: name the Python in it, such as bin/python"
        return (
            "may not be run: it lacks the x-bit (chmod +x)"
            if python.is_file() and not os.access(python, os.X_OK)
            else ""
        )
    except (OSError, ValueError):
        return ""


class Answer(msgspec.Struct):
    """What the probe in the training interpreter prints."""

    prefix: str
    executable: str
    toolchain: Toolchain


def decoded(line: bytes) -> Answer | None:
    """Return what a line of the probe's output says, None for what is none."""
    try:
        return json_as(line, Answer)
    except Unparsable:
        return None


def rank(toolchain: Toolchain) -> int:
    """Return 0 for a Python with all that trains, more for each lack."""
    if toolchain.problem:
        return 3
    if toolchain.torch is None:
        return 2
    return 0 if toolchain.accelerate and toolchain.transformers else 1
