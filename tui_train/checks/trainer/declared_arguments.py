"""Checks of what is given for the arguments that a script's source declares."""

import difflib
import re
from collections.abc import Iterator

from tui_train.base.errors import BadInput
from tui_train.base.text import names_text
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.checks.trainer.preset import are_arguments_fully_known, declared_argument_names, declared_arguments_text
from tui_train.facts.types import ScriptParameter, ScriptSource
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN, PresetArgument
from tui_train.profile.types import Profile
from tui_train.setup.recipe import given_arguments
from tui_train.setup.setup import Setup
from tui_train.trainers.auto_preset import chosen_subcommand, parameters_in_scope

_TRAINING_SUBCOMMAND_PATTERN = re.compile("(pre)?train|fit|fine[-_]?tune|sft", re.IGNORECASE)
PROFILE_KEYS_OF_MODEL_AND_DATA = frozenset(
    {"trainer.data", "trainer.validation_data", "trainer.test_data", "trainer.model", "trainer.config"}
)


def missing_required_arguments(setup: Setup) -> Iterator[Finding]:
    """Arguments without which the script ends at once."""
    profile = setup.profile
    source = setup.script_source
    for parameter in given_arguments.missing_parameters(source, profile.trainer.arguments) if source else ():
        keys = [
            _unset_key_of_preset_argument(argument, profile)
            for argument in given_arguments.preset_arguments_of_parameter(setup.preset, parameter)
        ]
        if "" in keys:
            continue
        name = parameter.name if parameter.form != "key" else f"{parameter.name}="
        yield error(
            keys[0] if keys else "trainer.arguments",
            f"missing required argument: {name} ({_declaration_place_text(parameter)})",
            f"Set {keys[0]}." if keys else f"Add it to trainer.arguments{_argument_form_text(parameter)}.",
            argument="" if keys else parameter.name,
            keys="" if keys else "Type it in its row on Recipe.",
        )


def undeclared_options(setup: Setup) -> Iterator[Finding]:
    """Options that the script does not declare: its parser would end at once."""
    source = setup.script_source
    if source is None or not are_arguments_fully_known(source):
        return
    words = setup.profile.trainer.arguments
    for at in given_arguments.unknown_option_indexes(source, words):
        message = f"the script does not take {words[at].partition('=')[0]}; {declared_arguments_text(source)}"
        remedy, change = _remedy_and_change_of_undeclared_option(source, words, at)
        yield error("trainer.arguments", message, remedy, change=change)


def undeclared_options_of_fire_script(setup: Setup) -> Iterator[Finding]:
    """Options that no parameter of Fire's function takes: it runs the whole training, and then fails for them."""
    source = setup.script_source
    if source is None or source.kind != "fire" or source.ignores_unknown_arguments or not source.parameters:
        return
    words = setup.profile.trainer.arguments
    as_parameters = [f"--{word[2:].replace('-', '_')}" if word[:2] == "--" and word[2:] else word for word in words]
    for at in given_arguments.unknown_option_indexes(source, as_parameters):
        name = words[at].partition("=")[0]
        # `--noflag` is false for `flag`.
        if f"--{name.removeprefix('--no')}" not in declared_argument_names(source):
            message = f"no parameter of the script takes {name}: Fire would train to the end, and only then fail"
            remedy, change = _remedy_and_change_of_undeclared_option(source, words, at)
            yield warning("trainer.arguments", message, remedy, change=change)


def _remedy_and_change_of_undeclared_option(
    source: ScriptSource, words: tuple[str, ...], at: int
) -> tuple[str, Change | None]:
    """Return what to do about an option that is not declared: the one that was meant, or to leave it out."""
    right = most_similar_declared_option(source, words[at])
    if not right:
        return "Leave it out.", None
    return f"Did you mean {right}?", replace_option_change(words, at, right)


def most_similar_declared_option(source: ScriptSource, unknown_option: str) -> str:
    """Return the declared option that an unknown one is most like, empty for none."""
    declared = sorted(flag for flag in declared_argument_names(source) if flag.startswith("--"))
    return next(iter(difflib.get_close_matches(unknown_option.partition("=")[0], declared, n=1, cutoff=0.75)), "")


def replace_option_change(words: tuple[str, ...], position: int, option: str) -> Change:
    """Return the Change that writes another option in the place of one, with the same value."""
    _, equals, value = words[position].partition("=")
    edited = (*words[:position], option + equals + value, *words[position + 1 :])
    return Change(f"write {option}", "the script takes it", (("trainer.arguments", edited),))


def missing_subcommand(setup: Setup) -> Iterator[Finding]:
    """A script that has subcommands, of which the arguments choose none."""
    source, words = setup.script_source, setup.profile.trainer.arguments
    if source is None or not source.subcommands or chosen_subcommand(source, words):
        return
    if not source.requires_subcommand and source.kind != "argparse":
        return
    trains = next(
        (name for name in source.subcommands if _TRAINING_SUBCOMMAND_PATTERN.match(name)), source.subcommands[0]
    )
    # One of them, by the version of click.
    is_sure = source.kind != "click" or trains not in source.subcommand_by_alias.values()
    subcommands = names_text(source.subcommands, given_arguments.MAX_CHOICES_SHOWN)
    change = Change(f"the subcommand {trains}", "it is the first argument", (("trainer.arguments", (trains, *words)),))
    yield (error if source.requires_subcommand and given_arguments.does_library_parse_as_we_do(source) else warning)(
        "trainer.arguments",
        f"the script needs a subcommand, one of {subcommands}",
        f"Put the one that trains first in trainer.arguments, such as {trains}.",
        change=None
        if words or not is_sure or (len(source.subcommands) > 1 and not _TRAINING_SUBCOMMAND_PATTERN.match(trains))
        else change,
    )


def invalid_argument_values(setup: Setup) -> Iterator[Finding]:
    """Values that are of another type than the script reads, or none of its choices."""
    profile = setup.profile
    source = setup.script_source
    if source is None or not given_arguments.does_library_parse_as_we_do(source):
        return
    words = profile.trainer.arguments
    by_name = given_arguments.given_arguments(source, words)
    for parameter in parameters_in_scope(source, words):
        given = by_name.get(parameter.name, given_arguments.GivenArgument())
        if not (problem := given_arguments.argument_value_problem(parameter, given.values)):
            continue
        rest = given_arguments.arguments_with_values(source, words, parameter, ())
        change = Change(f"without {parameter.name}", "the script takes its own", (("trainer.arguments", rest),))
        yield error(
            "trainer.arguments",
            f"{parameter.name} {problem} ({_declaration_place_text(parameter)} of the script)",
            "Give another value (trainer.arguments), or leave the argument out.",
            argument=parameter.name,
            change=None if parameter.is_required else change,
        )


def arguments_resembling_recipe_values(setup: Setup) -> Iterator[Finding]:
    """Arguments that may be a value of the recipe by their name, which only the user knows."""
    source, words = setup.script_source, setup.profile.trainer.arguments
    given_by_name = given_arguments.given_arguments(source, words) if source else {}
    for argument, name, change in _lookalike_arguments(setup):
        key = KEY_BY_PLACEHOLDER[name]
        label, given = fields.get_field(key).label.lower(), given_by_name.get(argument)
        value = f" {' '.join(given.values)}" if given else ""
        yield note(
            "trainer.arguments",
            f"{argument}{value} looks like the training's {label}",
            f"If it is, pass {{{name}}} as its value{f', and set {key}' if key.startswith('recipe.') else ''}: "
            "plan, estimate and fallbacks then follow it.",
            argument=argument,
            change=change,
            keys="If it is, F2 in its row on Recipe: plan, estimate and fallbacks then follow it. If not, leave it.",
        )


def lookalike_argument_change_by_key(setup: Setup) -> dict[str, Change]:
    """Return the changes that pass a value of the recipe as the argument that may be it by its name, by key."""
    return {KEY_BY_PLACEHOLDER[name]: change for _, name, change in reversed([*_lookalike_arguments(setup)])}


def _lookalike_arguments(setup: Setup) -> Iterator[tuple[str, str, Change]]:
    """Yield an argument, the placeholder of what it may be, and the change that passes it."""
    profile = setup.profile
    source = setup.script_source
    words = profile.trainer.arguments
    for parameter in parameters_in_scope(source, words) if source else ():
        name = given_arguments.likely_placeholder(parameter)
        if not source or not name or name in setup.ladder_context.accepted_placeholders:
            continue
        change = _pass_recipe_value_change(source, profile, parameter, name)
        if change is not None and not given_arguments.preset_arguments_of_parameter(setup.preset, parameter):
            yield parameter.name, name, change


def _pass_recipe_value_change(
    source: ScriptSource, profile: Profile, parameter: ScriptParameter, name: str
) -> Change | None:
    """Return the change that passes a value of the recipe as this argument; None where no value is known for it."""
    key = KEY_BY_PLACEHOLDER[name]
    words = profile.trainer.arguments
    given = given_arguments.given_arguments(source, words).get(parameter.name)
    given_values = given.values if given else ()
    edits: list[tuple[str, fields.FieldValue]] = [
        ("trainer.arguments", given_arguments.arguments_with_values(source, words, parameter, (f"{{{name}}}",)))
    ]
    if key.startswith("recipe."):
        try:
            value = fields.parse_value(fields.get_field(key), given_values[-1] if given_values else parameter.default)
        except BadInput:
            value = None
        chosen = fields.get_value(profile, key)
        if value is None and chosen is None:
            return None
        if given_values or chosen is None:
            edits.append((key, value))
    label = fields.get_field(key).label.lower()
    why = f"the script gets the {label}{' of the recipe' if key.startswith('recipe.') else ''} as {parameter.name}"
    return Change(f"use {parameter.name} as the {label}", why, tuple(edits))


def _unset_key_of_preset_argument(argument: PresetArgument, profile: Profile) -> str:
    """Return the key that must be set for an argument of a preset to be passed; empty where it is passed."""
    keys = (KEY_BY_PLACEHOLDER.get(name, "") for word in argument.words for name in PLACEHOLDER_PATTERN.findall(word))
    own = (key for key in keys if key.startswith("recipe.") or key in PROFILE_KEYS_OF_MODEL_AND_DATA)
    return next((key for key in own if not fields.is_chosen(profile, key)), "")


def _argument_form_text(parameter: ScriptParameter) -> str:
    """Return how an argument is written with its value, which only the user knows, as the end of a sentence."""
    kind = given_arguments.LABEL_BY_TYPE_NAME.get(parameter.type, "its value")
    one_of = (
        f"one of {', '.join(parameter.choices[: given_arguments.MAX_CHOICES_SHOWN])}" if parameter.choices else kind
    )
    by_form = {"option": f"{parameter.name} followed by {one_of}", "key": f"{parameter.name}= and {one_of}"}
    said = by_form.get(parameter.form, "" if one_of == "its value" else one_of)
    return f": {said}" if said else ""


def _declaration_place_text(parameter: ScriptParameter) -> str:
    return f"line {parameter.line}{' of ' + parameter.file if parameter.file else ''}"
