"""Words for what becomes of a run: of one that goes on when the user leaves, and of one that is to be stopped."""

from collections.abc import Sequence

from tui_train.base.errors import TuiTrainError
from tui_train.base.own_command import own_command
from tui_train.base.text import grouped_digits, names_text, quantity, visible
from tui_train.diagnose.repeated_failure import failure_that_would_repeat
from tui_train.runner.run_folder.checkpoints import step_in_name
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.results.resuming import (
    PRESET_CANNOT_RESUME_REASON,
    newest_checkpoint,
    resume_mode,
    why_not_resumable,
)
from tui_train.runs.run_folders import RunFolder, find_run
from tui_train.runs.status import read_status
from tui_train.views.plain_text import stop_result_text

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
        return f"{saves} It {PRESET_CANNOT_RESUME_REASON}."
    if resume_mode(run) == "by itself":
        return f"{saves} It resumes from the newest checkpoint that its trainer finds."
    if newest := newest_checkpoint(run, status.attempts[-1].position):
        step = step_in_name(newest)
        where = f"step {grouped_digits(step)}" if step else "its newest checkpoint"
        return f"{saves} If it saves nothing more, a resume begins at {where}."
    return f"{saves} It has no checkpoint yet: if it saves none, there will be nothing to resume from."


def next_commands_text(run: RunFolder, status: RunStatus) -> str:
    """Return the commands that resume a run that did not finish, where it can, and show its log; else empty."""
    if status.is_live or status.leftover or status.state == "finished":
        return ""
    name = visible(run.name)
    if failure_that_would_repeat(run, status):
        return f"Unchanged, it would fail again. Its log: {own_command()} logs {name}"
    if why := why_not_resumable(run, status):
        return f"It {why}. Its log: {own_command()} logs {name}"
    return f"Resume it: {own_command()} resume {name}; its log: {own_command()} logs {name}"


def stopped_run_text(run: RunFolder, ended: RunStatus) -> str:
    """Return the end of a run that the user stopped, and the commands that go on with it."""
    lines = (f"{visible(run.name)}: {stop_result_text(ended)}", next_commands_text(run, ended))
    return "\n".join(filter(None, lines))
