"""Takes files of a project from another machine: those that are not here yet, each whole or to be continued."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import sys
from typing import Any, Sequence

from ..system.safe_open import open_folder
from .answer_lines import PIECE_BYTES, Heartbeat, RequestFailedError, send_json_line

_PARTS_FOLDER = ".tui-train-sending"
_BYTES_LEFT_FREE = 64 << 20
# How exactly a file system may keep times, in ns.
_TIME_UNITS = tuple(10**digits for digits in range(10))
# The byte that follows those of a file which has not changed meanwhile.
COMPLETE_MARK = b"+"


def send_which_files_are_missing(question: dict[str, Any]) -> None:
    """Send which of the `files` below a `folder` are missing or differ.

    Each is its place in the list, the bytes kept, and the time in ns of what it would replace, 0 for nothing.
    A file is [name, size, time in ns, mode, target of a link]; it is the same by size and time, a link by its target.
    """
    folder = question["folder"]
    missing = []
    for index, file in enumerate(question["files"]):
        path = os.path.join(folder, file[0])
        if not _is_same_file(path, file):
            missing.append([index, _received_size(folder, file), _modification_time_ns(path)])
    send_json_line(missing=missing)


def receive_files(question: dict[str, Any]) -> None:
    """Write `files` below a `folder`: their bytes follow the question, each from the given offset and with a mark.

    Nothing is written through a link below the folder. What is cut off stays, to be continued. A file that the mark
    does not call complete is dropped.
    """
    folder, files = question["folder"], question["files"]
    try:
        os.makedirs(folder, exist_ok=True)
        needed = sum(file[1] - offset for file, offset in files)
        if (free := shutil.disk_usage(folder).free) < needed + _BYTES_LEFT_FREE:
            raise RequestFailedError(f"{folder}: {needed} bytes are needed, and {free} are free")
        parts = os.path.join(folder, _PARTS_FOLDER)
        with contextlib.suppress(FileExistsError):
            os.mkdir(parts, 0o700)
        with open_folder(folder) as root, open_folder(_PARTS_FOLDER, root) as parts_root:
            heartbeat = Heartbeat()
            for file, offset in files:
                heartbeat.send_if_due()
                _receive_file(root, parts_root, file, offset)
        shutil.rmtree(parts, ignore_errors=True)
    except OSError as error:
        raise RequestFailedError(f"{error.filename or folder}: {error.strerror}") from None
    send_json_line(taken=len(files))


def _is_same_file(path: str, file: Sequence[Any]) -> bool:
    _, size, mtime, mode, link = file
    try:
        status = os.lstat(path)
        if link:
            return stat.S_ISLNK(status.st_mode) and os.readlink(path) == link
    except OSError:
        return False
    same = status.st_size == size and _is_same_time(status.st_mtime_ns, mtime)
    # Not every file system keeps every bit of a mode.
    return stat.S_ISREG(status.st_mode) and same and not mode & ~status.st_mode & stat.S_IXUSR


def _is_same_time(one: int, other: int) -> bool:
    """Return whether two times in ns are the same, or one is the other as a file system keeps it that is less exact.

    Whole seconds would not do: a file is changed within the second in which it was sent.
    """
    return any(one // unit == other // unit and not (one % unit and other % unit) for unit in _TIME_UNITS)


def _modification_time_ns(path: str) -> int:
    try:
        return os.lstat(path).st_mtime_ns
    except OSError:
        return 0


def _partial_file_name(file: Sequence[Any]) -> str:
    return hashlib.sha256(repr((file[0], file[1], file[2])).encode(errors="surrogatepass")).hexdigest()[:32]


def _received_size(folder: str, file: Sequence[Any]) -> int:
    """Return how many bytes of this very file have come already."""
    try:
        status = os.lstat(os.path.join(folder, _PARTS_FOLDER, _partial_file_name(file)))
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) and status.st_size <= file[1] else 0


def _receive_file(root: int, parts: int, file: Sequence[Any], offset: int) -> None:
    name, size, mtime, mode, link = file
    pieces = name.split("/")
    if not name or {"", ".", ".."} & set(pieces):
        raise RequestFailedError(f"{name!r} is no file of a project")
    part = _partial_file_name(file)
    if not link:
        _receive_bytes(parts, part, offset, size - offset)
        if _read_input(1) != COMPLETE_MARK:
            os.unlink(part, dir_fd=parts)
            return
    with contextlib.ExitStack() as stack:
        inner = root
        for folder in pieces[:-1]:
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder, dir_fd=inner)
            try:
                inner = stack.enter_context(open_folder(folder, inner))
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                    raise
                raise RequestFailedError(f"{name}: {folder} is no folder there") from None
        if link:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part, dir_fd=parts)
            os.symlink(link, part, dir_fd=parts)
        else:
            os.chmod(part, mode & 0o777, dir_fd=parts)
            os.utime(part, ns=(mtime, mtime), dir_fd=parts)
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(pieces[-1], dir_fd=inner, follow_symlinks=False).st_mode):
                raise RequestFailedError(f"{name} is a folder there")
        try:
            os.replace(part, pieces[-1], src_dir_fd=parts, dst_dir_fd=inner)
        except OSError as error:
            # A part that is renamed is whole; between two disks it would have to be copied.
            why = "its folder is on another disk there" if error.errno == errno.EXDEV else error.strerror
            raise RequestFailedError(f"{name}: {why}") from None


def _receive_bytes(parts: int, name: str, offset: int, left: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600, dir_fd=parts)
    with open(descriptor, "wb", buffering=0) as part:
        part.truncate(offset)
        part.seek(offset)
        while left:
            piece = _read_input(min(left, PIECE_BYTES))
            left -= len(piece)
            view = memoryview(piece)
            while view:
                view = view[part.write(view) :]


def _read_input(size: int) -> bytes:
    piece = sys.stdin.buffer.read(size)
    if not piece:
        raise RequestFailedError("the link was lost")
    return piece
