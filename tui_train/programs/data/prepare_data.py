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
import data_images as images
import data_lengths as lengths
import data_mixture as mixture
import data_rows as rows
import data_turns as turns
from data_chosen import (
    ChatTemplate,
    ChosenRows,
    DataError,
    choose_rows,
    print_data_line,
    print_row_problems,
    source_and_trl_rows,
)
from data_formats import METHODS_OF_PROMPTS

_BAD_DATA_EXIT_CODE = 65
_CANNOT_WRITE_EXIT_CODE = 73
_FORMATS_LEARNING_ONLY_ANSWERS = ("prompt_completion", "alpaca")
_CHAT_FORMATS = ("messages", "sharegpt")
# In the folder of the data, for the training to find.
ANSWERS_MARKED_FILE_NAME = ".answers"
TRAIN_FILE_NAME, TEST_FILE_NAME = "train.jsonl", "test.jsonl"


def main() -> int:
    """Write the data, or leave what is there, and return the exit code."""
    # What is half made is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    bounds.limit_process_to_half_of_memory()
    asked = _parse_arguments()
    into = Path(asked.into)
    if into.is_dir():
        print_data_line(f"{into} is reused" + _data_changed_text(into, [*asked.files, *asked.validation]))
        return 0
    beside = into.with_name(f"{into.name}.new.{os.uname().nodename}.{os.getpid()}")
    try:
        shutil.rmtree(beside, ignore_errors=True)
        beside.mkdir(parents=True)
        write_prepared_data(asked, beside)
        _move_into_place(beside, into)
    except DataError as error:
        print_data_line(f"error: {error}")
        return _BAD_DATA_EXIT_CODE
    except MemoryError:
        print_data_line(
            f"error: reading the data takes more than {bounds.memory_bound_text()} of memory: split it into "
            "several files"
        )
        return _BAD_DATA_EXIT_CODE
    except OSError as error:
        print_data_line(f"error: {into} cannot be written: {error.strerror or error}")
        return _CANNOT_WRITE_EXIT_CODE
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--into", required=True, metavar="FOLDER")
    parser.add_argument("--validation", action="append", default=[], metavar="FILE")
    parser.add_argument("--share", type=float, default=0.0, help="share of the rows for evaluations")
    parser.add_argument("--seed", type=int, default=0, help="which rows these are")
    parser.add_argument("--weights", type=_parse_weights, default=[], help="numbers: what each file has of an epoch")
    parser.add_argument("--model", default="", help="whose chat template refuses rows")
    parser.add_argument("--revision", default="", help="of that model, where it is one of the Hub")
    parser.add_argument("--chat-template", default="", help="a Jinja file or a model, instead of the model's own")
    parser.add_argument("--answers-only", action="store_true", help="by the template that marks answers")
    parser.add_argument("--find-answers", action="store_true", help="learn those alone that the template marks")
    parser.add_argument("--length", type=int, default=0, help="tokens after which a row is cut")
    parser.add_argument(
        "--method", default="sft", help="a reward model leaves such rows out, grpo and rloo take prompts"
    )
    parser.add_argument("--most-cut", type=float, default=1.0, help="share of the rows that may be cut")
    parser.add_argument("--max-pixels", type=int, default=0, help="of an image, which is made smaller; 0 for any")
    parser.add_argument("--keep-end", action="store_true", help="the tokenizer's end token is chosen already")
    parser.add_argument("--marked-answers", action="store_true", help="refuse data without answers that it marks")
    parser.add_argument("files", nargs="+", metavar="FILE")
    return parser.parse_args()


def write_prepared_data(options: argparse.Namespace, folder: Path) -> None:
    """Write both files and the record of what they were made of into a folder."""
    alone = None if options.find_answers else options.answers_only
    chat_template = ChatTemplate(
        options.model, options.revision, options.chat_template, answers_only=alone, max_pixels=options.max_pixels
    )
    only_prompts = options.method in METHODS_OF_PROMPTS
    chosen = choose_rows(options.files, chat_template, only_prompts=only_prompts)
    if options.marked_answers:
        _refuse_format_unfit_for_marking(*chosen.format)
    if options.length and options.model:
        _refuse_too_many_truncated_rows(chosen, chat_template, options)
        chosen = chat_template.without_long_rows(chosen, options.length)
    usable = chosen.usable_count()
    shares = random.Random(options.seed)  # noqa: S311 - which rows, the same each time
    wanted = 0 if options.validation else _held_out_row_count(usable, options.share)
    if options.share > 0 and not (options.validation or wanted):
        raise DataError("one row cannot be split into training and evaluation: name validation data")
    held_out = set(shares.sample(range(usable), wanted))
    written = ImagePreparation(options.max_pixels)
    _write_rows(chosen, held_out, folder, written, held_out_alone=bool(options.weights))
    _print_changes_and_problems(chosen)
    if options.weights:
        _write_weighted_training_rows(chosen, held_out, options, folder / TRAIN_FILE_NAME, written)
    evaluated = wanted
    if options.validation:
        evaluated = _write_validation_rows(options, chosen, chat_template, folder / TEST_FILE_NAME)
    if chosen.has_images:
        print_data_line(f"{chosen.tally.formats[chosen.format].image_count:,} images" + written.smaller_images_text())
    print_data_line(f"{usable - wanted:,} rows to train on" + (f", {evaluated:,} for evaluations" if evaluated else ""))
    if not options.keep_end:
        _record_turn_end_token(chat_template.turn_end_tokens(), folder)
    if options.find_answers:
        _record_if_answers_marked(chat_template, chosen.format, folder)
    record = {path: _newest_mtime_and_size(path) for path in (*options.files, *options.validation)}
    (folder / ".made").write_text(json.dumps(record), encoding="utf-8")


def _refuse_too_many_truncated_rows(
    chosen: ChosenRows, chat_template: ChatTemplate, options: argparse.Namespace
) -> None:
    """Say how many rows and tokens are cut; DataError where they are a larger share of the rows than is allowed."""
    rows_counted = chat_template.row_token_lengths(chosen)
    cut = [row for row in rows_counted if row.length > options.length]
    if not rows_counted:
        print_data_line("long rows are not counted: the model's tokenizer cannot be loaded")
    if not cut:
        return
    usable, share = chosen.usable_count(), len(cut) / len(rows_counted)
    scale = usable / len(rows_counted)
    about = "about " if scale > 1 else ""
    done = "left out"
    if options.method != "reward" and not chosen.has_images:
        lost = sum(max(0, length - options.length) for row in cut for length in row.lengths)
        done = f"cut, with {about}{lost * scale:,.0f} tokens"
    words = f"{about}{len(cut) * scale:,.0f} of {usable:,} rows ({share:.1%})"
    words += f" are longer than {options.length:,} tokens and are {done}"
    if share <= options.most_cut:
        print_data_line(words)
        return
    longest = lengths.candidate_lengths(max(row.length for row in cut))[-1]
    remedy = f"recipe.sequence_length={longest} cuts none, data.cut={share + 0.005:.2f} allows it"
    raise DataError(f"{words}: {remedy}")


class ImagePreparation:
    """The images of rows as they are written, and how many of them are made smaller."""

    def __init__(self, max_pixels: int) -> None:
        self._max_pixels, self._smaller = max_pixels, 0

    def row_with_trainable_images(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a row with images that the training can read."""
        if not row.get("images"):
            return row
        made, smaller = images.with_trainable_images(row, self._max_pixels)
        self._smaller += smaller
        return made

    def smaller_images_text(self) -> str:
        """Return how many were made smaller, in words that go on; empty for none."""
        return f", {self._smaller:,} of them made smaller (data.max_pixels)" if self._smaller else ""


def _record_if_answers_marked(chat_template: ChatTemplate, main_format: tuple[str, bool], folder: Path) -> None:
    """Say whether answers alone are learned, and keep that for the training."""
    name, _ = main_format
    if chat_template.learns_answers_only:
        print_data_line("only answers are learned: the chat template marks them")
        (folder / ANSWERS_MARKED_FILE_NAME).write_text("alone", encoding="utf-8")
    elif name in _CHAT_FORMATS:
        print_data_line("the users' words are learned too: the chat template does not mark answers with their end")


def _record_turn_end_token(ends: turns.TurnEndTokens, folder: Path) -> None:
    """Say with which token turns end where the model would not stop at it, and keep that for the training."""
    if ends.passed:
        print_data_line(turns.turn_end_sentence(ends))
        (folder / turns.TURN_END_FILE_NAME).write_text(ends.passed, encoding="utf-8")


def _refuse_format_unfit_for_marking(name: str, chat: bool) -> None:
    """Raise DataError for data of which TRL cannot learn the answers alone by the marks of a chat template."""
    if name in _FORMATS_LEARNING_ONLY_ANSWERS:
        why = f"the data is {name.replace('_', ' + ')}, of which only answers are learned anyway"
        raise DataError(f"{why}: unset finetune.answers_only")
    if not chat:
        raise DataError(f"the data is {name}, which has no answers to mark: unset finetune.answers_only")


def _write_rows(
    chosen: ChosenRows, held_out: set[int], folder: Path, written: ImagePreparation, *, held_out_alone: bool
) -> None:
    """Write the rows that are held out and, unless these alone, each row to train on once."""
    train_file, test_file = folder / TRAIN_FILE_NAME, folder / TEST_FILE_NAME
    with _open_if_any_rows(test_file, len(held_out)) as test, train_file.open("w", encoding="utf-8") as train:
        for number, row in enumerate(chosen.rows()):
            if number in held_out or not held_out_alone:
                file = test if number in held_out else train
                file.write(_json_line(written.row_with_trainable_images(row)))


def _write_weighted_training_rows(
    chosen: ChosenRows, held_out: set[int], options: argparse.Namespace, path: Path, written: ImagePreparation
) -> None:
    """Write the rows to train on so that each file has its share of them, and say what that is."""
    counts = [sum(1 for _ in source_and_trl_rows([named], chosen.format)) for named in options.files]
    times = array("L", [1]) * sum(counts)
    for number in chosen.refused:
        times[number] = 0
    taken_rows = (number for number in range(len(times)) if times[number])
    for number in [each for index, each in enumerate(taken_rows) if index in held_out]:
        times[number] = 0
    starts = [sum(counts[:at]) for at in range(len(counts))]
    given = [sum(times[start : start + count]) for start, count in zip(starts, counts, strict=True)]
    for named, rows_of_it, weight in zip(options.files, given, options.weights, strict=True):
        if weight and not rows_of_it:
            raise DataError(f"{named} has a weight but no usable row: leave it out, or give it the weight 0")
    taken = mixture.set_row_repeats_by_weight(times, counts, options.weights, options.seed)
    with path.open("w", encoding="utf-8") as train:
        for row in chosen.repeated_rows(times, counts):
            train.write(_json_line(written.row_with_trainable_images(row)))
    for named, rows_of_it, now in zip(options.files, given, taken, strict=True):
        print_data_line(f"{named}: {rows_of_it:,} rows, {now:,} in an epoch ({now / sum(taken):.1%})")


def _json_line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=str) + "\n"


def _parse_weights(text: str) -> list[float]:
    return [float(word) for word in text.split(",")]


def _open_if_any_rows(path: Path, row_count: int) -> Any:
    return (path if row_count else Path(os.devnull)).open("w", encoding="utf-8")


def _held_out_row_count(usable: int, share: float) -> int:
    """Return how many rows a share is: at least one where one is asked for, and one stays to train on."""
    return min(max(1, round(usable * share)), usable - 1) if share > 0 else 0


def _write_validation_rows(
    options: argparse.Namespace, trained: ChosenRows, chat_template: ChatTemplate, path: Path
) -> int:
    """Write the rows for evaluations and return their number; DataError where they are of another format."""
    name = trained.format[0]
    chosen = choose_rows(options.validation, chat_template, trained.format, only_prompts=name == "prompt")
    if chosen.has_images != trained.has_images:
        with_images = "training" if trained.has_images else "validation"
        raise DataError(f"only the {with_images} data has images: use both with images, or both without")
    if options.length and chosen.has_images:
        chosen = chat_template.without_long_rows(chosen, options.length)
    written = ImagePreparation(options.max_pixels)
    with path.open("w", encoding="utf-8") as test:
        for row in chosen.rows():
            test.write(_json_line(written.row_with_trainable_images(row)))
    _print_changes_and_problems(chosen)
    return chosen.usable_count()


def _print_changes_and_problems(chosen: ChosenRows) -> None:
    """Say what was changed in rows, and which were left out."""
    tally = chosen.tally
    for why, many in tally.formats[chosen.format].conversions.most_common():
        print_data_line(f"{many:,} rows: {why}")
    left_out = tally.rows - chosen.usable_count()
    if left_out:
        print_row_problems(tally)
        refused = len(chosen.refused)
        by_template = f", {refused:,} of them refused by the chat template" if refused else ""
        print_data_line(f"{left_out:,} of {tally.rows:,} rows are left out{by_template}")


def _newest_mtime_and_size(path: str) -> list[float]:
    """Return by what a file is known to be the same: newest change and size, of a folder those of its files."""
    states = [Path(file).stat() for file in rows.data_files_at(path)]
    return [max(state.st_mtime for state in states), sum(state.st_size for state in states)]


def _data_changed_text(into: Path, files: list[str]) -> str:
    """Return in words that data has changed since the folder was made, empty where it has not."""
    try:
        made = json.loads((into / ".made").read_text("utf-8"))
        changed = [path for path in files if made.get(path) != _newest_mtime_and_size(path)]
    except (OSError, ValueError, AttributeError, rows.UnreadableError):
        return ""
    return f": it was made before {', '.join(changed)} changed" if changed else ""


def _move_into_place(beside: Path, into: Path) -> None:
    try:
        beside.rename(into)
    except OSError:
        # Another machine with the same folder was quicker.
        if not into.is_dir():
            raise


if __name__ == "__main__":
    sys.exit(main())
