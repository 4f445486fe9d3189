"""Parsing of JSON and TOML that others may have written: whatever it is, it is a value or a reason in words."""

import threading
from typing import Any, TypeVar

import msgspec

from tui_train.base.text import visible

_Kind = TypeVar("_Kind")
# Nothing that is read here has half as many levels.
_DEEPEST = 64
_LONGEST = 200
_BUILDING = threading.Lock()
_BUILT: set[Any] = set()


class Unparsable(ValueError):
    """A text that is not what was expected; its words stand after the file's name and a colon.

    `form` is false where only a value in it is wrong.
    """

    def __init__(self, words: str, *, form: bool = True) -> None:
        """Keep the words."""
        super().__init__(words)
        self.form = form


def built(kind: type[_Kind]) -> type[_Kind]:
    """Return a type that msgspec may fill, whatever other threads do.

    What it keeps of a type it makes at the first use; another thread that uses the type meanwhile ends the process.
    """
    with _BUILDING:
        if kind not in _BUILT:
            msgspec.json.Decoder(kind)
            _BUILT.add(kind)
    return kind


def json_as(data: bytes | str, kind: type[_Kind]) -> _Kind:
    """Return JSON in UTF-8 as a value of `kind`; Unparsable says why it is none."""
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
    """Return the object in JSON as plain data of a few levels; Unparsable says why it is none."""
    found = json_as(data, dict[str, Any])
    if deeper(found, _DEEPEST):
        raise Unparsable("it has too many levels")
    return found


def toml_table(text: str) -> dict[str, Any]:
    """Return the table in a TOML text, of a few levels; Unparsable says why it is none."""
    try:
        found: dict[str, Any] = msgspec.toml.decode(text)
    except RecursionError:
        raise Unparsable("it has too many levels") from None
    except (msgspec.MsgspecError, ValueError, OverflowError) as error:
        raise Unparsable(_short(error)) from None
    if deeper(found, _DEEPEST):
        raise Unparsable("it has too many levels")
    return found


def deeper(value: Any, most: int) -> bool:
    """Tell whether lists and tables lie in each other in more than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        level = [inner for one in level for inner in _inside(one)]
        if not level:
            return False
    return True


def _inside(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [*value.values()]
    return value if isinstance(value, list) else []


def _short(error: Exception) -> str:
    return visible(str(error))[:_LONGEST]
