"""Reasons why another start of a run goes on from a checkpoint, or does not."""

import shlex
from typing import Any

from tui_train.base.text import visible
from tui_train.runner import planned
from tui_train.runner.checkpoints import newest_checkpoint_of_attempt
from tui_train.runner.refused import Refused
from tui_train.runner.state import RunStatus
from tui_train.runs.elsewhere import read_host_report, read_place_elsewhere
from tui_train.runs.rundir import RunDir

NO_CHECKPOINT_REASON = "has no complete checkpoint"
PRESET_CANNOT_RESUME_REASON = "cannot resume: its preset passes no checkpoint"


def resume_mode(run: RunDir) -> str:
    """Return how another start goes on: `told` its checkpoint, `by itself`, or `never`: from step 0."""
    plan = run.plan()
    if plan.get("resumes_itself"):
        return "by itself"
    attempts: Any = plan.get("attempts")
    first = attempts[0] if isinstance(attempts, list) and attempts else {}
    return "told" if isinstance(first, dict) and first.get("checkpoints") else "never"


def start_again_remedy(run: RunDir) -> str:
    """Return the command that goes on with a run that was stopped, or starts over where it takes no checkpoint."""
    if resume_mode(run) == "never":
        return f"Train again: tui-train run {visible(shlex.quote(str(run.profile)))}"
    return f"Resume it: tui-train resume {visible(run.name)}"


def why_not_resumable(run: RunDir, status: RunStatus) -> str:
    """Return why another start would not go on where a run ended, as words after "it"; empty where it would."""
    if status.live or status.leftover:
        return "still runs"
    if status.state not in {"failed", "stopped", "lost"} or not status.attempts:
        return "has finished" if status.state == "finished" else "was never started"
    how = resume_mode(run)
    if how == "never":
        return PRESET_CANNOT_RESUME_REASON
    return "" if how == "by itself" or newest_checkpoint(run, status.attempts[-1].position) else NO_CHECKPOINT_REASON


def newest_checkpoint(run: RunDir, attempt_position: int) -> str:
    """Return the newest whole checkpoint of the attempt at a position of the plan, from 1; empty: there is none."""
    if read_place_elsewhere(run.path):
        heard = read_host_report(run.path)
        return heard.checkpoint if heard else ""
    try:
        return newest_checkpoint_of_attempt(planned.read_plan(str(run.path)), attempt_position, str(run.path))
    except Refused:
        return ""
