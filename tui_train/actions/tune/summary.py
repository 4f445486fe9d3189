"""The trials as text for a terminal or a screen; safe to show."""

from tui_train.actions.tune.search import Trial, TrialSetting
from tui_train.actions.tune.tune import TuningState
from tui_train.base.text import grouped_digits, size_text, visible

TRIAL_TABLE_HEADER = ("trial", "micro batch", "checkpointing", "precision", "speed", "memory", "")


def setting_text(setting: TrialSetting) -> str:
    """Return a setting in a few words."""
    saving = ", activation checkpointing" if setting.checkpointing else ""
    return f"micro batch {setting.micro_batch}{saving}, {setting.precision}"


def trial_rows(state: TuningState) -> list[tuple[str, ...]]:
    """Return the trials as rows below TRIAL_TABLE_HEADER; the running one is last."""
    table = [_trial_row(number, trial, state) for number, trial in enumerate(state.trials, 1)]
    if state.trying:
        table.append((str(len(table) + 1), *setting_cells(state.trying), "…", "", ""))
    return table


def result_sentence(state: TuningState) -> str:
    """Return the result of the trials in one sentence."""
    if state.change:
        return f"{visible(state.change.title)}: {visible(state.change.why)}"
    if state.recommended_trial:
        return "Nothing that was tried is faster than the profile's own setting."
    if state.trying:
        return "Stopped before a trial was timed."
    if not state.trials:
        return "Nothing that could be tried fits by the estimate."
    last = state.trials[-1]
    why = visible(last.why or last.outcome).rstrip(".")
    return f"No trial could be timed: {why}. Its log: {visible(last.log) or 'none'}"


def setting_cells(setting: TrialSetting) -> tuple[str, str, str]:
    """Return a setting as three cells of a row."""
    return str(setting.micro_batch), "yes" if setting.checkpointing else "no", setting.precision


def _trial_row(number: int, trial: Trial, state: TuningState) -> tuple[str, ...]:
    rate = trial.rate * (state.tokens or 1)
    speed = f"{grouped_digits(rate)} tokens/s" if state.tokens else f"{rate:.2f} samples/s"
    note = "best" if trial == state.recommended_trial else visible(trial.why)
    memory = size_text(trial.memory) if trial.memory is not None else ""
    return (
        str(number),
        *setting_cells(trial.setting),
        speed if trial.outcome == "measured" else trial.outcome,
        memory,
        note,
    )
