"""Files that a script writes to paths in its own arguments, outside of our output folder."""

import os
import re
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tui_train.facts.scripts.script_source import read_script_source
from tui_train.profile.fields import absolute_path
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder
from tui_train.setup.recipe.given_arguments import given_arguments, likely_output_paths
from tui_train.trainers import trainer_has_own_field

_MAX_FILES_CHECKED = 1000  # files of a folder that are looked at
# Below the folder of a script: Lightning saves in lightning_logs/version_0/checkpoints, others a level deeper.
_MAX_DEPTH = 5
_MAX_ENTRIES_BELOW = 5000
_MAX_SECONDS_AFTER_END = 1.0  # by which the clock of a disk may be ahead; more would name what the next run wrote
_WEIGHTS_SUFFIXES = frozenset({
    ".bin", ".ckpt", ".gguf", ".h5", ".joblib", ".keras", ".npz", ".onnx", ".pickle", ".pkl", ".pt", ".pth",
    ".safetensors",
})  # fmt: skip

# Beside weights in a checkpoint: what only a resumed training reads.
_TRAINING_STATE_FILE_PATTERN = re.compile(
    r"(?:optimi[sz]er|optim|scheduler|scaler|random_states|rng_state|training_args)\b|rng_state_|random_states_"
)


def output_paths_in_script_arguments(run: RunFolder) -> tuple[str, ...]:
    """Return the paths of arguments by whose names the script may write there."""
    profile = _profile_starting_script(run)
    return _output_paths_in_arguments(profile) if profile else ()


def _output_paths_in_arguments(profile: Profile) -> tuple[str, ...]:
    paths = likely_output_paths(read_script_source(profile.trainer.script), profile.trainer.arguments)
    return tuple(absolute_path(path, _working_folder(profile)) for path in paths if "\0" not in path)


def command_and_saved_files(run: RunFolder, since: float, until: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a script with its arguments, and the weights that lie as it wrote them from `since` to `until`.

    Looked for are those that its arguments name, in the folders that they name, and where it starts; the times are
    seconds since 1970. Both are empty for a run that starts no script.
    """
    profile = _profile_starting_script(run)
    if profile is None:
        return (), ()
    named = {*map(Path, _output_paths_in_arguments(profile))}
    searched = {*named, _working_folder(profile)}
    found = {
        path: time
        for folder in searched | {path.parent for path in named}
        for path, time in _files_with_mtimes(folder)
        if path in named or (folder in searched and path.suffix in _WEIGHTS_SUFFIXES)
    }
    saved = sorted(str(path) for path, time in found.items() if since <= time <= until + _MAX_SECONDS_AFTER_END)
    return (profile.trainer.script, *profile.trainer.arguments), (*saved,)


def argument_folders_written_since(run: RunFolder, since: float) -> tuple[Path, ...]:
    """Return the folders in which something was written since then (seconds since 1970), in the arguments' order."""
    profile = _profile_starting_script(run)
    if profile is None:
        return ()
    start = _working_folder(profile)
    named = dict.fromkeys(start / value for value in _given_and_default_argument_values(profile))
    return tuple(
        folder for folder in named if folder != start and any(time >= since for _, time in _files_with_mtimes(folder))
    )


def weights_files_written(run: RunFolder, since: float, until: float, folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return files that are weights by their names, in the folders and below where the script starts, newest first.

    `since` and `until` are seconds since 1970.
    """
    profile = _profile_starting_script(run)
    where = dict.fromkeys(
        (*_folders_and_subfolders(folders), *(_folder_tree(_working_folder(profile)) if profile else ()))
    )
    found = {
        path: time
        for folder in where
        for path, time in _files_with_mtimes(folder)
        if path.suffix in _WEIGHTS_SUFFIXES and not _TRAINING_STATE_FILE_PATTERN.match(path.name)
    }
    return tuple(
        sorted(
            (path for path, time in found.items() if since <= time <= until + _MAX_SECONDS_AFTER_END),
            key=lambda path: -found[path],
        )
    )


def _profile_starting_script(run: RunFolder) -> Profile | None:
    """Return a run's profile, None where it cannot be read or starts no script."""
    profile = run.read_profile()
    return profile if profile and trainer_has_own_field(profile, "trainer.script") and profile.trainer.script else None


def _working_folder(profile: Profile) -> Path:
    return Path(profile.trainer.working_directory or Path(profile.trainer.script).parent)


def _given_and_default_argument_values(profile: Profile) -> Iterator[str]:
    """Yield the texts that are given for the script's arguments, and their defaults."""
    words = profile.trainer.arguments
    yield from (word.partition("=")[2] if word.startswith("-") else word for word in words)
    own = read_script_source(profile.trainer.script)
    known = given_arguments(own, words)
    yield from (each.default for each in own.parameters if each.type in {"", "str"} and each.name not in known)


def _folders_and_subfolders(folders: Iterable[Path]) -> Iterator[Path]:
    """Yield folders and what is right in them: many scripts make one for each checkpoint."""
    for folder in folders:
        yield folder
        yield from (Path(entry.path) for entry in _first_entries(folder) if _is_folder_not_link(entry))


def _folder_tree(start: Path) -> Iterator[Path]:
    """Yield a folder and those below it, the near ones first; of very many only some, and none that is hidden."""
    waiting, checked = deque([(start, 0)]), 0
    while waiting and checked < _MAX_ENTRIES_BELOW:
        folder, depth = waiting.popleft()
        yield folder
        entries = _first_entries(folder)
        checked += len(entries)
        waiting.extend(
            (Path(entry.path), depth + 1)
            for entry in entries
            if depth < _MAX_DEPTH and entry.name[:1] != "." and _is_folder_not_link(entry)
        )


def _is_folder_not_link(entry: os.DirEntry[str]) -> bool:
    """Return whether it is a folder and no link; false where the file system cannot tell."""
    try:
        return entry.is_dir(follow_symlinks=False)
    except OSError:
        return False


def _files_with_mtimes(folder: Path) -> list[tuple[Path, float]]:
    """Return the files right in a folder, of very many only some, each with the time when it was written."""
    try:
        return [
            (Path(entry.path), entry.stat(follow_symlinks=False).st_mtime)
            for entry in _first_entries(folder)
            if entry.is_file(follow_symlinks=False)
        ]
    except OSError:
        return []


def _first_entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, of very much only some; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return [*islice(entries, _MAX_FILES_CHECKED)]
    except (OSError, ValueError):
        return []
