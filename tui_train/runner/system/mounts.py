"""The file systems that are mounted on this machine."""

from __future__ import annotations

import os

from . import safe_open

MOUNTS_FILE = "/proc/self/mountinfo"


def file_system_of(folder: str, mounts_file: str | os.PathLike[str] = MOUNTS_FILE) -> str:
    """Return the type of the file system that is mounted at a folder or nearest above it, empty if unknown."""
    folder, nearest, found = os.path.realpath(folder), "", ""
    try:
        lines = safe_open.read_bounded(mounts_file).decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, types = before.split(), after.split()
        if len(fields) < 5 or not types:
            continue
        point = fields[4].rstrip("/")
        # Of several at one place the last one is on top.
        if f"{folder}/".startswith(f"{point}/") and len(point) >= len(nearest):
            nearest, found = point, types[0]
    return found
