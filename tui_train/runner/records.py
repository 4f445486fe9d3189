"""Records in a log: JSON lines, dictionaries as Python prints them, rows of a table below its header."""

from __future__ import annotations

import ast
import json
import re
from typing import Any, Mapping, NamedTuple

from .losses import loss_kind
from .step_lines import MAX_COUNT_DIGITS, LoggedPosition

# Not a number, as Python prints it.
_BARE_NAN_OR_INF_PATTERN = re.compile(r":\s*(-?(?:nan|inf))\b")
_STEP_KEYS = ("global_step", "step", "iter", "iteration", "num_updates", "update", "it", "trainer/global_step")
_TOTAL_STEPS_KEYS = ("total_steps", "max_steps", "num_steps")
_TOTAL_EPOCHS_KEYS = ("epochs", "max_epochs", "num_epochs")
_STANDARD_NAME_BY_KEY = {
    "lr": "learning_rate",
    "train_lr": "learning_rate",
    "train/lr": "learning_rate",
    "gnorm": "grad_norm",
}
_HEADER_CELL_PATTERN = re.compile(r"[A-Za-z_][\w/.()%-]{0,30}(?: [\w/.()%-]{1,30}){0,2}")
_MAX_COLUMNS = 40
_MAX_HEADER_LENGTH = 500
_EPOCH_OF_TOTAL_PATTERN = re.compile(r"(\d{1,9})/(\d{1,9})")


_ROLE_KEYS = ("mode", "split", "phase", "stage", "type")
_EVALUATION_ROLE_VALUES = {"val", "valid", "validation", "eval", "evaluation", "dev", "test"}


class LogRecord(NamedTuple):
    """The numbers of a record by their names; `evaluation`: it says that it is about an evaluation."""

    values: dict[str, float] = {}  # noqa: RUF012 - never changed
    evaluation: bool = False


class LogTable(NamedTuple):
    """The columns of a table in a log, and what stands between them: empty for spaces."""

    names: tuple[str, ...] = ()
    separator: str = ""


def parse_json_record(line: str) -> LogRecord:
    """Return the numbers of a JSON object in a line, by their names; those of objects in it as well."""
    begin, end = line.find('{"'), line.rfind("}")
    try:
        values = json.loads(line[begin : end + 1])
    except (ValueError, RecursionError):
        return LogRecord()
    flat = dict(values)
    for inner in [value for value in values.values() if isinstance(value, dict)]:
        flat.update(inner)
    return _build_record(flat)


def parse_dictionary_record(line: str) -> LogRecord:
    """Return the numbers of a dictionary that HF Trainer or a script prints; transformers 5 quotes them."""
    begin = line.rfind("{'", 0, line.find("oss'"))
    end = line.find("}", begin)
    try:
        values = (
            ast.literal_eval(_BARE_NAN_OR_INF_PATTERN.sub(r": '\1'", line[begin : end + 1])) if 0 <= begin < end else {}
        )
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return LogRecord()
    return _build_record(values) if isinstance(values, dict) else LogRecord()


def parse_table_header(line: str) -> LogTable | None:
    """Return the table whose header a line is: it has a column of steps or epochs, and one of a loss."""
    if len(line) > _MAX_HEADER_LENGTH or "oss" not in line:
        return None
    for separator in (",", ";", "|", ""):
        names = split_table_cells(line, separator)
        if (
            1 < len(names) <= _MAX_COLUMNS
            and all(map(_HEADER_CELL_PATTERN.fullmatch, names))
            and _is_table_header(names)
        ):
            return LogTable(tuple(names), separator)
    return None


def parse_table_row(line: str, header: LogTable) -> LogRecord:
    """Return the numbers of a table's row by the names of their columns; none where it is no row of it."""
    row_cells = split_table_cells(line, header.separator)
    if len(row_cells) != len(header.names):
        return LogRecord()
    return _build_record(dict(zip(header.names, row_cells)))


def split_table_cells(line: str, separator: str) -> list[str]:
    """Return the cells of a row: without a separator between them those that spaces divide, two where one does not."""
    if separator:
        return [cell.strip() for cell in line.strip().strip(separator).split(separator)]
    return line.split()


def losses_of_record(record: LogRecord) -> tuple[float | None, float | None]:
    """Return the loss of the training and that of the evaluation in a record, of several sets the first."""
    by_kind: dict[str, float] = {}
    for name, value in record.values.items():
        by_kind.setdefault(loss_kind(name), value)
    plain = by_kind.get("plain")
    if record.evaluation:
        return None, by_kind.get("eval", plain)
    return by_kind.get("train", plain), by_kind.get("eval", by_kind.get("set"))


def position_of_record(record: LogRecord) -> LoggedPosition:
    """Return where a record says that its training is; a part of an epoch is none."""
    values = record.values
    step, epoch = _first_integer(values, _STEP_KEYS), _first_integer(values, ("epoch",))
    return LoggedPosition(
        step,
        _first_integer(values, _TOTAL_STEPS_KEYS) or 0,
        epoch,
        _first_integer(values, _TOTAL_EPOCHS_KEYS) or 0,
        batch=epoch is not None,
    )


def parse_number(text: str) -> float | None:
    """Return the number in a text; None for what is none, or too long for one, but not for `inf` itself."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if value in {float("inf"), float("-inf")} and "inf" not in text.lower() else value


def _first_integer(values: Mapping[str, float], names: tuple[str, ...]) -> int | None:
    """Return the first of some numbers that are there, None where it is not a whole one."""
    value = next((values[name] for name in names if name in values), None)
    return int(value) if value is not None and 0 <= value < 10**MAX_COUNT_DIGITS and value == int(value) else None


def _is_table_header(names: list[str]) -> bool:
    lower = [name.lower() for name in names]
    counts = any(name in {*_STEP_KEYS, "epoch", "batch"} for name in lower)
    return counts and any(loss_kind(name) in {"train", "plain", "eval"} for name in lower)


def _repr_or_type_name(value: object) -> str:
    try:
        return repr(value)
    except ValueError:
        return ""  # an integer of thousands of digits


def _build_record(values: Mapping[Any, Any]) -> LogRecord:
    numbers: dict[str, float] = {}
    for key, value in values.items():
        name = str(key).lower()
        name = _STANDARD_NAME_BY_KEY.get(name, name)
        if name == "epoch" and isinstance(value, str) and (match := _EPOCH_OF_TOTAL_PATTERN.fullmatch(value)):
            numbers["epochs"], value = float(match[2]), match[1]  # noqa: PLW2901 - its first part
        parsed = parse_number(value if isinstance(value, str) else _repr_or_type_name(value))
        if parsed is not None:
            numbers.setdefault(name, parsed)
    return LogRecord(numbers, any(str(values.get(name)).lower() in _EVALUATION_ROLE_VALUES for name in _ROLE_KEYS))
