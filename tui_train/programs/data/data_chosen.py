"""Chooses the rows of data that a training takes: of one format, and not refused by the model's chat template."""

from __future__ import annotations

import contextlib
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import data_convert as convert
import data_images as images
import data_lengths as lengths
import data_rows as rows
import data_template as template
import data_turns as turns
from data_bounds import BoundError
from data_image_tokens import ImageTokenExpander, TextOnlyError
from data_rows import DataRow
from data_tally import FormatTally, RowTally, judge_row

_MAX_PROBLEMS_PRINTED = 5
_MAX_ROWS_TOKENIZED = 10_000


class DataError(Exception):
    """Data on which nothing can be trained, in a sentence."""


def print_data_line(words: str) -> None:
    """Print a line about the data, at once."""
    print(f"data: {words}", flush=True)


class ChosenRows(NamedTuple):
    """The rows to write: those of one format, without the `refused` of them, counted from 0."""

    files: list[str]
    format: tuple[str, bool]
    tally: RowTally
    refused: frozenset[int]

    def usable_count(self) -> int:
        """Return how many rows there are."""
        return self.tally.formats[self.format].usable - len(self.refused)

    @property
    def has_images(self) -> bool:
        """Whether some rows have images, so that all of them are written for a model that sees."""
        return self.tally.formats[self.format].image_rows > 0

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as TRL takes them."""
        for number, (_, row) in enumerate(self.all_source_and_trl_rows()):
            if number not in self.refused:
                yield row

    def all_source_and_trl_rows(self) -> Iterator[tuple[DataRow, dict[str, Any]]]:
        """Yield all rows of the format, also as TRL takes them, those that are refused too."""
        return source_and_trl_rows(self.files, self.format, has_images=self.has_images)

    def repeated_rows(self, times: array[int], counts: list[int]) -> Iterator[dict[str, Any]]:
        """Yield each row as often as `times` has it, all of them once before any is repeated; `counts` as there."""
        for passed in range(max(times, default=0)):
            start = 0
            for path, count in zip(self.files, counts, strict=True):
                if any(times[number] > passed for number in range(start, start + count)):
                    for number, (_, row) in enumerate(
                        source_and_trl_rows([path], self.format, has_images=self.has_images), start=start
                    ):
                        if times[number] > passed:
                            yield row
                start += count


class ChatTemplate:
    """The chat template of a model, by which rows are tried; of a model that cannot be loaded all are taken."""

    def __init__(
        self, model: str, revision: str, own_template: str, *, answers_only: bool | None, max_pixels: int = 0
    ) -> None:
        """Set the model, and its user's `own_template`, empty for the model's.

        `answers_only` None: where the template marks answers.
        """
        self.model, self.revision, self.own_template, self.answers_only = model, revision, own_template, answers_only
        self._max_pixels = max_pixels
        self._encoder: template.RowEncoder | None = None

    def refused_row_numbers(self, chosen: ChosenRows) -> frozenset[int]:
        """Return the numbers of the rows that the template refuses, which become problems of the tally."""
        if not self.model or not (chosen.format[1] or chosen.has_images):
            return frozenset()
        self._encoder = self._encoder or self._load_encoder(chosen)
        if self._encoder is None:
            return frozenset()
        numbers = set()
        for number, (found, row) in enumerate(chosen.all_source_and_trl_rows()):
            try:
                why = _refusal(self._encoder, convert.part_that_model_reads(row, chosen.format[0]))
            except BoundError as error:
                where = f"{found.file}, line {found.line}"
                raise DataError(f"the model's chat template fails: {error} for {where}") from None
            if why:
                numbers.add(number)
                chosen.tally.problems.add("refused", found.file, found.line, f"the template refuses it: {why}")
        return frozenset(numbers)

    def row_token_lengths(self, chosen: ChosenRows) -> list[lengths.RowTokenLengths]:
        """Return the lengths of the rows in tokens, of many those at equal distances; none without a tokenizer."""
        encoder = self._encoder
        if encoder is None and not chosen.format[1]:
            with contextlib.suppress(Exception):
                encoder = template.RowEncoder(template.load_tokenizer(self.model, self.revision, self.own_template))
        if encoder is None:
            return []
        every = -(-chosen.usable_count() // _MAX_ROWS_TOKENIZED)
        counted = []
        for number, row in enumerate(chosen.rows()):
            # Of images that are cut off a training ends: there each row is counted.
            if number % every == 0 or encoder.image_tokens is not None:
                with contextlib.suppress(Exception):
                    counted.append(lengths.row_token_lengths(encoder.encode(row)))
        return counted

    def without_long_rows(self, chosen: ChosenRows, length: int) -> ChosenRows:
        """Return the rows whose tokens fit, as TRL ends at images that are cut off; the others become problems."""
        if self._encoder is None or self._encoder.image_tokens is None:
            return chosen
        numbers = set(chosen.refused)
        for number, (found, row) in enumerate(chosen.all_source_and_trl_rows()):
            if number in numbers:
                continue
            tokens = lengths.row_token_lengths(self._encoder.encode(row)).length
            if tokens > length:
                numbers.add(number)
                why = f"has {tokens:,} tokens with its images, more than {length:,} (recipe.sequence_length)"
                chosen.tally.problems.add("refused", found.file, found.line, why)
        return chosen._replace(refused=frozenset(numbers))

    @property
    def learns_answers_only(self) -> bool:
        """Whether answers alone are learned, by their marks, after the rows were tried."""
        return self._encoder is not None and self._encoder.marking is not None

    def turn_end_tokens(self) -> turns.TurnEndTokens:
        """Return how turns end, after the rows were tried."""
        if self._encoder is None:
            return turns.TurnEndTokens()
        return turns.find_turn_end_tokens(self._encoder.tokenizer, self.model, self.revision)

    def _load_encoder(self, chosen: ChosenRows) -> template.RowEncoder | None:
        format_name = chosen.format[0]
        try:
            tokenizer = template.load_tokenizer(self.model, self.revision, self.own_template)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from loading, TRL says it too
            print_data_line(f"the chat template is not checked: {template.why_not_loaded(error)}")
            return None
        if not tokenizer.chat_template:
            raise DataError("the data is chats, and the model has no chat template: choose one that has, or name one")
        marking = None
        if self.answers_only is not False:
            answers = template.find_answer_marking(tokenizer, format_name, chat=True, has_images=chosen.has_images)
            marking = template.marking_of_learned_answers(answers, format_name, answers_only=self.answers_only)
        return template.RowEncoder(tokenizer, marking, self._load_image_tokens() if chosen.has_images else None)

    def _load_image_tokens(self) -> ImageTokenExpander:
        try:
            return ImageTokenExpander(self.model, self.revision, self._max_pixels)
        except TextOnlyError:
            raise DataError("the data has images, and the model reads text only: choose one that sees") from None
        except Exception as error:  # noqa: BLE001 - of many kinds, and none of them lets it be trained
            what = "the model's processor cannot be loaded"
            if not isinstance(error, ImportError):
                what = "the images cannot be counted by the model's processor"
            raise DataError(f"{what}: {template.why_not_loaded(error)}") from None


def _refusal(encoder: template.RowEncoder, row: dict[str, Any]) -> str:
    """Return why the template, or the processor of its images, refuses a row; empty where they take it."""
    why = template.template_refusal(encoder.tokenizer, row, marking=encoder.marking)
    if not why and encoder.image_tokens is not None:
        try:
            encoder.encode(row)
        except Exception as error:  # noqa: BLE001 - each processor has errors of its own
            return template.first_line_of_error(error)
    return why


def choose_rows(
    files: list[str],
    chat_template: ChatTemplate,
    wanted_format: tuple[str, bool] | None = None,
    *,
    only_prompts: bool = False,
) -> ChosenRows:
    """Return the usable rows of the format that most have; DataError for none, or not the `wanted_format`."""
    tally = RowTally(only_prompts=only_prompts)
    for path in _data_file_paths(files):
        try:
            for row in rows.read_rows(path):
                tally.add(row)
        except rows.UnreadableError as error:
            raise DataError(f"{path} {error}") from None
    main_format = tally.main_format()
    tally.add_other_formats_as_problems(main_format)
    if not tally.formats.get(main_format, FormatTally()).usable:
        print_row_problems(tally)
        raise DataError(f"no row of {', '.join(files)} can be used")
    if main_format[0] == "prompt" and not only_prompts:
        raise DataError("the data has prompts without answers, from which only GRPO and RLOO learn (finetune.method)")
    if wanted_format and main_format != wanted_format:
        raise DataError(
            f"the validation data is {main_format[0]}, the training data {wanted_format[0]}: use one format"
        )
    chosen = ChosenRows(files, main_format, tally, frozenset())
    chosen = chosen._replace(refused=chat_template.refused_row_numbers(chosen))
    if not chosen.usable_count():
        print_row_problems(tally)
        raise DataError(f"the model's chat template refuses all rows of {', '.join(files)}")
    return chosen


def print_row_problems(tally: RowTally) -> None:
    """Say where the first rows are that are left out, and why."""
    wrong = [problem for problem in tally.problems.named if problem["kind"] != "duplicate"]
    for problem in wrong[:_MAX_PROBLEMS_PRINTED]:
        print_data_line(f"{problem['file']}, line {problem['line']}: {problem['why']}")


def _data_file_paths(files: list[str]) -> list[str]:
    paths: list[str] = []
    for path in files:
        try:
            paths += rows.data_files_at(path)
        except rows.UnreadableError as error:
            raise DataError(f"{path} {error}") from None
    return paths


def source_and_trl_rows(
    files: list[str], main_format: tuple[str, bool], *, has_images: bool = False
) -> Iterator[tuple[rows.DataRow, dict[str, Any]]]:
    """Yield the usable rows of the main format, each also as TRL takes it."""
    name, _ = main_format
    for path in _data_file_paths(files):
        for read in rows.read_rows(path):
            judged = judge_row(read, only_prompts=name == "prompt")
            if judged.why or (judged.format_name, judged.chat) != main_format:
                continue
            row = convert.row_for_trl(judged.value, name).row
            row = images.row_with_image_places(row) if has_images else row
            yield judged.row, convert.pair_with_prompt(row) if name == "preference" else row
