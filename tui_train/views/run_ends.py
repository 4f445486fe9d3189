"""Words for what becomes of a run: of one that goes on when the user leaves, and of one that is to be stopped."""

from collections.abc import Sequence

from tui_train.base.errors import TuiTrainError
from tui_train.base.own_command import own_command
from tui_train.base.text import grouped_digits, names_text, quantity, visible
from tui_train.runner.run_folder.checkpoints import step_in_name
from tui_train.runs.results.resuming import newest_checkpoint, resume_mode
from tui_train.runs.run_folders import RunFolder, find_run
from tui_train.runs.status import read_status

_MAX_NAMES_SHOWN = 3


def continuing_runs_text(runs: Sequence[RunFolder]) -> str:
    """Return which runs go on and how to come back to them; empty where there are none."""
    if not runs:
        return ""
    if len(runs) > 1:
        names = names_text([visible(run.label) for run in runs], _MAX_NAMES_SHOWN)
        return f"{len(runs)} runs go on: {names}. Come back with: {own_command()}"
    name = visible(_short_reference(runs[0]))
    waits = read_status(runs[0]).state in {"queued", "waiting"}
    return f"{name} {'keeps waiting' if waits else 'keeps training'}. Come back with: {own_command()} attach {name}"


def _short_reference(run: RunFolder) -> str:
    """Return the name without its time where commands find the run by that."""
    try:
        return run.label if find_run(run.label).path == run.path else run.name
    except TuiTrainError:
        return run.name


def stop_consequence_text(run: RunFolder) -> str:
    """Return what a stop would leave of a run, and where it would resume; it reads the disk."""
    status = read_status(run)
    if status.never_had_turn or not status.attempts:
        return "It has not started training yet: nothing is lost."
    saves = f"It gets {quantity(status.grace, 'second')} to save and end."
    if resume_mode(run) == "never":
        return f"{saves} It cannot resume: tui-train does not know how to give the script a checkpoint."
    if resume_mode(run) == "by itself":
        return f"{saves} It resumes from the newest checkpoint that its trainer finds."
    if newest := newest_checkpoint(run, status.attempts[-1].position):
        step = step_in_name(newest)
        where = f"step {grouped_digits(step)}" if step else "its newest checkpoint"
        return f"{saves} If it saves nothing more, it resumes from {where}."
    return f"{saves} It has no checkpoint yet: if it saves none, it starts over at step 0."
