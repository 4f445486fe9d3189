"""Folders in which a run was being made when its maker was killed: removed later, and never while that one lives."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tui_train.base.files import folder_at
from tui_train.runs.order import NUMBER

HALF_MADE = ".new-"
_HOUR = 3600
# Where folders cannot be locked, as on some network disks, age alone has to do; and a run is started in seconds.
_DAY = 24 * _HOUR
_MADE_HERE = re.compile(r"\d{8}-\d{6}-[a-z0-9-]+")
_LAUNCHER_LOG = "launch.log"
_STARTED = ("events.jsonl", ".lock", "attempt-1.log")
# In which what made a folder writes the last of its files.
_MOMENT = 5


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep a folder that is being made from being taken for left over."""
    with folder_at(folder, listed=True) as opened:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def remove(parent: Path) -> None:
    """Remove this user's half-made folders and never-started runs of long ago; what cannot be removed stays."""
    with suppress(OSError), folder_at(parent, listed=True) as opened:
        for name in os.listdir(opened):  # noqa: PTH208 - by its descriptor
            with suppress(OSError):
                if _left_over(opened, name):
                    shutil.rmtree(parent / name, ignore_errors=True)


def _left_over(parent: int, name: str) -> bool:
    """Tell whether nobody makes, has started or may still start what is in a folder."""
    half_made = name.startswith(HALF_MADE)
    if not half_made and not _MADE_HERE.fullmatch(name):
        return False
    with folder_at(name, parent, listed=True) as folder:
        told = os.fstat(folder)
        age = time.time() - max(told.st_mtime, told.st_ctime)
        if told.st_uid != os.geteuid() or age < _HOUR:
            return False
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return half_made and age > _DAY
        return half_made or (age > _DAY and _never_started(folder, told.st_mtime))


def _never_started(folder: int, changed: float) -> bool:
    """Tell whether nothing was put into a run's folder since it was made, but for the log of a start without a word."""
    names = set(os.listdir(folder))
    if NUMBER not in names or names.intersection(_STARTED):
        return False
    last = NUMBER
    if _LAUNCHER_LOG in names:
        last = _LAUNCHER_LOG
        if os.stat(last, dir_fd=folder, follow_symlinks=False).st_size:
            return False
    return abs(changed - os.stat(last, dir_fd=folder, follow_symlinks=False).st_mtime) < _MOMENT
