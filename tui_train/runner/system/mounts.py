"""The file systems that are mounted on this machine."""

from __future__ import annotations

import os
import re
from typing import Iterator, NamedTuple

from . import safe_open

MOUNTS_FILE = "/proc/self/mountinfo"
# A space, a tab, a line break or a backslash.
_ESCAPED_CHARACTER_PATTERN = re.compile(r"\\([0-7]{3})")


class Mount(NamedTuple):
    """Mounted file system: the folder at which it is, which folder of its own that shows, and its type."""

    point: str
    root: str
    kind: str


def mounted_file_systems(mounts_file: str | os.PathLike[str] = MOUNTS_FILE) -> Iterator[Mount]:
    """Yield what is mounted; of several at one place the last one is on top."""
    try:
        lines = os.fsdecode(safe_open.read_bounded(mounts_file)).splitlines()
    except OSError:
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields, types = before.split(), after.split()
        if len(fields) > 4 and types:
            point, root = (_ESCAPED_CHARACTER_PATTERN.sub(_unescaped, path) for path in (fields[4], fields[3]))
            yield Mount(point, root, types[0])


def _unescaped(match: re.Match[str]) -> str:
    return chr(int(match[1], 8))


def file_system_of(folder: str, mounts_file: str | os.PathLike[str] = MOUNTS_FILE) -> str:
    """Return the type of the file system that is mounted at a folder or nearest above it, empty if unknown."""
    folder, nearest, found = os.path.realpath(folder), "", ""
    for mount in mounted_file_systems(mounts_file):
        point = mount.point.rstrip("/")
        if f"{folder}/".startswith(f"{point}/") and len(point) >= len(nearest):
            nearest, found = point, mount.kind
    return found
