"""The images that rows of data name by path."""

import json
import subprocess
import sys
from importlib import resources

_MAX_SECONDS = 600.0


def image_files_of_data(files: tuple[str, ...]) -> list[str]:
    """Return the images that rows of files on this machine name by path, each once; TimeoutExpired after minutes."""
    child = str(resources.files("tui_train").joinpath("programs/data/image_files.py"))
    words = [sys.executable, "-B", child, *files]
    done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=_MAX_SECONDS, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]
