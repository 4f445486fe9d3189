"""Reads YAML files of the user as plain data, with limits; every problem is reported as text."""

import math
from collections.abc import Iterable
from typing import Any

from tui_train.base.parse import MissingFile, Unparsable, read_file_to_parse
from tui_train.base.text import visible
from tui_train.facts.types import YamlDocument
from tui_train.runner.system import untrusted_json

_MAX_FILE_BYTES = 2**20
_MAX_YAML_DEPTH = 40


def read_documents(paths: Iterable[str]) -> dict[str, YamlDocument]:
    """Return the contents of the YAML files at these paths."""
    return {path: read_document(path) for path in paths}


def read_document(path: str) -> YamlDocument:
    """Return the content of one YAML file, with a `problem` if it cannot be used."""
    try:
        return parse_document(read_file_to_parse(path, _MAX_FILE_BYTES))
    except MissingFile as error:
        return YamlDocument(problem=str(error))
    except Unparsable as error:
        return YamlDocument(problem=f"it cannot be read: {error}")


def parse_document(data: bytes) -> YamlDocument:
    """Return the content of YAML in UTF-8."""
    # Most trainings have no such file.
    import yaml

    from tui_train.facts.yaml_loader import MAX_YAML_VALUES, UserYamlLoader

    try:
        # A SafeLoader: it creates plain data only.
        values = yaml.load(untrusted_json.decode_utf8(data), Loader=UserYamlLoader)  # noqa: S506
    except Unparsable as error:
        return YamlDocument(problem=str(error))
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        return YamlDocument(problem=visible(f"it is not YAML: {error.problem or error.context}{place}"))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:
        return YamlDocument(problem=visible(f"it is not YAML: {str(error)[:200]}"))
    if values is None:
        return YamlDocument()
    if not isinstance(values, dict):
        return YamlDocument(problem="it is not a mapping of names to values")
    remaining = [MAX_YAML_VALUES]
    problem = _value_problem(values, "", remaining, 0)
    return YamlDocument(problem=problem) if problem else YamlDocument(values=values)


def _value_problem(value: Any, key: str, remaining_count: list[int], depth: int) -> str:
    """Return why a value cannot be copied into another file, empty if it can."""
    remaining_count[0] -= 1
    if remaining_count[0] < 0 or depth > _MAX_YAML_DEPTH:
        return "it has too many values or too many levels"
    if isinstance(value, dict):
        invalid_name = next((name for name in value if not isinstance(name, str)), None)
        if invalid_name is not None:
            return f"the name {visible(str(invalid_name))[:80]} is not text: put it in quotes"
        inner = ((f"{key}.{name}" if key else name, item) for name, item in value.items())
    elif isinstance(value, list):
        inner = ((f"{key}[{number}]", item) for number, item in enumerate(value))
    else:
        return _scalar_problem(value, visible(key)[:80])
    return next(filter(None, (_value_problem(item, name, remaining_count, depth + 1) for name, item in inner)), "")


def _scalar_problem(value: Any, key: str) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return f"{key} is not a finite number"
    if isinstance(value, int) and abs(value) >= 2**63:
        return f"{key} is too large a number"
    if value is not None and not isinstance(value, (str, int, float, bool)):
        return f"{key} is a {type(value).__name__}: put it in quotes"
    return ""
