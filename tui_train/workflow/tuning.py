"""What stands beside the values of a fine-tuning in the forms."""

from tui_train.base.text import percent, thousands
from tui_train.memory.predict import predict
from tui_train.plan.words import warm_up
from tui_train.resolve.data import EVALUATION, look_of, one_epoch, steps_of
from tui_train.resolve.setup import Setup
from tui_train.workflow.data import reading, summary, why_unread
from tui_train.workflow.overview import many, usual


def data_line(setup: Setup, *, reads: bool) -> str:
    """Return what the data holds, that it is being read, or why it is not; empty where none is named."""
    if not setup.settled.trainer.data:
        return ""
    look = look_of(setup)
    if look:
        return summary(look)
    return reading(setup.settled) if reads else why_unread(setup)


def of_backend(setup: Setup) -> dict[str, str]:
    """Return how many weights learn, and how many rows are kept for evaluations."""
    notes, profile = {}, setup.settled
    estimate, one = predict(setup).estimate, one_epoch(setup)
    if estimate and estimate.trained != estimate.parameters:
        notes["finetune.tuning"] = f"{many(estimate.trained)} of {many(estimate.parameters)} weights learn"
    share = profile.data.evaluation or 0.0
    if profile.trainer.validation_data:
        notes["data.evaluation"] = "the validation data is taken"
    elif share and one:
        notes["data.evaluation"] = f"about {thousands(one.rows / (1 - share) * share)} rows"
        if held := setup.by_data.get(EVALUATION):
            notes["data.evaluation"] += f": {held.source}"
    elif not share:
        notes["data.evaluation"] = "0: trained on all rows"
    return notes


def of_recipe(setup: Setup) -> dict[str, str]:
    """Return what follows from epochs, length, rate, warmup and rank."""
    profile, look, one = setup.settled, look_of(setup), one_epoch(setup)
    recipe, chosen, steps = profile.recipe, profile.finetune, steps_of(setup)
    notes = {"recipe.learning_rate": usual(chosen), "finetune.alpha": "usual: twice the rank"}
    if recipe.steps:
        notes["recipe.epochs"] = "the steps end it"
        if one and one.steps:
            notes["recipe.steps"] = f"= {recipe.steps / one.steps:.3g} epochs"
    elif steps:
        notes["recipe.epochs"] = f"≈ {thousands(steps)} steps"
        notes["recipe.steps"] = "not set: it ends after the epochs"
    if look and look.tokens and look.tokens.cut:
        share = percent(look.tokens.cut / max(look.usable, 1), 1)
        notes["recipe.sequence_length"] = f"{thousands(look.tokens.cut)} rows are longer ({share})"
    elif look and look.limit:
        notes["recipe.sequence_length"] = f"the model's limit is {thousands(look.limit)}"
    if words := warm_up(recipe.warmup, steps):
        notes["recipe.warmup"] = words
    if recipe.evaluate_every is None:
        kept = profile.trainer.validation_data or profile.data.evaluation
        notes["recipe.evaluate_every"] = "with each checkpoint" if kept else "no data for it"
    return notes
