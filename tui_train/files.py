"""Writing files so that a reader never sees half of one and a failure leaves the old one."""

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tui_train.errors import CannotWrite
from tui_train.text import visible

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
        handle, beside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode() if isinstance(text, str) else text)
                file.flush()
                os.fsync(file.fileno())
            Path(beside).chmod(mode)
            Path(beside).replace(path)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
