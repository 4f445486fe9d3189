"""Changes of runs and profiles that Home makes on disk; each returns in words what it did, or raises TuiTrainError."""

from typing import TYPE_CHECKING

from tui_train.base.text import counted, size

if TYPE_CHECKING:
    from tui_train.runs.rundir import RunDir


def remove_runs(runs: "tuple[RunDir, ...]") -> str:
    """Remove the folders of runs."""
    from tui_train.runs import folders

    freed = sum(folders.remove_run(run) for run in runs)
    return f"Deleted {counted(len(runs), 'run')}, freed {size(freed)}."


def write_notes(runs: "tuple[RunDir, ...]", text: str) -> str:
    """Write a line about runs; an empty one removes theirs."""
    from tui_train.runs import folders

    for run in runs:
        folders.write_note(run, text)
    return "Noted." if text.strip() else "The note was removed."


def remove_profile(name: str) -> str:
    """Remove a saved profile."""
    from tui_train.profile import store

    store.remove_profile(name)
    return f"Deleted the profile {name}."


def duplicate_profile(name: str, new: str) -> str:
    """Save a copy of a profile."""
    from tui_train.profile import store

    store.duplicate_profile(name, new)
    return f"Saved {new}."
