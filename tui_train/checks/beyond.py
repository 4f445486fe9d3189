"""What is so far beyond the usual that it is hardly meant: a learning rate, and a length beyond the model's."""

from collections.abc import Iterator

from tui_train.base.text import thousands
from tui_train.checks.finding import Finding
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve import data
from tui_train.resolve.in_force import is_default
from tui_train.resolve.setup import Setup
from tui_train.trainers import takes_field
from tui_train.trainers.finetune import METHODS

# A rate so many times off the usual one is hardly meant, and so many times above it trains nothing.
_FAR, _BEYOND = 10.0, 100.0


def learning_rate(setup: Setup) -> Iterator[Finding]:
    """A rate that is far from the usual one of a trainer whose own is known to suit it."""
    profile = setup.profile
    chosen, usual = setup.settled.recipe.learning_rate, setup.preset.defaults.get("learning_rate")
    if takes_field(profile, "trainer.script"):
        return  # of a script it is not known what suits it
    if chosen is None or not isinstance(usual, float) or usual / _FAR < chosen < usual * _FAR:
        return
    # A rate on paper is rarely the very number: 1e-3 / 1e-5 is 99.99….
    beyond = round(chosen / usual, 3) >= _BEYOND
    what = _method(profile)
    message = f"the learning rate {chosen:g} is high (usual for {what}: {usual:g}): the model may forget what it knows"
    if chosen < usual:
        message = f"the learning rate {chosen:g} is low (usual for {what}: {usual:g}): the model may learn nothing"
    if beyond:
        times = thousands(round(chosen / usual))
        message = f"the learning rate {chosen:g} is {times} x the usual {usual:g} for {what}: the training will diverge"
    yield Finding(
        level="error" if beyond and "learning_rate" not in profile.trainer.allow else "warning",
        key="recipe.learning_rate",
        message=message,
        remedy=f"Choose one nearer to {usual:g}.{_allow('learning_rate', profile) if beyond else ''}",
        change=Change(f"learning rate {usual:g}", f"usual for {what}", (("recipe.learning_rate", usual),)),
    )


def length(setup: Setup) -> Iterator[Finding]:
    """A sequence length that the model takes, unless no row of the data is as long."""
    profile = setup.profile
    chosen, look = setup.settled.recipe.sequence_length, data.look_of(setup)
    folder = setup.facts.models.get(profile.trainer.model)
    most = (look.limit if look else 0) or (folder.limit if folder else 0)
    longest = look.tokens.longest if look and look.tokens and not profile.finetune.packing else None
    if not chosen or not 0 < most < chosen or "sequence_length" not in setup.context.takes:
        return
    if longest is not None and longest <= most:
        return
    refused = not is_default(setup.values["sequence_length"]) and "length" not in profile.trainer.allow
    yield Finding(
        level="error" if refused else "warning",
        key="recipe.sequence_length",
        message=f"the sequence length {thousands(chosen)} is beyond the model's limit of {thousands(most)} tokens",
        remedy=f"Longer rows are learned badly, or end the run.{_allow('length', profile)}",
        change=Change(f"{thousands(most)} tokens", "as many as the model takes", (("recipe.sequence_length", most),)),
    )


def _method(profile: Profile) -> str:
    if not takes_field(profile, "finetune"):
        return "this trainer"
    return (
        f"{METHODS[profile.finetune.method]} of {'all weights' if profile.finetune.tuning == 'full' else 'an adapter'}"
    )


def _allow(name: str, profile: Profile) -> str:
    return "" if name in profile.trainer.allow else f" trainer.allow={name} allows it."
