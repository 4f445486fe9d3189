"""RunFolder: the paths of a run folder, the interface between a training and its viewers."""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from tui_train.base.app_paths import expand_home, runs_folder
from tui_train.base.errors import AlreadyExists, CannotWrite, NotFound, TuiTrainError, Unavailable
from tui_train.base.files import foreign_owner_name, raising_cannot_write, read_regular_file, write_below_folder
from tui_train.base.parse import (
    MissingFile,
    Unparsable,
    parse_json_object,
    read_file_to_parse,
    type_prepared_for_msgspec,
)
from tui_train.base.text import visible
from tui_train.plan.run_files import (
    LAUNCH_SCRIPT_FILE_NAME,
    PLAN_JSON_FILE_NAME,
    PROFILE_FILE_NAME,
    LogReadingRules,
    RenderedFile,
)
from tui_train.runner.detached_start import LAUNCH_LOG_NAME
from tui_train.runner.run_folder import events, state
from tui_train.runner.run_folder.events import JournalEvent
from tui_train.runner.system.safe_open import open_folder
from tui_train.runs import incomplete_runs

if TYPE_CHECKING:
    from tui_train.profile.types import Profile
    from tui_train.runner.logs.progress import LogReadingOptions

# Bytes; a plan has some hundred lines.
MAX_PLAN_BYTES = 16 << 20
MAX_NOTE_LENGTH = 200
_MAX_NOTE_BYTES = 4 << 10
# Run ids begin with the local time.
_TIMESTAMPED_NAME_PATTERN = re.compile(r"(\d{8}-\d{6})(?:-(.*))?", re.DOTALL)
MAX_SLUG_LENGTH = 40
_MAX_STEP_DIGITS = 12
_RUN_NUMBER_LIMIT = 10**9
_MAX_NUMBER_FILE_BYTES = 16


class RunFolder(Struct, frozen=True):
    """The paths of one run folder."""

    path: Path
    checkpoint: int = 0
    """Step of the checkpoint that is its result; 0: its final weights, or the newest checkpoint."""

    @property
    def name(self) -> str:
        """The run's id: the folder's name."""
        return self.path.name

    @property
    def result_name(self) -> str:
        """How its result is named on the command line: its id, of a checkpoint `ID@STEP`."""
        return f"{self.name}@{self.checkpoint}" if self.checkpoint else self.name

    @property
    def label(self) -> str:
        """The name without the time with which ids begin."""
        return label_in_run_name(self.name)

    @property
    def time_stamp(self) -> str:
        """The time with which ids begin, empty for a name that does not."""
        match = _TIMESTAMPED_NAME_PATTERN.fullmatch(self.name)
        return match[1] if match else ""

    @property
    def launch_script(self) -> Path:
        """launch.sh, which starts the run."""
        return self.path / LAUNCH_SCRIPT_FILE_NAME

    @property
    def profile_file(self) -> Path:
        """The file with the profile of the run."""
        return self.path / PROFILE_FILE_NAME

    @property
    def events_file(self) -> Path:
        """The events, one JSON object per line."""
        return self.path / events.JOURNAL_FILE_NAME

    @property
    def launch_log(self) -> Path:
        """The output of launch.sh when started in the background (launcher log)."""
        return self.path / LAUNCH_LOG_NAME

    @property
    def plan_file(self) -> Path:
        """The plan as data."""
        return self.path / PLAN_JSON_FILE_NAME

    @property
    def note_file(self) -> Path:
        """The user's one-line note."""
        return self.path / "note.txt"

    def attempt_log(self, number: int) -> Path:
        """The output of one attempt; attempts are numbered from 1 over all starts."""
        return self.path / f"attempt-{number}.log"

    def events(self) -> tuple[JournalEvent, ...]:
        """Return the events so far, without incomplete and unknown lines."""
        return self.events_and_damage()[0]

    def events_and_damage(self) -> tuple[tuple[JournalEvent, ...], str]:
        """Return the events so far, and why some cannot be read; an incomplete last line is not damage."""
        return events.read_events_and_damage(str(self.path))

    def plan(self) -> dict[str, Any]:
        """Return the plan as data, empty without a valid plan.json."""
        return self.plan_and_damage()[0]

    def plan_and_damage(self) -> tuple[dict[str, Any], str]:
        """Return the plan as data, and why it cannot be read; empty if there is none."""
        name = self.plan_file.name
        try:
            return parse_json_object(read_file_to_parse(self.plan_file, MAX_PLAN_BYTES)), ""
        except MissingFile:
            return {}, ""
        except Unparsable as error:
            return {}, f"{name}: {error}"

    def read_profile(self) -> "Profile | None":
        """Return the profile of the run, None where it cannot be read."""
        # Whoever lists runs needs none of it.
        from tui_train.profile import store

        try:
            return store.load_profile_file(str(self.profile_file))
        except TuiTrainError:
            return None

    def note(self) -> str:
        """Return the user's note; empty if there is none or it cannot be read."""
        try:
            text = read_regular_file(self.note_file, _MAX_NOTE_BYTES).decode(errors="replace")
        except OSError:
            return ""
        return " ".join(text.split())[:MAX_NOTE_LENGTH]

    def log_reading_options(self) -> "LogReadingOptions":
        """Return how log lines are read according to the plan; invalid values are ignored."""
        from tui_train.runner.logs.progress import LogReadingOptions

        try:
            log = msgspec.convert(self.plan().get("log", {}), type_prepared_for_msgspec(LogReadingRules))
            return LogReadingOptions.from_texts(log.expressions, log.steps, nameable=log.nameable)
        except (msgspec.ValidationError, ValueError, RecursionError, OverflowError):
            return LogReadingOptions()

    def attempt_titles(self) -> list[str]:
        """Return the titles of the attempts in the plan, none without a valid plan.json."""
        attempts = self.plan().get("attempts")
        if not isinstance(attempts, list):
            return []
        return [str(attempt.get("title", "")) if isinstance(attempt, dict) else "" for attempt in attempts]


def label_in_run_name(name: str) -> str:
    """Return a run's name without the time with which ids begin."""
    match = _TIMESTAMPED_NAME_PATTERN.fullmatch(name)
    return name if match is None or match[2] is None else match[2]


def create_run_folder(name: str, files: Sequence[RenderedFile]) -> RunFolder:
    """Create a run folder atomically and return it; CannotWrite if that fails."""
    parent = runs_folder()
    with raising_cannot_write(parent):
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        incomplete_runs.remove_abandoned_runs(parent)
        number = max((run_number(run.path) for run in list_runs()), default=0) + 1
        beside = Path(tempfile.mkdtemp(dir=parent, prefix=incomplete_runs.INCOMPLETE_RUN_PREFIX))
    try:
        with raising_cannot_write(beside), incomplete_runs.lock_while_creating(beside):
            write_run_files(beside, (*files, RenderedFile(incomplete_runs.RUN_NUMBER_FILE_NAME, f"{number}\n")))
            return RunFolder(_create_first_free_folder(name, parent, beside.rename))
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def write_run_files(folder: Path, files: Sequence[RenderedFile]) -> None:
    """Write files into a folder, which is created if needed, without following links."""
    with raising_cannot_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with open_folder(folder) as opened:
            _write_into_open_folder(opened, folder, files)


def _write_into_open_folder(
    descriptor: int, folder: Path, files: Sequence[RenderedFile], *, replace: bool = True
) -> None:
    """Write files into an open folder; launch.sh becomes executable."""
    for file in files:
        mode = 0o755 if file.path == LAUNCH_SCRIPT_FILE_NAME else 0o644
        with raising_cannot_write(folder / file.path):
            try:
                write_below_folder(descriptor, file.path, file.content, mode, replace=replace)
            except FileExistsError:
                raise _already_exists_error(folder / file.path) from None


def _already_exists_error(path: Path) -> AlreadyExists:
    remedy = "Choose another folder, or overwrite it (--force)."
    return AlreadyExists(f"{visible(str(path))} already exists", remedy)


def refuse_existing(targets: Sequence[Path]) -> None:
    """Raise AlreadyExists for the first of some files that is there."""
    if existing := next((target for target in targets if os.path.lexists(target)), None):
        raise _already_exists_error(existing)


def export_plan_files(folder: Path, files: Sequence[RenderedFile], *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the plan's files to a folder and return their paths; AlreadyExists if one of them exists.

    CannotWrite if the folder belongs to another user, or a link in it leads elsewhere; Unavailable if a training runs
    in it.
    """
    targets = tuple(folder / file.path for file in files)
    with raising_cannot_write(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with open_folder(folder) as opened:
            if owner := foreign_owner_name(opened):
                message = (
                    f"{visible(str(folder))} belongs to {visible(owner)}, who could change the files that you start"
                )
                raise CannotWrite(message, "Name a new folder, or one that belongs to you.")
            if not overwrite:
                refuse_existing(targets)
            if any(map(os.path.lexists, targets)) and state.read_status(str(folder)).is_live:
                remedy = "Stop that training first (`tui-train stop FOLDER`), or name another folder."
                raise Unavailable(f"a training runs in {visible(str(folder))}: its files are not replaced", remedy)
            _write_into_open_folder(opened, folder, files, replace=overwrite)
    return targets


class NoSuchRun(NotFound):
    """No run has that name, nor a profile with runs."""


def find_run(reference: str, *, by_profile: bool = True) -> RunFolder:
    """Return a run by id, prefix of an id, `last`, or folder; NotFound if there is none.

    With `by_profile` the name of a profile means its newest run.
    """
    if "/" in reference or reference in {".", ".."}:
        folder = expand_home(reference).absolute()
        if is_run_folder(folder):
            return RunFolder(folder)
        if (named := _run_name_and_step(str(folder))) and is_run_folder(Path(named[0])):
            raise _not_a_whole_run_error(reference, named[0])
        raise NotFound(
            f"{visible(str(folder))} is not a run folder: it has no {LAUNCH_SCRIPT_FILE_NAME}", "See `tui-train runs`."
        )
    every_run = list_runs()
    if reference == "last" and every_run:
        return every_run[0]
    exact = [run for run in every_run if run.name == reference]
    matching = exact or [run for run in every_run if reference and run.name.startswith(reference)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise NotFound(
            f"{visible(reference)} matches {len(matching)} runs", f"Be more specific: {visible(matching[0].name)}, …."
        )
    if reference and is_run_folder(Path(reference)):
        return RunFolder(Path(reference).absolute())
    if newest := _newest_run_of_profile(every_run, reference, is_meant=by_profile):
        return newest
    named = _run_name_and_step(reference)
    if named and any(named[0] == "last" or run.name.startswith(named[0]) for run in every_run):
        raise _not_a_whole_run_error(reference, named[0])
    raise NoSuchRun(f"there is no run {visible(reference)}", "See `tui-train runs`.")


def _newest_run_of_profile(runs: Sequence[RunFolder], profile: str, *, is_meant: bool) -> RunFolder | None:
    """Return the newest run of a profile, None for none; NoSuchRun where a profile's name is not meant."""
    newest = next((run for run in runs if profile and _is_run_of_profile(run, profile)), None)
    if newest and not is_meant:
        raise NoSuchRun(
            f"{visible(profile)} is the name of a profile, and this takes a run",
            f"Name one by its id: {visible(newest.name)} is the newest, `tui-train runs` lists all.",
        )
    return newest


def count_runs_of_profile(profile: str) -> int:
    """Return how many runs the name of a profile means, of which find_run takes the newest."""
    return sum(_is_run_of_profile(run, profile) for run in list_runs())


def find_run_or_checkpoint(reference: str) -> RunFolder:
    """Return a run as find_run does; `RUN@STEP` is the run whose result is its checkpoint of that step."""
    named = _run_name_and_step(reference)
    return structs.replace(find_run(named[0]), checkpoint=named[1]) if named else find_run(reference)


def _not_a_whole_run_error(reference: str, run: str) -> NotFound:
    return NotFound(
        f"{visible(reference)} is a checkpoint, and this takes a whole run",
        f"Name the run: {visible(run)}. try, result, evaluate, merge, export-model and publish take checkpoints.",
    )


def _run_name_and_step(reference: str) -> tuple[str, int] | None:
    """Return what `RUN@STEP` names; None for a reference of another form."""
    name, _, step = reference.rpartition("@")
    if name and step.isascii() and step.isdigit() and len(step) <= _MAX_STEP_DIGITS and int(step):
        return name, int(step)
    return None


def _is_run_of_profile(run: RunFolder, profile: str) -> bool:
    """Tell whether a run has a profile's name, or was planned from it."""
    return run.label == folder_name_slug(profile) or run.plan().get("name") == profile


def list_runs() -> tuple[RunFolder, ...]:
    """Return all runs in the runs folder, newest first."""
    try:
        folders = [path for path in runs_folder().iterdir() if path.name[0] != "." and is_run_folder(path)]
    except OSError:
        return ()
    # Not by name alone, whose local time can go back.
    folders.sort(key=lambda folder: (run_number(folder), folder.name), reverse=True)
    return tuple(map(RunFolder, folders))


def runs_newest_first_by_name() -> tuple[RunFolder, ...]:
    """Return what looks like runs by the time in their names, newest first: a guess, which takes no look into them."""
    folder = runs_folder()
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name[0] != "." and entry.is_dir()]
    except OSError:
        return ()
    return tuple(RunFolder(folder / name) for name in sorted(names, reverse=True))


def runs_folder_mtime_ns() -> int:
    """Return what changes with the list of runs; 0 where there is no runs folder."""
    try:
        return runs_folder().stat().st_mtime_ns
    except OSError:
        return 0


def is_run_folder(folder: Path) -> bool:
    """Return whether a folder is a run folder; False for invalid names and folders without access."""
    try:
        return (folder / LAUNCH_SCRIPT_FILE_NAME).is_file()
    except (OSError, ValueError):
        # One inaccessible folder must not hide the others.
        return False


def run_number(folder: Path) -> int:
    """Return a run's number, 0 (the oldest) if it has none."""
    try:
        text = read_regular_file(folder / incomplete_runs.RUN_NUMBER_FILE_NAME, _MAX_NUMBER_FILE_BYTES).strip()
    except OSError:
        return 0
    number = int(text) if text.isdigit() else 0
    return number if number < _RUN_NUMBER_LIMIT else 0


def create_timestamped_folder(name: str, parent: Path) -> Path:
    """Create an empty folder named by time and name; CannotWrite if that fails."""
    with raising_cannot_write(parent):
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _create_first_free_folder(name, parent, lambda folder: folder.mkdir())


def folder_name_slug(text: str) -> str:
    """Return a name as folders have it: small letters and digits with hyphens; empty where nothing of it remains."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:MAX_SLUG_LENGTH]


def _create_first_free_folder(name: str, parent: Path, make_folder: Callable[[Path], object]) -> Path:
    label = folder_name_slug(name) or "run"
    for number in range(1, 1000):
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = parent / (f"{stamp}-{label}" if number == 1 else f"{stamp}-{label}-{number}")
        try:
            make_folder(folder)
        except OSError:
            if folder.exists():
                continue
            raise
        return folder
    raise CannotWrite(f"no free name in {visible(str(parent))}", "Remove old run folders there.")
