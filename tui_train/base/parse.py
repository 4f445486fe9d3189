"""Parsing of untrusted JSON and TOML: the result is a value, or Unparsable with the reason."""

import threading
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from tui_train.base.files import read_error_reason, read_regular_file
from tui_train.base.text import visible
from tui_train.runner.system import untrusted_json
from tui_train.runner.system.untrusted_json import MissingFile, Unparsable, is_nested_too_deep

__all__ = [
    "MissingFile",
    "Unparsable",
    "parse_json_as",
    "parse_json_object",
    "parse_toml_table",
    "read_file_to_parse",
    "text_or_empty",
    "type_prepared_for_msgspec",
]

_Value = TypeVar("_Value")
_MAX_MESSAGE_LENGTH = 200
_TYPE_PREPARATION_LOCK = threading.Lock()
_PREPARED_TYPES: set[Any] = set()


def type_prepared_for_msgspec(value_type: type[_Value]) -> type[_Value]:
    """Return a type after preparing it for msgspec, which is not thread-safe.

    msgspec caches information at the first use of a type; a concurrent use by another thread crashes the process.
    """
    with _TYPE_PREPARATION_LOCK:
        if value_type not in _PREPARED_TYPES:
            msgspec.json.Decoder(value_type)
            _PREPARED_TYPES.add(value_type)
    return value_type


def text_or_empty(value: object) -> str:
    """Return a value that was read where it is a text, else an empty one."""
    return value if isinstance(value, str) else ""


def read_file_to_parse(path: Path | str, max_size: int) -> bytes:
    """Return the bytes of a regular file; MissingFile, or Unparsable if it cannot be read or is larger."""
    try:
        return read_regular_file(path, max_size)
    except FileNotFoundError:
        raise MissingFile("it does not exist") from None
    except OSError as error:
        raise Unparsable(read_error_reason(error)) from None


def parse_json_as(data: bytes, value_type: type[_Value]) -> _Value:
    """Return JSON in UTF-8 as a value of `value_type`; Unparsable if it is not one."""
    untrusted_json.check_json_size(data)
    try:
        return msgspec.json.decode(data, type=type_prepared_for_msgspec(value_type))
    except msgspec.ValidationError as error:
        raise Unparsable(_short_message(error), form=False) from None
    except UnicodeDecodeError:
        raise Unparsable("it is not UTF-8 text") from None
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Unparsable(_short_message(error)) from None


def parse_json_object(data: bytes, max_values: int = untrusted_json.MAX_JSON_VALUES) -> dict[str, Any]:
    """Return the object in JSON that another program wrote, as plain data; Unparsable if it is not one.

    Nor may it hold more values than `max_values`.
    """
    table: dict[str, Any] = untrusted_json.parse_json(data, max_values=max_values)
    return table


def parse_toml_table(data: bytes | str) -> dict[str, Any]:
    """Return the table in a TOML text, with limited depth; Unparsable if it is not one."""
    text = data if isinstance(data, str) else untrusted_json.decode_utf8(data)
    try:
        table: dict[str, Any] = msgspec.toml.decode(text)
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Unparsable(_short_message(error)) from None
    if is_nested_too_deep(table):
        raise Unparsable("it has too many levels")
    return table


def _short_message(error: Exception) -> str:
    return visible(str(error))[:_MAX_MESSAGE_LENGTH]
