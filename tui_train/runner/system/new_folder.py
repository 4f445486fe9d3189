"""A folder that is made beside its place and renamed: whole, or not there at all."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Iterator


@contextlib.contextmanager
def new_folder(into: Path) -> Iterator[Path]:
    """Yield an empty folder beside `into`, which becomes it at the end, unless it was removed; an error removes it.

    FileExistsError where `into` is there, FileNotFoundError where the folder above it is not.
    """
    _refuse_existing(into)
    beside = Path(tempfile.mkdtemp(dir=str(into.parent), prefix=f".{into.name[:40]}."))
    try:
        yield beside
        if beside.exists():
            _apply_umask(beside)
            _refuse_existing(into)
            beside.rename(into)
    finally:
        shutil.rmtree(str(beside), ignore_errors=True)


def _refuse_existing(into: Path) -> None:
    if os.path.lexists(str(into)):
        raise FileExistsError(errno.EEXIST, "it already exists", str(into))


def _apply_umask(folder: Path) -> None:
    """Give a folder that was private the modes of what is newly made; safetensors writes private files."""
    # The mask can only be read by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    # The folder last: until then nobody else can put a link in it.
    for path in (*folder.rglob("*"), folder):
        path.chmod((0o777 if path.is_dir() else 0o666) & ~mask)
