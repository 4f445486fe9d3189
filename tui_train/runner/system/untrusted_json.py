"""JSON from outside: UTF-8 text with limits of depth, number of values and digits; what is wrong is a sentence."""

from __future__ import annotations

import json
import re
from typing import Any

# All files that are read here have far fewer levels.
_MAX_JSON_DEPTH = 64
# A list of two million empty lists takes 6 MB of text and 130 MB of memory.
MAX_JSON_VALUES = 2_000_000
# Older Pythons take hours for a number of a million digits.
_MAX_INTEGER_DIGITS = 400
_SURROGATE_ESCAPE_PATTERN = re.compile(r"\\u[dD][89a-fA-F]")


class Unparsable(ValueError):
    """A file or text that cannot be used; the message follows its name and a colon.

    `form` is false if only a value in it is wrong.
    """

    def __init__(self, words: str, *, form: bool = True) -> None:
        super().__init__(words)
        self.form = form


class MissingFile(Unparsable):
    """A file that does not exist."""


def decode_utf8(data: bytes) -> str:
    """Return the text in UTF-8, with or without a byte order mark; Unparsable if it is not."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unparsable("it is not UTF-8 text") from None


def parse_json(data: bytes, expected_type: type = dict, max_values: int = MAX_JSON_VALUES) -> Any:
    """Return the JSON value in a text, NaN and Infinity included; Unparsable if it is not one of `expected_type`."""
    check_json_size(data, max_values)
    decoded = decode_utf8(data)
    try:
        parsed = _JSON_DECODER.decode(decoded)
        if _SURROGATE_ESCAPE_PATTERN.search(decoded):
            # Half of a surrogate pair is a text that cannot be written anywhere.
            json.dumps(parsed, ensure_ascii=False).encode()
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except UnicodeEncodeError:
        raise Unparsable("it has an invalid character (\\ud800 to \\udfff)") from None
    except json.JSONDecodeError as error:
        raise Unparsable(f"it is not JSON (line {error.lineno}, column {error.colno})") from None
    if is_nested_too_deep(parsed):
        raise Unparsable("it has too many levels")
    if not isinstance(parsed, expected_type):
        raise Unparsable(
            f"it is {_TEXT_BY_JSON_TYPE[type(parsed)]}, not {_TEXT_BY_JSON_TYPE[expected_type]}", form=False
        )
    return parsed


def check_json_size(data: bytes, max_values: int = MAX_JSON_VALUES) -> None:
    """Raise Unparsable for a text that is empty or may hold more values than memory is spent on."""
    if not data.strip():
        raise Unparsable("it is empty")
    if sum(map(data.count, (b",", b"[", b"{"))) > max_values:
        raise Unparsable("it has too many values")


def is_nested_too_deep(value: Any) -> bool:
    """Return whether lists and tables are nested deeper than any that are read."""
    level = [value]
    for _ in range(_MAX_JSON_DEPTH + 1):
        level = [inner for item in level for inner in _child_values(item)]
        if not level:
            return False
    return True


def _child_values(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_INTEGER_DIGITS:
        raise Unparsable("a number in it is too long")
    return int(digits)


_JSON_DECODER = json.JSONDecoder(parse_int=_parse_integer)
_TEXT_BY_JSON_TYPE = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    type(None): "null",
}
