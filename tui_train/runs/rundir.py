"""RunDir: every path and event name of a run folder, the one interface between a training and its viewers."""

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_train.errors import CannotWrite, NotFound
from tui_train.files import write_beside, writing
from tui_train.places import expanded, runs_folder
from tui_train.plan.types import Log
from tui_train.render import PLAN, PROFILE, SCRIPT, File
from tui_train.supervisor import events
from tui_train.supervisor.events import Event
from tui_train.supervisor.progress import Reading
from tui_train.text import visible


class RunDir(Struct, frozen=True):
    """The paths of one run folder."""

    path: Path

    @property
    def name(self) -> str:
        """The run's id: the folder's name."""
        return self.path.name

    @property
    def script(self) -> Path:
        """The file that Run starts."""
        return self.path / SCRIPT

    @property
    def profile(self) -> Path:
        """The profile that the run was planned from."""
        return self.path / PROFILE

    @property
    def events_file(self) -> Path:
        """What happened, one JSON object a line."""
        return self.path / events.NAME

    @property
    def launcher_log(self) -> Path:
        """What launch.sh itself said when it was started in the background."""
        return self.path / "launch.log"

    @property
    def plan_file(self) -> Path:
        """The plan as data, for viewers."""
        return self.path / PLAN

    def attempt_log(self, number: int) -> Path:
        """All output of one attempt, counted from 1 over every start of the folder."""
        return self.path / f"attempt-{number}.log"

    def events(self) -> tuple[Event, ...]:
        """Return what happened so far; a line that is not whole, or not ours, is passed over."""
        return events.read(str(self.path))

    def plan(self) -> dict[str, Any]:
        """Return the plan as data; empty where there is no plan.json, or none of ours."""
        try:
            data: Any = msgspec.json.decode(self.plan_file.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}
        return data if isinstance(data, dict) else {}

    def reading(self) -> Reading:
        """Return how the plan says that the training's own lines are read; what is none of ours is passed over."""
        try:
            log = msgspec.convert(self.plan().get("log", {}), Log)
            return Reading(tuple(re.compile(expression) for expression in log.expressions), log.steps)
        except (msgspec.ValidationError, re.error, RecursionError, OverflowError):
            return Reading()

    def titles(self) -> list[str]:
        """Return what the plan calls its attempts; none where there is no plan.json, or none of ours."""
        attempts = self.plan().get("attempts")
        if not isinstance(attempts, list):
            return []
        return [str(attempt.get("title", "")) if isinstance(attempt, dict) else "" for attempt in attempts]


def create(name: str, files: Sequence[File]) -> RunDir:
    """Write a new run folder, whole or not at all, and return it; CannotWrite says why it could not."""
    parent = runs_folder()
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        fill(beside, files)
        with writing(parent):
            return RunDir(_first_free(name, parent, beside.rename))
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def fill(folder: Path, files: Sequence[File]) -> None:
    """Write files into a folder; launch.sh becomes executable."""
    for file in files:
        write_beside(folder / file.path, file.text, 0o755 if file.path == SCRIPT else 0o644)


def export(folder: Path, files: Sequence[File], *, overwrite: bool = False) -> tuple[Path, ...]:
    """Write the plan's files to a folder and return their paths; CannotWrite when one stands there already."""
    targets = tuple(folder / file.path for file in files)
    standing = [visible(str(target)) for target in targets if target.exists()]
    if standing and not overwrite:
        raise CannotWrite(f"{standing[0]} stands already", "Choose another folder, or allow overwriting (--force).")
    fill(folder, files)
    return targets


def find(reference: str) -> RunDir:
    """Return a run by its id, by the beginning of one, by `last`, or by a folder; NotFound when there is none."""
    if "/" in reference or reference in {".", ".."}:
        folder = expanded(reference).absolute()
        if (folder / SCRIPT).is_file():
            return RunDir(folder)
        raise NotFound(f"{visible(str(folder))} is no run folder: it has no {SCRIPT}", "See `tui-train runs`.")
    known = all_runs()
    if reference == "last" and known:
        return known[0]
    exact = [run for run in known if run.name == reference]
    matching = exact or [run for run in known if reference and run.name.startswith(reference)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        raise NotFound(f"{visible(reference)} fits {len(matching)} runs", f"Say which: {matching[0].name}, ….")
    raise NotFound(f"there is no run {visible(reference)}", "See `tui-train runs`.")


def all_runs() -> tuple[RunDir, ...]:
    """Return all runs in the runs folder, newest first."""
    try:
        folders = [path for path in runs_folder().iterdir() if path.name[0] != "." and _is_run(path)]
    except OSError:
        return ()
    return tuple(RunDir(path) for path in sorted(folders, key=lambda path: path.name, reverse=True))


def _is_run(folder: Path) -> bool:
    try:
        return (folder / SCRIPT).is_file()
    except OSError:
        # A folder of somebody else's hides itself, not all the others.
        return False


def new_folder(name: str, parent: Path) -> Path:
    """Make an empty folder, named by the second and a name; CannotWrite says why it could not."""
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _first_free(name, parent, lambda folder: folder.mkdir())


def _first_free(name: str, parent: Path, make: Callable[[Path], object]) -> Path:
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "run"
    for number in range(1, 1000):
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = parent / (f"{stamp}-{slug}" if number == 1 else f"{stamp}-{slug}-{number}")
        try:
            make(folder)
        except OSError:
            if folder.exists():
                continue
            raise
        return folder
    raise CannotWrite(f"no free name in {parent}", "Remove old ones.")
