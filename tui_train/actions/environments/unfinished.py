"""Marks an environment that is being made, so that one whose maker was killed is known from one that works."""

import fcntl
import os
from pathlib import Path

from tui_train.base.app_paths import UNFINISHED_MARKER
from tui_train.base.files import PRIVATE, reporting_write_errors


def mark_unfinished(path: Path) -> int:
    """Mark an environment as unfinished and return the descriptor of the mark, locked as long as its maker lives."""
    with reporting_write_errors(path):
        lock = os.open(path / UNFINISHED_MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def mark_finished(path: Path) -> None:
    """Say that an environment is finished."""
    (path / UNFINISHED_MARKER).unlink()


def is_abandoned(path: Path) -> bool:
    """Return whether nobody makes an unfinished environment any more."""
    try:
        lock = os.open(path / UNFINISHED_MARKER, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True
