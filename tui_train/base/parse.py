"""Parsing of untrusted JSON and TOML: the result is a value, or Unparsable with the reason."""

import threading
from typing import Any, TypeVar

import msgspec

from tui_train.base.text import visible

_Kind = TypeVar("_Kind")
# All files that are read here have far fewer levels.
_DEEPEST = 64
_LONGEST = 200
_BUILDING = threading.Lock()
_BUILT: set[Any] = set()


class Unparsable(ValueError):
    """A text that cannot be parsed; the message follows the name of the file and a colon.

    `form` is false if only a value in it is wrong.
    """

    def __init__(self, words: str, *, form: bool = True) -> None:
        """Set the message."""
        super().__init__(words)
        self.form = form


def built(kind: type[_Kind]) -> type[_Kind]:
    """Return a type after preparing it for msgspec, which is not thread-safe.

    msgspec caches information at the first use of a type; a concurrent use by another thread crashes the process.
    """
    with _BUILDING:
        if kind not in _BUILT:
            msgspec.json.Decoder(kind)
            _BUILT.add(kind)
    return kind


def json_as(data: bytes | str, kind: type[_Kind]) -> _Kind:
    """Return JSON in UTF-8 as a value of `kind`; Unparsable if it is not one."""
    try:
        return msgspec.json.decode(data, type=built(kind))
    except msgspec.ValidationError as error:
        raise Unparsable(_short(error), form=False) from None
    except UnicodeDecodeError:
        raise Unparsable("it is not UTF-8 text") from None
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Unparsable(_short(error)) from None


def json_table(data: bytes) -> dict[str, Any]:
    """Return the object in JSON as plain data with limited depth; Unparsable if it is not one."""
    table = json_as(data, dict[str, Any])
    if deeper(table, _DEEPEST):
        raise Unparsable("it has too many levels")
    return table


def toml_table(text: str) -> dict[str, Any]:
    """Return the table in a TOML text, with limited depth; Unparsable if it is not one."""
    try:
        table: dict[str, Any] = msgspec.toml.decode(text)
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Unparsable(_short(error)) from None
    if deeper(table, _DEEPEST):
        raise Unparsable("it has too many levels")
    return table


def deeper(value: Any, max_depth: int) -> bool:
    """Return whether lists and tables are nested deeper than `max_depth`."""
    level = [value]
    for _ in range(max_depth + 1):
        level = [inner for item in level for inner in _inside(item)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []


def _short(error: Exception) -> str:
    return visible(str(error))[:_LONGEST]
