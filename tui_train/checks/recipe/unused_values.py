"""Checks of choices that would not arrive: a wrong training would start without a word."""

from collections.abc import Iterator

from tui_train.base.text import display_path
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.checks.trainer.declared_arguments import (
    PROFILE_KEYS_OF_MODEL_AND_DATA,
    lookalike_argument_change_by_key,
)
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.recipe import no_effect
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field

# What is learned would be something else without them, or a value of the recipe.
_KEYS_CHANGING_RESULT = PROFILE_KEYS_OF_MODEL_AND_DATA | {"trainer.revision"}
# Checks of their own say more.
_KEYS_CHECKED_ELSEWHERE = frozenset({"trainer.offload", "trainer.arguments"})


def unused_values(setup: Setup) -> Iterator[Finding]:
    """Chosen values that what trains does not take, each with a Change that unsets all of them."""
    profile = setup.profile
    reasons = {key: no_effect.why_no_effect(key, setup) for key in fields.chosen_keys(profile)}
    why_unused = {key: why for key, why in reasons.items() if why and key not in _KEYS_CHECKED_ELSEWHERE}
    if not why_unused:
        return
    edits = tuple((key, fields.get_value(Profile(), key)) for key in why_unused)
    labels = ", ".join(fields.get_field(key).label.lower() for key in why_unused)
    change = Change("unset what is not used", labels, edits)
    passes = lookalike_argument_change_by_key(setup) if trainer_has_own_field(profile, "trainer.script") else {}
    file = no_effect.file_replacing_script_options(setup)
    for key, why in why_unused.items():
        if key == "trainer.output":
            yield _unpassed_output_finding(setup, change)
            continue
        changes_result = key.startswith("recipe.") or key in _KEYS_CHANGING_RESULT
        remedy = f"Leave {key} unset."
        if key in passes:
            remedy = f"Pass it by the argument of the script that has such a name, or leave {key} unset."
        elif changes_result and trainer_has_own_field(profile, "trainer.preset"):
            where = f"{{{key.partition('.')[2]}}} in trainer.arguments where it belongs"
            remedy = f"Leave {key} unset, or write {f'the value into {file}' if file else where}."
        make = note if key.startswith("communication.") else warning
        if changes_result or key.startswith("tracking."):
            make = error
        message = f"{fields.get_field(key).label} ({key}) is set, but not used: {why}"
        yield make(key, message, remedy, change=passes.get(key, change))


def _unpassed_output_finding(setup: Setup, change: Change) -> Finding:
    """Return that an output folder is not passed: it is kept for the run, and its results are looked for there."""
    folder = display_path(setup.profile.trainer.output)
    file = no_effect.file_replacing_script_options(setup)
    message = f"{setup.preset.name_in_sentence} takes no output folder: the script does not get {folder}"
    if file:
        message = f"the script reads its values from {file}: it does not get {folder}"
    elsewhere = f"write it into {file}" if file else "write {output} in the arguments where it belongs"
    return warning(
        "trainer.output",
        message,
        "Keep it only if the script writes there by itself: then its results are found. Otherwise leave it out, "
        f"or {elsewhere}.",
        change=change,
    )
