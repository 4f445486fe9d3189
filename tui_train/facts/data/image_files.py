"""The images that rows of data name by path."""

import json
import subprocess
import sys
from importlib import resources

from tui_train.base.errors import Unavailable
from tui_train.base.text import visible

_MAX_SECONDS = 600.0


def image_files_of_data(files: tuple[str, ...]) -> list[str]:
    """Return the images that rows of files on this machine name by path, each once; Unavailable where that fails."""
    child = str(resources.files("tui_train").joinpath("programs/data/image_files.py"))
    words = [sys.executable, "-B", child, *files]
    try:
        done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, timeout=_MAX_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        why = f"it takes more than {_MAX_SECONDS / 60:g} minutes"
    else:
        if done.returncode == 0:
            return [json.loads(line) for line in done.stdout.splitlines()]
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        why = visible("".join(last)[:200]) or f"exit code {done.returncode}"
    raise Unavailable(
        f"which images the data names cannot be read: {why}", "Send a smaller file, or copy it by yourself."
    )
