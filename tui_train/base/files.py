"""Reading untrusted files with limits, and writing files atomically."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from tui_train.base.errors import CannotWrite
from tui_train.base.text import size_text, visible
from tui_train.runner.system import safe_open
from tui_train.runner.system.safe_open import open_folder, open_regular_file, user_name

# For files that only the user may read.
PRIVATE_FILE_MODE = 0o600

_REMEDY_BY_ERRNO = {
    errno.ENOSPC: "The disk is full: free some space, or choose another folder.",
    errno.EDQUOT: "Your quota is used up: free some space, or choose another folder.",
    errno.EACCES: "No permission to write there: choose another folder, or ask for permission.",
    errno.EPERM: "No permission to write there: choose another folder, or ask for permission.",
    errno.EROFS: "That disk is read-only: choose another folder.",
    errno.ENOTDIR: "A part of the path is a file: choose another path.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
# Errors of file systems without hard links.
_NO_HARD_LINK_ERRNOS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def read_regular_file(path: Path | str, max_size: int) -> bytes:
    """Return the bytes of a regular file; OSError if there are more than `max_size`."""
    data = safe_open.read_bounded(path, max_size + 1)
    if len(data) > max_size:
        limit = size_text(max_size) if max_size >= 1 << 20 else f"{max_size >> 10} KiB"
        raise OSError(errno.EFBIG, f"it is larger than {limit}", str(path))
    return data


def inode_and_size(path: Path) -> tuple[int, int]:
    """Return the inode of the regular file at a path (0: none) and its size in bytes."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return 0, 0
    return (status.st_ino, status.st_size) if S_ISREG(status.st_mode) else (0, 0)


def why_unreadable(path: Path) -> str:
    """Return why a regular file cannot be read now, empty if it can."""
    try:
        with open_regular_file(path):
            return ""
    except OSError as error:
        return read_error_reason(error)


def read_error_reason(error: OSError | UnicodeError) -> str:
    """Return why a file could not be read, as text after its name and a colon."""
    if isinstance(error, UnicodeError):
        return "it is not UTF-8 text"
    words = error.strerror or str(error)
    return visible(words[:1].lower() + words[1:])


def foreign_owner_name(folder_descriptor: int) -> str:
    """Return the owner of a folder by its descriptor, empty if it is this user or root.

    Some network disks and containers map all owners to another one: the owner of a new file there is this user.
    """
    owner = os.fstat(folder_descriptor).st_uid
    if owner in {0, os.geteuid()}:
        return ""
    name = f".{os.urandom(8).hex()}"
    os.mkdir(name, PRIVATE_FILE_MODE, dir_fd=folder_descriptor)
    try:
        own_uid = os.stat(name, dir_fd=folder_descriptor, follow_symlinks=False).st_uid
    finally:
        os.rmdir(name, dir_fd=folder_descriptor)
    return "" if own_uid == owner else user_name(owner)


@contextmanager
def raising_cannot_write(path: Path) -> Iterator[None]:
    """Turn every failure to write `path` into CannotWrite with a remedy."""
    try:
        yield
    except UnicodeEncodeError as error:
        message = f"cannot write {visible(str(path))}: it contains text that is not UTF-8"
        raise CannotWrite(message, "Rename the file or folder with that name.") from error
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        remedy = _REMEDY_BY_ERRNO.get(error.errno or 0, "Choose another path.")
        raise CannotWrite(f"cannot write {visible(str(path))}: {why}", remedy) from error


def create_own_folder(path: Path) -> None:
    """Create a folder for files of this user alone; CannotWrite if a link or another user's folder is there."""
    with raising_cannot_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_folder(path.parent) as parent:
            with suppress(FileExistsError):
                os.mkdir(path.name, 0o755, dir_fd=parent)
            with open_folder(path.name, parent) as folder:
                owner = foreign_owner_name(folder)
    if owner:
        raise CannotWrite(f"{visible(str(path))} belongs to {visible(owner)}", "Choose another path.")


def write_atomically(path: Path, text: str | bytes, mode: int = 0o644) -> None:
    """Write a file atomically, creating its folder; CannotWrite leaves the old file."""
    with raising_cannot_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_folder(path.parent) as folder:
            _write_atomically(folder, path.name, text, mode, replace=True)


def write_if_absent(path: Path, text: str | bytes, mode: int = 0o644, *, create_parents: bool = True) -> bool:
    """Write a new file atomically; return False if the path exists.

    Its folder is created if needed, unless `create_parents` is false.
    """
    with raising_cannot_write(path):
        if create_parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open_folder(path.parent) as folder:
                _write_atomically(folder, path.name, text, mode, replace=False)
        except FileExistsError:
            return False
    return True


def write_below_folder(
    folder_descriptor: int, name: str, text: str | bytes, mode: int = 0o644, *, replace: bool = True
) -> None:
    """Write `name`, a relative path, below the folder of a descriptor, without following links.

    FileExistsError if it exists and may not be replaced.
    """
    folder_name, slash, rest = name.partition("/")
    if not slash:
        _write_atomically(folder_descriptor, name, text, mode, replace=replace)
        return
    with suppress(FileExistsError):
        os.mkdir(folder_name, dir_fd=folder_descriptor)
    with open_folder(folder_name, folder_descriptor) as inner:
        write_below_folder(inner, rest, text, mode, replace=replace)


def _write_atomically(folder_descriptor: int, name: str, text: str | bytes, mode: int, *, replace: bool) -> None:
    """Write a file atomically in a folder; FileExistsError if it exists and may not be replaced."""
    temporary = f".{name[:40]}.{os.urandom(6).hex()}"
    handle = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW,
        PRIVATE_FILE_MODE,
        dir_fd=folder_descriptor,
    )
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode() if isinstance(text, str) else text)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        if replace:
            os.replace(temporary, name, src_dir_fd=folder_descriptor, dst_dir_fd=folder_descriptor)
        else:
            _rename_without_replacing(folder_descriptor, temporary, name)
    finally:
        # Already renamed.
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder_descriptor)


def _rename_without_replacing(folder_descriptor: int, temporary: str, name: str) -> None:
    """Rename a complete file to a new name; FileExistsError if the name exists."""
    try:
        os.link(temporary, name, src_dir_fd=folder_descriptor, dst_dir_fd=folder_descriptor)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        # Create the name first, so that only one of two writers succeeds.
        os.close(
            os.open(
                name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE_MODE, dir_fd=folder_descriptor
            )
        )
        os.replace(temporary, name, src_dir_fd=folder_descriptor, dst_dir_fd=folder_descriptor)
