"""The images that rows of data name: their files, for other machines, and their folders, for containers."""

import json
import subprocess
import sys
from collections.abc import Mapping
from importlib import resources

from tui_train.base.parse import parse_json_as
from tui_train.facts.data.data_report import DataQuestion, DataReport

_MAX_SECONDS = 600.0


def image_files_of_data(files: tuple[str, ...]) -> list[str]:
    """Return the images that rows of files on this machine name by path, each once; TimeoutExpired after minutes."""
    child = str(resources.files("tui_train").joinpath("programs/data/image_files.py"))
    words = [sys.executable, "-B", child, *files]
    done = subprocess.run(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=_MAX_SECONDS, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


def image_folders_of_data(files: tuple[str, ...], report_by_question: Mapping[str, DataReport]) -> tuple[str, ...]:
    """Return the folders of the images of files that were looked at, whatever else was asked."""
    return next(
        (
            look.images.folders
            for asked, look in report_by_question.items()
            if look.images and parse_json_as(asked.encode(), DataQuestion).files == files
        ),
        (),
    )
