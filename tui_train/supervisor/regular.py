"""Files that others may have written: read from regular files only, and never more than a limit."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

# An events.jsonl of a year of starts has some 100 kB.
MOST = 16 << 20


def read(path: str, most: int = MOST, *, end: bool = False) -> bytes:
    """Return a file's bytes, no more than `most`: its beginning, or its `end`.

    Raises OSError where there is no such file, or where it is none to read from: a folder, a pipe, a device.
    """
    # A pipe without a writer would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path)
        if end and found.st_size > most:
            os.lseek(descriptor, -most, os.SEEK_END)
        pieces = []
        while most > 0 and (piece := os.read(descriptor, min(most, 1 << 20))):
            pieces.append(piece)
            most -= len(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def write_beside(path: str, data: bytes, mode: int = 0o644) -> None:
    """Write a file whole or not at all; OSError says why it could not."""
    beside = f"{path}.new.{os.getpid()}"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
        finally:
            os.close(descriptor)
        os.replace(beside, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise
