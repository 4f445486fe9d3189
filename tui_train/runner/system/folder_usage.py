"""The size of a folder, and whether all of it can be removed."""

from __future__ import annotations

import os
from typing import NamedTuple


class FolderUsage(NamedTuple):
    """Size of a folder on disk in bytes, and the first folder in it whose content this user may not remove."""

    size: int
    protected_folder: str = ""


def folder_usage(folder: str) -> FolderUsage:
    """Return the size of a folder; links are not followed, and a file with two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    closed = ""
    for top, _, names in os.walk(folder):
        if not closed and not os.access(top, os.W_OK | os.X_OK):
            closed = top
        for name in (".", *names):
            try:
                entry = os.lstat(f"{top}/{name}")
            except OSError:
                continue
            sizes[entry.st_dev, entry.st_ino] = entry.st_blocks * 512
    return FolderUsage(sum(sizes.values()), closed)
