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
from array import array
from pathlib import Path
from typing import Any

import data_bounds as bounds
import data_cuts as cuts
import data_mixture as mixture
import data_rows as rows
import data_turns as turns
from data_chosen import ChatTemplate, Chosen, DataError, choose, name_problems, say, usable_rows

_BAD_DATA = 65
_CANNOT_WRITE = 73
_PROMPTED = ("prompt_completion", "alpaca")
_CHATS = ("messages", "sharegpt")
# In the folder of the data, for the training to find.
ANSWERS = ".answers"
TRAIN, TEST = "train.jsonl", "test.jsonl"


def main() -> int:
    """Write the data, or leave what is there, and return the exit code."""
    # What is half made is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bounds.begin()
    asked = _arguments()
    into = Path(asked.into)
    if into.is_dir():
        say(f"{into} is reused" + _changed(into, [*asked.files, *asked.validation]))
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
    except MemoryError:
        say(f"error: reading the data takes more than {bounds.limit()} of memory: split it into several files")
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
    parser.add_argument("--weights", type=_weights, default=[], help="numbers: what each file has of an epoch")
    parser.add_argument("--model", default="", help="whose chat template refuses rows")
    parser.add_argument("--revision", default="", help="of that model, where it is one of the Hub")
    parser.add_argument("--chat-template", default="", help="a Jinja file or a model, instead of the model's own")
    parser.add_argument("--answers-only", action="store_true", help="by the template that marks answers")
    parser.add_argument("--find-answers", action="store_true", help="learn those alone that the template marks")
    parser.add_argument("--length", type=int, default=0, help="tokens after which a row is cut")
    parser.add_argument("--method", default="sft", help="of which a reward model leaves such rows out")
    parser.add_argument("--most-cut", type=float, default=1.0, help="share of the rows that may be cut")
    parser.add_argument("--keep-end", action="store_true", help="the tokenizer's end token is chosen already")
    parser.add_argument("--marked-answers", action="store_true", help="refuse data without answers that it marks")
    parser.add_argument("files", nargs="+", metavar="FILE")
    return parser.parse_args()


def prepare(asked: argparse.Namespace, folder: Path) -> None:
    """Write both files and the record of what they were made of into a folder."""
    alone = None if asked.find_answers else asked.answers_only
    chat_template = ChatTemplate(asked.model, asked.revision, asked.chat_template, answers_only=alone)
    chosen = choose(asked.files, chat_template)
    if asked.marked_answers:
        _refuse_unmarked(*chosen.format)
    if asked.length and asked.model:
        cuts.check(chosen, chat_template, asked)
    usable = chosen.usable()
    shares = random.Random(asked.seed)  # noqa: S311 - which rows, the same each time
    wanted = 0 if asked.validation else _share(usable, asked.share)
    if asked.share > 0 and not (asked.validation or wanted):
        raise DataError("one row cannot be split into training and evaluation: name validation data")
    held_out = set(shares.sample(range(usable), wanted))
    mixed = Path(os.devnull) if asked.weights else folder / TRAIN
    with mixed.open("w", encoding="utf-8") as train, _maybe(folder / TEST, wanted) as test:
        for number, row in enumerate(chosen.rows()):
            (test if number in held_out else train).write(_line(row))
    _told(chosen)
    if asked.weights:
        _mix(chosen, held_out, asked, folder / TRAIN)
    evaluated = wanted
    if asked.validation:
        evaluated = _validation(asked.validation, chosen.format, chat_template, folder / TEST)
    say(f"{usable - wanted:,} rows to train on" + (f", {evaluated:,} for evaluations" if evaluated else ""))
    if not asked.keep_end:
        _note_ends(chat_template.ends(), folder)
    if asked.find_answers:
        _note_answers(chat_template, chosen.format, folder)
    record = {path: _stamp(path) for path in (*asked.files, *asked.validation)}
    (folder / ".made").write_text(json.dumps(record), encoding="utf-8")


def _note_answers(chat_template: ChatTemplate, found: tuple[str, bool], folder: Path) -> None:
    """Say whether answers alone are learned, and keep that for the training."""
    name, _ = found
    if chat_template.finds(name):
        say("only answers are learned: the chat template marks them")
        (folder / ANSWERS).write_text("alone", encoding="utf-8")
    elif name in _CHATS:
        say("the users' words are learned too: the chat template does not mark answers with their end")


def _note_ends(ends: turns.Ends, folder: Path) -> None:
    """Say with which token turns end where the model would not stop at it, and keep that for the training."""
    if ends.passed:
        say(turns.words(ends))
        (folder / turns.FILE).write_text(ends.passed, encoding="utf-8")


def _refuse_unmarked(name: str, chat: bool) -> None:
    """Raise DataError for data of which TRL cannot learn the answers alone by the marks of a chat template."""
    if name in _PROMPTED:
        why = f"the data is {name.replace('_', ' + ')}, of which only answers are learned anyway"
        raise DataError(f"{why}: unset finetune.answers_only")
    if not chat:
        raise DataError(f"the data is {name}, which has no answers to mark: unset finetune.answers_only")


def _mix(chosen: Chosen, held_out: set[int], asked: argparse.Namespace, path: Path) -> None:
    """Write the rows to train on so that each file has its share of them, and say what that is."""
    counts = [sum(1 for _ in usable_rows([named], chosen.format)) for named in asked.files]
    times = array("L", [1]) * sum(counts)
    for number in chosen.refused:
        times[number] = 0
    taken_rows = (number for number in range(len(times)) if times[number])
    for number in [each for place, each in enumerate(taken_rows) if place in held_out]:
        times[number] = 0
    starts = [sum(counts[:at]) for at in range(len(counts))]
    given = [sum(times[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    for named, rows_of_it, weight in zip(asked.files, given, asked.weights, strict=True):
        if weight and not rows_of_it:
            raise DataError(f"{named} has a weight but no usable row: leave it out, or give it the weight 0")
    taken = mixture.times(times, counts, asked.weights, asked.seed)
    with path.open("w", encoding="utf-8") as train:
        for row in chosen.written(times, counts):
            train.write(_line(row))
    for named, rows_of_it, now in zip(asked.files, given, taken, strict=True):
        say(f"{named}: {rows_of_it:,} rows, {now:,} in an epoch ({now / sum(taken):.1%})")


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _weights(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _maybe(path: Path, wanted: int) -> Any:
    return (path if wanted else Path(os.devnull)).open("w", encoding="utf-8")


def _share(usable: int, share: float) -> int:
    """Return how many rows a share is: at least one where one is asked for, and one stays to train on."""
    return min(max(1, round(usable * share)), usable - 1) if share > 0 else 0


def _validation(files: list[str], wanted: tuple[str, bool], chat_template: ChatTemplate, path: Path) -> int:
    """Write the rows for evaluations and return their number; DataError where they are of another format."""
    chosen = choose(files, chat_template, wanted)
    with path.open("w", encoding="utf-8") as test:
        for row in chosen.rows():
            test.write(_line(row))
    _told(chosen)
    return chosen.usable()


def _told(chosen: Chosen) -> None:
    """Say what was changed in rows, and which were left out."""
    tally = chosen.tally
    for why, many in tally.formats[chosen.format].conversions.most_common():
        say(f"{many:,} rows: {why}")
    left_out = tally.rows - chosen.usable()
    if left_out:
        name_problems(tally)
        say(f"{left_out:,} of {tally.rows:,} rows are left out" + _by_template(len(chosen.refused)))


def _by_template(refused: int) -> str:
    return f", {refused:,} of them refused by the chat template" if refused else ""


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
    return f": it was made before {', '.join(changed)} changed" if changed else ""


def _in_place(beside: Path, into: Path) -> None:
    try:
        beside.rename(into)
    except OSError:
        # Another machine with the same folder was quicker.
        if not into.is_dir():
            raise


if __name__ == "__main__":
    sys.exit(main())
