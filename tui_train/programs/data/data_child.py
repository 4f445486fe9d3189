"""Looks at training data in the Python that trains: `python data_child.py QUESTION [FILE]` prints one line of JSON.

FILE keeps what was found in images, for the next time.

QUESTION is JSON, with the fields of DataQuestion in facts/data/data_report.py. Counting tokens may take as long again
as reading; what rewards did follows the answer, a line for each.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import data_bounds as bounds
import data_image_inspections
import data_images as images
import data_lengths
import data_mixture as mixture
import data_rows as rows
import data_template as template
import data_tokens as tokens
import data_turns as turns
from data_formats import METHODS_OF_PROMPTS
from data_image_tokens import ImageTokenExpander, TextOnlyError
from data_rewards import try_rewards
from data_tally import FormatTally, KeptRow, ProblemTally, RowTally, truncated_path

_MAX_FILES_LISTED = 100


def describe_data_and_prompt_rows(question: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return what the data holds: format, rows, what is wrong with them, and samples as they are learned.

    And the rows to try rewards on.
    """
    tally = RowTally(only_prompts=question["method"] in METHODS_OF_PROMPTS)
    files, all_read = _tally_rows_within_limits(question, tally)
    main = tally.main_format()
    tally.add_other_formats_as_problems(main)
    name, chat = main
    chosen = tally.formats.get(main, FormatTally()) if name else FormatTally()
    answer: dict[str, Any] = {
        "files": files[:_MAX_FILES_LISTED],
        "file_count": len(files),
        "size": sum(file["size"] for file in files),
        "done": sum(file["done"] for file in files),
        "rows": tally.rows,
        "all_read": all_read,
        "format": name,
        "chat": chat,
        "columns": sorted(chosen.columns),
        "desirable": chosen.desirable,
        "conversions": [{"why": why, "rows": many} for why, many in chosen.conversions.most_common(10)],
    }
    if tally.names_images:
        answer["images"] = {
            "rows": chosen.image_rows,
            "count": chosen.image_count,
            "checked": images.has_pillow(),
            "files": len(images.inspections),
            "folders": images.folders_of_inspected_images(),
        }
    if chosen.image_rows:
        chosen.first, chosen.sample = (_rows_with_image_places(kept) for kept in (chosen.first, chosen.sample))
    made = _samples_and_token_counts(tally.problems, chosen, main, question)
    if "image_problem" in made:
        answer["images"] |= made.pop("image_problem")
    answer |= made
    usable, by_file = chosen.usable - answer.pop("refused"), answer.pop("by_file", {})
    if question["weights"] and all_read:
        mixed = mixture.mixed_epoch_shares_and_tokens(
            [_data_files_if_readable(named) for named in question["files"]], question, chosen.files, by_file
        )
        answer["shares"] = mixed.pop("shares")
        if "tokens" in answer:
            answer["tokens"] |= mixed
    answer |= {"usable": usable, "problems": tally.problems.named, "counts": dict(tally.problems.counts)}
    return answer, chosen.whole


def _rows_with_image_places(kept_rows: list[KeptRow]) -> list[KeptRow]:
    return [row._replace(value=images.row_with_image_places(row.value)) for row in kept_rows]


def _image_tokens_or_why_not(question: dict[str, Any]) -> ImageTokenExpander | dict[str, Any]:
    """Return what counts the tokens of images, or why they cannot be trained on."""
    try:
        return ImageTokenExpander(question["model"], question["revision"], question["max_pixels"])
    except TextOnlyError:
        return {"text_only": True}
    except Exception as error:  # noqa: BLE001 - many kinds, of which each says why in its own words
        why = template.why_not_loaded(error)
        return {"problem": why, "needs_torchvision": isinstance(error, ImportError) and "torchvision" in why}


def _why_processor_needs_torchvision(question: dict[str, Any]) -> str:
    """Return that torchvision is missing for the processor of a model that sees, which TRL loads for text as well."""
    if question["method"] == "reward" or not template.sees_images(question["model"], question["revision"]):
        return ""
    found = _image_tokens_or_why_not(question)
    return str(found["problem"]) if isinstance(found, dict) and found.get("needs_torchvision") else ""


def _tally_rows_within_limits(question: dict[str, Any], tally: RowTally) -> tuple[list[dict[str, Any]], bool]:
    """Count the rows of all files; return the files, and whether all of their rows were read."""
    paths: list[str] = []
    for named in question["files"]:
        try:
            paths += rows.data_files_at(named)
        except rows.UnreadableError as error:
            tally.problems.add("unreadable", named, 0, str(error))
    files: list[dict[str, Any]] = [
        {"path": truncated_path(path), "size": _file_size_or_zero(path), "rows": 0, "done": 0} for path in paths
    ]
    ends = time.monotonic() + question["seconds"]
    for file, path in zip(files, paths, strict=True):
        _report_file_being_read(path)
        try:
            for row in rows.read_rows(path):
                if tally.rows >= question["rows"] or (tally.rows and time.monotonic() > ends):
                    return files, False
                tally.add(row)
                file |= {"rows": file["rows"] + 1, "done": row.done}
            file["done"] = file["size"]
        except rows.UnreadableError as error:
            tally.problems.add("unreadable", path, 0, str(error))
        except MemoryError:
            why = f"takes more than {bounds.memory_bound_text()} of memory, in row {file['rows'] + 1:,}"
            tally.problems.add("unreadable", path, 0, why)
    return files, True


def _report_file_being_read(path: str) -> None:
    """Say what is read now: where that ends this program, nothing else does."""
    sys.stdout.write("\n" + json.dumps({"reading": truncated_path(path)}) + "\n")
    sys.stdout.flush()


def _data_files_if_readable(entry: str) -> list[str]:
    try:
        return rows.data_files_at(entry)
    except rows.UnreadableError:
        return []


def _file_size_or_zero(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _tokenizer_failure_fields(model: str, error: Exception) -> dict[str, Any]:
    """Return why a tokenizer was not loaded, and whether the model's folder holds none."""
    is_folder, why = Path(model).is_dir(), template.why_not_loaded(error)
    if isinstance(error, ImportError):
        return {"tokenizer": why}
    if is_folder and not template.has_tokenizer_file(model):
        return {"tokenizer": "it has none", "tokenizer_is_missing": True}
    is_here = is_folder or "/models--" in why
    return {"tokenizer": why if is_here else "it is neither a folder nor in the cache of the Hub"}


def _samples_and_token_counts(
    problems: ProblemTally, chosen_rows: FormatTally, main_format: tuple[str, bool], question: dict[str, Any]
) -> dict[str, Any]:
    """Return samples and tokens through a model's tokenizer, or the samples and why there are no tokens."""
    without = {
        "samples": [
            tokens.sample_without_tokenizer(row, answers_only=question["answers_only"]) for row in chosen_rows.first
        ],
        "refused": 0,
    }
    image_rows = chosen_rows.image_rows
    if chosen_rows.sample and not image_rows:
        by_bytes = [data_lengths.estimate_row_lengths_by_bytes(row.value) for row in chosen_rows.sample]
        made = data_lengths.length_statistics_and_truncation(
            by_bytes, question["method"], 0, chosen_rows.usable / len(by_bytes)
        )
        without["lengths"] = made | {"estimated": True}
    if not chosen_rows.usable or not question["model"]:
        return without
    _report_file_being_read(question["model"])
    try:
        tokenizer = template.load_tokenizer(question["model"], question["revision"], question["chat_template"])
    except Exception as error:  # noqa: BLE001 - many kinds, of which each says why in its own words
        return without | _tokenizer_failure_fields(question["model"], error)
    processor = {"processor": "" if image_rows else _why_processor_needs_torchvision(question)}
    without |= processor
    counts_images = _image_tokens_or_why_not(question) if image_rows else None
    if isinstance(counts_images, dict):
        return without | {"image_problem": counts_images}
    if (main_format[1] or image_rows) and not tokenizer.chat_template:
        return without | {"template": "the model has no chat template, and the data is made of messages"}
    answers = template.find_answer_marking(
        tokenizer, main_format[0], chat=main_format[1] or bool(image_rows), has_images=bool(image_rows)
    )
    alone = question["answers_only"] if question["method"] == "sft" else bool(question["answers_only"])
    only = template.marking_of_learned_answers(answers, main_format[0], answers_only=alone)
    # Of an image nothing can be cut off: a row that is too long is left out, as a reward model does.
    cuts = question | ({"method": "reward"} if image_rows else {})
    encoder = template.RowEncoder(tokenizer, only, counts_images)
    token_lengths = tokens.tally_token_lengths(encoder, chosen_rows.sample, problems, cuts)
    refused = token_lengths.refused_count
    told: dict[str, Any] = processor | {
        "answers": {"possible": answers.possible, "why": answers.why, "caution": answers.caution},
        "limit": template.max_tokens_of_model(tokenizer, question["model"], question["revision"]),
        "template": token_lengths.first_refusal,
        "by_file": token_lengths.files,
        "refused": round(refused * chosen_rows.usable / max(refused + len(token_lengths.rows), 1)),
    }
    if not token_lengths.rows:
        return without | told
    if main_format[1]:
        told["ends"] = turns.find_turn_end_tokens(tokenizer, question["model"], question["revision"])._asdict()
    samples = [tokens.sample_as_model_reads_it(encoder, row, question) for row in chosen_rows.first]
    usable = chosen_rows.usable - told["refused"]
    told["lengths"] = data_lengths.length_statistics_and_truncation(
        token_lengths.rows, cuts["method"], told["limit"], usable / len(token_lengths.rows)
    )
    return told | {"samples": [sample for sample in samples if sample], "tokens": token_lengths.summary(usable)}


def main(question_text: str, inspections_file: str = "") -> None:
    """Print the answer, or the `problem` that there is none for."""
    bounds.end_with_parent()
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    question = json.loads(question_text)
    prompt_rows: list[dict[str, Any]] = []
    if inspections_file:
        data_image_inspections.load_image_inspections(inspections_file)
    try:
        answer, prompt_rows = describe_data_and_prompt_rows(question)
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, the answer is that there is none
        answer = {"problem": f"{type(error).__name__}: {template.first_line_of_error(error)}"}
    if inspections_file:
        data_image_inspections.save_image_inspections(inspections_file)
    _print_answer(answer)
    if prompt_rows:
        # What runs here is the user's: whatever it does, the answer was given.
        for trial in try_rewards(question["rewards"], prompt_rows):
            _print_answer({"reward": trial})


def _print_answer(answer: dict[str, Any]) -> None:
    line = json.dumps(answer, ensure_ascii=False).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(b"\n" + line + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
