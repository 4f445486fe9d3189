"""The words that start this program once more, here or on another machine."""

from __future__ import annotations

import os
import sys

RUNNER_ZIP_NAME = "runner.pyz"
# The zip of this process, as __main__ finds it.
RUNNER_ZIP_PATH = ""


def runner_command(*words: str) -> tuple[str, ...]:
    """Return a command of this very program, where it was started as one."""
    return _python_command(sys.executable, RUNNER_ZIP_PATH, words)


def runner_command_of_run_folder(run_dir: str, python: str, *words: str) -> tuple[str, ...]:
    """Return a command of the program in a run folder, which another machine may have."""
    return _python_command(python, os.path.join(run_dir, RUNNER_ZIP_NAME), words)


def _python_command(python: str, path: str, words: tuple[str, ...]) -> tuple[str, ...]:
    return (python, "-I", "-S", "-X", "utf8", path, *words)
