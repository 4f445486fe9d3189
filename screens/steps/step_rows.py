"""The rows of a step's form, made of the profile, the facts and what is wrong."""

from collections.abc import Sequence

from tui_train.base.text import capitalised, visible
from tui_train.checks import Finding
from tui_train.profile import fields
from tui_train.profile.changes import ValueDifference
from tui_train.profile.types import Profile
from tui_train.setup.recipe import no_effect
from tui_train.setup.setup import Setup
from tui_train.trainers import field_with_trainer_texts
from tui_train.views import choices

from ..widgets.form.form_lines import FormGroup, FormRow, is_typed_field

_MAX_REPEATED_VALUE_CHARACTERS = 50  # characters of two values that a hint repeats
_UNSET_TEXT = "not set"
_DEFAULT_SOURCE = "default"  # the source of a value that is nobody's choice


class Section(FormGroup, frozen=True, kw_only=True):
    """A group of a step's form, by the keys of its fields."""

    keys: tuple[str, ...] = ()


def change_undone_text(changes: Sequence[ValueDifference]) -> str:
    """Return what the hint says after a change was taken back."""
    if not changes:
        return "There is no change to take back."
    if len(changes) == 1 and len(changes[0].before + changes[0].after) <= _MAX_REPEATED_VALUE_CHARACTERS:
        (change,) = changes
        return visible(f"Taken back: {change.label} {change.before or _UNSET_TEXT} → {change.after or _UNSET_TEXT}.")
    return visible(f"Taken back: {', '.join(change.label for change in changes)}.")


def make_form_row(key: str, profile: Profile, setup: Setup | None, *, note: str, finding: Finding | None) -> FormRow:
    """Return a field's row: its value, what it may be, what holds where none is chosen, and what is wrong with it."""
    field = field_with_trainer_texts(key, profile)
    options = choices.field_options(key, setup) if setup else ()
    held = setup.effective_values.get(key.removeprefix("recipe.")) if setup and key.startswith("recipe.") else None
    source = held.source if held else ""
    words = (held.text or "not set") if held and held.source else ""
    help_text = field.help
    row_is_typed = is_typed_field(field)
    if options and not row_is_typed:
        by = "tui-train's default" if source == _DEFAULT_SOURCE else visible(source)
        help_text = " ".join(filter(None, [help_text, f"Not set: {words}, {by}." if source else ""]))
    hint, fix = hint_and_fix_texts(finding, help_text)
    hint = hint.replace(f" ({field.label})", "")  # the row itself
    value = fields.get_value(profile, key)
    error = _message_beside_value(value, finding) if finding else ""
    return FormRow(
        field=field,
        value=value,
        options=options,
        why_disabled=no_effect.why_no_effect(key, setup or profile),
        default_text=visible(words),
        note=visible(note or (source if row_is_typed and source != _DEFAULT_SOURCE else "")),
        error=error if finding and finding.level == "error" and not finding.is_being_fixed else "",
        warning=error if finding and finding.level == "warning" else "",
        progress=error if finding and finding.is_being_fixed else "",
        fix=fix,
        usual_number=_usual_learning_rate(key, setup),
        hint=hint,
    )


def _message_beside_value(value: fields.FieldValue, finding: Finding) -> str:
    """Return what is wrong with a value as it stands beside it, without the label and the value themselves."""
    message, text = visible(finding.message), visible(fields.format_value(value))
    before, found, rest = message.partition(f"{text} ")
    return rest if text and found and (not before or before.endswith(": ")) else message


def hint_and_fix_texts(finding: Finding | None, help_text: str) -> tuple[str, str]:
    """Return what a row says of itself, and what F2 would do: of a finding, or else its help and nothing."""
    if finding is None:
        return visible(help_text), ""
    fix = finding.fix.title if finding.fix else ""
    return visible(
        f"{capitalised(finding.message)}. {finding.screen_remedy}{f'  F2: {fix}.' if fix and not finding.keys else ''}"
    ), visible(fix)


def _usual_learning_rate(key: str, setup: Setup | None) -> float | None:
    """Return the default of a learning rate, of which the first digits say nothing about its size."""
    default = setup.preset.defaults.get("learning_rate") if setup and key == "recipe.learning_rate" else None
    return float(default) if isinstance(default, (int, float)) else None
