"""Checks of batch, model and ladder."""

from collections.abc import Iterator

from tui_train.changes import Change
from tui_train.checks.finding import Finding
from tui_train.errors import BadInput
from tui_train.facts.types import Facts
from tui_train.memory.foretell import fitting, foretell
from tui_train.memory.rungs import rung
from tui_train.plan import batch
from tui_train.plan.resolve import Resolved
from tui_train.profile.types import Profile
from tui_train.text import counted, size

_UNITS = {True: ("process", "processes"), False: ("copy of the model", "copies of the model")}


def batches(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A global batch that micro batch and world size divide."""
    recipe, world = profile.recipe, resolved.copies
    told = batch.TAKEN & resolved.room.takes
    if not told or batch.accumulation(recipe.global_batch, recipe.micro_batch, world):
        return
    nearest = batch.nearest_global(recipe.global_batch, recipe.micro_batch, world)
    micro = batch.nearest_micro(recipe.global_batch, recipe.micro_batch, world)
    remedy = f"Nearest global batches: {_or(nearest)}."
    if micro:
        remedy += f" Or, for {recipe.global_batch}, a micro batch of {_or(micro)}."
    best = min(nearest, key=lambda value: abs(value - recipe.global_batch))
    change = Change(f"global batch {best}", "the nearest that divides", (("recipe.global_batch", best),))
    yield Finding(
        level="error",
        key="recipe.global_batch",
        message=f"the global batch {recipe.global_batch} is not a multiple of micro batch {recipe.micro_batch} x"
        f" {counted(world, *_UNITS[world == resolved.world_size])}",
        remedy=remedy,
        change=change,
    )


def model(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A hidden size that the heads divide."""
    recipe = profile.recipe
    if "heads" not in resolved.room.takes or "hidden_size" not in resolved.room.takes:
        return
    unit = recipe.heads * 2
    if recipe.hidden_size % unit:
        below = recipe.hidden_size // unit * unit
        sizes = tuple(size for size in (below, below + unit) if size)
        best = min(sizes, key=lambda value: abs(value - recipe.hidden_size))
        change = Change(f"hidden size {best}", "the nearest that the heads divide", (("recipe.hidden_size", best),))
        yield Finding(
            level="error",
            key="recipe.hidden_size",
            message=f"the hidden size {recipe.hidden_size} is not a multiple of 2 x {recipe.heads} heads",
            remedy=f"Nearest hidden sizes: {_or(sizes)}.",
            change=change,
        )


def fallbacks(profile: Profile, _facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """Rungs that exist, once each, with the consent they need."""
    rungs = profile.ladder.rungs
    for name in dict.fromkeys((*rungs, *profile.ladder.consent)):
        try:
            found = rung(name)
        except BadInput as error:
            yield Finding(level="error", key="ladder.rungs", message=error.message, remedy=error.remedy)
            continue
        if found.changes_training and name in rungs and name not in profile.ladder.consent:
            change = Change(
                f"allow {found.label.lower()}", found.cost, (("ladder.consent", (*profile.ladder.consent, name)),)
            )
            message = f"“{found.label}” changes the training and has no consent: it is left out"
            remedy = "Allow it, or take it off the ladder."
            yield Finding(level="warning", key="ladder.consent", message=message, remedy=remedy, change=change)
    if len(set(rungs)) != len(rungs):
        once = Change(
            "each rung once", "a second time has nothing to add", (("ladder.rungs", tuple(dict.fromkeys(rungs))),)
        )
        message, remedy = "a fallback stands twice on the ladder", "Name each once."
        yield Finding(level="error", key="ladder.rungs", message=message, remedy=remedy, change=once)
    if rungs and resolved.preset.checkpoints and profile.recipe.checkpoint_every > profile.recipe.steps:
        message = "there is no checkpoint before the end: after a failure the training starts from step 0"
        remedy = "Lower “Checkpoint every”."
        yield Finding(level="note", key="recipe.checkpoint_every", message=message, remedy=remedy)


def _or(values: tuple[int, ...]) -> str:
    return " or ".join(str(value) for value in values)


def memory(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A training that is foretold not to fit on the chosen card with the least room."""
    found = foretell(profile, facts, resolved)
    if found.estimate is None or found.band != "will not fit":
        return
    place, verdict = found.places[0]
    change = fitting(profile, facts, resolved)
    remedy = f"With {change.title} it would." if change else "Choose a smaller model, shorter samples, or more memory."
    yield Finding(
        level="warning",
        key="recipe.micro_batch",
        message=f"{size(verdict.needed)} are foretold, and {place.name} has {size(verdict.left)} left for tensors",
        remedy=remedy,
        change=change,
    )
