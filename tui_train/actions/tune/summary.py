"""The trials as text for a terminal or a screen; safe to show."""

from tui_train.actions.tune.search import Setting, Trial
from tui_train.actions.tune.tune import TuningState
from tui_train.base.text import grouped_digits, size, visible

HEADER = ("trial", "micro batch", "checkpointing", "precision", "speed", "memory", "")


def setting_text(tested: Setting) -> str:
    """Return a setting in a few words."""
    saving = ", activation checkpointing" if tested.checkpointing else ""
    return f"micro batch {tested.micro_batch}{saving}, {tested.precision}"


def trial_rows(now: TuningState) -> list[tuple[str, ...]]:
    """Return the trials as rows below HEAD; the running one is last."""
    table = [_row(number, trial, now) for number, trial in enumerate(now.trials, 1)]
    if now.trying:
        table.append((str(len(table) + 1), *setting_cells(now.trying), "…", "", ""))
    return table


def result_sentence(now: TuningState) -> str:
    """Return the result of the trials in one sentence."""
    if now.change:
        return f"{visible(now.change.title)}: {visible(now.change.why)}"
    if now.best:
        return "Nothing that was tried is faster than the profile's own setting."
    if now.trying:
        return "Stopped before a trial was timed."
    if not now.trials:
        return "Nothing that could be tried fits by the estimate."
    last = now.trials[-1]
    why = visible(last.why or last.outcome).rstrip(".")
    return f"No trial could be timed: {why}. Its log: {visible(last.log) or 'none'}"


def setting_cells(tested: Setting) -> tuple[str, str, str]:
    """Return a setting as three cells of a row."""
    return str(tested.micro_batch), "yes" if tested.checkpointing else "no", tested.precision


def _row(number: int, trial: Trial, now: TuningState) -> tuple[str, ...]:
    rate = trial.rate * (now.tokens or 1)
    speed = f"{grouped_digits(rate)} tokens/s" if now.tokens else f"{rate:.2f} samples/s"
    note = "best" if trial == now.best else visible(trial.why)
    memory = size(trial.memory) if trial.memory is not None else ""
    return (
        str(number),
        *setting_cells(trial.setting),
        speed if trial.outcome == "measured" else trial.outcome,
        memory,
        note,
    )
