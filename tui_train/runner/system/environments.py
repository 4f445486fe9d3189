"""The Python environments in a user's home, each with what it is called, and those that are being made."""

from __future__ import annotations

import fcntl
import os
import shutil
from itertools import count
from pathlib import Path
from typing import Iterator

from .safe_open import read_bounded

# In the folder of an environment that is being made, locked as long as its maker lives.
UNFINISHED_MARKER_NAME = ".tui-train-unfinished"
_MAX_CONDA_LIST_BYTES = 1 << 18


def environments_folder() -> Path:
    """Return the folder of the environments of `tui-train env create`, which may not exist yet."""
    data = os.environ.get("XDG_DATA_HOME", "")
    return Path(data if os.path.isabs(data) else os.path.expanduser("~/.local/share"), "tui-train", "envs")


def created_labels_and_pythons() -> Iterator[tuple[str, str]]:
    """Yield label and Python of the environments of `tui-train env create`."""
    for python in sorted(environments_folder().glob("*/bin/python")):
        if not is_unfinished(python.parent.parent):
            yield f"env {python.parent.parent.name}", str(python)


def conda_labels_and_pythons() -> Iterator[tuple[str, str]]:
    """Yield label and Python of the environments that conda lists."""
    try:
        listed = read_bounded(os.path.expanduser("~/.conda/environments.txt"), _MAX_CONDA_LIST_BYTES)
    except OSError:
        return
    for folder in filter(None, map(str.strip, listed.decode("utf-8", "replace").splitlines())):
        python = Path(folder, "bin", "python")
        # A folder that may not be searched is none, for Path.exists an error.
        if os.path.exists(python):
            yield f"conda env ({Path(folder).name})", str(python)


def mark_unfinished_and_lock(path: Path) -> int:
    """Mark an environment as unfinished and return the descriptor of the mark, locked as long as its maker lives."""
    lock = os.open(str(path / UNFINISHED_MARKER_NAME), os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def is_unfinished(path: Path) -> bool:
    """Return whether an environment is being made, or was begun and abandoned."""
    return (path / UNFINISHED_MARKER_NAME).is_file()


def is_unfinished_and_abandoned(path: Path) -> bool:
    """Return whether nobody makes an unfinished environment any more."""
    try:
        lock = os.open(str(path / UNFINISHED_MARKER_NAME), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True


def remove_if_abandoned(path: Path) -> None:
    """Remove an environment that was begun and abandoned."""
    if is_unfinished_and_abandoned(path):
        shutil.rmtree(str(path), ignore_errors=True)


def first_free_path(path: Path) -> Path:
    """Return a path for a new environment: this one, or with the first number behind it that does not exist yet."""
    return next(
        other for other in numbered_paths(path) if is_unfinished_and_abandoned(other) or not os.path.lexists(str(other))
    )


def numbered_paths(path: Path) -> Iterator[Path]:
    """Yield a path, and then with a number behind it, from 2 on without end."""
    yield path
    for number in count(2):
        yield path.with_name(f"{path.name}-{number}")
