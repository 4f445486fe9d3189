"""The rows of the arguments that a script declares: a view of trainer.arguments, the only place where they are kept."""

from collections.abc import Mapping

from tui_train.base.text import capitalised, visible
from tui_train.checks import Finding
from tui_train.facts.types import ScriptParameter, ScriptSource
from tui_train.profile import fields
from tui_train.profile.fields import FieldValue
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN
from tui_train.profile.rows import Field, FieldKind
from tui_train.setup.recipe import given_arguments
from tui_train.setup.recipe.given_arguments import GivenArgument, argument_row_key
from tui_train.setup.setup import Setup
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT, parameters_in_scope
from tui_train.views.choices import UNSET_LABEL, FieldOption

from ..steps.step_rows import hint_and_fix_texts
from ..widgets.form.form_lines import FormGroup, FormRow

SCRIPT_GROUP_KEY = "script"
_MAX_UNFOLDED_ROWS = 12  # rows that are shown without being asked for
_FIELD_KIND_BY_ARGUMENT_TYPE: Mapping[str, FieldKind] = {"int": "integer", "float": "number"}


def make_own_arguments_group(
    source: ScriptSource, arguments: tuple[str, ...], setup: Setup, findings: Mapping[str, Finding]
) -> FormGroup:
    """Return a row for each argument that no value of the recipe is passed as; findings are by row."""
    known = given_arguments.given_arguments(source, arguments)
    rows = tuple(
        _argument_row(
            parameter,
            known.get(parameter.name, GivenArgument()),
            findings.get(argument_row_key(parameter.name)),
            setup,
        )
        for parameter in parameters_in_scope(source, arguments)
        if not given_arguments.preset_arguments_of_parameter(setup.preset, parameter)
    )
    return FormGroup(
        title="Arguments",
        rows=rows,
        folds=len(rows) > _MAX_UNFOLDED_ROWS,
        key=SCRIPT_GROUP_KEY,
        value=f"{sum(row.value is not None for row in rows)} of {len(rows)} set",
        hint="Arguments that your script takes. Space opens and closes them.",
    )


def arguments_with_value(
    source: ScriptSource, arguments: tuple[str, ...], key: str, value: FieldValue
) -> tuple[str, ...]:
    """Return the arguments after a value was chosen in the row of a key."""
    parameter = next(one for one in parameters_in_scope(source, arguments) if argument_row_key(one.name) == key)
    if value is None:
        values: tuple[str, ...] = ()
    elif isinstance(value, tuple):
        values = tuple(map(str, value))
    else:
        values = (fields.format_value(value),)
    return given_arguments.arguments_with_values(source, arguments, parameter, values)


def _argument_row(parameter: ScriptParameter, given: GivenArgument, finding: Finding | None, setup: Setup) -> FormRow:
    passed = next(
        (name for text in given.values for name in PLACEHOLDER_PATTERN.findall(text) if name in KEY_BY_PLACEHOLDER), ""
    )
    field = _argument_field(parameter)
    value = _argument_value(field, given)
    words, fix = hint_and_fix_texts(finding, _help_text(parameter))
    note, wrong = parameter.help, finding.message if finding and finding.level == "error" else ""
    if finding and finding.level == "note":
        note = f"{_recipe_label(given_arguments.likely_placeholder(parameter))}? F2: yes"
    default = {"True": "yes", "False": "no"}.get(parameter.default, parameter.default)
    held = (
        f"the script's default ({default})"
        if default
        else ""
        if parameter.is_required
        else SCRIPT_OWN_VALUE_SOURCE_TEXT
    )
    if field.kind in {"choice", "switch"}:
        # A choice has less room than what is typed.
        note = f"the script's default{', ' + note if note else ''}" if value is None and default else note
        held = default or held
    return FormRow(
        field=field,
        value=value,
        options=_argument_options(field, held, only_yes=parameter.form == "switch"),
        why_disabled=_passed_value_text(KEY_BY_PLACEHOLDER[passed], setup) if passed else "",
        is_set_elsewhere=bool(passed),
        default_text=visible(held),
        has_long_default=True,
        note=visible(note),
        error="the script requires it" if wrong and value is None else visible(wrong),
        fix=fix,
        hint=words,
    )


def _passed_value_text(key: str, setup: Setup) -> str:
    """Return that an argument is passed the value of another row, and what that is where it is known."""
    value = visible(fields.format_value(fields.get_value(setup.effective_profile, key)))
    return f"the value of {fields.get_field(key).label}{f' ({value})' if value else ''}"


def _argument_field(parameter: ScriptParameter) -> Field:
    """Return what can be chosen for a parameter."""
    kind: FieldKind = "words" if parameter.takes_several else _FIELD_KIND_BY_ARGUMENT_TYPE.get(parameter.type, "text")
    options = parameter.choices if not parameter.takes_several else ()
    if parameter.form in {"switch", "pair"}:
        kind, options = "switch", ()
    elif options:
        kind = "choice"
    key = argument_row_key(parameter.name)
    return Field(key=key, label=visible(parameter.name), kind=kind, help="", options=options, optional=True)


def _argument_value(field: Field, given: GivenArgument) -> FieldValue:
    """Return what is given as a value of the field's kind; as text where it is not of it."""
    if not given.word_indexes:
        return None
    if field.kind == "words":
        return given.values
    text = given.values[-1] if given.values else ""
    if field.kind == "switch":
        return text == "yes"
    number = {"integer": int, "number": float}.get(field.kind)
    try:
        return number(text) if number else text
    except ValueError:
        return text


def _argument_options(field: Field, unset_text: str, *, only_yes: bool) -> tuple[FieldOption, ...]:
    if field.kind == "switch":
        answers = ("yes",) if only_yes else ("no", "yes")
        return (FieldOption("", UNSET_LABEL, visible(unset_text)), *(FieldOption(answer, answer) for answer in answers))
    if not field.options:
        return ()
    return (
        FieldOption("", UNSET_LABEL, visible(unset_text)),
        *(FieldOption(name, visible(name)) for name in field.options),
    )


def _help_text(parameter: ScriptParameter) -> str:
    """Return what the script says of a parameter, its type and where it is declared."""
    said = f"{capitalised(parameter.help.rstrip('.'))}. " if parameter.help else ""
    kind = "a switch" if parameter.form == "switch" else parameter.type or "a value"
    choices = f", one of {', '.join(parameter.choices)}" if parameter.choices else ""
    where = f"line {parameter.line} of {parameter.file or 'the script'}"
    return visible(f"{said}{parameter.name}: {kind}{choices}; {where}.")


def _recipe_label(placeholder: str) -> str:
    key = KEY_BY_PLACEHOLDER.get(placeholder, "")
    return fields.get_field(key).label.lower() if key else ""
