"""The words that start this program once more, here or on another machine."""

from __future__ import annotations

import os
import sys

NAME = "runner.pyz"
# The zip of this process, as __main__ finds it.
PATH = ""


def own_words(*words: str) -> tuple[str, ...]:
    """Return a command of this very program, where it was started as one."""
    return _words(sys.executable, PATH, words)


def words_in(run_dir: str, python: str, *words: str) -> tuple[str, ...]:
    """Return a command of the program in a run folder, which another machine may have."""
    return _words(python, os.path.join(run_dir, NAME), words)


def _words(python: str, path: str, words: tuple[str, ...]) -> tuple[str, ...]:
    return (python, "-I", "-S", "-X", "utf8", path, *words)
