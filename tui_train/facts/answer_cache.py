"""Keeps answers of programs in files of this user alone, each by the digest of all on which it depends."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tui_train.base.errors import TuiTrainError
from tui_train.base.files import PRIVATE_FILE_MODE, read_regular_file, write_atomically

MAX_CACHED_ANSWERS = 64
_MAX_CACHED_ANSWER_BYTES = 2**20


def content_digest(content: bytes) -> str:
    """Return what tells a content from any other."""
    return hashlib.sha256(content).hexdigest()


def answer_file(folder: Path, key: bytes) -> Path:
    """Return the file in a folder that keeps the answer to a key, which has all on which the answer depends."""
    return folder / f"{content_digest(key)}.json"


class FileState(NamedTuple):
    """A file as it was: its bytes, and its modification time (ns); -1 and 0 where there is none."""

    path: str
    size: int
    mtime: int


def file_state(path: Path) -> FileState:
    """Return the state of a file now."""
    with suppress(OSError, ValueError):
        status = path.stat()
        return FileState(str(path), status.st_size, status.st_mtime_ns)
    return FileState(str(path), -1, 0)


def states_behind_path(path: str) -> tuple[FileState, ...]:
    """Return the state of a path now, then those of what lies in a folder, or of the Python files beside one."""
    files: list[Path] = []
    with suppress(OSError, ValueError):
        if path.endswith(".py"):
            files = [*Path(path).parent.glob("*.py")]  # what it imports lies beside it
        elif Path(path).is_dir():
            files = [*Path(path).iterdir()]
    return (file_state(Path(path)), *sorted(map(file_state, files)))


def package_folder_states(python: str) -> list[FileState]:
    """Return the states of the folders of a Python's packages, which an installation changes."""
    return sorted(file_state(folder) for folder in Path(python).parent.parent.glob("lib/python3*/*-packages"))


def load_cached_answer(path: Path) -> bytes | None:
    """Return what is kept in a file, None where there is nothing, or it is not what was written."""
    try:
        expected, _, content = read_regular_file(path, _MAX_CACHED_ANSWER_BYTES).partition(b"\n")
    except OSError:
        return None
    if expected.decode("ascii", "replace") != content_digest(content):
        return None
    with suppress(OSError):
        os.utime(path)  # the latest used are kept
    return content


def store_answer(path: Path, content: bytes) -> None:
    """Keep an answer for this user alone; the oldest of too many in its folder are removed."""
    with suppress(TuiTrainError):
        write_atomically(path, content_digest(content).encode() + b"\n" + content, PRIVATE_FILE_MODE)
    remove_oldest_answers(path.parent)


def remove_oldest_answers(folder: Path, max_count: int = MAX_CACHED_ANSWERS) -> None:
    """Remove the oldest of too many answers in a folder."""
    with suppress(OSError):
        files = sorted((file_state(file).mtime, file) for file in folder.glob("*.json"))
        for _, file in files[:-max_count]:
            file.unlink(missing_ok=True)
