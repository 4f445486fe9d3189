"""The command that starts this program in the user's shell, where its folder is not on PATH as well."""

import os
import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from tui_train.base.text import display_path

PROGRAM_NAME = "tui-train"
COMMAND_NAMES = (
    "attach", "compare", "completion", "data", "diagnose", "doctor", "env", "estimate", "evaluate", "export",
    "export-model", "facts", "fetch", "hosts", "image", "import", "keys", "logs", "merge", "metrics", "nemo", "new",
    "plan", "presets", "profiles", "publish", "queue", "quickstart", "recipes", "report", "result", "resume", "run",
    "runs", "send", "skill", "spec", "stop", "try", "tune",
)  # fmt: skip
_COMMAND_PATTERN = re.compile(rf"(?<![\w./-]){PROGRAM_NAME}(?= (?:{'|'.join(COMMAND_NAMES)}|--?[a-z]+)\b)")


def with_runnable_commands(text: str) -> str:
    """Return a text whose commands of this program can be typed as they stand."""
    return _COMMAND_PATTERN.sub(lambda _: own_command(), text)


@cache
def own_command() -> str:
    """Return what starts this program in the user's shell: its name, or its path where PATH does not lead to it."""
    try:
        return command_starting_script(sys.argv[0], os.environ.get("PATH", ""), Path.cwd())
    except OSError:
        # The current folder is gone.
        return PROGRAM_NAME


def command_starting_script(script: str, search_path: str, folder: Path) -> str:
    """Return what starts a script from a folder: the program's name, where that finds it or it is no such script."""
    own = Path(script)
    if own.name != PROGRAM_NAME or not own.is_file():
        return PROGRAM_NAME
    on_path = shutil.which(PROGRAM_NAME, path=search_path)
    if on_path and os.path.realpath(on_path) == os.path.realpath(own):
        return PROGRAM_NAME
    path = str(folder / own)
    if Path(path).is_relative_to(folder):
        return shlex.quote(str(Path(path).relative_to(folder)))
    shown = display_path(path)
    return shown if shlex.quote(shown.removeprefix("~")) == shown.removeprefix("~") else shlex.quote(path)
