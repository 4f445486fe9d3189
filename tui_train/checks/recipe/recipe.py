"""Checks of batch, model and ladder."""

import math
from collections.abc import Iterator

from tui_train.base.errors import BadInput
from tui_train.base.text import grouped_digits, quantity, size_text
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.memory.ladder.rungs import get_rung
from tui_train.memory.predict import predict_memory, smallest_same_result_change_that_fits
from tui_train.profile import batch
from tui_train.profile.changes import Change
from tui_train.setup.recipe.data_questions import total_training_steps
from tui_train.setup.setup import Setup
from tui_train.trainers.auto_preset import SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT

# Checkpoints of a training that had none.
_SUGGESTED_CHECKPOINT_COUNT = 4
# So few steps are soon repeated.
_MIN_STEPS_TO_CHECKPOINT = 20


def indivisible_batch(setup: Setup) -> Iterator[Finding]:
    """A global batch that micro batch and world size do not divide."""
    micro = setup.effective_profile.recipe.micro_batch
    global_batch = setup.effective_profile.recipe.global_batch
    world = setup.model_copies
    if not batch.BATCH_PLACEHOLDERS & setup.ladder_context.accepted_placeholders:
        return
    if undivided := [*_script_totals_indivisible_by_processes(setup)]:
        yield from undivided
        return
    if global_batch is None or micro is None or batch.gradient_accumulation(global_batch, micro, world):
        yield from _incomputable_batch_findings(setup)
        return
    nearest = batch.nearest_global_batches(global_batch, micro, world)
    smaller = batch.nearest_micro_batches(global_batch, micro, world)
    unit_words = ("process", "processes") if world == setup.world_size else ("copy of the model", "copies of the model")
    remedy = f"Nearest global batches: {_text_joined_by_or(nearest)}."
    if smaller:
        remedy += f" Or, for {global_batch}, a micro batch of {_text_joined_by_or(smaller)}."
    best = min(nearest, key=lambda value: abs(value - global_batch))
    change = Change(f"global batch {best}", "the nearest that divides", (("recipe.global_batch", best),))
    yield error(
        "recipe.global_batch",
        f"the global batch {global_batch} is not a multiple of micro batch {micro} x {quantity(world, *unit_words)}",
        remedy,
        change=change,
    )


def _incomputable_batch_findings(setup: Setup) -> Iterator[Finding]:
    """A global batch or a scaled learning rate that cannot be computed, and fallbacks that cannot lower the batch."""
    profile = setup.profile
    recipe = profile.recipe
    if recipe.global_batch is not None and setup.effective_profile.recipe.micro_batch is None:
        message = f"the global batch {recipe.global_batch} needs a micro batch too: your script's own is not known"
        yield error("recipe.micro_batch", message, "Set recipe.micro_batch.")
        return
    context = setup.ladder_context
    if "micro_batch" in profile.ladder.rungs and context.is_batch_unset and not context.why_no_fallbacks:
        yield _no_smaller_batch_note(setup)


def _no_smaller_batch_note(setup: Setup) -> Finding:
    """Return why no smaller batch can be tried: it is not known, or only by the defaults of the script's library."""
    effective, key, change = setup.effective_profile.recipe, "recipe.micro_batch", None
    message = "if memory runs out, no smaller batch can be tried: the batch of your script is not known"
    if setup.ladder_context.accepted_placeholders & batch.BATCH_PLACEHOLDERS == {"micro_batch"}:
        message = "if memory runs out, no smaller batch is tried: which argument is gradient accumulation is not known"
        remedy = "If it is --accum, say, add --accum={accumulation} to trainer.arguments."
        return note(key, message, remedy)
    if effective.micro_batch is not None and effective.global_batch is not None:
        name = next(
            name for name in ("micro_batch", "global_batch") if setup.effective_values[name].source.endswith("default")
        )
        source = setup.effective_values[name].source
        assumed = f"{getattr(effective, name)} is {source}, which the script may replace"
        if source == SCRIPT_DECLARED_DEFAULT_SOURCE_TEXT:
            assumed = f"its batch is {source}, not chosen here"
        message = f"after out of memory no smaller batch is tried: {assumed}"
        edits = (("recipe.micro_batch", effective.micro_batch), ("recipe.global_batch", effective.global_batch))
        title = f"pass micro batch {effective.micro_batch} and global batch {effective.global_batch}"
        change = Change(title, "the script then trains with these, and smaller ones can follow", edits)
    return note(
        key,
        message,
        "Set recipe.micro_batch and recipe.global_batch, or switch “Smaller micro batch” off.",
        keys="Set Micro batch and Global batch, or switch “Smaller micro batch” off.",
        change=change,
    )


def _script_totals_indivisible_by_processes(setup: Setup) -> Iterator[Finding]:
    """Totals of the script's own that the processes do not divide, with the nearest that they do."""
    copies = setup.model_copies
    for name in ("micro_batch", "global_batch"):
        effective = setup.effective_values[name]
        if not effective.indivisible_total:
            continue
        micro = setup.effective_profile.recipe.micro_batch or 1
        shares = tuple(
            share
            for share in (effective.indivisible_total // copies, effective.indivisible_total // copies + 1)
            if share
        )
        totals = tuple(share * copies for share in shares)
        best = min(shares, key=lambda share: abs(share * copies - effective.indivisible_total))
        suggested = best if name == "micro_batch" else best * copies * micro
        # Two totals may be as near; the remedy names both.
        why = f"{best * copies} in all, {quantity(best, 'sample' if name == 'micro_batch' else 'step')} a process"
        label = "micro batch" if name == "micro_batch" else "global batch"
        yield error(
            f"recipe.{name}",
            f"{effective.option} {effective.indivisible_total} ({effective.source}) "
            f"is for all {copies} processes, "
            "and cannot be divided among them evenly",
            f"Nearest values: {_text_joined_by_or(totals)}; here: {label} {suggested} (recipe.{name}).",
            change=Change(f"{label} {suggested}", why, ((f"recipe.{name}", suggested),)),
        )


def fractional_warmup_or_epochs(setup: Setup) -> Iterator[Finding]:
    """A warm-up or epochs for a script that takes whole numbers only."""
    accepted, recipe = setup.ladder_context.accepted_placeholders, setup.profile.recipe
    if (
        "num_warmup_steps" in accepted
        and recipe.warmup
        and recipe.warmup < 1
        and not setup.effective_profile.recipe.steps
    ):
        yield error(
            "recipe.warmup",
            f"{setup.preset.name_in_sentence} takes the warmup in steps, and {recipe.warmup:g} is a share of all steps",
            "Set recipe.steps, so that the share can be counted; or give recipe.warmup as a number of steps.",
        )
    if "whole_epochs" in accepted and recipe.epochs and not recipe.epochs.is_integer() and not recipe.steps:
        whole_epochs = math.ceil(recipe.epochs)
        yield error(
            "recipe.epochs",
            f"{setup.preset.name_in_sentence} takes whole epochs, and {recipe.epochs:g} are set",
            "Set recipe.epochs to a whole number, or set recipe.steps.",
            change=Change(
                quantity(whole_epochs, "epoch"), "the next whole number", (("recipe.epochs", float(whole_epochs)),)
            ),
        )


def unscalable_learning_rate(setup: Setup) -> Iterator[Finding]:
    """A learning rate that cannot be scaled, as it or the global batch is not known."""
    recipe = setup.profile.recipe
    if recipe.lr_scaling == "none":
        if recipe.lr_base_batch:
            message = "the LR reference batch has no effect while LR scaling is none"
            remedy = "Set recipe.lr_scaling, or the reference batch to 0."
            change = Change("no reference batch", "nothing else changes", (("recipe.lr_base_batch", 0),))
            yield warning("recipe.lr_base_batch", message, remedy, change=change)
        return
    if (
        "learning_rate" in setup.ladder_context.accepted_placeholders
        and batch.scaled_learning_rate(setup.effective_profile.recipe) is None
    ):
        what = "global batch" if setup.effective_profile.recipe.global_batch is None else "learning rate"
        message = f"the learning rate cannot be scaled: the trainer's {what} is not known"
        change = Change("no scaling", "the learning rate stays", (("recipe.lr_scaling", "none"),))
        yield error("recipe.lr_scaling", message, f"Set the {what} (Recipe).", change=change)


def indivisible_hidden_size(setup: Setup) -> Iterator[Finding]:
    """A hidden size that the heads do not divide."""
    hidden, heads = setup.effective_profile.recipe.hidden_size, setup.effective_profile.recipe.heads
    if hidden is None or heads is None or not {"heads", "hidden_size"} <= setup.ladder_context.accepted_placeholders:
        return
    unit = heads * 2
    if hidden % unit:
        sizes = batch.nearest_multiples(hidden, unit)
        best = min(sizes, key=lambda value: abs(value - hidden))
        change = Change(f"hidden size {best}", "the nearest that the heads divide", (("recipe.hidden_size", best),))
        yield error(
            "recipe.hidden_size",
            f"the hidden size {hidden} is not a multiple of 2 × {heads} heads",
            f"Nearest hidden sizes: {_text_joined_by_or(sizes)}.",
            change=change,
        )


def pretraining_evaluations_without_data(setup: Setup) -> Iterator[Finding]:
    """Evaluations of a pretraining without data for them."""
    profile = setup.profile
    if profile.recipe.evaluate_every is None or not setup.trainer.can_create_model or profile.trainer.validation_data:
        return
    yield warning(
        "recipe.evaluate_every",
        "nothing is evaluated: there is no validation data",
        "Name validation data (trainer.validation_data).",
        change=Change("no evaluations", "nothing else changes", (("recipe.evaluate_every", None),)),
    )


def invalid_fallbacks(setup: Setup) -> Iterator[Finding]:
    """Rungs that do not exist, are named twice, lack the consent they need, or have it and are not tried."""
    profile = setup.profile
    rungs = profile.ladder.rungs
    for name in dict.fromkeys((*rungs, *profile.ladder.consent)):
        try:
            fallback = get_rung(name)
        except BadInput as unknown:
            yield error("ladder.rungs", unknown.message, unknown.remedy)
            continue
        if fallback.changes_training and name in rungs and name not in profile.ladder.consent:
            change = Change(
                f"allow {fallback.label.lower()}", fallback.cost, (("ladder.consent", (*profile.ladder.consent, name)),)
            )
            message = f"the fallback “{fallback.label}” changes the result and is not allowed yet, so it is skipped"
            remedy = "Allow it (ladder.consent), or remove it (ladder.rungs)."
            yield warning("ladder.consent", message, remedy, change=change)
        elif fallback.changes_training and name not in rungs:
            change = Change(f"try {fallback.label.lower()} last", fallback.cost, (("ladder.rungs", (*rungs, name)),))
            message = f"the fallback “{fallback.label}” is allowed, but is not tried: it is not among the fallbacks"
            yield note("ladder.consent", message, f"Add it (ladder.rungs={name}).", change=change)
    if len(set(rungs)) != len(rungs):
        once = Change(
            "each fallback once", "a second time has no effect", (("ladder.rungs", tuple(dict.fromkeys(rungs))),)
        )
        message, remedy = "ladder.rungs names a fallback twice", "Name each fallback once."
        yield error("ladder.rungs", message, remedy, change=once)


def no_checkpoint_before_end(setup: Setup) -> Iterator[Finding]:
    """A training that ends before its first checkpoint, whether steps or epochs end it."""
    every, steps = setup.effective_profile.recipe.checkpoint_every, total_training_steps(setup)
    if (
        not setup.profile.ladder.rungs
        or not setup.preset.checkpoints
        or not every
        or not _MIN_STEPS_TO_CHECKPOINT <= steps <= every
    ):
        return
    interval = max(1, steps // _SUGGESTED_CHECKPOINT_COUNT)
    yield note(
        "recipe.checkpoint_every",
        f"no checkpoint before the end: {quantity(steps, 'step')}, one every {grouped_digits(every)}; after a failure "
        "the training restarts from step 0",
        "Lower recipe.checkpoint_every.",
        change=Change(
            f"a checkpoint every {quantity(interval, 'step')}",
            f"{_SUGGESTED_CHECKPOINT_COUNT} of them before the end"
            if steps > _SUGGESTED_CHECKPOINT_COUNT
            else "so that a failure loses little",
            (("recipe.checkpoint_every", interval),),
        ),
    )


def _text_joined_by_or(values: tuple[int, ...]) -> str:
    return " or ".join(str(value) for value in values)


def predicted_memory_shortage(setup: Setup) -> Iterator[Finding]:
    """A training that is predicted not to fit on the chosen card with the least free memory."""
    prediction = predict_memory(setup)
    if prediction.estimate is None or prediction.band != "will not fit":
        return
    pool, verdict = prediction.place_verdicts[0]
    change = smallest_same_result_change_that_fits(setup)
    remedy = (
        f"It would fit with {change.title}."
        if change
        else "Choose a smaller model, a shorter recipe.sequence_length, or a GPU with more memory."
    )
    yield warning(
        "recipe.micro_batch",
        f"it needs about {size_text(verdict.reserved_bytes)} ({size_text(verdict.tensor_bytes)} of tensors),"
        f" and {pool.name} has {size_text(verdict.available_bytes)} free",
        remedy,
        change=change,
    )
