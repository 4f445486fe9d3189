"""Removes incomplete run folders whose creator was killed, never those of a living one."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tui_train.runner.detached_start import LAUNCH_LOG_NAME
from tui_train.runner.system.safe_open import open_folder

INCOMPLETE_RUN_PREFIX = ".new-"
RUN_NUMBER_FILE_NAME = ".number"  # the last file that is written into a new run folder
_MIN_INCOMPLETE_AGE_SECONDS = 3600
# Without locks, as on some network disks, only the age counts; a run is started within seconds.
_MIN_UNSTARTED_AGE_SECONDS = 24 * 3600
_RUN_NAME_PATTERN = re.compile(r"\d{8}-\d{6}-[a-z0-9-]+")
# A start that was sent to a host, or to Slurm, has left one of the last three.
_STARTED_RUN_FILES = ("events.jsonl", ".lock", "attempt-1.log", "heard.json", "asked-start.json", "slurm.json")
# Seconds in which the creator of a folder writes its last files.
_MAX_CREATION_SECONDS = 5


@contextmanager
def lock_while_creating(folder: Path) -> Iterator[None]:
    """Mark a folder as being created, by a lock."""
    with open_folder(folder, readable=True) as opened:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield


def remove_abandoned_runs(runs_folder: Path) -> None:
    """Remove old incomplete folders and never-started runs of this user; failures are ignored."""
    with suppress(OSError), open_folder(runs_folder, readable=True) as opened:
        for name in os.listdir(opened):  # noqa: PTH208 - by its descriptor
            with suppress(OSError):
                if _is_abandoned(opened, name):
                    shutil.rmtree(runs_folder / name, ignore_errors=True)


def _is_abandoned(parent: int, name: str) -> bool:
    """Return whether nobody creates, has started or may still start the run in a folder."""
    half_made = name.startswith(INCOMPLETE_RUN_PREFIX)
    if not half_made and not _RUN_NAME_PATTERN.fullmatch(name):
        return False
    with open_folder(name, parent, readable=True) as folder:
        status = os.fstat(folder)
        age = time.time() - max(status.st_mtime, status.st_ctime)
        if status.st_uid != os.geteuid() or age < _MIN_INCOMPLETE_AGE_SECONDS:
            return False
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            return half_made and age > _MIN_UNSTARTED_AGE_SECONDS
        return half_made or (age > _MIN_UNSTARTED_AGE_SECONDS and _was_never_started(folder, status.st_mtime))


def _was_never_started(folder: int, changed_at: float) -> bool:
    """Return whether nothing was written into a run folder since its creation, except an empty start log."""
    names = set(os.listdir(folder))
    if RUN_NUMBER_FILE_NAME not in names or names.intersection(_STARTED_RUN_FILES):
        return False
    last = RUN_NUMBER_FILE_NAME
    if LAUNCH_LOG_NAME in names:
        last = LAUNCH_LOG_NAME
        if os.stat(last, dir_fd=folder, follow_symlinks=False).st_size:
            return False
    return abs(changed_at - os.stat(last, dir_fd=folder, follow_symlinks=False).st_mtime) < _MAX_CREATION_SECONDS
