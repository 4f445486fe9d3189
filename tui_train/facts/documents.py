"""Reads YAML files of the user's: bounded, as plain data, with every reason why one cannot be used in words."""

import math
import re
from collections.abc import Iterable
from typing import Any

import yaml

from tui_train.base.files import read_regular, reason
from tui_train.base.text import visible
from tui_train.facts.types import Document

_MOST = 2**20
# References in a file of some lines can stand for billions of values.
_MOST_VALUES = 50_000
_DEEPEST = 40


class _Loader(yaml.SafeLoader):
    """Reads 1e-4 as a number, as YAML 1.2 and most that train do; YAML 1.1 wants 1.0e-4."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"), list("-+.0123456789")
)


def documents(paths: Iterable[str]) -> dict[str, Document]:
    """Return what the YAML files at these paths hold."""
    return {path: document(path) for path in paths}


def document(path: str) -> Document:
    """Return what one YAML file holds, `problem` where it cannot be used as the base of another."""
    try:
        return read(read_regular(path, _MOST))
    except FileNotFoundError:
        return Document(problem="it does not exist")
    except OSError as error:
        return Document(problem=f"it cannot be read: {reason(error)}")


def read(data: bytes) -> Document:
    """Return what YAML in UTF-8 holds."""
    try:
        # The loader is a SafeLoader: it makes plain data only.
        found = yaml.load(data.decode("utf-8-sig"), Loader=_Loader)  # noqa: S506
    except UnicodeDecodeError:
        return Document(problem="it is not UTF-8 text")
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        return Document(problem=visible(f"it is not YAML: {error.problem or error.context}{where}"))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return Document(problem=visible(f"it is not YAML: {str(error)[:200]}"))
    if found is None:
        return Document()
    if not isinstance(found, dict):
        return Document(problem="it holds no names with values")
    left = [_MOST_VALUES]
    problem = _problem(found, "", left, 0)
    return Document(problem=problem) if problem else Document(values=found)


def _problem(value: Any, key: str, left: list[int], depth: int) -> str:
    """Return why a value cannot be written into another file as it is; empty when it can."""
    left[0] -= 1
    if left[0] < 0 or depth > _DEEPEST:
        return "it holds too many values, or values in too many levels"
    if isinstance(value, dict):
        wrong = next((name for name in value if not isinstance(name, str)), None)
        if wrong is not None:
            return f"the name {visible(str(wrong))[:80]} in it is no text: put it in quotes"
        inner = ((f"{key}.{name}" if key else name, one) for name, one in value.items())
    elif isinstance(value, list):
        inner = ((f"{key}[{number}]", one) for number, one in enumerate(value))
    else:
        return _single_problem(value, visible(key)[:80])
    return next(filter(None, (_problem(one, name, left, depth + 1) for name, one in inner)), "")


def _single_problem(value: Any, key: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key} is no finite number"
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"{key} is too large a number"
    if value is not None and not isinstance(value, (str, int, float, bool)):
        return f"{key} is a {type(value).__name__}: put it in quotes"
    return ""
