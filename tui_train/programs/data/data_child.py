"""Looks at training data in the Python that trains: `python data_child.py QUESTION` prints one line of JSON.

The question, in JSON: `files` (files or folders), `model` (a folder or an id in the Hub's cache, empty for none),
`revision` (of the latter; empty for main), `chat_template` (taken instead of its own; empty: its own), `method` (sft,
dpo, kto or reward), `length` (tokens at which a sample is cut, 0 for never), `answers_only` (null: where the chat
template marks answers), `rows` (how many are read at most), `weights` (what each of `files` has of an epoch; empty:
what it holds), `seconds` (how long reading takes at most, and counting tokens as long again).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import data_bounds as bounds
import data_lengths
import data_mixture as mixture
import data_rows as rows
import data_template as template
import data_tokens as tokens
import data_turns as turns
from data_tally import Format, Problems, Tally, short

_PR_SET_PDEATHSIG = 1
_MAX_FILES_LISTED = 100


def describe_data(question: dict[str, Any]) -> dict[str, Any]:
    """Return what the data holds: format, rows, what is wrong with them, and samples as they are learned."""
    tally = Tally()
    files, all_read = _tally_files(question, tally)
    main = tally.main()
    tally.note_others(main)
    name, chat = main
    chosen = tally.formats.get(main, Format()) if name else Format()
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
    answer |= _count_tokens(tally.problems, chosen, main, question)
    usable, by_file = chosen.usable - answer.pop("refused"), answer.pop("by_file", {})
    if question["weights"] and all_read:
        mixed = mixture.shares([_paths_of_entry(named) for named in question["files"]], question, chosen.files, by_file)
        answer["shares"] = mixed.pop("shares")
        if "tokens" in answer:
            answer["tokens"] |= mixed
    return answer | {"usable": usable, "problems": tally.problems.named, "counts": dict(tally.problems.counts)}


def _tally_files(question: dict[str, Any], tally: Tally) -> tuple[list[dict[str, Any]], bool]:
    """Count the rows of all files; return the files, and whether all of their rows were read."""
    paths: list[str] = []
    for named in question["files"]:
        try:
            paths += rows.files(named)
        except rows.UnreadableError as error:
            tally.problems.add("unreadable", named, 0, str(error))
    files: list[dict[str, Any]] = [
        {"path": short(path), "size": _file_size(path), "rows": 0, "done": 0} for path in paths
    ]
    ends = time.monotonic() + question["seconds"]
    for file, path in zip(files, paths, strict=True):
        _report_reading(path)
        try:
            for row in rows.read(path):
                if tally.rows >= question["rows"] or (tally.rows % 256 == 255 and time.monotonic() > ends):
                    return files, False
                tally.add(row)
                file |= {"rows": file["rows"] + 1, "done": row.done}
            file["done"] = file["size"]
        except rows.UnreadableError as error:
            tally.problems.add("unreadable", path, 0, str(error))
        except MemoryError:
            why = f"takes more than {bounds.limit()} of memory, in row {file['rows'] + 1:,}"
            tally.problems.add("unreadable", path, 0, why)
    return files, True


def _report_reading(path: str) -> None:
    """Say what is read now: where that ends this program, nothing else does."""
    sys.stdout.write("\n" + json.dumps({"reading": short(path)}) + "\n")
    sys.stdout.flush()


def _paths_of_entry(entry: str) -> list[str]:
    try:
        return rows.files(entry)
    except rows.UnreadableError:
        return []


def _file_size(path: str) -> int:
    try:
        return Path(path).stat().st_size
    except (OSError, ValueError):
        return 0


def _count_tokens(
    problems: Problems, chosen: Format, main: tuple[str, bool], question: dict[str, Any]
) -> dict[str, Any]:
    """Return samples and tokens through a model's tokenizer, or the samples and why there are no tokens."""
    without = {
        "samples": [
            tokens.sample_without_tokenizer(row, answers_only=bool(question["answers_only"])) for row in chosen.first
        ],
        "refused": 0,
    }
    if chosen.sample:
        by_bytes = [data_lengths.by_bytes(row.value) for row in chosen.sample]
        made = data_lengths.table(by_bytes, question["method"], 0, chosen.usable / len(by_bytes))
        without["lengths"] = made | {"estimated": True}
    if not chosen.usable or not question["model"]:
        return without
    _report_reading(question["model"])
    try:
        tokenizer = template.load(question["model"], question["revision"], question["chat_template"])
    except ImportError:
        return without | {"tokenizer": "this Python has no transformers"}
    except Exception as error:  # noqa: BLE001 - many kinds, of which each says why in its own words
        here = Path(question["model"]).is_dir() or "/models--" in template.first_line(error)
        why = template.first_line(error) if here else "it is neither a folder nor in the cache of the Hub"
        return without | {"tokenizer": why}
    if main[1] and not tokenizer.chat_template:
        return without | {"template": "the model has no chat template, and the data is made of messages"}
    answers = template.answers(tokenizer, main[0], chat=main[1])
    alone = question["answers_only"]
    if alone is None:
        alone = question["method"] == "sft" and template.marked(answers, main[0])
    only = answers if alone and answers.possible else None
    lengths, refused, why = tokens.count_tokens(tokenizer, chosen.sample, problems, question, only)
    told: dict[str, Any] = {
        "answers": {"possible": answers.possible, "why": answers.why, "caution": answers.caution},
        "limit": template.limit(tokenizer, question["model"], question["revision"]),
        "template": why,
        "by_file": lengths.files,
        "refused": round(refused * chosen.usable / max(refused + len(lengths.lengths), 1)),
    }
    if not lengths.lengths:
        return without | told
    if main[1]:
        told["ends"] = turns.ends(tokenizer, question["model"], question["revision"])._asdict()
    samples = [tokens.sample_as_read(tokenizer, row, question, only) for row in chosen.first]
    usable = chosen.usable - told["refused"]
    told["lengths"] = data_lengths.table(lengths.rows, question["method"], told["limit"], usable / len(lengths.lengths))
    return told | {"samples": [sample for sample in samples if sample], "tokens": lengths.summary(usable)}


def main(question_text: str) -> None:
    """Print the answer, or the `problem` that there is none for."""
    with contextlib.suppress(OSError, AttributeError):
        # Nobody would read the answer when the one who asked is gone.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    warnings.simplefilter("ignore")
    os.environ |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        answer = describe_data(json.loads(question_text))
    except Exception as error:  # noqa: BLE001 - whatever the libraries raise, the answer is that there is none
        answer = {"problem": f"{type(error).__name__}: {template.first_line(error)}"}
    line = json.dumps(answer, ensure_ascii=False).encode("utf-8", "backslashreplace")
    sys.stdout.buffer.write(b"\n" + line + b"\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
