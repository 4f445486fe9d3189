"""Prints what TRL itself makes of rows, and what the data child does: trl_labels.py CHILD TOKENIZER < CASES.

A case, one JSON a line: name, method, answers_only, rows. The answer: for each row the ids and which are
learned, twice, and the name of the error with which TRL ends for the row as it is written.
"""

import contextlib
import io
import json
import sys
from types import SimpleNamespace

sys.path.insert(0, sys.argv[1])
import data_convert
import data_formats
import data_template
from datasets import Dataset, disable_progress_bars
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

TRAINERS = {"sft": (SFTTrainer, SFTConfig), "dpo": (DPOTrainer, DPOConfig), "kto": (KTOTrainer, KTOConfig)}
disable_progress_bars()
tokenizer = data_template.load_tokenizer(sys.argv[2])


def theirs(rows, method, only):
    trainer, config = TRAINERS[method]
    more = {"max_length": None} if method != "kto" else {"max_length": None, "loss_type": "apo_zero_unpaired"}
    if method == "sft":
        more["shuffle_dataset"] = False
    args = config(output_dir="/nowhere", use_cpu=True, bf16=False, **more)
    args.assistant_only_loss = only is not None
    itself = SimpleNamespace(
        _tokenizer=tokenizer,
        chat_template=only.template if only else None,
        completion_only_loss="completion" in rows[0],
        calculate_KL=False,
        desirable_weight=1.0,
        undesirable_weight=1.0,
    )
    data = Dataset.from_list(rows)
    packing = [False, None] if method == "sft" else []
    made = trainer._prepare_dataset(itself, data, tokenizer, args, *packing, "train")
    if method == "sft":
        return [[[row["input_ids"], [label != -100 for label in row["labels"]]]] for row in made]
    names = ("chosen_ids", "rejected_ids") if method == "dpo" else ("completion_ids",)
    return [
        [[row["prompt_ids"] + row[name], [False] * len(row["prompt_ids"]) + [True] * len(row[name])] for name in names]
        for row in made
    ]


def ours(rows, only):
    kept = [data_convert.row_for_trl(row, data_formats.format_name_of_row(row)).row for row in rows]
    return kept, [
        [[one.ids, one.learned] for one in data_template.encode_row(tokenizer, row, marking=only)] for row in kept
    ]


for line in sys.stdin:
    case = json.loads(line)
    name = data_formats.format_name_of_row(case["rows"][0])
    answers = data_template.find_answer_marking(tokenizer, name, chat=data_formats.has_messages(case["rows"][0], name))
    only = answers if case["answers_only"] else None
    with contextlib.redirect_stdout(io.StringIO()):
        kept, mine = ours(case["rows"], only)
        its = theirs(kept, case["method"], only)
        try:
            theirs(case["rows"], case["method"], only)
            raw = ""
        except Exception as error:  # noqa: BLE001 - whichever it is
            raw = type(error).__name__
    print(json.dumps({"name": case["name"], "ours": mine, "theirs": its, "raw": raw}), flush=True)
