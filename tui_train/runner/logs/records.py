"""Records in a log: JSON lines, dictionaries as Python prints them, rows of a table below its header."""

from __future__ import annotations

import contextlib
import json
import math
import re
from typing import Any, Mapping, NamedTuple

from ..system.python_parser import parse_literal
from .losses import NUMBER_PATTERN, loss_kind, text_after_evaluation_word
from .step_lines import MAX_COUNT_DIGITS, LoggedPosition, parse_logged_position

# Not a number, as Python prints it.
_BARE_NAN_OR_INF_PATTERN = re.compile(r":\s*(-?(?:nan|inf))\b")
# `np.float64(0.5)`, `tensor(0.5, device='cuda:0')`, `Array(0.5, dtype=float32)`.
_WRAPPED_NUMBER_PATTERN = re.compile(
    rf"\b(?:(?:np\.|numpy\.|torch\.)?(?:float|int)\d{{1,3}}|tensor|array)\(({NUMBER_PATTERN})(?:,[^()]{{0,120}})?\)",
    re.IGNORECASE,
)
_NUMBER_WITH_THOUSANDS_PATTERN = re.compile(r"[-+]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?", re.ASCII)
_STEP_KEYS = ("global_step", "step", "iter", "iteration", "num_updates", "update", "it", "trainer/global_step")
_COUNTER_COLUMN_NAMES = {*_STEP_KEYS, "epoch", "batch"}
_TOTAL_STEPS_KEYS = ("total_steps", "max_steps", "num_steps")
_TOTAL_EPOCHS_KEYS = ("epochs", "max_epochs", "num_epochs")
_STANDARD_NAME_BY_KEY = {
    "lr": "learning_rate",
    "train_lr": "learning_rate",
    "train/lr": "learning_rate",
    "gnorm": "grad_norm",
}
_HEADER_CELL_PATTERN = re.compile(r"[A-Za-z_][\w/.()%-]{0,30}(?: [\w/.()%-]{1,30}){0,2}")
_WIDE_GAP_PATTERN = re.compile(r"\t\s*|\s{2,}")
_MAX_COLUMNS = 40
_MAX_HEADER_LENGTH = 500
_EPOCH_OF_TOTAL_PATTERN = re.compile(r"(\d{1,9})/(\d{1,9})")


_TRAIN_OR_EVALUATION_KEYS = ("mode", "split", "phase", "stage", "type")
_EVALUATION_ROLE_VALUES = {"val", "valid", "validation", "eval", "evaluation", "dev", "test"}


class LogRecord(NamedTuple):
    """The numbers of a record by their names; `evaluation`: it says that it is about an evaluation.

    `text_before`: what stands in its line before it.
    """

    values: dict[str, float] = {}  # noqa: RUF012 - never changed
    evaluation: bool = False
    text_before: str = ""


class LogTable(NamedTuple):
    """The columns of a table in a log, and what stands between them: empty for spaces.

    `is_header_uncertain`: its header may be a sentence, unless numbers alone follow.
    """

    names: tuple[str, ...] = ()
    separator: str = ""
    is_header_uncertain: bool = False


def parse_json_record(line: str) -> LogRecord:
    """Return the numbers of a JSON object in a line, by their names; those of objects in it as well.

    A loss of an object in it has that one's name before its own (`val/loss`) where it could be taken for another.
    """
    begin, end = line.find('{"'), line.rfind("}")
    try:
        values = json.loads(line[begin : end + 1])
    except (ValueError, RecursionError):
        return LogRecord()
    objects = [item for item in values.items() if isinstance(item[1], dict)]
    flat = {name: value for name, value in values.items() if not isinstance(value, dict)} if objects else values
    for name, inner in objects:
        for key, value in inner.items():
            ambiguous = loss_kind(key) == "plain" and (
                name.lower() in _EVALUATION_ROLE_VALUES or sum(key in other for _, other in objects) > 1
            )
            flat.setdefault(f"{name}/{key}" if ambiguous else key, value)
    return _build_record(flat, line[:begin])


def parse_dictionary_record(line: str) -> LogRecord:
    """Return the numbers of a dictionary that HF Trainer or a script prints; transformers 5 quotes them."""
    begin = line.rfind("{'", 0, line.find("oss'"))
    end = line.find("}", begin)
    try:
        text = line[begin : end + 1] if 0 <= begin < end else "{}"
        text = _WRAPPED_NUMBER_PATTERN.sub(r"\1", text) if "(" in text else text
        values = _parse_dictionary(_BARE_NAN_OR_INF_PATTERN.sub(r": '\1'", text))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return LogRecord()
    return _build_record(values, line[:begin]) if isinstance(values, dict) else LogRecord()


def _parse_dictionary(text: str) -> Any:
    """Return the value that a literal writes; most dictionaries are JSON but for their quotes, which is quicker."""
    if '"' not in text and "\\" not in text:
        with contextlib.suppress(ValueError, RecursionError):
            return json.loads(text.replace("'", '"'))
    return parse_literal(text)


def parse_table_header(line: str) -> LogTable | None:
    """Return the table whose header a line is: it has a column of steps or epochs, and one of a loss."""
    if len(line) > _MAX_HEADER_LENGTH or "oss" not in line:
        return None
    for separator in (",", ";", "|"):
        if separator in line and _is_table_header(names := _split_table_cells(line, separator)):
            return LogTable(tuple(names), separator)
    if _is_table_header(names := _WIDE_GAP_PATTERN.split(line.strip())):
        return LogTable(tuple(names))
    return LogTable(tuple(names), is_header_uncertain=True) if _is_table_header(names := line.split()) else None


def parse_table_row(line: str, header: LogTable) -> LogRecord:
    """Return the numbers of a table's row by the names of their columns; none where it is no row of it."""
    cells = _split_table_cells(line, header.separator)
    if len(cells) != len(header.names):
        return LogRecord()
    record = _build_record(dict(zip(header.names, cells)))
    if _COUNTER_COLUMN_NAMES.isdisjoint(record.values) or not (header.separator or all(map(_is_number_cell, cells))):
        return LogRecord()
    return record


def _split_table_cells(line: str, separator: str) -> list[str]:
    """Return the cells of a row, without a separator those that spaces divide."""
    if separator:
        return [cell.strip() for cell in line.strip().strip(separator).split(separator)]
    return line.split()


def losses_of_record(record: LogRecord) -> tuple[float | None, float | None]:
    """Return the loss of the training and that of the evaluation in a record, of several sets the first."""
    by_kind: dict[str, float] = {}
    for name, value in record.values.items():
        if "loss" in name:
            by_kind.setdefault(loss_kind(name), value)
    plain = by_kind.get("plain")
    if record.evaluation:
        return None, by_kind.get("eval", plain)
    return by_kind.get("train", plain), by_kind.get("eval", by_kind.get("set"))


def position_of_record(record: LogRecord) -> LoggedPosition:
    """Return where a record, or else what stands before it, says that its training is; a part of an epoch is none."""
    values = record.values
    step, epoch = _first_integer(values, _STEP_KEYS), _first_integer(values, ("epoch",))
    # A bar before a record is drawn by others, and has been read.
    before = (
        parse_logged_position(record.text_before)
        if step is None and record.text_before and "%|" not in record.text_before
        else None
    )
    if before and (epoch is None or before.step is not None):
        return before if epoch is None else before._replace(epoch=epoch, may_be_batch=True)
    return LoggedPosition(
        step,
        _first_integer(values, _TOTAL_STEPS_KEYS) or 0,
        epoch,
        _first_integer(values, _TOTAL_EPOCHS_KEYS) or 0,
        may_be_batch=epoch is not None,
    )


def parse_number(text: str) -> float | None:
    """Return the number in a text; None for what is none, or too long for one, but not for `inf` itself."""
    if "," in text and _NUMBER_WITH_THOUSANDS_PATTERN.fullmatch(text):
        text = text.replace(",", "")
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isinf(value) and "inf" not in text.lower() else value


def _first_integer(values: Mapping[str, float], names: tuple[str, ...]) -> int | None:
    """Return the first of some numbers that are there, None where it is not a whole one."""
    value = next((values[name] for name in names if name in values), None)
    return int(value) if value is not None and 0 <= value < 10**MAX_COUNT_DIGITS and value == int(value) else None


def _is_table_header(names: list[str]) -> bool:
    if not 1 < len(names) <= _MAX_COLUMNS or not all(map(_HEADER_CELL_PATTERN.fullmatch, names)):
        return False
    lower = [name.lower() for name in names]
    return not _COUNTER_COLUMN_NAMES.isdisjoint(lower) and any(
        loss_kind(name) in {"train", "plain", "eval"} for name in lower
    )


def _is_number_cell(cell: str) -> bool:
    """Return whether a cell is a number, a time such as 00:12, a size, or the place of a number."""
    return cell[0] in "0123456789.+-" or cell.lower() in {"nan", "inf", "none", "n/a"}


def _repr_or_empty(value: object) -> str:
    try:
        return repr(value)
    except ValueError:
        return ""  # an integer of thousands of digits


def _build_record(values: Mapping[Any, Any], before: str = "") -> LogRecord:
    numbers: dict[str, float] = {}
    for key, value in values.items():
        name = str(key).lower()
        name = _STANDARD_NAME_BY_KEY.get(name, name)
        if name == "epoch" and isinstance(value, str) and (match := _EPOCH_OF_TOTAL_PATTERN.fullmatch(value)):
            numbers["epochs"], value = float(match[2]), match[1]  # noqa: PLW2901 - its first part
        if isinstance(value, float):
            parsed: float | None = value
        else:
            parsed = parse_number(value if isinstance(value, str) else _repr_or_empty(value))
        if parsed is not None:
            numbers.setdefault(name, parsed)
    evaluation = any(
        name in values and str(values[name]).lower() in _EVALUATION_ROLE_VALUES for name in _TRAIN_OR_EVALUATION_KEYS
    )
    return LogRecord(numbers, evaluation or bool(before and text_after_evaluation_word(before) is not None), before)
