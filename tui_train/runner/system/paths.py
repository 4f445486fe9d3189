"""A path that a profile names: what is there, whether it can be saved below, how much fits, which names it has."""

from __future__ import annotations

import difflib
import os
import stat
from pathlib import Path

from .safe_open import is_valid_text

# A checkpoint has some ten.
_MIN_FREE_FILES = 10
_MAX_NAMES_COMPARED = 300  # of 2,000 long ones the most similar takes 2 s to find


def path_state(path_text: str) -> str:
    """Return whether a path is a file or a folder that may be read, missing, or unreadable."""
    if not path_text:
        return "missing"
    try:
        path = Path(path_text).expanduser()
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "missing"
    except (OSError, ValueError, RuntimeError):
        return "unreadable"
    folder = stat.S_ISDIR(mode)
    # A device or a pipe has no end, or is read once only.
    if not folder and not stat.S_ISREG(mode):
        return "unreadable"
    if not os.access(path, os.R_OK | os.X_OK if folder else os.R_OK):
        return "unreadable"
    return "folder" if folder else "file"


def why_unwritable(path_text: str) -> str:
    """Return why nothing can be written into the folder of this path, there or yet to be made; empty where it can."""
    try:
        path = _nearest_existing_path(path_text)
        if not path.is_dir():
            return f"{path} is a file"
        if path.resolve().parts[1:2] in {("proc",), ("sys",)}:
            return f"nothing can be saved in {path}"
        disk = os.statvfs(path)
        if disk.f_flag & os.ST_RDONLY:
            return f"{path} is on a file system that is read-only"
        # Some file systems count none.
        if disk.f_files and disk.f_favail < _MIN_FREE_FILES:
            return f"the file system of {path} has no inodes left for more files (df -i)"
        return "" if os.access(path, os.W_OK | os.X_OK) else f"you may not write in {path}"
    except (OSError, ValueError, RuntimeError) as error:
        return getattr(error, "strerror", None) or "it is no path"


def free_bytes_for_path(path_text: str) -> int | None:
    """Return the bytes that are free for the folder of this path, there or yet to be made; None where none can be."""
    try:
        disk = os.statvfs(_nearest_existing_path(path_text))
        # What is no disk has no blocks.
        return disk.f_bavail * disk.f_frsize if disk.f_blocks else None
    except (OSError, ValueError, RuntimeError):
        return None


def names_in_folder(folder: str, max_names: int) -> list[str]:
    """Return the names in a folder, folders with a slash; none where it has more than that, or cannot be read."""
    try:
        with os.scandir(Path(folder).expanduser()) as entries:
            names = [entry.name + "/" * entry.is_dir() for _, entry in zip(range(max_names + 1), entries)]
    except (OSError, ValueError, RuntimeError):
        return []
    return names if len(names) <= max_names else []


def similar_existing_path(path_text: str) -> str:
    """Return what exists near a missing path, folders with a slash: of a similar name, else the nearest folder above.

    Empty where there is only the root, or the path cannot be looked for.
    """
    try:
        path = Path(path_text).expanduser().absolute()
        above = _nearest_existing_path(path_text)
        first, *rest = path.relative_to(above).parts or ("",)
        # With one that is no UTF-8 no profile or answer could be written.
        names = [name.rstrip("/") for name in filter(is_valid_text, names_in_folder(str(above), _MAX_NAMES_COMPARED))]
        like = difflib.get_close_matches(first, names, n=1)
        whole, found = above.joinpath(*like, *rest), above.joinpath(*like)
        found = whole if like and whole.exists() else found
        text = str(found) + "/" * found.is_dir()
    except (OSError, ValueError, RuntimeError):
        return ""
    return text if text != "//" and is_valid_text(text) else ""


def _nearest_existing_path(path_text: str) -> Path:
    """Return a path, or the nearest folder above it that is there."""
    path = Path(path_text).expanduser().absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def runs_folder() -> str:
    """Return the folder of the runs, as tui-train has it on this machine for this user."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(state if os.path.isabs(state) else os.path.expanduser("~/.local/state"), "tui-train", "runs")
