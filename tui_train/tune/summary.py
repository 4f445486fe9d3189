"""The trials in words, for a terminal and a screen alike; all safe to show."""

from tui_train.base.text import size, visible
from tui_train.tune.search import Setting, Trial
from tui_train.tune.tune import Tuned

HEAD = ("trial", "micro batch", "checkpointing", "precision", "speed", "memory", "")


def setting(one: Setting) -> str:
    """Return a setting in a few words."""
    return f"micro batch {one.micro_batch}{', activation checkpointing' if one.checkpointing else ''}, {one.precision}"


def rows(now: Tuned) -> list[tuple[str, ...]]:
    """Return the trials as rows below HEAD; the one under way comes last."""
    found = [_row(number, trial, now) for number, trial in enumerate(now.trials, 1)]
    if now.trying:
        found.append((str(len(found) + 1), *named(now.trying), "…", "", ""))
    return found


def verdict(now: Tuned) -> str:
    """Return what the trials come to."""
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


def named(one: Setting) -> tuple[str, str, str]:
    """Return a setting as three cells of a row."""
    return str(one.micro_batch), "yes" if one.checkpointing else "no", one.precision


def _row(number: int, trial: Trial, now: Tuned) -> tuple[str, ...]:
    rate = trial.rate * (now.tokens or 1)
    speed = f"{rate:,.0f} tokens/s" if now.tokens else f"{rate:,.2f} samples/s"
    note = "best" if trial == now.best else visible(trial.why)
    memory = size(trial.memory) if trial.memory is not None else ""
    return (str(number), *named(trial.setting), speed if trial.outcome == "measured" else trial.outcome, memory, note)
