"""Files and folders that others may have made: opened without surprise, read no further than a limit, written whole."""

from __future__ import annotations

import contextlib
import errno
import io
import os
from stat import S_ISBLK, S_ISCHR, S_ISDIR, S_ISFIFO, S_ISLNK, S_ISREG, S_ISSOCK
from typing import Iterator

# An events.jsonl of a year of starts has some 100 kB.
DEFAULT_MAX_BYTES = 16 << 20
# Between the name of a file and a random word, while it is written.
TEMPORARY_INFIX = ".new."
_TEST_AND_TEXT_BY_FILE_KIND = (
    (S_ISDIR, "a folder"),
    (S_ISFIFO, "a pipe"),
    (S_ISCHR, "a device"),
    (S_ISBLK, "a device"),
    (S_ISSOCK, "a socket"),
    (S_ISREG, "a file"),
    (S_ISLNK, "a link"),
)


def open_regular_file(path: str | os.PathLike[str], folder_descriptor: int | None = None) -> io.FileIO:
    """Open a regular file, unbuffered; OSError for a pipe, a device or a folder, which is never waited for.

    With the descriptor of a `folder_descriptor`, `path` is a name in it, and a link is refused.
    """
    follows = folder_descriptor is None
    try:
        # Even to open a device may do something.
        _require_regular_file(os.stat(path, dir_fd=folder_descriptor, follow_symlinks=follows).st_mode, path)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follows else os.O_NOFOLLOW)
        file = os.open(path, flags, dir_fd=folder_descriptor)
    except ValueError as error:
        # A NUL byte in a path that a file names.
        raise OSError(errno.EINVAL, str(error), str(path)) from None
    try:
        _require_regular_file(os.fstat(file).st_mode, path)
        return io.FileIO(file)
    except BaseException:
        os.close(file)
        raise


def _require_regular_file(mode: int, path: str | os.PathLike[str]) -> None:
    if not S_ISREG(mode):
        raise OSError(errno.EINVAL, f"it is {file_kind_text(mode)}, not a regular file", str(path))


def file_kind_text(mode: int) -> str:
    """Return in words what has such a mode, as "a folder"."""
    return next((words for is_kind, words in _TEST_AND_TEXT_BY_FILE_KIND if is_kind(mode)), "something unknown")


@contextlib.contextmanager
def open_folder(
    path: str | os.PathLike[str], parent_descriptor: int | None = None, *, readable: bool = False
) -> Iterator[int]:
    """Yield the descriptor of a folder; with `parent_descriptor`, the descriptor of its parent, it must not be a link.

    One that is listed or locked must be `readable`.
    """
    flags = os.O_DIRECTORY | os.O_CLOEXEC | (os.O_RDONLY if readable else os.O_PATH)
    flags |= 0 if parent_descriptor is None else os.O_NOFOLLOW
    folder = os.open(path, flags, dir_fd=parent_descriptor)
    try:
        yield folder
    finally:
        os.close(folder)


def user_name(uid: int) -> str:
    """Return a user's name, or the user id if there is none."""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def read_bounded(
    path: str | os.PathLike[str],
    max_bytes: int = DEFAULT_MAX_BYTES,
    folder_descriptor: int | None = None,
    *,
    from_end: bool = False,
) -> bytes:
    """Return the first bytes of a regular file, at most `max_bytes`, or the last; OSError where it cannot be read."""
    pieces, left = [], max_bytes
    with open_regular_file(path, folder_descriptor) as file:
        if from_end:
            file.seek(-min(max_bytes, os.fstat(file.fileno()).st_size), os.SEEK_END)
        while left > 0 and (piece := file.read(left)):
            pieces.append(piece)
            left -= len(piece)
    return b"".join(pieces)


def is_valid_text(value: object) -> bool:
    """Tell whether a value of JSON is a text that files and processes may bear: UTF-8, without NUL."""
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_atomically(path: str, data: bytes, folder_descriptor: int | None = None) -> int:
    """Write a file whole or not at all, and return the user id that it belongs to; OSError says why it could not.

    With the descriptor of a `folder_descriptor`, `path` is a name in it.
    """
    # A name that nobody can put a link at before.
    beside = f"{path}{TEMPORARY_INFIX}{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(beside, flags, 0o644, dir_fd=folder_descriptor)
    try:
        try:
            left = memoryview(data)
            while left:
                left = left[os.write(descriptor, left) :]
            uid = os.fstat(descriptor).st_uid
        finally:
            os.close(descriptor)
        os.replace(beside, path, src_dir_fd=folder_descriptor, dst_dir_fd=folder_descriptor)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(beside, dir_fd=folder_descriptor)
        raise
    return uid
