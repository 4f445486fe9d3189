"""Makes an environment for training on this machine: by a process of its own, whose output is followed by who asks.

The process goes on where nobody follows it any more. Asked again by the same id, it is not begun a second time.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zlib
from itertools import islice
from pathlib import Path
from typing import Any, Iterator, Sequence

from ..system.environments import (
    UNFINISHED_MARKER_NAME,
    conda_labels_and_pythons,
    environments_folder,
    first_free_path,
    is_unfinished,
    is_unfinished_and_abandoned,
    mark_unfinished_and_lock,
    numbered_paths,
    remove_if_abandoned,
)
from ..system.other_programs import find_on_path
from ..system.paths import free_bytes_for_path, runs_folder
from ..system.processes import KILL_WAIT_SECONDS, Process, process_with_pid
from .answer_lines import PIECE_BYTES, Heartbeat, RequestFailedError, read_piece, send_json_line

STEP_PREFIX = "== "  # begins a line of the log that says what is done from now on
REQUIREMENTS_FILE_NAME = "requirements.txt"
_LOG_NAME, _MAKER_NAME, _END_NAME = "log", "maker", "end"
_MAX_VERSION_SECONDS, _POLL_SECONDS = 10.0, 0.2
_MAX_PATHS_LOOKED_AT = 20
# Beside this Python, and what a login shell adds to PATH, and a command over ssh does not have.
_UV_FOLDERS = (os.path.dirname(sys.executable), "~/.local/bin", "~/.cargo/bin")
_CONDA_FOLDERS = ("~/miniconda3", "~/miniforge3", "~/mambaforge", "~/anaconda3", "/opt/conda")
_VERSION_CODE = (
    "import sys; from importlib.util import find_spec as find;"
    " print(*sys.version_info[:2], bool(find('venv') and find('ensurepip')))"
)


def send_folder_and_installers(question: dict[str, Any]) -> None:
    """Send where an environment would lie, its room, and what could make it: uv, and Pythons with their versions.

    `path` is where (empty: by its `set`), `pythons` are names to look for. With `first_free` it is the one that is
    being made, else the first free name.
    """
    folder = Path(question["path"]).expanduser() if question["path"] else environments_folder() / question["set"]
    if not folder.is_absolute():
        raise RequestFailedError(f"{folder} is no absolute path")
    if question["first_free"]:
        making = (path for path in islice(numbered_paths(folder), _MAX_PATHS_LOOKED_AT) if _is_being_made(path))
        folder = next(making, None) or first_free_path(folder)
    if _is_being_made(folder):
        standing = "making"
    else:
        standing = "taken" if os.path.lexists(str(folder)) and not is_unfinished(folder) else "free"
    uv = find_on_path("uv") or shutil.which("uv", path=os.pathsep.join(map(os.path.expanduser, _UV_FOLDERS))) or ""
    send_json_line(
        folder=str(folder), free_name=str(first_free_path(folder)), standing=standing, work=str(_work_folder(folder)),
        free=free_bytes_for_path(str(folder)), uv=uv, pythons=list(_installing_pythons(question["pythons"])),
        id=_read_json(folder, _MAKER_NAME).get("id", ""),
    )  # fmt: skip


def _installing_pythons(names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield path and version of each Python, and whether it can make an environment with pip."""
    paths = [path for path in map(find_on_path, names) if path]
    paths += [f"{os.path.expanduser(folder)}/bin/python3" for folder in _CONDA_FOLDERS]
    paths += [python for _, python in conda_labels_and_pythons()]
    for path in dict.fromkeys(path for path in paths if os.path.exists(path)):
        with contextlib.suppress(OSError, ValueError, subprocess.SubprocessError):
            said = subprocess.run(
                [path, "-I", "-c", _VERSION_CODE], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, cwd="/", check=True, timeout=_MAX_VERSION_SECONDS,
            ).stdout.split()  # fmt: skip
            yield {"path": path, "major": int(said[0]), "minor": int(said[1]), "makes": said[2] == b"True"}


def make_environment(question: dict[str, Any]) -> None:
    """Have the environment of a `folder` made, once for each `id`, and send what is printed from byte `at` to its end.

    `steps` are what is said and the command, each; `requirements` is the text of the file that they name.
    """
    folder = Path(question["folder"])
    with _hold_work_folder(folder):
        if _read_json(folder, _MAKER_NAME).get("id") != question["id"]:
            try:
                _start_making(folder, question)
            except OSError as error:
                raise RequestFailedError(f"{error.filename or folder}: {error.strerror}") from None
    _send_log(folder, question["at"])


def cancel_environment(question: dict[str, Any]) -> None:
    """End the making of the environment with this `id`, and remove what was made; one that is done stays."""
    folder = Path(question["folder"])
    kept = _read_json(folder, _MAKER_NAME)
    maker = Process(*kept.get("process", (0, 0)))
    if kept.get("id") == question["id"] and is_unfinished(folder):
        deadline = time.monotonic() + KILL_WAIT_SECONDS
        while _is_being_made(folder) and time.monotonic() < deadline:
            if maker.is_alive:
                with contextlib.suppress(OSError):
                    os.killpg(maker.pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        remove_if_abandoned(folder)
    send_json_line(removed=not folder.exists())


def _is_being_made(folder: Path) -> bool:
    return is_unfinished(folder) and not is_unfinished_and_abandoned(folder)


def _start_making(folder: Path, question: dict[str, Any]) -> None:
    """Start the process that makes an environment; what one that was killed has left there is removed."""
    remove_if_abandoned(folder)
    if os.path.lexists(str(folder)):
        being_made = " and is being made" if _is_being_made(folder) else ""
        raise RequestFailedError(f"{folder} is there already{being_made}")
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    work = _work_folder(folder)
    try:
        lock = mark_unfinished_and_lock(folder)
    except OSError:
        # A disk without locks.
        shutil.rmtree(str(folder), ignore_errors=True)
        raise
    try:
        with contextlib.suppress(FileNotFoundError):
            (work / _END_NAME).unlink()
        (work / REQUIREMENTS_FILE_NAME).write_text(question["requirements"], encoding="utf-8")
        log = os.open(str(work / _LOG_NAME), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        _start_maker(folder, question, lock, log)
    except OSError:
        shutil.rmtree(str(folder), ignore_errors=True)
        raise
    finally:
        os.close(lock)
    os.close(log)
    while _read_json(folder, _MAKER_NAME).get("id") != question["id"]:
        if is_unfinished_and_abandoned(folder):
            shutil.rmtree(str(folder), ignore_errors=True)
            raise RequestFailedError(f"nothing can be written in {work}")
        time.sleep(_POLL_SECONDS / 10)


def _start_maker(folder: Path, question: dict[str, Any], lock: int, log: int) -> None:
    """Start the process that makes an environment: nobody's child, in a session that outlasts the login."""
    if (child := os.fork()) == 0:
        try:
            os.setsid()
            if os.fork() == 0:
                _make_in_child(folder, question, lock, log)
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _make_in_child(folder: Path, question: dict[str, Any], lock: int, log: int) -> None:
    """Run the steps, and keep how they ended; a failed environment is removed."""
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, target)
    process = process_with_pid(os.getpid())
    _write_json(folder, _MAKER_NAME, {"id": question["id"], "process": [process.pid, process.ticks]})
    environment = {**os.environ, **question["variables"]}
    end: dict[str, Any] = {"step": -1, "code": 0, "said": ""}
    for step, (text, command) in enumerate(question["steps"]):
        os.write(log, f"{STEP_PREFIX}{text}\n".encode())
        try:
            code = subprocess.call(command, env=environment, cwd="/", stdin=subprocess.DEVNULL, pass_fds=(lock,))
            end = {"step": step, "code": code, "said": ""}
        except OSError as error:
            end = {"step": step, "code": 127, "said": f"{command[0]} cannot be started: {error.strerror}"}
        if end["code"]:
            shutil.rmtree(str(folder), ignore_errors=True)
            break
    else:
        (folder / UNFINISHED_MARKER_NAME).unlink()
    _write_json(folder, _END_NAME, end)


def _send_log(folder: Path, offset: int) -> None:
    """Send what the maker of an environment prints from a byte on, and how it ends."""
    log, heartbeat = _work_folder(folder) / _LOG_NAME, Heartbeat()
    while True:
        # In this order: what is written between the two is sent before the end is told.
        kept, end = _read_json(folder, _MAKER_NAME), _read_json(folder, _END_NAME)
        # Of two login nodes with one home, the other one may have the process: then the lock tells.
        lives = Process(*kept.get("process", (0, 0))).is_alive or _is_being_made(folder)
        piece = read_piece(log, offset, PIECE_BYTES)
        if lives and not end and len(piece) < PIECE_BYTES:
            # Whole lines, as long as more may come.
            piece = piece[: piece.rfind(b"\n") + 1]
        if piece:
            offset += len(piece)
            send_json_line(text=piece.decode("utf-8", "replace"), at=offset)
            heartbeat.restart()
        elif end:
            send_json_line(end=True, **end)
            return
        elif not lives and not (end := _read_json(folder, _END_NAME)):
            remove_if_abandoned(folder)
            send_json_line(end=True, step=-1, code=1, said="it was ended there before it was done")
            return
        else:
            heartbeat.send_if_due()
            time.sleep(_POLL_SECONDS)


def _work_folder(folder: Path) -> Path:
    """Return the folder of what is kept about the making of an environment."""
    name = f"{folder.name}-{zlib.crc32(os.fsencode(str(folder))):08x}"
    return Path(runs_folder()).with_name("environments") / name


@contextlib.contextmanager
def _hold_work_folder(folder: Path) -> Iterator[None]:
    """Hold the right to begin the environment of a folder."""
    work = _work_folder(folder)
    try:
        work.mkdir(parents=True, exist_ok=True, mode=0o700)
        held = os.open(str(work), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise RequestFailedError(f"{work}: {error.strerror}") from None
    try:
        # Some network disks have no locks: making the folder keeps a second one out.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        # Whoever makes the environment has this descriptor as well.
        with contextlib.suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_UN)
        os.close(held)


def _read_json(folder: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((_work_folder(folder) / name).read_text(encoding="utf-8"))
    return found


def _write_json(folder: Path, name: str, values: dict[str, Any]) -> None:
    path = _work_folder(folder) / name
    beside = path.with_name(f"{name}.new")
    beside.write_text(json.dumps(values), encoding="utf-8")
    beside.replace(path)
