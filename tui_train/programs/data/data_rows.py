"""Reads rows of JSONL, JSON, CSV, Parquet and text, each with its file and line, and no more of them than asked for."""

from __future__ import annotations

import codecs
import csv
import io
import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

DATA_FILE_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".parquet", ".txt")
MAX_ROW_BYTES = 16 * 2**20
_MAX_SKIPPED_BYTES = 16 * MAX_ROW_BYTES
_PIECE_BYTES = 2**16
# Rows of Parquet at a time: a text that is there once in a small file may be in each of them.
_PARQUET_BATCH_ROWS = 16
_BYTE_ORDER_MARK = codecs.BOM_UTF8
_JSON_WHITESPACE_PATTERN = re.compile(r"[ \t\n\r]*")
_UTF16_BYTE_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")


class DataRow(NamedTuple):
    """A row by its file and line; `value` is None where `why` says what is wrong with it.

    `done` is how many bytes of its file were read; `wrapped`, that it lay in a list inside of an object.
    """

    file: str
    line: int
    value: dict[str, Any] | None
    why: str = ""
    done: int = 0
    wrapped: bool = False


class UnreadableError(Exception):
    """A file or folder that cannot be read at all, in words that follow its name."""


def data_files_at(path: str) -> list[str]:
    """Return the files that are meant: of a folder those whose names end as data does."""
    if not Path(path).is_dir():
        return [path]
    try:
        names = sorted(inside.name for inside in Path(path).iterdir() if not inside.name.startswith("."))
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror}") from None
    if {"state.json", "dataset_info.json"} <= set(names):
        raise UnreadableError("was written by save_to_disk of datasets, which TRL does not load: write JSONL (to_json)")
    data = [
        str(Path(path, name)) for name in names if name.endswith(DATA_FILE_SUFFIXES) and name != "dataset_infos.json"
    ]
    if not data:
        raise UnreadableError(f"has no data: no file in it ends with {', '.join(DATA_FILE_SUFFIXES)}")
    return data


def open_regular_file(path: str) -> BinaryIO:
    """Open a regular file; a pipe or device is never waited for."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise UnreadableError("is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise UnreadableError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return os.fdopen(descriptor, "rb")


def read_rows(path: str) -> Iterator[DataRow]:
    """Yield the rows of a file; UnreadableError where there are none because of what it is."""
    reader = _ROW_READER_BY_SUFFIX.get(Path(path).suffix.lower())
    if reader is None:
        raise UnreadableError(f"is of no known kind: the name must end with {', '.join(DATA_FILE_SUFFIXES)}")
    try:
        with open_regular_file(path) as file:
            if not os.fstat(file.fileno()).st_size:
                raise UnreadableError("is empty")
            if file.read(2) in _UTF16_BYTE_ORDER_MARKS:
                raise UnreadableError("is UTF-16, not UTF-8: iconv -f UTF-16 -t UTF-8 OLD > NEW")
            file.seek(0)
            yield from reader(path, file)
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}") from None


def _bounded_byte_lines(file: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    """Yield each line with its number, None for one that is too long, which is skipped to its end."""
    number = 0
    while line := file.readline(MAX_ROW_BYTES):
        number += 1
        if len(line) < MAX_ROW_BYTES or line.endswith(b"\n"):
            yield number, line
            continue
        skipped = MAX_ROW_BYTES
        while (rest := file.readline(MAX_ROW_BYTES)) and not rest.endswith(b"\n"):
            skipped += len(rest)
            if skipped > _MAX_SKIPPED_BYTES:
                raise UnreadableError(f"has no line break in {_MAX_SKIPPED_BYTES >> 20} MiB from line {number} on")
        yield number, None


def _read_jsonl_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    for number, line in _bounded_byte_lines(file):
        if line is None:
            yield DataRow(path, number, None, f"is longer than {MAX_ROW_BYTES >> 20} MiB", file.tell())
        elif line.strip():
            yield DataRow(path, number, *_parse_object_or_why_not(line), file.tell())


def _parse_object_or_why_not(text: bytes) -> tuple[dict[str, Any] | None, str]:
    try:
        value = _JSON_DECODER.decode(text.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        return None, f"is not UTF-8 at byte {error.start + 1}"
    except RecursionError:
        return None, "is nested too deeply"
    except json.JSONDecodeError as error:
        return None, f"is not JSON at column {error.pos + 1}: {error.msg.removesuffix(' at')}"
    except ValueError as error:
        return None, f"is not JSON: {error}"[:200]
    return _object_or_why_not(value)


def _object_without_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        # Arrow, which reads it for TRL, refuses the whole file.
        raise ValueError("a name occurs twice in an object")
    return made


_JSON_DECODER = json.JSONDecoder(object_pairs_hook=_object_without_duplicate_keys)


def _object_or_why_not(value: Any) -> tuple[dict[str, Any] | None, str]:
    if isinstance(value, dict):
        return value, ""
    kinds = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}
    return None, f"is {kinds.get(type(value), 'null')}, not an object"


def _read_json_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    if file.read(_PIECE_BYTES).removeprefix(_BYTE_ORDER_MARK).lstrip()[:1] == b"[":
        file.seek(0)
        yield from _read_json_list_rows(path, file)
        return
    file.seek(0)
    size, first = os.fstat(file.fileno()).st_size, b"\n"
    while first and not first.strip():
        first = file.readline(MAX_ROW_BYTES)
    file.seek(0)
    if len(first) < MAX_ROW_BYTES and _parse_object_or_why_not(first)[0] is not None:
        # One object a line, as many write it under this name; a single object is a row, or holds the rows.
        rows = _read_jsonl_rows(path, file)
        first_row, second_row = next(rows), next(rows, None)
        if second_row is None:
            yield from _rows_of_json_value(path, first_row.value, size)
        else:
            yield first_row
            yield second_row
            yield from rows
        return
    if size > 32 * MAX_ROW_BYTES:
        raise UnreadableError("is too large for one JSON value: write an object a line, as JSONL")
    try:
        value = _JSON_DECODER.decode(file.read().decode("utf-8-sig"))
    except RecursionError:
        raise UnreadableError("is nested too deeply") from None
    except ValueError as error:
        raise _not_json_error(error) from None
    yield from _rows_of_json_value(path, value, size)


def _not_json_error(error: ValueError) -> UnreadableError:
    reason = f"not UTF-8 at byte {error.start + 1}" if isinstance(error, UnicodeDecodeError) else f"not JSON: {error}"
    return UnreadableError(f"is {reason}"[:200])


def _read_json_list_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    """Yield the elements of a JSON list, of which no more is held than the one that is read."""
    text = _JsonTextReader(file)
    text.take_character()
    number = 0
    while (mark := text.peek_character()) != "]":
        if number:
            if mark != ",":
                raise UnreadableError(f"is not JSON: no comma after row {number:,}")
            text.take_character()
        number += 1
        yield DataRow(path, number, *_object_or_why_not(text.take_value(number)), text.taken_byte_count())
    text.take_character()
    if text.peek_character():
        raise UnreadableError("is not JSON: there is more after the list")


class _JsonTextReader:
    """The text of a file, a piece at a time."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._size = file, os.fstat(file.fileno()).st_size
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode
        self._text, self._at, self._ended = "", 0, False

    def peek_character(self) -> str:
        """Return the next character that is no white space, empty at the end; it is not taken."""
        while True:
            match = _JSON_WHITESPACE_PATTERN.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text) or not self._read_more(_PIECE_BYTES):
                return self._text[self._at : self._at + 1]

    def take_character(self) -> None:
        """Take the next character."""
        self.peek_character()
        self._at += 1

    def take_value(self, number: int) -> Any:
        """Take the next value; UnreadableError where there is none, or it is longer than a row may be."""
        self.peek_character()
        while True:
            try:
                value, end = _JSON_DECODER.raw_decode(self._text, self._at)
            except RecursionError:
                raise UnreadableError(f"is nested too deeply in row {number:,}") from None
            except ValueError as error:
                why = error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else error
                # It may be cut: then there is more, twice as much each time, so that little is read again.
                if self._read_more(max(_PIECE_BYTES, len(self._text) - self._at)):
                    self._refuse_too_long_value(number)
                    continue
                raise UnreadableError(f"is not JSON in row {number:,}: {why}"[:200]) from None
            # A number at the end of a piece may go on in the next one.
            if end == len(self._text) and self._read_more(_PIECE_BYTES):
                self._refuse_too_long_value(number)
                continue
            self._at = end
            return value

    def taken_byte_count(self) -> int:
        """Return how many bytes were read, but for those of the text that is held."""
        return max(0, self._file.tell() - (len(self._text) - self._at))

    def _refuse_too_long_value(self, number: int) -> None:
        if len(self._text) - self._at > MAX_ROW_BYTES:
            raise UnreadableError(f"is not JSON, or its row {number:,} is longer than {MAX_ROW_BYTES >> 20} MiB")

    def _read_more(self, size: int) -> bool:
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        try:
            self._text = self._text[self._at :] + self._decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            # What it had kept of the piece before is in `object` as well.
            where = self._file.tell() - len(error.object) + error.start + 1
            raise UnreadableError(f"is not UTF-8 at byte {where}") from None
        self._at = 0
        return not self._ended


def _rows_of_json_value(path: str, value: Any, size: int) -> Iterator[DataRow]:
    """Yield the rows of one JSON value: a list of objects, an object with one list of objects, or a single row."""
    wrapped = False
    if isinstance(value, dict):
        lists = [inner for inner in value.values() if isinstance(inner, list) and inner and isinstance(inner[0], dict)]
        turns = len(lists) == 1 and {"role", "from"} & lists[0][0].keys()
        wrapped = len(lists) == 1 and not turns
        value = lists[0] if wrapped else [value]
    if not isinstance(value, list):
        raise UnreadableError("holds neither rows nor a list of rows")
    for number, row in enumerate(value, start=1):
        yield DataRow(path, number, *_object_or_why_not(row), size * number // len(value), wrapped)


def _read_csv_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    csv.field_size_limit(MAX_ROW_BYTES)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(_bounded_text_lines(text), strict=True)
    try:
        head = next(reader, [])
        for cells in reader:
            if not cells:
                continue
            value, why = _row_of_cells(head, cells)
            yield DataRow(path, reader.line_num, value, why, file.tell())
    except csv.Error as error:
        yield DataRow(path, reader.line_num, None, f"is not CSV: {error}"[:200], file.tell())


def _bounded_text_lines(text: io.TextIOWrapper) -> Iterator[str]:
    """Yield the lines of a text; csv.Error for one that is too long."""
    while line := text.readline(MAX_ROW_BYTES):
        if len(line) == MAX_ROW_BYTES and not line.endswith("\n"):
            raise csv.Error(f"a line is longer than {MAX_ROW_BYTES >> 20} MiB")
        yield line


def _row_of_cells(column_names: list[str], cells: list[str]) -> tuple[dict[str, Any] | None, str]:
    if len(cells) != len(column_names):
        return None, f"has {len(cells)} columns, and the first line has {len(column_names)}"
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return None, "is not UTF-8"
    value: dict[str, Any] = dict(zip(column_names, cells, strict=True))
    # As pandas, which reads it for TRL, takes them.
    truth = {"true": True, "false": False}
    if "label" in value:
        value["label"] = truth.get(value["label"].lower(), value["label"])
    return value, ""


def _read_parquet_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    # Arrow's own keeps what was freed, many times what a batch needs.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise UnreadableError("is Parquet, and this Python has no pyarrow: pip install pyarrow") from None
    try:
        table = parquet.ParquetFile(file)
        size, total, number = os.fstat(file.fileno()).st_size, table.metadata.num_rows, 0
        for batch in table.iter_batches(_PARQUET_BATCH_ROWS):
            for value in batch.to_pylist():
                number += 1
                yield DataRow(path, number, value, "", size * number // max(total, 1))
    except MemoryError:
        # An ArrowException as well.
        raise
    except (ArrowException, ValueError, OSError) as error:
        raise UnreadableError(f"is not Parquet: {error}"[:200]) from None


def _read_text_rows(path: str, file: BinaryIO) -> Iterator[DataRow]:
    for number, line in _bounded_byte_lines(file):
        if line is None:
            yield DataRow(path, number, None, f"is longer than {MAX_ROW_BYTES >> 20} MiB", file.tell())
            continue
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            yield DataRow(path, number, None, f"is not UTF-8 at byte {error.start + 1}", file.tell())
            continue
        yield DataRow(path, number, {"text": text}, "", file.tell())


_ROW_READER_BY_SUFFIX = {
    ".jsonl": _read_jsonl_rows,
    ".ndjson": _read_jsonl_rows,
    ".json": _read_json_rows,
    ".csv": _read_csv_rows,
    ".parquet": _read_parquet_rows,
    ".txt": _read_text_rows,
}
