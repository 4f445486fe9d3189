"""FIELDS: what can be chosen, by key; reading a choice, setting it, and what was typed."""

import difflib
import keyword
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import msgspec

from tui_train.base import secrets, webhook
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile import typed_lists
from tui_train.profile.rows import ROWS, Field, FieldKind
from tui_train.profile.types import Profile
from tui_train.programs import hub_cache

_SECRET_VARIABLE_PATTERN = re.compile(
    r"(^|_)(TOKEN|SECRET|CREDENTIALS?|(API|ACCESS|PRIVATE)_?KEY|KEY)$|(PASSWORD|PASSWD|PASSPHRASE)$", re.IGNORECASE
)

_MIN_KEY_SIMILARITY = 0.7
# What a number may begin with in a text, and what stands for zeros after it.
_LEADING_NUMBER_PATTERN = re.compile(
    r"\s*(?P<number>[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?)\s*(?P<unit>[kKmM]?)", re.IGNORECASE
)
_MAX_CLAMPED_FACTOR_ABOVE_LIMIT = 10  # times the largest value: what was meant is another number
_FACTOR_BY_SUFFIX = {"": 1, "k": 1_000, "m": 1_000_000}

_EMPTY_PROFILE = Profile()

# None: not chosen.
FieldValue = str | int | float | bool | tuple[str | float, ...] | dict[str, str] | None


FIELDS: dict[str, Field] = {row.key: row for row in ROWS}
# It has no key: it follows from the batches.
_ACCUMULATION_FIELD = Field(
    key="accumulation", label="Accumulation", kind="integer", help="", minimum=1, maximum=16_777_216
)


def get_field(key: str) -> Field:
    """Return the field of a key; BadInput names the nearest key when there is none."""
    if key in FIELDS:
        return FIELDS[key]
    raise BadInput(f"{visible(key)} is not a profile key", similar_key_remedy(key))


def recipe_field(name: str) -> Field:
    """Return the field of a value of the recipe, or of the accumulation, by its name in presets."""
    return FIELDS.get(f"recipe.{name}", _ACCUMULATION_FIELD)


def similar_word_remedy(name: str, choices: tuple[str, ...]) -> str:
    """Return a remedy that names the most similar known word."""
    matches = difflib.get_close_matches(name, choices, n=1, cutoff=0.6)
    return f"Did you mean {matches[0]}?" if matches else f"Known are: {', '.join(choices)}."


def similar_key_remedy(key: str) -> str:
    """Return a remedy that names the most similar of all keys; a section that two share makes them no more alike."""
    similar = most_similar_key(key)
    return f"Did you mean {similar}?" if similar else "`tui-train keys` lists them."


def most_similar_key(key: str) -> str:
    """Return the key whose last word is most similar, empty where none is."""

    def similarity(other: str) -> tuple[float, float]:
        pairs = ((key.rpartition(".")[2], other.rpartition(".")[2]), (key, other))
        last, full = (difflib.SequenceMatcher(None, *pair).ratio() for pair in pairs)
        return last, full

    best = max(FIELDS, key=similarity)
    return best if similarity(best)[0] >= _MIN_KEY_SIMILARITY else ""


def get_value(profile: Profile, key: str) -> FieldValue:
    """Return the value at a key such as `recipe.layers`."""
    section, _, name = get_field(key).key.rpartition(".")
    return cast("FieldValue", getattr(getattr(profile, section) if section else profile, name))


def profile_with_value(profile: Profile, key: str, value: FieldValue) -> Profile:
    """Return the profile with one value replaced; BadInput when it is outside the field's limits."""
    _require_valid_value(get_field(key), value)
    section, _, name = key.rpartition(".")
    if not section:
        return msgspec.structs.replace(profile, **{name: value})
    changed = msgspec.structs.replace(getattr(profile, section), **{name: value})
    return msgspec.structs.replace(profile, **{section: changed})


def _require_valid_value(row: Field, value: FieldValue) -> None:
    """Raise BadInput where a value of the right type is none that its field takes: by its limits, or its characters."""
    if value is None:
        if not row.optional:
            raise BadInput(f"{row.key} has no value", "Give it one.")
        return
    if row.options and value not in row.options:
        raise BadInput(f"{row.key} is {visible(str(value))!r}", f"Choose one of: {', '.join(row.options)}.")
    low, high = row.minimum, row.maximum
    for number in _numbers_in_value(value):
        if not ((low is None or number >= low) and (high is None or number <= high)):
            raise BadInput(f"{row.key} is {number}", f"Give a number from {low} to {high}.")
    if row.key == "name" and not str(value).strip():
        raise BadInput("the profile has no name", "Give the profile a name (name).")
    if row.kind == "paths" and isinstance(value, tuple) and "" in value:
        raise BadInput(f"{row.key} holds an empty path", "Remove the empty path, or name a file.")
    if "\0" in _all_text_of_value(value):
        raise BadInput(f"{row.key} holds a NUL byte", "Remove it: no program can be given a NUL byte.")
    if any("\ud800" <= letter <= "\udfff" for letter in _all_text_of_value(value)):
        raise BadInput(
            f"{row.key} is not UTF-8 text: {visible(_all_text_of_value(value))}",
            "Rename the file or folder so that its name is UTF-8 text.",
        )


def _numbers_in_value(value: FieldValue) -> Iterator[float]:
    for part in value if isinstance(value, tuple) else (value,):
        if isinstance(part, (int, float)) and not isinstance(part, bool):
            yield part


def is_secret_variable(name: str) -> bool:
    """Return whether a variable name is typical of secrets, such as HF_TOKEN or PGPASSWORD."""
    return bool(_SECRET_VARIABLE_PATTERN.search(name)) or secrets.is_secret_name(name)


def _all_text_of_value(value: FieldValue) -> str:
    """Return all text of a value joined, for searches in it."""
    if isinstance(value, dict):
        return "\n".join([*value, *value.values()])
    return "\n".join(map(str, value)) if isinstance(value, tuple) else str(value)


def parse_value(row: Field, text: str) -> FieldValue:
    """Return what was typed as a value of the field's kind, None where nothing was typed for an optional one.

    Relative paths are taken from the current folder.
    """
    unset = row.optional and not text.strip()
    value = None if unset else value_with_absolute_paths(row, _PARSER_BY_KIND[row.kind](row, text))
    _require_valid_value(row, value)
    return value


def most_likely_meant_value(row: Field, text: str) -> FieldValue:
    """Return the value that a text which cannot be read most likely means; None where it means none.

    A number is taken from the text's beginning, with k or M after it, and brought within the field's limits unless it
    is many times the largest; a quote is closed, and a comma that may separate values does.
    """
    if row.kind not in {"integer", "number"}:
        return (
            _parsed_value_or_none(row, typed_lists.commas_to_spaces(row, text))
            or _parsed_value_or_none(row, text + "'")
            or _parsed_value_or_none(row, text + '"')
        )
    match = _LEADING_NUMBER_PATTERN.match(text.replace("_", "").replace(",", "." if row.kind == "number" else ""))
    if match is None:
        return None
    amount = float(match["number"]) * _FACTOR_BY_SUFFIX[match["unit"].lower()]
    if not math.isfinite(amount):
        return None
    low, high = row.minimum, row.maximum
    if high is not None and amount > high * _MAX_CLAMPED_FACTOR_ABOVE_LIMIT:
        return None
    amount = amount if low is None else max(low, amount)
    amount = amount if high is None else min(high, amount)
    return _parsed_value_or_none(row, str(round(amount)) if row.kind == "integer" else repr(amount))


def _parsed_value_or_none(row: Field, text: str) -> FieldValue:
    try:
        return parse_value(row, text)
    except BadInput:
        return None


def chosen_keys(profile: Profile) -> tuple[str, ...]:
    """Return the keys whose values the user chose: those that are not as in an empty profile, but for its name."""
    parts = {key.rpartition(".")[0] for key in FIELDS} - {""}
    unchanged = {part for part in parts if getattr(profile, part) == getattr(_EMPTY_PROFILE, part)}
    return tuple(key for key in FIELDS if key.rpartition(".")[0] not in unchanged and is_chosen(profile, key))


def is_chosen(profile: Profile, key: str) -> bool:
    """Return whether the user chose the value of a key."""
    return key != "name" and get_value(profile, key) != get_value(_EMPTY_PROFILE, key)


def format_value(value: FieldValue) -> str:
    """Return a value as it would be typed; parsing it gives the value back."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return typed_lists.join_values(f"{name}={text}" for name, text in value.items())
    if isinstance(value, tuple):
        return typed_lists.join_values(map(_format_list_item, value))
    return repr(value) if isinstance(value, float) else str(value)


def _format_list_item(item: str | float) -> str:
    return item if isinstance(item, str) else repr(item).removesuffix(".0")


def absolute_path(path: str, folder: Path) -> str:
    """Return a path as absolute, `~` expanded, without touching links; an empty one stays empty."""
    return str(Path(folder, expand_home(path))) if path else ""


def value_with_absolute_paths(row: Field, value: FieldValue, folder: Path | None = None) -> FieldValue:
    """Return a value with its relative paths taken from a folder (None: the current one); others as they are."""
    make_absolute = _ABSOLUTE_BY_KIND.get(row.kind)
    if make_absolute is None:
        return value
    start = folder or Path.cwd()
    if isinstance(value, tuple):
        return tuple(make_absolute(row, str(each), start) for each in value)
    return make_absolute(row, str(value), start)


def _absolute_field_path(row: Field, path: str, folder: Path) -> str:
    """Return a field's path as absolute; a Python without a slash is the one on PATH, as in a shell."""
    if row.key != "trainer.python" or not path or "/" in path or path.startswith("~"):
        return absolute_path(path, folder)
    program = shutil.which(path)
    if program is None:
        raise BadInput(f"{row.key}: there is no {visible(path)} on PATH", "Write its whole path.")
    return absolute_path(program, Path.cwd())


def _absolute_model_reference(_: Field, path: str, folder: Path) -> str:
    """Return the id of a model of the Hub as it is, a path as absolute; a folder there is no id, as in transformers."""
    text = path.strip()
    if not hub_cache.is_valid_model_id(text):
        return absolute_path(path, folder)
    try:
        return absolute_path(text, folder) if Path(folder, text).is_dir() else text
    except (OSError, ValueError):
        return text


def _absolute_webhook_reference(row: Field, text: str, folder: Path) -> str:
    """Return an address or $NAME as it is, a path as absolute; BadInput shows nothing of what may be a secret."""
    word = text.strip()
    if not word or webhook.is_webhook_address(word) or webhook.is_variable_reference(word):
        return word
    if word.startswith(("/", "~", "./", "../")):
        return absolute_path(text.lstrip(), folder)
    remedy = "Give its https:// address, the variable that holds it as $NAME, or the path of a file with it."
    raise BadInput(f"{row.label} is no address", remedy)


def _absolute_reward_name(_: Field, text: str, folder: Path) -> str:
    """Return PATH.py:FUNCTION with its whole path; any other name of a reward as it is."""
    path, colon, name = text.rpartition(":")
    return f"{absolute_path(path, folder)}:{name}" if colon and path else text


_ABSOLUTE_BY_KIND: dict[FieldKind, Callable[[Field, str, Path], str]] = {
    "path": _absolute_field_path,
    "paths": lambda _row, path, folder: absolute_path(path, folder),
    "model": _absolute_model_reference,
    "rewards": _absolute_reward_name,
    "webhook": _absolute_webhook_reference,
}


def _parse_integer(row: Field, text: str) -> int:
    try:
        return int(text.replace("_", "").replace(" ", ""))
    except ValueError:
        raise BadInput(f"{row.label} is {visible(text)!r}", "Type a whole number.") from None


def _parse_number(row: Field, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise BadInput(f"{row.label} is {visible(text)!r}", "Type a number such as 0.0003 or 3e-4.") from None


def _parse_switch(row: Field, text: str) -> bool:
    word = text.strip().lower()
    if word in {"yes", "true", "on", "1"}:
        return True
    if word in {"no", "false", "off", "0"}:
        return False
    raise BadInput(f"{row.label} is {visible(text)!r}", "Type yes or no.")


def _parse_table(row: Field, text: str) -> dict[str, str]:
    return _parse_named_values(
        row, text, lambda name: name.isidentifier() and name.isascii(), "NAME=VALUE", "WANDB_MODE=offline"
    )


def _parse_dotted_table(row: Field, text: str) -> dict[str, str]:
    return _parse_named_values(row, text, is_dotted_name, "NAME.NAME=VALUE", "model.config.hidden_dropout=0.1")


def _parse_named_values(
    row: Field, text: str, is_valid_name: Callable[[str], bool], form: str, example: str
) -> dict[str, str]:
    """Return values by name; BadInput for what is not of this form, and for a name that is there twice."""
    table: dict[str, str] = {}
    for word in typed_lists.split_values(row, text):
        name, equals, value = word.partition("=")
        if not (equals and is_valid_name(name)):
            raise BadInput(
                f"{row.label}: {visible(word)!r} is not {form}",
                f"Write it as {example}; {typed_lists.QUOTING_RULE_TEXT}.",
            )
        if name in table:
            raise BadInput(f"{row.label}: {visible(name)} is there twice", "Leave one of the two out.")
        table[name] = value
    return table


def is_dotted_name(name: str) -> bool:
    """Return whether a text is two or more public Python names joined by dots."""
    parts = name.split(".")
    plain = all(part.isidentifier() and part.isascii() and not keyword.iskeyword(part) for part in parts)
    return plain and len(parts) > 1 and not any(part.startswith("_") for part in parts)


_PARSER_BY_KIND: dict[FieldKind, Callable[[Field, str], FieldValue]] = {
    "choice": lambda _row, text: text.strip(),
    "text": lambda _row, text: text,
    "path": lambda _row, text: text.lstrip(),
    "paths": typed_lists.split_values,
    "model": lambda _row, text: text.lstrip(),
    "integer": _parse_integer,
    "integers": lambda row, text: tuple(_parse_integer(row, word) for word in typed_lists.split_values(row, text)),
    "number": _parse_number,
    "numbers": lambda row, text: tuple(_parse_number(row, word) for word in typed_lists.split_values(row, text)),
    "switch": _parse_switch,
    "words": typed_lists.split_values,
    "names": lambda row, text: tuple(filter(None, typed_lists.split_values(row, text))),
    "rewards": typed_lists.split_values,
    "table": _parse_table,
    "dotted": _parse_dotted_table,
    "webhook": lambda _row, text: text,
}
