"""Checks for values far from the usual: learning rate, and a length beyond the model's."""

from collections.abc import Iterator

from tui_train.base.text import grouped_digits
from tui_train.checks.finding import Finding, error, warning
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.recipe import data_questions, given_arguments
from tui_train.setup.recipe.effective_values import is_unset_by_user
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field
from tui_train.trainers.auto_preset import parameters_in_scope
from tui_train.trainers.finetune import LABEL_BY_METHOD

# A rate so many times off the usual one is hardly meant, and so many times above it trains nothing.
_LEARNING_RATE_WARNING_FACTOR, _LEARNING_RATE_ERROR_FACTOR = 10.0, 100.0
_RATE_PLACEHOLDER = "{learning_rate}"


def extreme_learning_rate(setup: Setup) -> Iterator[Finding]:
    """A rate that is far from the usual one of a trainer whose own is known to suit it."""
    profile = setup.profile
    chosen, default = setup.effective_profile.recipe.learning_rate, setup.preset.defaults.get("learning_rate")
    if trainer_has_own_field(profile, "trainer.script"):
        return  # what suits a script is at most known from its source
    if (
        chosen is None
        or not isinstance(default, float)
        or default / _LEARNING_RATE_WARNING_FACTOR < chosen < default * _LEARNING_RATE_WARNING_FACTOR
    ):
        return
    # A rate on paper is rarely the very number: 1e-3 / 1e-5 is 99.99….
    is_error = round(chosen / default, 3) >= _LEARNING_RATE_ERROR_FACTOR
    what = _method_and_tuning_label(profile)
    message = (
        f"the learning rate {chosen:g} is high (usual for {what}: {default:g}): the model may forget what it knows"
    )
    if chosen < default:
        message = f"the learning rate {chosen:g} is low (usual for {what}: {default:g}): the model may learn nothing"
    if is_error:
        times = grouped_digits(round(chosen / default))
        message = (
            f"the learning rate {chosen:g} is {times} x the usual {default:g} for {what}: the training may diverge"
        )
    allow = _allow_sentence_unless_allowed("learning_rate", profile) if is_error else ""
    yield (error if is_error and "learning_rate" not in profile.trainer.allow else warning)(
        "recipe.learning_rate",
        message,
        f"Choose a learning rate nearer to {default:g}.{allow}",
        change=Change(f"learning rate {default:g}", f"usual for {what}", (("recipe.learning_rate", default),)),
    )


def learning_rate_far_above_scripts_default(setup: Setup) -> Iterator[Finding]:
    """A rate that is many times the default which the script's own source names."""
    profile, source = setup.profile, setup.script_source
    if source is None or "learning_rate" in profile.trainer.allow:
        return
    given_by_name = given_arguments.given_arguments(source, profile.trainer.arguments)
    for parameter in parameters_in_scope(source, profile.trainer.arguments):
        preset_arguments = given_arguments.preset_arguments_of_parameter(setup.preset, parameter)
        is_passed = any(_RATE_PLACEHOLDER in word for argument in preset_arguments for word in argument.words)
        if not is_passed and given_arguments.likely_placeholder(parameter) != "learning_rate":
            continue
        given = given_by_name.get(parameter.name)
        own = given.values[-1] if given and given.values and _RATE_PLACEHOLDER not in given.values[-1] else ""
        recipe_rate = setup.effective_profile.recipe.learning_rate if is_passed or given else None
        chosen, default = _float_or_none(own) if own else recipe_rate, _float_or_none(parameter.default)
        if not chosen or not default or default < 0 or chosen < default * _LEARNING_RATE_ERROR_FACTOR:
            continue
        change = Change(f"learning rate {default:g}", "the script's own", (("recipe.learning_rate", default),))
        if own:
            words = given_arguments.arguments_with_values(
                source, profile.trainer.arguments, parameter, (parameter.default,)
            )
            change = Change(
                f"{parameter.name} {parameter.default}", "the script's own", (("trainer.arguments", words),)
            )
        yield warning(
            "trainer.arguments" if own else "recipe.learning_rate",
            f"the learning rate {chosen:g} is {grouped_digits(round(chosen / default))} x the script's own "
            f"{default:g}: the training may diverge",
            f"Choose a learning rate nearer to {default:g}.",
            change=change,
            argument=parameter.name if own and not is_passed else "",
        )


def _float_or_none(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def excessive_sequence_length(setup: Setup) -> Iterator[Finding]:
    """A sequence length that the model does not take, where rows of the data are as long."""
    profile = setup.profile
    chosen = setup.effective_profile.recipe.sequence_length
    report = data_questions.data_report_at_length_in_force(setup)
    folder = setup.facts.models.get(profile.trainer.model)
    limit = (report.limit if report else 0) or (folder.max_tokens if folder else 0)
    longest = report.tokens.longest if report and report.tokens and not profile.finetune.packing else None
    if not chosen or not 0 < limit < chosen or "sequence_length" not in setup.ladder_context.accepted_placeholders:
        return
    if longest is not None and longest <= limit:
        return
    refused = not is_unset_by_user(setup.effective_values["sequence_length"]) and "length" not in profile.trainer.allow
    yield (error if refused else warning)(
        "recipe.sequence_length",
        f"the sequence length {grouped_digits(chosen)} is more than "
        f"the {grouped_digits(limit)} tokens that the model can read",
        "Choose a shorter one: longer rows are learned badly, or end the "
        f"run.{_allow_sentence_unless_allowed('length', profile)}",
        change=Change(
            f"{grouped_digits(limit)} tokens", "as many as the model takes", (("recipe.sequence_length", limit),)
        ),
    )


def _method_and_tuning_label(profile: Profile) -> str:
    if not trainer_has_own_field(profile, "finetune"):
        return "this trainer"
    trained = "all weights" if profile.finetune.tuning == "full" else "an adapter"
    return f"{LABEL_BY_METHOD[profile.finetune.method]} of {trained}"


def _allow_sentence_unless_allowed(allowance: str, profile: Profile) -> str:
    return "" if allowance in profile.trainer.allow else f" To use it all the same: trainer.allow={allowance}."
