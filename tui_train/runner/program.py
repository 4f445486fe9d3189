"""The words that start this program once more, here or on another machine."""

from __future__ import annotations

import os
import sys

ZIP_NAME = "runner.pyz"
# The zip of this process, as __main__ finds it.
ZIP_PATH = ""


def own_command(*words: str) -> tuple[str, ...]:
    """Return a command of this very program, where it was started as one."""
    return _python_command(sys.executable, ZIP_PATH, words)


def command_in_run_folder(run_dir: str, python: str, *words: str) -> tuple[str, ...]:
    """Return a command of the program in a run folder, which another machine may have."""
    return _python_command(python, os.path.join(run_dir, ZIP_NAME), words)


def _python_command(python: str, path: str, words: tuple[str, ...]) -> tuple[str, ...]:
    return (python, "-I", "-S", "-X", "utf8", path, *words)
