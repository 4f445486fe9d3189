"""The Python environments in a user's home, each with what it is called."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Iterator

from .safe_open import read_bounded

# In the folder of an environment that is being made.
UNFINISHED_MARKER_NAME = ".tui-train-unfinished"
_MAX_CONDA_LIST_BYTES = 1 << 18


def created_labels_and_pythons() -> Iterator[tuple[str, str]]:
    """Yield label and Python of the environments of `tui-train env create`."""
    data = os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share")
    for python in sorted(Path(data, "tui-train", "envs").glob("*/bin/python")):
        if not (python.parent.parent / UNFINISHED_MARKER_NAME).exists():
            yield f"env {python.parent.parent.name}", str(python)


def conda_labels_and_pythons() -> Iterator[tuple[str, str]]:
    """Yield label and Python of the environments that conda lists."""
    try:
        listed = read_bounded(os.path.expanduser("~/.conda/environments.txt"), _MAX_CONDA_LIST_BYTES)
    except OSError:
        return
    for folder in filter(None, map(str.strip, listed.decode("utf-8", "replace").splitlines())):
        python = Path(folder, "bin", "python")
        # A folder that may not be searched is none, for Path.exists an error.
        if os.path.exists(python):
            yield f"conda env ({Path(folder).name})", str(python)
