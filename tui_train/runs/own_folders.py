"""The folders that a script's own arguments name, in which it may write what no output folder of ours holds."""

import os
from collections.abc import Iterator
from pathlib import Path

from tui_train.base.errors import TuiTrainError
from tui_train.facts.scripts.script_source import read_source
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.runs.rundir import RunDir
from tui_train.setup.recipe.given_arguments import given_arguments
from tui_train.trainers import trainer_has_own_field

_MAX_FILES_CHECKED = 1000  # files of a folder that are looked at


def argument_folders_written_since(run: RunDir, since: float) -> tuple[Path, ...]:
    """Return the folders in which something was written since then (seconds since 1970), in the arguments' order."""
    try:
        profile = store.load_profile_file(str(run.profile))
    except TuiTrainError:
        return ()
    if not trainer_has_own_field(profile, "trainer.script") or not profile.trainer.script:
        return ()
    start = Path(profile.trainer.working_directory or Path(profile.trainer.script).parent)
    named = dict.fromkeys(start / value for value in _script_argument_values(profile))
    return tuple(folder for folder in named if folder != start and _newest_file_time(folder) >= since)


def _script_argument_values(profile: Profile) -> Iterator[str]:
    """Yield the texts that are given for the script's arguments, and their defaults."""
    words = profile.trainer.arguments
    yield from (word.partition("=")[2] if word.startswith("-") else word for word in words)
    own = read_source(profile.trainer.script)
    known = given_arguments(own, words)
    yield from (each.default for each in own.parameters if each.type in {"", "str"} and each.name not in known)


def _newest_file_time(folder: Path) -> float:
    """Return when the newest file right in a folder was written, 0 where there is none."""
    newest = 0.0
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MAX_FILES_CHECKED), entries, strict=False):
                if entry.is_file(follow_symlinks=False):
                    newest = max(newest, entry.stat(follow_symlinks=False).st_mtime)
    except (OSError, ValueError):
        return 0.0
    return newest
