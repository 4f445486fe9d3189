"""Removes and renames run folders, and keeps a one-line note in each; never of an active run."""

import os
import secrets
import shutil
from pathlib import Path

from tui_train.base.app_paths import runs_folder
from tui_train.base.errors import AlreadyExists, BadInput, CannotWrite, Unavailable
from tui_train.base.files import raising_cannot_write, write_atomically
from tui_train.base.text import visible
from tui_train.channel.ssh import is_host_name
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runner.system.folder_usage import folder_usage
from tui_train.runs import incomplete_runs
from tui_train.runs.conflicts import lock_run_starts
from tui_train.runs.remote_run import read_run_location
from tui_train.runs.run_folders import MAX_NOTE_LENGTH, RunFolder, folder_name_slug, label_in_run_name
from tui_train.runs.status import read_status


def refuse_if_active_or_outside(run: RunFolder, status: RunStatus | None = None) -> None:
    """Raise Unavailable where a run trains, or left processes; BadInput where its folder is not in the runs folder.

    `status` is how it stands (None: as it is known here).
    """
    name, parent = visible(run.name), runs_folder()
    if run.path.is_symlink():
        remedy = f"Remove the link itself: rm {visible(str(run.path))}"
        raise BadInput(f"{name} is a link to {visible(str(run.path.readlink()))}, not a run folder", remedy)
    try:
        inside = run.path.parent.samefile(parent)
    except OSError:
        inside = False
    if not inside:
        why = f"{visible(str(run.path))} is not in the runs folder, {visible(str(parent))}"
        raise BadInput(why, "A folder that you made yourself is removed or renamed with rm and mv.")
    status = status or read_status(run)
    if status.is_live or status.leftover or status.container:
        state = (
            f"runs on {visible(status.host)}"
            if status.host
            else "is running"
            if status.is_live
            else "has left processes"
        )
        raise Unavailable(f"{name} {state}", f"Stop it first: tui-train stop {name}")


def remove_run(run: RunFolder) -> int:
    """Remove a run's folder and return the bytes that were freed; nothing is removed where not all of it can be."""
    with lock_run_starts():
        refuse_if_active_or_outside(run)
        taken = folder_usage(str(run.path))
        if taken.protected_folder:
            why = f"{visible(taken.protected_folder)} belongs to another user, or may not be changed"
            raise CannotWrite(f"{visible(run.name)} cannot be removed: {why}", "Remove that folder first, with sudo.")
        # Out of the list first, so that nobody resumes half a run; what is left of it is removed with half-made ones.
        hidden = run.path.with_name(f"{incomplete_runs.INCOMPLETE_RUN_PREFIX}{secrets.token_hex(8)}")
        _rename_unless_started(run, hidden)
    failed: list[str] = []
    shutil.rmtree(hidden, onerror=lambda _call, path, _error: failed.append(path))
    if failed:
        raise CannotWrite(
            (f"not all of {visible(run.name)} could be removed: {visible(failed[0])}"),
            "Remove the rest yourself (rm -r).",
        )
    return taken.size


def other_hosts_of_run(run: RunFolder) -> tuple[str, ...]:
    """Return the hosts beside the first one that a run was started on, as that one reaches them."""
    hosts = run.plan().get("hosts")
    names = hosts[1:] if isinstance(hosts, list) and _was_started(run) else []
    return tuple(name for name in names if isinstance(name, str) and is_host_name(name))


def _was_started(run: RunFolder) -> bool:
    """Return whether the run may have been started; no start has made copies of one that was not."""
    place = read_run_location(run.path)
    return run.events_file.exists() or bool(place.host and not place.shared)


def rename_run(run: RunFolder, name: str) -> RunFolder:
    """Give a run another name and return it; the time with which its id begins stays.

    Unavailable where other hosts have copies by that name: with another one it would neither find their parts of its
    checkpoints nor remove them.
    """
    with lock_run_starts():
        refuse_if_active_or_outside(run)
        target = renamed_run_folder(run, name)
        if target == run.path:
            return run
        place = read_run_location(run.path)
        if (not place.host or place.shared) and (hosts := other_hosts_of_run(run)):
            why = f"{visible(run.name)} has copies of that name on {visible(', '.join(hosts))}, needed to resume it"
            raise Unavailable(why, f"Write a note on it instead: tui-train runs note {visible(run.name)} TEXT")
        _rename_unless_started(run, target)
    return RunFolder(target)


def renamed_run_folder(run: RunFolder, name: str) -> Path:
    """Return the folder of a run by another name; BadInput for what is no name, AlreadyExists where it is taken."""
    wanted = folder_name_slug(label_in_run_name(name))
    if not wanted:
        raise BadInput(f"{visible(name)!r} cannot be a run's name", "Use letters and digits.")
    target = run.path.with_name("-".join(filter(None, (run.time_stamp, wanted))))
    # Renaming replaces an empty folder without a word.
    if target != run.path and os.path.lexists(target):
        raise AlreadyExists(f"there is a run {visible(target.name)}", "Choose another name for the run.")
    return target


def _rename_unless_started(run: RunFolder, target: Path) -> None:
    """Rename a run's folder, and take that back where launch.sh was started meanwhile."""
    with raising_cannot_write(run.path):
        run.path.rename(target)
    if read_status(RunFolder(target)).is_live:
        with raising_cannot_write(run.path):
            target.rename(run.path)
        raise Unavailable(f"{visible(run.name)} was started just now", "Stop the run first.")


def write_note(run: RunFolder, text: str) -> None:
    """Keep a line about a run in its folder; an empty one removes it."""
    require_short_note(text)
    line = " ".join(text.split())
    if line:
        write_atomically(run.note_file, f"{line}\n")
    else:
        with raising_cannot_write(run.note_file):
            run.note_file.unlink(missing_ok=True)


def require_short_note(text: str) -> None:
    """Raise BadInput for a note that lists cannot show."""
    length = len(" ".join(text.split()))
    if length > MAX_NOTE_LENGTH:
        raise BadInput(f"the note has {length} characters", f"Write at most {MAX_NOTE_LENGTH}.")
