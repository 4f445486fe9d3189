"""`tui-train keys`: prints what can be set, by which words, and what holds where it is not."""

import textwrap

import click
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.cli import printing
from tui_train.profile import fields, typed_lists
from tui_train.profile.presets import shipped_presets
from tui_train.profile.rows import Field
from tui_train.profile.types import Profile
from tui_train.trainers.finetune import FINETUNE_DEFAULTS
from tui_train.views import choices

_ALLOWED_VALUES_TEXT_BY_FIELD_KIND = {
    "text": "text",
    "path": "a path",
    "model": "a folder, or a name on the Hugging Face Hub",
    "paths": "a list of paths",
    "rewards": "a list of FILE.py:FUNCTION, or names",
    "words": "a list of words",
    "names": "a list of names",
    "integers": "a list of whole numbers",
    "numbers": "a list of numbers",
    "table": "a list of NAME=VALUE",
    "dotted": "a list of NAME.NAME=VALUE",
    "webhook": "an https:// address, $NAME, or a file",
}


class KeyAnswer(Struct, frozen=True, kw_only=True):
    """A key of a profile: its meaning, what may be written, and what holds where it is not set, in words."""

    key: str
    help: str
    values: str
    default: str


Keys = tuple[KeyAnswer, ...]


def print_keys(word: str, *, as_json: bool) -> None:
    """Print the keys of a profile that hold a word, with their meaning, values and default."""
    matching = [row for row in fields.FIELDS.values() if word.lower() in f"{row.key} {row.label}".lower()]
    if not matching:
        raise BadInput(f"no key matches {visible(word)}", fields.similar_key_remedy(word))
    found = [
        KeyAnswer(key=row.key, help=row.help, values=allowed_values_text(row), default=default_text(row))
        for row in matching
    ]
    if as_json:
        printing.print_json(found)
        return
    rows = [(each.key, f"{each.help} [{each.values}; default: {each.default}]") for each in found]
    click.echo(
        "Keys of a profile, what they do, and [allowed values; default]:\n\n" + printing.description_list_text(rows)
    )
    if any(row.kind in typed_lists.LIST_FIELD_KINDS for row in matching):
        rule = (
            f"Lists: {typed_lists.QUOTING_RULE_TEXT}. {typed_lists.COMMA_HINT_TEXT} "
            "A list that is set again in the same command is added to."
        )
        click.echo("\n" + textwrap.fill(rule, min(printing.terminal_width_or_none() or 80, 80)))


def allowed_values_text(row: Field) -> str:
    """Return what may be written for a key."""
    if row.kind in {"integer", "number"} and row.minimum is not None:
        words = "a whole number" if row.kind == "integer" else "a number"
        return f"{words} from {row.minimum:.12g}" + (f" to {row.maximum:.12g}" if row.maximum is not None else "")
    values = choices.enumerable_values(row.key)
    return ", ".join(values) if values else _ALLOWED_VALUES_TEXT_BY_FIELD_KIND[row.kind]


def default_text(row: Field) -> str:
    """Return what holds where a key is not set."""
    if row.optional:
        name = row.key.removeprefix("recipe.")
        trainers = {"fine-tuning": FINETUNE_DEFAULTS, "built-in trainer": shipped_presets()["builtin"].defaults}
        ours = [
            f"{label}: {fields.format_value(defaults[name])}"
            for label, defaults in trainers.items()
            if name in defaults
        ]
        return "; ".join(("the trainer's default", *ours))
    return fields.format_value(fields.get_value(Profile(), row.key)) or row.empty or "none"
