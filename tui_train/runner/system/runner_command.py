"""The words that start this program once more, here or on another machine."""

from __future__ import annotations

import os
import sys

RUNNER_ZIP_NAME = "runner.pyz"
# The zip of this process, as __main__ finds it.
RUNNER_ZIP_PATH = ""


def runner_command(*words: str, python: str = sys.executable, run_dir: str = "") -> tuple[str, ...]:
    """Return a command of this very program, or of the one in a run folder, which another machine may have."""
    path = os.path.join(run_dir, RUNNER_ZIP_NAME) if run_dir else RUNNER_ZIP_PATH
    return (python, "-I", "-S", "-X", "utf8", path, *words)
