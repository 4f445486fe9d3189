"""Counts rows as they are read: formats, problems and duplicates; keeps a fair sample of the usable ones."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from typing import Any, NamedTuple

import data_convert as convert
import data_formats as formats
import data_images as images
from data_rows import DataRow

# Of each kind of problem, so many rows are named.
MAX_PROBLEMS_NAMED = 20
FIRST_ROWS_KEPT = 4
# Rows of prompts with all their columns, for rewards to be tried on.
WHOLE_PROMPT_ROWS_KEPT = 3
_MAX_SAMPLE_ROWS = 10_000
_MAX_SAMPLE_BYTES = 256 * 2**20
# Of so many different rows it is known where they were; each takes 250 bytes.
_MAX_ROW_DIGESTS = 2_000_000
# Equal rows give equal texts.
_SORTED_JSON_ENCODER = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str)


class JudgedRow(NamedTuple):
    """A row with its images: its format, whether it is a chat, and `why` it cannot be learned from (empty: it can).

    `text` is its JSON, which one that is broken does not have.
    """

    row: DataRow
    why: str
    value: dict[str, Any]
    format_name: str = ""
    chat: bool = False
    text: bytes = b""


def judge_row(row: DataRow, *, only_prompts: bool) -> JudgedRow:
    """Return what a row is, and whether it can be learned from; `only_prompts` as in format_name_of_row."""
    row = images.row_with_images_as_texts(row)
    if row.value is None:
        return JudgedRow(row, row.why, {})
    try:
        text = _SORTED_JSON_ENCODER.encode(row.value).encode()
    except UnicodeEncodeError:
        return JudgedRow(row, "holds half of a character (a lone surrogate)", {})
    except (RecursionError, TypeError):
        return JudgedRow(row, "is nested too deeply, or has names that are not text", {})
    name = formats.format_name_of_row(row.value, only_prompts=only_prompts)
    why = formats.row_problem(row.value, name) or images.image_problem(row.value, name)
    return JudgedRow(row, why, row.value, name, bool(name) and formats.has_messages(row.value, name), text)


class KeptRow(NamedTuple):
    """A row as TRL takes it, with where it lies, and about how many bytes it takes."""

    file: str
    line: int
    value: dict[str, Any]
    size: int = 0


class ProblemTally:
    """Problems of the data by kind: how often, and where the first are."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.named: list[dict[str, Any]] = []

    def add(self, problem_kind: str, file: str, line: int, why: str, times: int = 1) -> None:
        """Count a problem, and name it where it is among the first of its kind."""
        self.counts[problem_kind] += times
        if self.counts[problem_kind] - times < MAX_PROBLEMS_NAMED:
            self.named.append({"kind": problem_kind, "file": truncated_path(file), "line": line, "why": why})


class FormatTally:
    """The rows of one format: how many are usable, the first of them, a fair sample, and what TRL cannot take.

    `whole` are the first prompts with the columns that only rewards get.
    """

    def __init__(self) -> None:
        self.rows = self.usable = 0
        self.seen: list[DataRow] = []
        self.first: list[KeptRow] = []
        self.sample: list[KeptRow] = []
        self.whole: list[dict[str, Any]] = []
        self.conversions: Counter[str] = Counter()
        self.columns: set[str] = set()
        self.desirable = 0
        self.image_rows = self.image_count = 0
        self.files: Counter[str] = Counter()
        self._random = random.Random(0)  # noqa: S311 - a sample, the same each time
        self._most, self._bytes = _MAX_SAMPLE_ROWS, 0

    def count_images(self, value: dict[str, Any]) -> None:
        """Count the images of a usable row."""
        count = len(value.get("images") or ())
        self.image_rows, self.image_count = self.image_rows + bool(count), self.image_count + count

    def count_and_sample(self, row: KeptRow) -> None:
        """Count a usable row, and keep it as any other with the same chance."""
        self.usable += 1
        self.files[row.file] += 1
        if len(self.first) < FIRST_ROWS_KEPT:
            self.first.append(row)
        if len(self.sample) < self._most:
            self.sample.append(row)
            self._bytes += row.size
        elif (at := self._random.randrange(self.usable)) < self._most:
            self._bytes += row.size - self.sample[at].size
            self.sample[at] = row
        while self._bytes > _MAX_SAMPLE_BYTES and len(self.sample) > 1:
            self._random.shuffle(self.sample)
            self._most = len(self.sample) // 2
            del self.sample[self._most :]
            self._bytes = sum(kept.size for kept in self.sample)


class RowTally:
    """All that is known of the rows that were read."""

    def __init__(self, *, only_prompts: bool = False) -> None:
        self.rows = 0
        # In any row, one that is damaged as well.
        self.names_images = False
        self._only_prompts = only_prompts
        self.problems = ProblemTally()
        self.formats: dict[tuple[str, bool], FormatTally] = {}
        self._digests: dict[bytes, tuple[str, int]] = {}

    def add(self, row: DataRow) -> None:
        """Count a row."""
        self.rows += 1
        row, why, value, name, chat, text = judge_row(row, only_prompts=self._only_prompts)
        if not text:
            self.problems.add("broken", row.file, row.line, why)
            return
        tally = self.formats.get((name, chat))
        if tally is None:
            tally = self.formats[name, chat] = FormatTally()
        tally.rows += 1
        self.names_images |= bool(value.get("images"))
        tally.columns.update(str(column)[:60] for column in value if len(tally.columns) < 40)
        if len(tally.seen) < MAX_PROBLEMS_NAMED:
            tally.seen.append(row)
        if why:
            if name:
                empty = why.endswith("is empty") or why.startswith("no ")
                self.problems.add("empty" if empty else "wrong", row.file, row.line, why)
            return
        self._count_if_duplicate(row, text)
        tally.desirable += value.get("label") is True
        value, changed = convert.row_for_trl(value, name)
        if changed:
            tally.conversions[changed] += 1
        if row.wrapped:
            tally.conversions["the rows lie in a list inside an object"] += 1
        tally.count_images(value)
        if name == "prompt" and len(tally.whole) < WHOLE_PROMPT_ROWS_KEPT:
            tally.whole.append(value)
        read = convert.part_that_model_reads(value, name)
        tally.count_and_sample(KeptRow(row.file, row.line, read, len(text)))

    def _count_if_duplicate(self, row: DataRow, text: bytes) -> None:
        if len(self._digests) >= _MAX_ROW_DIGESTS:
            return
        digest = hashlib.blake2b(text, digest_size=12).digest()
        file, line = self._digests.setdefault(digest, (row.file, row.line))
        if (file, line) != (row.file, row.line):
            where = f"line {line}" if file == row.file else f"{truncated_path(file)}, line {line}"
            self.problems.add("duplicate", row.file, row.line, f"same as {where}")

    def main_format(self) -> tuple[str, bool]:
        """Return the format of most rows, of which the others become a problem."""
        known = {key: tally.rows for key, tally in self.formats.items() if key[0]}
        return max(known, key=lambda key: known[key]) if known else ("", False)

    def add_other_formats_as_problems(self, main: tuple[str, bool]) -> None:
        """Note the rows of other formats than the main one, and of none, as problems."""
        for (name, chat), tally in self.formats.items():
            if (name, chat) == main and name:
                continue
            for number, row in enumerate(tally.seen):
                columns = formats.first_columns_text(row.value or {})
                why = "has messages where others have text" if chat else "has text where others have messages"
                if name != main[0]:
                    why = f"other columns: {columns}"
                if not name:
                    why = f"unknown columns: {columns}"
                # The last one stands for those that are not named.
                times = tally.rows - number if number == len(tally.seen) - 1 else 1
                self.problems.add("other", row.file, row.line, why, times)


def truncated_path(path: str) -> str:
    """Return a path, or the end of one that is too long to print."""
    return path if len(path) <= 300 else "…" + path[-300:]
