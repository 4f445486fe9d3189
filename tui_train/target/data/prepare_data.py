"""Writes the data of a run as TRL takes it, once: `python prepare_data.py --into FOLDER FILE …`.

FOLDER gets train.jsonl, and test.jsonl where there are rows for evaluations: those of the files of --validation, or a
share of the others. What cannot be learned from is left out, and said; so is what the chat template of --model refuses.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import data_convert as convert
import data_formats as formats
import data_rows as rows
import data_template as template
from data_tally import Format, Tally

_NAMED = 5
_BAD_DATA = 65
_CANNOT_WRITE = 73
TRAIN, TEST = "train.jsonl", "test.jsonl"


class DataError(Exception):
    """Data on which nothing can be trained, in a sentence."""


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
        for number, (_, row) in enumerate(_usable(self.files, self.format)):
            if number not in self.refused:
                yield row


class ChatTemplate:
    """The chat template of a model, by which rows are tried; of a model that cannot be loaded all are taken."""

    def __init__(self, model: str, *, answers_only: bool) -> None:
        self.model, self.answers_only = model, answers_only
        self._tokenizer: Any = None
        self._only: template.Answers | None = None

    def refused(self, chosen: Chosen) -> frozenset[int]:
        """Return the numbers of the rows that the template refuses, which become problems of the tally."""
        if not self.model or not chosen.format[1] or not self._loaded(chosen.format[0]):
            return frozenset()
        numbers = set()
        for number, (found, row) in enumerate(_usable(chosen.files, chosen.format)):
            if why := template.refusal(self._tokenizer, row, only=self._only):
                numbers.add(number)
                chosen.tally.problems.add("refused", found.file, found.line, f"is refused by the template: {why}")
        return frozenset(numbers)

    def _loaded(self, format_name: str) -> bool:
        if self._tokenizer is not None:
            return True
        try:
            self._tokenizer = template.load(self.model)
        except Exception as error:  # noqa: BLE001 - whatever keeps it from loading, TRL says it too
            say(f"rows are not tried with the chat template: {template.first_line(error)}")
            return False
        if not self._tokenizer.chat_template:
            raise DataError("the model has no chat template, and the data is made of messages")
        if self.answers_only:
            self._only = template.answers(self._tokenizer, format_name, chat=True)
        return True


def say(words: str) -> None:
    """Print a line about the data, at once."""
    print(f"data: {words}", flush=True)


def main() -> int:
    """Write the data, or leave what is there, and return the exit code."""
    # What is half made is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    asked = _arguments()
    into = Path(asked.into)
    if into.is_dir():
        say(f"{into} stays as it was made" + _changed(into, [*asked.files, *asked.validation]))
        return 0
    beside = into.with_name(f"{into.name}.new.{os.uname().nodename}.{os.getpid()}")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        prepare(asked, beside)
        _in_place(beside, into)
    except DataError as error:
        say(f"error: {error}")
        return _BAD_DATA
    except OSError as error:
        say(f"error: {into} cannot be written: {error.strerror or error}")
        return _CANNOT_WRITE
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--into", required=True, metavar="FOLDER")
    parser.add_argument("--validation", action="append", default=[], metavar="FILE")
    parser.add_argument("--share", type=float, default=0.0, help="share of the rows for evaluations")
    parser.add_argument("--seed", type=int, default=0, help="which rows these are")
    parser.add_argument("--model", default="", help="whose chat template refuses rows")
    parser.add_argument("--answers-only", action="store_true", help="by the template that marks answers")
    parser.add_argument("files", nargs="+", metavar="FILE")
    return parser.parse_args()


def prepare(asked: argparse.Namespace, folder: Path) -> None:
    """Write both files and the record of what they were made of into a folder."""
    chat_template = ChatTemplate(asked.model, answers_only=asked.answers_only)
    chosen = _chosen(asked.files, chat_template)
    usable = chosen.usable()
    shares = random.Random(asked.seed)  # noqa: S311 - which rows, the same each time
    wanted = 0 if asked.validation else _share(usable, asked.share)
    if asked.share > 0 and not (asked.validation or wanted):
        raise DataError("a single row cannot be shared between training and evaluation: name validation data")
    held_out = set(shares.sample(range(usable), wanted))
    with (folder / TRAIN).open("w", encoding="utf-8") as train, _maybe(folder / TEST, wanted) as test:
        for number, row in enumerate(chosen.rows()):
            (test if number in held_out else train).write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    _told(chosen)
    evaluated = wanted
    if asked.validation:
        evaluated = _validation(asked.validation, chosen.format, chat_template, folder / TEST)
    say(f"{usable - wanted:,} rows to train on" + (f", {evaluated:,} for evaluations" if evaluated else ""))
    record = {path: _stamp(path) for path in (*asked.files, *asked.validation)}
    (folder / ".made").write_text(json.dumps(record), encoding="utf-8")


def _maybe(path: Path, wanted: int) -> Any:
    return (path if wanted else Path(os.devnull)).open("w", encoding="utf-8")


def _share(usable: int, share: float) -> int:
    """Return how many rows a share is: at least one where one is asked for, and one stays to train on."""
    return min(max(1, round(usable * share)), usable - 1) if share > 0 else 0


def _validation(files: list[str], wanted: tuple[str, bool], chat_template: ChatTemplate, path: Path) -> int:
    """Write the rows for evaluations and return their number; DataError where they are of another format."""
    chosen = _chosen(files, chat_template, wanted)
    with path.open("w", encoding="utf-8") as test:
        for row in chosen.rows():
            test.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    _told(chosen)
    return chosen.usable()


def _chosen(files: list[str], chat_template: ChatTemplate, wanted: tuple[str, bool] | None = None) -> Chosen:
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
        _named(tally)
        raise DataError(f"no row of {', '.join(files)} can be learned from")
    if wanted and main_format != wanted:
        raise DataError(f"the validation data is {main_format[0]}, and the training data {wanted[0]}")
    chosen = Chosen(files, main_format, tally, frozenset())
    chosen = chosen._replace(refused=chat_template.refused(chosen))
    if not chosen.usable():
        _named(tally)
        raise DataError(f"the chat template of the model refuses all rows of {', '.join(files)}")
    return chosen


def _paths(files: list[str]) -> list[str]:
    paths: list[str] = []
    for path in files:
        try:
            paths += rows.files(path)
        except rows.UnreadableError as error:
            raise DataError(f"{path} {error}") from None
    return paths


def _usable(files: list[str], main_format: tuple[str, bool]) -> Iterator[tuple[rows.Row, dict[str, Any]]]:
    """Yield the usable rows of the main format, each also as TRL takes it."""
    name, chat = main_format
    for path in _paths(files):
        for found in rows.read(path):
            value = found.value
            if value is None or formats.name(value) != name or formats.chat(value, name) != chat:
                continue
            if not formats.wrong(value, name) and _writable(value):
                row = convert.as_trl(value, name)[0]
                yield found, convert.with_prompt(row) if name == "preference" else row


def _writable(value: dict[str, Any]) -> bool:
    """Tell whether a row is text that UTF-8 and JSON can hold, as the count of rows took it."""
    try:
        json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode()
    except (UnicodeEncodeError, RecursionError, TypeError):
        return False
    return True


def _told(chosen: Chosen) -> None:
    """Say what was changed in rows, and which were left out."""
    tally = chosen.tally
    for why, many in tally.formats[chosen.format].conversions.most_common():
        say(f"{many:,} rows: {why}")
    left_out = tally.rows - chosen.usable()
    if left_out:
        _named(tally)
        say(f"{left_out:,} of {tally.rows:,} rows are left out" + _by_template(len(chosen.refused)))


def _by_template(refused: int) -> str:
    return f", {refused:,} of them because the chat template refuses them" if refused else ""


def _named(tally: Tally) -> None:
    wrong = [problem for problem in tally.problems.named if problem["kind"] != "duplicate"]
    for problem in wrong[:_NAMED]:
        say(f"{problem['file']}, line {problem['line']}: {problem['why']}")


def _stamp(path: str) -> list[float]:
    """Return by what a file is known to be the same: newest change and size, of a folder those of its files."""
    states = [Path(file).stat() for file in rows.files(path)]
    return [max(state.st_mtime for state in states), sum(state.st_size for state in states)]


def _changed(into: Path, files: list[str]) -> str:
    """Return in words that data has changed since the folder was made, empty where it has not."""
    try:
        made = json.loads((into / ".made").read_text("utf-8"))
        changed = [path for path in files if made.get(path) != _stamp(path)]
    except (OSError, ValueError, AttributeError, rows.UnreadableError):
        return ""
    return f", though {', '.join(changed)} has changed since" if changed else ""


def _in_place(beside: Path, into: Path) -> None:
    try:
        beside.rename(into)
    except OSError:
        # Another machine with the same folder was quicker.
        if not into.is_dir():
            raise


if __name__ == "__main__":
    sys.exit(main())
