"""Notes beside the values of a fine-tuning in the forms."""

import math

from tui_train.base.text import grouped_digits, percent, quantity
from tui_train.facts.data.data_report import DataReport
from tui_train.memory.data_defaults import LENGTH_OF_ALL_ROWS_TEXT, MIN_ROWS_TO_EVALUATE
from tui_train.memory.predict import predict_memory
from tui_train.plan.description import warm_up_text
from tui_train.profile.rewards import DEFAULT_COMPLETION_LENGTH, generates_answers, generations_in_force
from tui_train.setup.recipe.data_questions import (
    EVALUATION_SHARE_KEY,
    data_report_at_length_in_force,
    total_training_steps,
    training_epoch_size,
)
from tui_train.setup.recipe.effective_values import is_unset_by_user
from tui_train.setup.setup import Setup
from tui_train.views.data_text import data_summary, reading_data_text, why_data_unread
from tui_train.views.overview import short_count_text, usual_learning_rate_text


def data_field_note(setup: Setup, *, is_being_read: bool) -> str:
    """Return what the data holds, that it is being read, or why it is not; empty where none is named."""
    if not setup.effective_profile.trainer.data:
        return ""
    if is_being_read:
        return reading_data_text(setup.effective_profile)
    report = data_report_at_length_in_force(setup)
    return data_summary(report) if report else why_data_unread(setup)


def backend_screen_notes(setup: Setup) -> dict[str, str]:
    """Return how many weights learn, and how many rows are kept for evaluations."""
    profile = setup.effective_profile
    notes = {"data.cut": f"{percent(profile.data.cut)}; with more it does not start"}
    estimate, epoch = predict_memory(setup).estimate, training_epoch_size(setup)
    if estimate and estimate.trained_count != estimate.parameters:
        added = profile.finetune.tuning != "full"
        notes["finetune.tuning"] = f"{short_count_text(estimate.trained_count)} {'new ' * added}weights learn"
    share = profile.data.evaluation or 0.0
    if profile.trainer.validation_data:
        notes["data.evaluation"] = "not used: there is validation data"
    elif share and epoch:
        notes["data.evaluation"] = f"about {grouped_digits(epoch.rows / (1 - share) * share)} rows"
        if held := setup.data_values_by_key.get(EVALUATION_SHARE_KEY):
            notes["data.evaluation"] += f": {held.source}"
    elif profile.data.evaluation is None and epoch and epoch.rows < MIN_ROWS_TO_EVALUATE:
        notes["data.evaluation"] = (
            f"none: {grouped_digits(epoch.rows)} rows are too few (at least {MIN_ROWS_TO_EVALUATE})"
        )
    elif profile.data.evaluation is None and not epoch:
        notes["data.evaluation"] = f"5 %, at least 10 rows; none under {MIN_ROWS_TO_EVALUATE}"
    elif not share:
        notes["data.evaluation"] = "none: all rows are trained on"
    return notes


def recipe_screen_notes(setup: Setup) -> dict[str, str]:
    """Return what follows from epochs, length, rate, warmup and rank."""
    profile, report, epoch = setup.effective_profile, data_report_at_length_in_force(setup), training_epoch_size(setup)
    recipe, chosen, steps = profile.recipe, profile.finetune, total_training_steps(setup)
    notes = {"recipe.learning_rate": usual_learning_rate_text(chosen), "finetune.alpha": "usual: twice the rank"}
    if recipe.steps:
        notes["recipe.epochs"] = "not used: Steps is set"
        if epoch and epoch.steps:
            notes["recipe.steps"] = (
                f"= {(epochs := f'{recipe.steps / epoch.steps:.3g}')} {'epoch' if epochs == '1' else 'epochs'}"
            )
    elif steps:
        notes["recipe.epochs"] = f"≈ {grouped_digits(steps)} steps"
        notes["recipe.steps"] = "ends after the epochs"
    if report:
        notes |= _length_and_answer_notes(setup, report)
    elif (
        profile.trainer.data
        and not setup.facts.other_machine  # where the value says so itself
        and is_unset_by_user(setup.effective_values["sequence_length"])
    ):
        notes["recipe.sequence_length"] = "until the data has been read"
    if words := _warm_up_note(recipe.warmup, steps):
        notes["recipe.warmup"] = words
    if generates_answers(chosen):
        generations = generations_in_force(chosen)
        prompts = (recipe.global_batch or 0) / generations
        per_step = f"{quantity(int(prompts), 'prompt')} a step" if prompts and prompts.is_integer() else ""
        notes["finetune.generations"] = "; ".join(
            filter(None, (f"TRL's {generations}" * (chosen.generations is None), per_step))
        )
        if chosen.completion_length is None:
            notes["finetune.completion_length"] = f"TRL's {DEFAULT_COMPLETION_LENGTH} tokens"
    if recipe.evaluate_every is None:
        kept = profile.trainer.validation_data or profile.data.evaluation
        notes["recipe.evaluate_every"] = "with each checkpoint" if kept else "no data to evaluate on"
    return notes


def _length_and_answer_notes(setup: Setup, report: DataReport) -> dict[str, str]:
    """Return what the data and the model's template make of the sequence length and of what is learned."""
    notes = {}
    source = setup.effective_values["sequence_length"].source
    if report.tokens and report.tokens.cut:
        share = percent(report.tokens.cut / max(report.usable, 1), 1)
        notes["recipe.sequence_length"] = f"{grouped_digits(report.tokens.cut)} rows are longer ({share})"
    elif report.limit:
        limit = grouped_digits(report.limit)
        is_from_rows = source.startswith(LENGTH_OF_ALL_ROWS_TEXT)
        notes["recipe.sequence_length"] = (
            f"{source}; limit {limit}" if is_from_rows else f"the model's limit is {limit}"
        )
    if setup.profile.finetune.answers_only is None:
        if setup.effective_profile.finetune.answers_only:
            notes["finetune.answers_only"] = "on: the template marks answers"
        elif report.chat and report.tokens and not report.answers.possible:
            notes["finetune.answers_only"] = "off: the template marks none"
    return notes


def _warm_up_note(warmup: float | None, steps: int) -> str:
    """Return for how many steps the rate rises, and of what they are a share."""
    if warmup and warmup < 1 and steps:
        return f"{percent(warmup)} of {quantity(steps, 'step')}: {math.ceil(warmup * steps)}"
    return warm_up_text(warmup, steps)
