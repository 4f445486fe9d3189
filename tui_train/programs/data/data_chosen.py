"""Chooses the rows of data that a training takes: of one format, and not refused by the model's chat template."""

from __future__ import annotations

import contextlib
import json
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import data_convert as convert
import data_formats as formats
import data_lengths as lengths
import data_rows as rows
import data_template as template
import data_turns as turns
from data_bounds import BoundError
from data_tally import Format, Tally

_MAX_PRINTED = 5
_MAX_COUNTED = 10_000


class DataError(Exception):
    """Data on which nothing can be trained, in a sentence."""


def say(words: str) -> None:
    """Print a line about the data, at once."""
    print(f"data: {words}", flush=True)


class Chosen(NamedTuple):
    """The rows to write: those of one format, without the `refused` of them, counted from 0."""

    files: list[str]
    format: tuple[str, bool]
    tally: Tally
    refused: frozenset[int]

    def usable(self) -> int:
        """Return how many rows there are."""
        return self.tally.formats[self.format].usable - len(self.refused)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as TRL takes them."""
        for number, (_, row) in enumerate(usable_rows(self.files, self.format)):
            if number not in self.refused:
                yield row

    def written(self, times: array[int], counts: list[int]) -> Iterator[dict[str, Any]]:
        """Yield each row as often as `times` has it, all of them once before any is repeated; `counts` as there."""
        for passed in range(max(times, default=0)):
            start = 0
            for path, count in zip(self.files, counts, strict=True):
                if any(times[number] > passed for number in range(start, start + count)):
                    for number, (_, row) in enumerate(usable_rows([path], self.format), start=start):
                        if times[number] > passed:
                            yield row
                start += count


class ChatTemplate:
    """The chat template of a model, by which rows are tried; of a model that cannot be loaded all are taken."""

    def __init__(self, model: str, revision: str, own: str, *, answers_only: bool | None) -> None:
        """Set the model, and its user's `own` template, empty for the model's.

        `answers_only` None: where the template marks answers.
        """
        self.model, self.revision, self.own, self.answers_only = model, revision, own, answers_only
        self._tokenizer: Any = None
        self._only: template.Answers | None = None

    def refused(self, chosen: Chosen) -> frozenset[int]:
        """Return the numbers of the rows that the template refuses, which become problems of the tally."""
        if not self.model or not chosen.format[1] or not self._loaded(chosen.format[0]):
            return frozenset()
        numbers = set()
        for number, (found, row) in enumerate(usable_rows(chosen.files, chosen.format)):
            try:
                why = template.refusal(self._tokenizer, row, only=self._only)
            except BoundError as error:
                where = f"{found.file}, line {found.line}"
                raise DataError(f"the model's chat template fails: {error} for {where}") from None
            if why:
                numbers.add(number)
                chosen.tally.problems.add("refused", found.file, found.line, f"the template refuses it: {why}")
        return frozenset(numbers)

    def lengths(self, chosen: Chosen) -> list[lengths.Row]:
        """Return the lengths of the rows in tokens, of many those at equal distances; none without a tokenizer."""
        if self._tokenizer is None:
            if chosen.format[1]:
                return []
            with contextlib.suppress(Exception):
                self._tokenizer = template.load(self.model, self.revision, self.own)
        every = -(-chosen.usable() // _MAX_COUNTED)
        counted = []
        for number, row in enumerate(chosen.rows() if self._tokenizer is not None else ()):
            if number % every == 0:
                with contextlib.suppress(Exception):
                    counted.append(lengths.row(template.encode(self._tokenizer, row, only=self._only)))
        return counted

    def finds(self, format_name: str) -> bool:
        """Return whether the template marks answers, after the rows were tried."""
        return self._only is not None and template.marked(self._only, format_name)

    def ends(self) -> turns.Ends:
        """Return how turns end, after the rows were tried."""
        return turns.ends(self._tokenizer, self.model, self.revision) if self._tokenizer is not None else turns.Ends()

    def _loaded(self, format_name: str) -> bool:
        if self._tokenizer is not None:
            return True
        try:
            self._tokenizer = template.load(self.model, self.revision, self.own)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from loading, TRL says it too
            say(f"the chat template is not checked: {template.first_line(error)}")
            return False
        if not self._tokenizer.chat_template:
            raise DataError("the data is chats, and the model has no chat template: choose one that has, or name one")
        if self.answers_only is not False:
            answers = template.answers(self._tokenizer, format_name, chat=True)
            self._only = answers if self.answers_only or template.marked(answers, format_name) else None
        return True


def choose(files: list[str], chat_template: ChatTemplate, wanted: tuple[str, bool] | None = None) -> Chosen:
    """Return the usable rows of the format that most have; DataError where there is none, or it is not the `wanted`."""
    tally = Tally()
    try:
        for path in _paths(files):
            for row in rows.read(path):
                tally.add(row)
    except rows.UnreadableError as error:
        raise DataError(f"{path} {error}") from None
    main_format = tally.main()
    tally.note_others(main_format)
    if not tally.formats.get(main_format, Format()).usable:
        name_problems(tally)
        raise DataError(f"no row of {', '.join(files)} can be used")
    if wanted and main_format != wanted:
        raise DataError(f"the validation data is {main_format[0]}, the training data {wanted[0]}: use one format")
    chosen = Chosen(files, main_format, tally, frozenset())
    chosen = chosen._replace(refused=chat_template.refused(chosen))
    if not chosen.usable():
        name_problems(tally)
        raise DataError(f"the model's chat template refuses all rows of {', '.join(files)}")
    return chosen


def name_problems(tally: Tally) -> None:
    """Say where the first rows are that are left out, and why."""
    wrong = [problem for problem in tally.problems.named if problem["kind"] != "duplicate"]
    for problem in wrong[:_MAX_PRINTED]:
        say(f"{problem['file']}, line {problem['line']}: {problem['why']}")


def _paths(files: list[str]) -> list[str]:
    paths: list[str] = []
    for path in files:
        try:
            paths += rows.files(path)
        except rows.UnreadableError as error:
            raise DataError(f"{path} {error}") from None
    return paths


def usable_rows(files: list[str], main_format: tuple[str, bool]) -> Iterator[tuple[rows.Row, dict[str, Any]]]:
    """Yield the usable rows of the main format, each also as TRL takes it."""
    name, chat = main_format
    for path in _paths(files):
        for source_row in rows.read(path):
            value = source_row.value
            if value is None or formats.name(value) != name or formats.chat(value, name) != chat:
                continue
            if not formats.wrong(value, name) and _writable(value):
                row = convert.as_trl(value, name)[0]
                yield source_row, convert.with_prompt(row) if name == "preference" else row


def _writable(value: dict[str, Any]) -> bool:
    """Tell whether a row is text that UTF-8 and JSON can hold, as the count of rows took it."""
    try:
        json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode()
    except (UnicodeEncodeError, RecursionError, TypeError):
        return False
    return True
