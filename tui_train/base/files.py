"""Reading files that others may have made, with limits; writing that never shows half a file or loses the old one."""

import errno
import os
import pwd
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from tui_train.base.errors import CannotWrite
from tui_train.base.text import size, visible
from tui_train.supervisor import regular
from tui_train.supervisor.regular import open_regular

# What its user chose is nobody else's business.
PRIVATE = 0o600

_REMEDIES = {
    errno.ENOSPC: "The disk is full: free some space, or choose another place.",
    errno.EDQUOT: "Your quota is used up: free some space, or choose another place.",
    errno.EACCES: "You may not write there: choose another place, or ask for permission.",
    errno.EPERM: "You may not write there: choose another place, or ask for permission.",
    errno.EROFS: "That disk is read-only: choose another place.",
    errno.ENOTDIR: "A part of the path is a file: choose another place.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
# Of file systems without hard links.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def read_regular(path: Path | str, most: int, folder: int | None = None) -> bytes:
    """Return all bytes of a regular file as `open_regular` opens it; OSError where there are more than `most`."""
    data = regular.read(path, most + 1, folder)
    if len(data) > most:
        limit = size(most) if most >= 1 << 20 else f"{most >> 10} KiB"
        raise OSError(errno.EFBIG, f"it is larger than {limit}", str(path))
    return data


def regular_size(path: Path) -> tuple[int, int]:
    """Return which regular file a path leads to (0: none) and its size in bytes."""
    try:
        told = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return (told.st_ino, told.st_size) if S_ISREG(told.st_mode) else (0, 0)


def unreadable(path: Path) -> str:
    """Return why a regular file cannot be read now; empty where it can."""
    try:
        with open_regular(path):
            return ""
    except OSError as error:
        return reason(error)


def reason(error: OSError | UnicodeError) -> str:
    """Return in words why a file could not be read, to stand after its name and a colon."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    words = error.strerror or str(error)
    return visible(words[:1].lower() + words[1:])


@contextmanager
def folder_at(path: Path | str, inside: int | None = None, *, listed: bool = False) -> Iterator[int]:
    """Give the descriptor of a folder; one that is `inside` another, by its descriptor, may be no link.

    One that is to be `listed` or locked has to be readable.
    """
    flags = os.O_DIRECTORY | os.O_CLOEXEC | (os.O_RDONLY if listed else os.O_PATH)
    flags |= 0 if inside is None else os.O_NOFOLLOW
    folder = os.open(path, flags, dir_fd=inside)
    try:
        yield folder
    finally:
        os.close(folder)


def others(folder: int) -> str:
    """Return who owns the folder of a descriptor, where that is neither this user nor root; empty otherwise.

    Some network disks and containers show all owners as one other: whoever owns what is written there now is this user.
    """
    owner = os.fstat(folder).st_uid
    if owner in {0, os.geteuid()}:
        return ""
    name = f".{secrets.token_hex(8)}"
    os.mkdir(name, PRIVATE, dir_fd=folder)
    try:
        mine = os.stat(name, dir_fd=folder, follow_symlinks=False).st_uid
    finally:
        os.rmdir(name, dir_fd=folder)
    return "" if mine == owner else user(owner)


def user(uid: int) -> str:
    """Return a user's name, or the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn any failure to write `path` into CannotWrite with its remedy."""
    try:
        yield
    except UnicodeEncodeError as error:
        message = f"cannot write {visible(str(path))}: it holds text that is not UTF-8"
        raise CannotWrite(message, "Rename what is not.") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        remedy = _REMEDIES.get(error.errno or 0, "Choose another place.")
        raise CannotWrite(f"cannot write {visible(str(path))}: {why}", remedy) from error


def write_beside(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Write a file beside its place and rename it there, creating its folder; CannotWrite leaves the old one."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with folder_at(path.parent) as folder:
            _write(folder, path.name, text, mode, replace=True)


def write_new(path: Path, text: str | bytes, mode: int = 0o644, *, parents: bool = True) -> bool:
    """Write a file that is whole at once and was not there before; false where something already is.

    Its folder is made where it is not there, unless `parents` is false.
    """
    with writing(path):
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with folder_at(path.parent) as folder:
                _write(folder, path.name, text, mode, replace=False)
        except FileExistsError:
            return False
    return True


def write_inside(folder: int, name: str, text: str, mode: int = 0o644, *, replace: bool = True) -> None:
    """Write `name`, a relative path, beneath the folder of a descriptor; no link leads out of there.

    FileExistsError where something is there that it may not `replace`.
    """
    first, slash, rest = name.partition("/")
    if not slash:
        _write(folder, name, text, mode, replace=replace)
        return
    with suppress(FileExistsError):
        os.mkdir(first, dir_fd=folder)
    with folder_at(first, folder) as inner:
        write_inside(inner, rest, text, mode, replace=replace)


def _write(folder: int, name: str, text: str | bytes, mode: int, *, replace: bool) -> None:
    """Write a file beside `name` in a folder, then put it there; FileExistsError where it may not `replace` one."""
    beside = f".{name[:40]}.{secrets.token_hex(6)}"
    handle = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE, dir_fd=folder
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if replace:
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            _put(folder, beside, name)
    finally:
        # Renamed, it is gone already.
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)


def _put(folder: int, beside: str, name: str) -> None:
    """Give a whole file the name that nothing has yet; FileExistsError where something has it."""
    try:
        os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # The name is taken first, so that of two at once one fails.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE, dir_fd=folder))
        os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
