"""Writes the data of a run as TRL takes it, once: `python prepare_data.py --into FOLDER FILE …`.

FOLDER gets train.jsonl, and test.jsonl where there are rows for evaluations: those of the files of --validation, or a
share of the others. What cannot be learned from is left out, and said.
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
from typing import Any

import data_convert as convert
import data_formats as formats
import data_rows as rows
from data_tally import Format, Tally

_NAMED = 5
_BAD_DATA = 65
_CANNOT_WRITE = 73
TRAIN, TEST = "train.jsonl", "test.jsonl"


class DataError(Exception):
    """Data on which nothing can be trained, in a sentence."""


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
    parser.add_argument("files", nargs="+", metavar="FILE")
    return parser.parse_args()


def prepare(asked: argparse.Namespace, folder: Path) -> None:
    """Write both files and the record of what they were made of into a folder."""
    main_format, tally = _looked_at(asked.files)
    shares = random.Random(asked.seed)  # noqa: S311 - which rows, the same each time
    chosen = tally.formats[main_format]
    wanted = 0 if asked.validation else _share(chosen.usable, asked.share)
    if asked.share > 0 and not (asked.validation or wanted):
        raise DataError("a single row cannot be shared between training and evaluation: name validation data")
    held_out = set(shares.sample(range(chosen.usable), wanted))
    with (folder / TRAIN).open("w", encoding="utf-8") as train, _maybe(folder / TEST, wanted) as test:
        for number, row in enumerate(_usable(asked.files, main_format)):
            (test if number in held_out else train).write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    _told(tally, main_format)
    evaluated = wanted
    if asked.validation:
        evaluated = _validation(asked.validation, main_format, folder / TEST)
    say(f"{chosen.usable - wanted:,} rows to train on" + (f", {evaluated:,} for evaluations" if evaluated else ""))
    record = {path: _stamp(path) for path in (*asked.files, *asked.validation)}
    (folder / ".made").write_text(json.dumps(record), encoding="utf-8")


def _maybe(path: Path, wanted: int) -> Any:
    return (path if wanted else Path(os.devnull)).open("w", encoding="utf-8")


def _share(usable: int, share: float) -> int:
    """Return how many rows a share is: at least one where one is asked for, and one stays to train on."""
    return min(max(1, round(usable * share)), usable - 1) if share > 0 else 0


def _validation(files: list[str], main_format: tuple[str, bool], path: Path) -> int:
    """Write the rows for evaluations and return their number; DataError where they are of another format."""
    found, tally = _looked_at(files)
    if found != main_format:
        raise DataError(f"the validation data is {found[0]}, and the training data {main_format[0]}")
    with path.open("w", encoding="utf-8") as test:
        for row in _usable(files, main_format):
            test.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")
    _told(tally, main_format)
    return tally.formats[main_format].usable


def _looked_at(files: list[str]) -> tuple[tuple[str, bool], Tally]:
    """Return the format of most rows, and all that is known of them; DataError where none is usable."""
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
    return main_format, tally


def _paths(files: list[str]) -> list[str]:
    paths: list[str] = []
    for path in files:
        try:
            paths += rows.files(path)
        except rows.UnreadableError as error:
            raise DataError(f"{path} {error}") from None
    return paths


def _usable(files: list[str], main_format: tuple[str, bool]) -> Iterator[dict[str, Any]]:
    """Yield the usable rows of the main format as TRL takes them."""
    name, chat = main_format
    for path in _paths(files):
        for found in rows.read(path):
            value = found.value
            if value is None or formats.name(value) != name or formats.chat(value, name) != chat:
                continue
            if not formats.wrong(value, name) and _writable(value):
                row = convert.as_trl(value, name)[0]
                yield convert.with_prompt(row) if name == "preference" else row


def _writable(value: dict[str, Any]) -> bool:
    """Tell whether a row is text that UTF-8 and JSON can hold, as the count of rows took it."""
    try:
        json.dumps(value, sort_keys=True, ensure_ascii=False, default=str).encode()
    except (UnicodeEncodeError, RecursionError, TypeError):
        return False
    return True


def _told(tally: Tally, main_format: tuple[str, bool]) -> None:
    """Say what was changed in rows, and which were left out."""
    for why, many in tally.formats[main_format].conversions.most_common():
        say(f"{many:,} rows: {why}")
    left_out = tally.rows - tally.formats[main_format].usable
    if left_out:
        _named(tally)
        say(f"{left_out:,} of {tally.rows:,} rows are left out")


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
