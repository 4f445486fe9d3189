"""Outline of a run that has not begun: what it starts, with which values, and who waits before it."""

import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from tui_train.base.parse import text_or_empty
from tui_train.base.text import display_path, grouped_digits, typeset_ascii, visible
from tui_train.profile.presets import PLACEHOLDER_PATTERN
from tui_train.runs.run_folders import RunFolder
from tui_train.views.profile_digests import read_summary_and_profile

_MAX_STARTS_NAMED = 3


def read_run_outline(run: RunFolder) -> tuple[tuple[str, str], ...]:
    """Return what a run will do as its plan has it, each a label and words that are safe to show."""
    summary, profile, _ = read_summary_and_profile(run.profile_file)
    plan = run.plan()
    texts = {**dict(_plan_labels_and_texts(plan)), "Model": visible(summary.model), "Data": visible(summary.data)}
    arguments = [_argument_with_plan_numbers(word, plan) for word in profile.trainer.arguments] if profile else []
    texts["Arguments"] = visible(shlex.join(arguments))
    labels = ("Starts", "Arguments", "Model", "Data", "Batch", "Recipe", "Steps", "Fallbacks", "Output")
    return tuple((label, texts[label]) for label in labels if texts.get(label))


def _plan_labels_and_texts(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what plan.json says; a run folder may hold anything under its names."""
    attempts, numbers, steps = plan.get("attempts"), plan.get("numbers"), plan.get("steps")
    yield "Starts", visible(text_or_empty(plan.get("title")))
    if isinstance(attempts, list) and attempts and isinstance(attempts[0], dict):
        yield "Batch", typeset_ascii(text_or_empty(attempts[0].get("batch")))
        yield "Fallbacks", f"{len(attempts) - 1}, after out of memory" if len(attempts) > 1 else ""
    recipe = visible(", ".join(map(text_or_empty, numbers))) if isinstance(numbers, list) else ""
    yield "Recipe", recipe
    if isinstance(steps, int) and steps > 0 and f"{grouped_digits(steps)} steps" not in recipe:
        yield "Steps", grouped_digits(steps)
    yield "Output", display_path(text_or_empty(plan.get("output")))


def _argument_with_plan_numbers(argument: str, plan: dict[str, Any]) -> str:
    """Return an argument with the plan's numbers for its placeholders; an ellipsis for others, known at the start."""

    def value(match: re.Match[str]) -> str:
        number = plan.get(match[1])
        return f"{number:.12g}" if isinstance(number, (int, float)) and number else "…"

    return PLACEHOLDER_PATTERN.sub(value, argument)


def queue_position_text(starts_ahead: Sequence[str] | None) -> str:
    """Return the place in the queue by the starts that come before; empty where it is not known (None)."""
    if starts_ahead is None:
        return ""
    if not starts_ahead:
        return "next to start"
    more = len(starts_ahead) - _MAX_STARTS_NAMED
    # The nearest one is the one to look at.
    names = ", ".join(reversed(starts_ahead[-_MAX_STARTS_NAMED:]))
    return f"place {len(starts_ahead) + 1}, after {names}{f' and {more} more' if more > 0 else ''}"
