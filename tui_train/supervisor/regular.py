"""Files that others may have written: opened only where they are regular ones, and read no further than a limit."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISREG, S_ISSOCK

# An events.jsonl of a year of starts has some 100 kB.
MOST = 16 << 20
_KINDS = (
    (S_ISDIR, "a folder"),
    (S_ISFIFO, "a pipe"),
    (S_ISCHR, "a device"),
    (S_ISBLK, "a device"),
    (S_ISSOCK, "a socket"),
)


def open_regular(path: str | os.PathLike[str], folder: int | None = None) -> io.FileIO:
    """Open a regular file, unbuffered; OSError for a pipe, a device or a folder, which is never waited for.

    With the descriptor of a `folder`, `path` is a name in it, and a link is refused.
    """
    follows = folder is None
    try:
        # Even to open a device may do something.
        _refuse_other(os.stat(path, dir_fd=folder, follow_symlinks=follows).st_mode, path)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
        file = os.open(path, flags, dir_fd=folder)
    except ValueError as error:
        # A NUL byte in a path that a file names.
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        _refuse_other(os.fstat(file).st_mode, path)
        return io.FileIO(file)
    except BaseException:
        os.close(file)
        raise


def _refuse_other(mode: int, path: str | os.PathLike[str]) -> None:
    if not S_ISREG(mode):
        kind = next((words for is_kind, words in _KINDS if is_kind(mode)), "a link")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def read(path: str | os.PathLike[str], most: int = MOST, folder: int | None = None, *, end: bool = False) -> bytes:
    """Return the first bytes of a regular file, at most `most`, or the last; OSError where it cannot be read."""
    pieces, left = [], most
    with open_regular(path, folder) as file:
        if end:
            file.seek(-min(most, os.fstat(file.fileno()).st_size), os.SEEK_END)
        while left > 0 and (piece := file.read(left)):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def is_text(value: object) -> bool:
    """Tell whether a value of JSON is a text that files and processes may bear: UTF-8, without NUL."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


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
