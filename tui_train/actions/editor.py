"""The user's own editor, opened at a line of a file."""

import os
import shlex
import shutil
import subprocess

from tui_train.base.errors import Unavailable

_USUAL_EDITORS = ("nano", "vim", "vi", "emacs")


def open_editor_at_line(file: str, line: int) -> None:
    """Open a file at a line on this terminal, and wait for the editor; Unavailable where none can be started."""
    try:
        words = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    except ValueError:
        words = []
    words = words or [path for path in map(shutil.which, _USUAL_EDITORS) if path][:1]
    try:
        if not words:
            raise FileNotFoundError
        subprocess.run([*words, f"+{line}", file], check=False)
    except OSError as error:
        why = error.strerror or "none of the usual ones is installed"
        raise Unavailable(f"no editor could be opened: {why}", "Name yours: export EDITOR=nano") from None
