"""Keeps how images looked, so that only new and changed ones are decoded again for a plan."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import data_images as images

# A file that has just been written may change again and keep its time, where the clock of its disk is coarse.
_MIN_AGE_NS = 2 * 10**9
_PRIVATE_FILE_MODE = 0o600


def load_image_inspections(path: str) -> None:
    """Take over the looks at images that a file keeps; nothing where it cannot be read."""
    try:
        kept_at = Path(path).stat().st_mtime_ns
        kept = [
            (images.FileState(*state), images.ImageInspection(*look))
            for state, look in json.loads(Path(path).read_text(encoding="utf-8"))
        ]
    except (OSError, ValueError, TypeError):
        return
    images.known_inspections.update(
        (state, look) for state, look in kept if state.size >= 0 and state.changed < kept_at - _MIN_AGE_NS
    )


def save_image_inspections(path: str) -> None:
    """Keep the looks of this program, and others that still hold; where that fails, the next one looks again."""
    if not images.inspections:
        return
    settled = time.time_ns() - _MIN_AGE_NS
    held = {
        state: look
        for state, look in images.known_inspections.items()
        if state not in images.inspections and state.changed < settled and images.file_state(state.path) == state
    }
    beside = f"{path}.{os.getpid()}"
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_FILE_MODE), "w") as file:
            json.dump([*(held | images.inspections).items()], file)
        Path(beside).replace(path)
    except OSError as error:
        sys.stderr.write(f"{path} cannot be written: {error}\n")
