"""Data for fine-tuning: its format, its faults by file and line, its tokens, and what of it is learned."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from chat_data import (
    ANSWER_MARKING_TEMPLATE,
    CHAT_ROW,
    PLAIN_TEMPLATE,
    ROW_BY_FORMAT,
    USER_FIRST_TEMPLATE,
    assistant_message,
    probe_files,
    user_message,
    write_rows,
)
from support import SCRIPTS, TRL_PYTHON, make_executable, needs_trl, run_cli

from tui_train.checks.recipe.data import data_findings
from tui_train.facts.data.data_report import DataQuestion, DataReport, TurnEndTokens, parse_data_answer, probe_data
from tui_train.facts.data.data_use import FORMAT_LABELS, epoch_size, suitable_methods, why_method_unsuitable
from tui_train.facts.machine.child_process import ChildResult

CHILD = Path(__file__).parents[2] / "tui_train" / "programs" / "data"


GOOD = json.dumps(CHAT_ROW).encode() + b"\n"


def places(found):
    return [(problem.kind, problem.line) for problem in found.problems]


def levels(found, question):
    return [finding.level for finding in data_findings(found, question)]


# ---- formats -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROW_BY_FORMAT)
def test_each_format(tmp_path, name):
    other = {key: f"{value}!" if isinstance(value, str) else value for key, value in ROW_BY_FORMAT[name].items()}
    found = probe_files(write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT[name], other]))
    assert (found.format, found.rows, found.usable, found.all_read) == (name, 2, 2, True)
    assert found.columns == tuple(sorted(ROW_BY_FORMAT[name]))
    assert found.samples[0].pieces
    for method in ("sft", "dpo", "kto", "reward", "grpo", "rloo"):
        assert bool(why_method_unsuitable(found, method)) == (method not in suitable_methods(found))
        errors = levels(found, DataQuestion(files=(), method=method)).count("error")
        assert errors == (method not in suitable_methods(found))
    assert suitable_methods(found) == {"preference": ("dpo", "kto", "reward"), "kto": ("kto",)}.get(name, ("sft",))
    assert {*ROW_BY_FORMAT, "prompt"} == set(FORMAT_LABELS)


@pytest.mark.parametrize("name", ["D.JSONL", "d.ndjson", "d.json", "d.csv", "d.txt"])
def test_each_kind_of_file(tmp_path, name):
    rows = [{"prompt": f"p{number}", "completion": "a, b\nc"} for number in range(3)]
    texts = {
        ".json": json.dumps(rows, indent=1),
        ".csv": "prompt,completion\n" + "".join(f'{r["prompt"]},"{r["completion"]}"\n' for r in rows),
        ".txt": "".join(r["prompt"] + "\n" for r in rows),
    }
    path = tmp_path / name
    path.write_text(texts.get(path.suffix) or "".join(f"{json.dumps(row)}\n" for row in rows))
    found = probe_files(path)
    assert (found.usable, found.problems) == (3, ())
    assert found.format == ("text" if name == "d.txt" else "prompt_completion")


def test_a_folder_and_several_files(tmp_path):
    write_rows(tmp_path / "a.jsonl", [CHAT_ROW])
    write_rows(tmp_path / "b.jsonl", [CHAT_ROW, {"messages": []}])
    (tmp_path / "README.md").write_text("no data")
    found = probe_files(tmp_path)
    assert [(Path(file.path).name, file.rows) for file in found.files] == [("a.jsonl", 1), ("b.jsonl", 2)]
    assert found.size == found.done == sum(path.stat().st_size for path in tmp_path.glob("*.jsonl"))
    assert sorted(places(found)) == [("duplicate", 1), ("empty", 2)]
    assert {Path(problem.file).name for problem in found.problems} == {"b.jsonl"}


def test_a_json_object_with_one_list(tmp_path):
    for data, rows in (
        ({"version": 1, "data": [CHAT_ROW, {"messages": [user_message("x"), assistant_message("y")]}]}, 2),
        (CHAT_ROW, 1),
    ):
        (tmp_path / "d.json").write_text(json.dumps(data, indent=1))
        found = probe_files(tmp_path / "d.json")
        assert (found.usable, [conversion.rows for conversion in found.conversions]) == (rows, [2] * (rows == 2))


# ---- damage ------------------------------------------------------------------------------------------------------

TWO = json.dumps({"messages": [user_message("other"), assistant_message("one")]}).encode() + b"\n"


def chat(*messages):
    return GOOD + json.dumps({"messages": messages}).encode() + b"\n" + TWO


# What is in the file, the rows that are left, and the kind and line of what is wrong.
DAMAGED = {
    "broken JSON": (GOOD + b'{"messages": [\n' + TWO, 2, "broken", 2),
    "cut at the end": (GOOD + TWO[:30], 1, "broken", 2),
    "a list as a row": (GOOD + b"[1, 2]\n", 1, "broken", 2),
    "Latin-1": (GOOD + GOOD.replace(b"What", b"Wh\xe9t") + TWO, 2, "broken", 2),
    "NULs": (GOOD + b"\0" * 4096 + b"\n" + TWO, 2, "broken", 2),
    "half of a character": (GOOD + b'{"messages": [{"role": "user", "content": "\\ud83d"}]}\n', 1, "broken", 2),
    "deep JSON": (GOOD + b'{"messages": ' + b"[" * 100_000 + b"\n" + TWO, 2, "broken", 2),
    "deep, but JSON": (GOOD + b'{"messages": ' + b"[" * 900 + b"]" * 900 + b"}\n" + TWO, 2, "", 2),
    "a name twice": (GOOD + b'{"text": "a", "text": "b"}\n', 1, "broken", 2),
    "a huge number": (GOOD + b'{"text": ' + b"9" * 5000 + b"}\n", 1, "", 2),
    "a huge line": (GOOD + b'{"text": "' + b"x" * (17 << 20) + b'"}\n' + TWO, 2, "broken", 2),
    "UTF-16": (GOOD.decode().encode("utf-16"), 0, "unreadable", 0),
    "an empty file": (b"", 0, "unreadable", 0),
    "no messages": (chat(), 2, "empty", 2),
    "messages are null": (GOOD + b'{"messages": null}\n' + TWO, 2, "wrong", 2),
    "messages are true": (GOOD + b'{"messages": true}\n' + TWO, 2, "wrong", 2),
    "a prompt is a number": (b'{"prompt": 5, "completion": "a"}\n', 0, "wrong", 1),
    "a prompt is null": (b'{"prompt": null}\n', 0, "empty", 1),
    "no role": (chat({"content": "hi"}, assistant_message("x")), 2, "wrong", 2),
    "an unknown role": (chat({"role": "narrator", "content": "hi"}, assistant_message("x")), 2, "wrong", 2),
    "a message is text": (chat("hi", assistant_message("x")), 2, "wrong", 2),
    "a number as content": (chat(user_message(3), assistant_message("x")), 2, "wrong", 2),
    "null as content": (chat(user_message("hi"), assistant_message(None)), 2, "wrong", 2),
    "an answer of blanks": (chat(user_message("hi"), assistant_message(" \n\t")), 2, "empty", 2),
    "nobody answers": (chat(user_message("hi")), 2, "wrong", 2),
    "another format": (GOOD + b'{"text": "hi"}\n' + TWO, 2, "other", 2),
    "twice the same": (GOOD + TWO + GOOD.replace(b", ", b","), 3, "duplicate", 3),
    "chosen is rejected": (b'{"prompt": "a", "chosen": "b", "rejected": "b"}\n', 0, "wrong", 1),
    "chosen is empty": (b'{"prompt": "a", "chosen": "", "rejected": "b"}\n', 0, "empty", 1),
    "chosen is text, rejected a list": (
        b'{"chosen": "a", "rejected": [{"role": "user", "content": "a"}]}',
        0,
        "wrong",
        1,
    ),
    "label is no truth": (b'{"prompt": "a", "completion": "b", "label": 1}\n', 0, "wrong", 1),
    "an odd role of ShareGPT": (b'{"conversations": [{"from": "dog", "value": "wuff"}]}\n', 0, "wrong", 1),
    "no value in ShareGPT": (b'{"conversations": [{"from": "human"}]}\n', 0, "wrong", 1),
    "empty ShareGPT": (b'{"conversations": []}\n', 0, "empty", 1),
    "Alpaca without an answer": (b'{"instruction": "a", "input": "", "output": ""}\n', 0, "empty", 1),
}
OTHERS = {
    "ragged.csv": (b"prompt,completion\na,b\nc\nd,e,f\ng,h\n", 2, "broken", 3),
    "quote.csv": (b'prompt,completion\na,b\n"c,d\n', 1, "broken", 3),
    "latin.csv": (b"prompt,completion\na,b\nc,\xe9\n", 1, "broken", 3),
    "cell.csv": (b"prompt,completion\na,b\nc,\n", 1, "empty", 3),
    "semicolon.csv": (b"prompt;completion\na;b\n", 0, "other", 2),
    "head.csv": (b"prompt,completion\n", 0, "", 0),
    "latin.txt": (b"a\nb\xe9\n", 1, "broken", 2),
    "blank.txt": (b"a\n\nb\n", 2, "empty", 2),
    "none.json": (b"[", 0, "unreadable", 0),
    "number.json": (b"3", 0, "unreadable", 0),
    "deep.json": (b"[" * 100_000, 0, "unreadable", 0),
    "mixed.json": (b'[{"text": "a"}, 3]', 1, "broken", 2),
    "data.xlsx": (b"PK", 0, "unreadable", 0),
    "no.parquet": (b"PAR1 it is not", 0, "unreadable", 0),
}


@pytest.mark.tries("damaged data")
@pytest.mark.parametrize("name", [*DAMAGED, *OTHERS])
def test_damaged(tmp_path, name):
    content, usable, kind, line = DAMAGED.get(name) or OTHERS[name]
    path = tmp_path / (name if name in OTHERS else "d.jsonl")
    path.write_bytes(content)
    found = probe_files(path)
    assert found.usable == usable
    if kind:
        assert places(found)[0] == (kind, line), found.problems
        assert found.problems[0].why
        assert found.counts[kind] >= 1
    else:
        assert not usable or len(found.problems) == 1
    findings = data_findings(found, DataQuestion(files=(str(path),)))
    assert findings
    assert (findings[0].level == "error") == (not usable)
    if usable and kind:
        assert any(f"line {line}: " in text for finding in findings for text in (finding.message, *finding.details))


def test_a_bom_is_no_damage(tmp_path):
    for name, content in {"a.jsonl": GOOD, "b.csv": b"prompt,completion\na,b\n", "c.txt": b"a\n"}.items():
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + content)
        assert (probe_files(tmp_path / name).usable, probe_files(tmp_path / name).problems) == (1, ())


def folder_with(*names):
    def make(path):
        path.mkdir()
        for name in names:
            (path / name).write_text("{}")

    return make


NO_FILES = {
    "missing": lambda path: None,
    "fifo": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "loop": lambda path: path.symlink_to(path),
    "folder": folder_with("README.md"),
    "saved": folder_with("state.json", "dataset_info.json"),
    "unreadable": lambda path: os.close(os.open(path, os.O_CREAT, 0)),
}


@pytest.mark.parametrize("kind", [*NO_FILES, "named"])
def test_what_is_no_file(tmp_path, kind):
    if kind == "unreadable" and os.geteuid() == 0:
        pytest.skip("NOT TESTED: a file that may not be read, for root reads all")
    path = tmp_path / ("a\0b.jsonl" if kind == "named" else "d.jsonl")
    NO_FILES.get(kind, NO_FILES["missing"])(path)
    found = probe_files(path)
    assert places(found) == [("unreadable", 0)]
    assert levels(found, DataQuestion(files=())) == ["error"]


def test_a_file_that_cannot_be_read_hides_no_other(tmp_path):
    write_rows(tmp_path / "a.jsonl", [CHAT_ROW])
    (tmp_path / "b.jsonl").write_bytes(GOOD.decode().encode("utf-16"))
    found = probe_files(tmp_path)
    assert (found.usable, places(found)) == (1, [("unreadable", 0)])


def test_problems_are_counted_and_the_first_are_named(tmp_path):
    found = probe_files(
        write_rows(
            tmp_path / "d.jsonl", [CHAT_ROW, *({"messages": []} for _ in range(100)), *({"a": 1},) * 90, *({},) * 50]
        )
    )
    assert (found.format, found.usable) == ("messages", 1)
    assert found.counts["empty"] == 100
    assert found.counts["other"] == 140
    assert [line for kind, line in places(found) if kind == "empty"] == [*range(2, 22)]
    assert found.rows == found.usable + sum(found.counts[kind] for kind in ("empty", "other"))


@pytest.mark.parametrize(
    ("turn", "eos", "stops", "passed"),
    [
        ("<|im_end|>", "<|endoftext|>", ("<|endoftext|>",), "<|im_end|>"),  # Qwen2.5 base
        ("<|im_end|>", "<|im_end|>", ("<|im_end|>", "<|endoftext|>"), ""),  # Qwen2.5-Instruct
        ("<end_of_turn>", "<eos>", ("<eos>", "<end_of_turn>"), ""),  # gemma-3-it
        ("<|im_end|>", "", (), "<|im_end|>"),
        ("", "</s>", ("</s>",), ""),
    ],
)
def test_the_end_that_is_passed(monkeypatch, turn, eos, stops, passed):
    monkeypatch.syspath_prepend(str(CHILD))
    import data_turns

    assert data_turns.end_token_to_pass(turn, eos, stops) == passed
    own = {"<|im_end|>", "<|im_start|>", "<end_of_turn>", "<|im"}
    assert data_turns.first_known_token(f"{turn}\n<|im_start|>", own) == (turn or "<|im_start|>")


@pytest.mark.whole
def test_the_token_that_ends_a_turn(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    ended = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE.replace("}}</s>", "}}<sep>"))).ends
    assert ended == TurnEndTokens(turn="<sep>", eos="</s>", passed="<sep>")
    assert probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE)).ends == TurnEndTokens(
        turn="</s>", eos="</s>"
    )
    (tmp_path / "t.jinja").write_text(PLAIN_TEMPLATE)
    model = tokenizer(PLAIN_TEMPLATE.replace("}}</s>", "}}<sep>"))
    assert probe_files(path, python=warm_python, model=model, chat_template=f"{tmp_path}/t.jinja").ends.passed == ""


@pytest.mark.whole
def test_what_each_length_cuts(tmp_path, tokenizer, warm_python):
    rows = [{"prompt": "a", "completion": "the quick brown fox " * number} for number in range(1, 101)]
    path = write_rows(tmp_path / "d.jsonl", rows)
    found = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE))
    lengths = found.lengths
    assert (lengths.longest, lengths.at[0].length) == (found.tokens.longest, 64)
    assert not lengths.estimated
    for length in (64, 192):
        asked = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), length=length)
        cut = lengths.effect_of_length(length)
        assert (cut.rows, cut.lost, cut.epoch) == (asked.tokens.cut, asked.tokens.lost, asked.tokens.epoch)
    # Before a model is here, by the bytes.
    guessed = probe_files(path).lengths
    assert guessed.estimated
    assert 0.5 < guessed.longest / (len("the quick brown fox ") * 100 / 3) < 1.5
    question = DataQuestion(files=(str(path),), length=64)
    (finding,) = data_findings(probe_files(path), question)
    assert (finding.level, "an estimate" in finding.message) == ("warning", True)


# ---- what TRL cannot take ----------------------------------------------------------------------------------------

HI_YO = [user_message("hi"), assistant_message("yo")]
HI_NO = [user_message("hi"), assistant_message("no")]
CONVERTED = {
    "alpaca": ROW_BY_FORMAT["alpaca"],
    "sharegpt": ROW_BY_FORMAT["sharegpt"],
    "roles in conversations": {"conversations": HI_YO},
    "a text before messages": {"prompt": "hi", "completion": [assistant_message("yo")]},
    "a prompt beside messages": {"prompt": "hi", "prompt_id": "7", "messages": HI_YO},
    "a prompt that messages hold": {"prompt": "hi", "chosen": HI_YO, "rejected": HI_NO},
}
TAKEN = {
    "messages": CHAT_ROW,
    "plain names": {"conversations": [{"from": "user", "value": "hi"}, {"from": "assistant", "value": "yo"}]},
    "messages on both sides": {"prompt": [user_message("hi")], "completion": [assistant_message("yo")]},
    "pairs without a prompt": {"chosen": HI_YO, "rejected": HI_NO},
    "kto": ROW_BY_FORMAT["kto"],
}


@pytest.mark.parametrize("name", [*CONVERTED, *TAKEN])
def test_what_must_be_converted(tmp_path, name):
    row = CONVERTED.get(name) or TAKEN[name]
    found = probe_files(write_rows(tmp_path / "d.jsonl", [row]))
    assert found.usable == 1
    assert [conversion.rows for conversion in found.conversions] == [1] * (name in CONVERTED)
    question = DataQuestion(files=(), method=suitable_methods(found)[0])
    notes = [finding for finding in data_findings(found, question) if finding.level == "note"]
    assert len(notes) == (name in CONVERTED)


# ---- tokens ------------------------------------------------------------------------------------------------------


def learned(sample, state="learned"):
    return [piece.text for piece in sample.pieces if piece.state == state]


def whole(sample):
    return "".join(piece.text for piece in sample.pieces)


def test_what_is_learned_of_a_chat(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    found = probe_files(path, python=warm_python, model=tokenizer(ANSWER_MARKING_TEMPLATE), answers_only=True)
    (sample,) = found.samples
    assert learned(sample) == ["A fox.\nA quick one: 狐.</s>", "Yes</s>"]
    assert found.answers.possible
    assert probe_files(path, python=warm_python, model=tokenizer(ANSWER_MARKING_TEMPLATE)).samples == found.samples
    everything = probe_files(path, python=warm_python, model=tokenizer(ANSWER_MARKING_TEMPLATE), answers_only=False)
    assert learned(everything.samples[0]) == [whole(sample)]
    assert everything.answers.possible


def test_answers_that_a_template_does_not_mark(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    question = DataQuestion(files=(str(path),), model=tokenizer(PLAIN_TEMPLATE), answers_only=True)
    found = probe_data(warm_python, question)
    assert not found.answers.possible
    assert found.answers.why
    assert levels(found, question) == ["error"]
    assert levels(found, msgspec.structs.replace(question, answers_only=False)) == []
    text = probe_files(
        write_rows(tmp_path / "t.jsonl", [ROW_BY_FORMAT["text"]]),
        python=warm_python,
        model=tokenizer(ANSWER_MARKING_TEMPLATE),
    )
    assert not text.answers.possible


MARKS = {
    "text": "the quick brown fox</s>", "prompt_completion": " blue</s>", "alpaca": "3</s>",
    "sharegpt": "<s>user\nhi</s><s>assistant\nyo</s>", "preference": " blue</s>", "kto": " blue</s>",
}  # fmt: skip


@pytest.mark.parametrize("name", MARKS)
def test_what_is_learned_of_each_format(tmp_path, tokenizer, warm_python, name):
    method = {"preference": "dpo", "kto": "kto"}.get(name, "sft")
    path = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT[name]])
    found = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), method=method)
    assert learned(found.samples[0]) == [MARKS[name]]
    if name == "preference":
        assert learned(found.samples[0], "rejected") == [" green</s>"]


COUNT = """
import json, sys
from transformers import AutoTokenizer
made = AutoTokenizer.from_pretrained(sys.argv[1])
rows = [json.loads(line) for line in open(sys.argv[2], encoding="utf-8")]
print(json.dumps([len(made.apply_chat_template(row["messages"], return_dict=True)["input_ids"]) for row in rows]))
"""


def test_tokens_are_the_tokenizers_own(tmp_path, tokenizer, warm_python):
    rows = [
        {"messages": [user_message("the quick fox " * number), assistant_message(f"jumps 狐 {number}")]}
        for number in range(1, 60)
    ]
    path = write_rows(tmp_path / "d.jsonl", rows)
    done = subprocess.run(
        [warm_python, "-c", COUNT, tokenizer(PLAIN_TEMPLATE), str(path)], capture_output=True, text=True, check=True
    )
    lengths = sorted(json.loads(done.stdout))
    limit = lengths[40]
    found = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), length=limit)
    tokens = found.tokens
    assert (tokens.counted, tokens.total) == (59, sum(lengths))
    assert (tokens.shortest, tokens.median, tokens.p95, tokens.longest) == tuple(lengths[at] for at in (0, 29, 56, 58))
    assert (tokens.cut, tokens.lost) == (sum(length > limit for length in lengths), 0)
    assert tokens.epoch == sum(min(length, limit) for length in lengths)
    assert sum(tokens.histogram) == 59
    assert [row.line for row in tokens.longest_rows] == [59, 58, 57, 56]
    one = epoch_size(found, "sft", 8)
    assert (one.rows, one.tokens, one.steps, one.estimated) == (59, tokens.epoch, 8, False)


def test_rows_of_which_nothing_is_left_to_learn(tmp_path, tokenizer, warm_python):
    rows = [{"prompt": "the quick brown fox " * 20, "completion": "so"}, {"prompt": "a", "completion": "b"}]
    path = write_rows(tmp_path / "d.jsonl", rows)
    question = DataQuestion(files=(str(path),), model=tokenizer(PLAIN_TEMPLATE), length=20)
    found = probe_data(warm_python, question)
    assert (found.tokens.cut, found.tokens.lost) == (1, 1)
    assert epoch_size(found, "sft").rows == 1
    assert levels(found, question) == ["warning", "warning"]
    assert learned(found.samples[0]) == []
    assert learned(found.samples[0], "cut")


def test_a_reward_model_leaves_out_what_is_too_long(tmp_path, tokenizer, warm_python):
    rows = [{"prompt": "a", "chosen": "the quick " * 30, "rejected": "no"}, ROW_BY_FORMAT["preference"]]
    path = write_rows(tmp_path / "d.jsonl", rows)
    found = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), method="reward", length=30)
    assert (found.tokens.cut, found.tokens.lost, epoch_size(found, "reward").rows) == (1, 1, 1)
    assert epoch_size(found, "kto").rows == 2


def test_rows_that_the_template_refuses(tmp_path, tokenizer, warm_python):
    refused = {"messages": [{"role": "system", "content": "s"}, user_message("a"), assistant_message("b")]}
    question = DataQuestion(
        files=(str(write_rows(tmp_path / "d.jsonl", [CHAT_ROW, refused])),), model=tokenizer(USER_FIRST_TEMPLATE)
    )
    found = probe_data(warm_python, question)
    assert (found.usable, places(found), found.template) == (1, [("refused", 2)], "a user must begin")
    assert levels(found, question) == ["warning"]
    write_rows(tmp_path / "d.jsonl", [CHAT_ROW, *[refused] * 10])
    assert "error" in levels(probe_data(warm_python, question), question), "nearly no row is left"
    write_rows(tmp_path / "d.jsonl", [refused])
    none = probe_data(warm_python, question)
    assert none.tokens is None
    assert "error" in levels(none, question)


@pytest.mark.whole
def test_without_a_template_or_a_tokenizer(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    question = DataQuestion(files=(str(path),), model=tokenizer())
    assert levels(probe_data(warm_python, question), question) == ["error"]
    text = write_rows(tmp_path / "t.jsonl", [ROW_BY_FORMAT["text"]])
    assert probe_files(text, python=warm_python, model=tokenizer()).tokens.total
    for model in (str(tmp_path), "nobody/none", "/no/such"):
        found = probe_files(path, python=warm_python, model=model)
        assert found.tokenizer
        assert found.samples
        is_folder = model == str(tmp_path)
        assert levels(found, DataQuestion(files=(), model=model)) == ["error" if is_folder else "warning"]


# ---- bounds ------------------------------------------------------------------------------------------------------


@pytest.mark.whole
def test_much_data_is_read_up_to_a_limit(tmp_path, tokenizer, warm_python):
    rows = (
        {"messages": [user_message(f"the quick brown fox {number}"), assistant_message("jumps " * (number % 9 + 1))]}
        for number in range(200_000)
    )
    path = write_rows(tmp_path / "d.jsonl", rows)
    found = probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), rows=150_000, seconds=60)
    assert (found.rows, found.all_read, found.usable) == (150_000, False, 150_000)
    assert 0.74 < found.done / found.size < 0.76
    one = epoch_size(found, "sft", 100)
    assert one.estimated
    assert one.rows == pytest.approx(200_000, rel=0.01)
    assert found.tokens.counted < 150_000
    assert levels(found, DataQuestion(files=())) == ["note"]


@pytest.mark.whole
def test_reading_ends_when_its_time_is_over(tmp_path):
    path = write_rows(tmp_path / "d.jsonl", ({"text": f"{number}"} for number in range(100_000)))
    found = probe_files(path, seconds=0)
    assert 0 < found.rows < 1000
    assert not found.all_read
    exactly = probe_files(path, rows=100_000)
    assert (exactly.rows, exactly.all_read) == (100_000, True)


def test_an_answer_is_bounded_and_safe(tmp_path):
    hostile = "\x1b[31m\u202e\x07" * 5000
    rows = [{"messages": [user_message(f"{hostile}{number}"), assistant_message(hostile)]} for number in range(6)]
    rows += [{hostile[:99] + str(number): hostile} for number in range(200)]
    rows += [{"messages": [{"role": hostile, "content": "x"}]}] * 50
    path = write_rows(tmp_path / "\x1b[2J.jsonl", rows)
    found = probe_files(path)
    everything = msgspec.json.encode(found).decode()
    assert len(everything) < 2**20
    assert found.counts["other"] == 200
    shown = [file.path for file in found.files] + [problem.why + problem.file for problem in found.problems]
    shown += [piece.text for sample in found.samples for piece in sample.pieces] + [*found.columns]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202e]", "".join(shown))


@pytest.mark.parametrize("line", [b"", b"[]", b'{"samples": [1]}', b"\xff\xfe"])
def test_an_answer_that_is_none(line):
    assert parse_data_answer(ChildResult(stdout=line + b"\n", exit_code=0)).problem


def test_a_python_that_cannot_be_asked(tmp_path):
    found = probe_data("/no/python", DataQuestion(files=(str(tmp_path),)))
    assert found.problem
    assert levels(found, DataQuestion(files=())) == ["error"]
    assert probe_data(sys.executable, DataQuestion(files=(str(tmp_path),)), 0.01).problem
    assert isinstance(found, DataReport)


# ---- the command -------------------------------------------------------------------------------------------------


def test_the_command(tmp_path, tokenizer, warm_python):
    rows = [{"messages": [user_message("the quick " * number), assistant_message("fox")]} for number in range(1, 50)]
    path = write_rows(tmp_path / "d.jsonl", [*rows, {"messages": []}])
    words = [
        path,
        "--python",
        warm_python,
        "--model",
        tokenizer(ANSWER_MARKING_TEMPLATE),
        "--answers-only",
        "--length=60",
        "--batch=10",
    ]
    done = run_cli("data", *words)
    path_line, *rest = done.stdout.splitlines()
    assert path_line.startswith(str(path))
    assert max(map(len, rest)) <= 80
    assert "▌ fox</s>" in done.stdout
    assert re.search("[▁▂▃▄▅▆▇█]", done.stdout)
    assert "line 50: " in done.stderr
    told = json.loads(run_cli("data", *words, "--json").stdout)
    assert told["epoch"]["steps"] == -(-told["epoch"]["rows"] // 10)
    assert told["look"]["tokens"]["counted"] == told["look"]["usable"] == 49
    assert [finding["level"] for finding in told["findings"]].count("warning") >= 2


def test_the_command_marks_of_a_chat_what_the_template_of_the_model_says(tmp_path, tokenizer, warm_python):
    """Without a model nothing is known of it; what a preference means is."""
    chat = write_rows(tmp_path / "chat.jsonl", [{"messages": [user_message("the quick"), assistant_message("fox")]}])
    words = ["data", chat, "--python", warm_python]
    said = run_cli(*words).stdout
    assert "  user: the quick\n" in said
    assert not set("▌✗┊") & set(said)
    assert "What is learned depends on the model's chat template: --model shows it" in said
    pairs = write_rows(tmp_path / "pairs.jsonl", [ROW_BY_FORMAT["preference"]])
    assert {"▌", "✗"} < set(run_cli("data", pairs, "--python", warm_python, "--method=dpo").stdout)
    marks = run_cli(*words, "--model", tokenizer(ANSWER_MARKING_TEMPLATE)).stdout
    assert "answers  marked by the chat template: only these are learned\n" in marks
    assert ("▌ fox</s>" in marks, marks.count("▌")) == (True, 2), "one of them is the legend's"


def test_the_command_refuses_what_cannot_be_trained_on(tmp_path):
    path = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT["preference"]])
    python = ["--python", sys.executable]
    run_cli("data", path, *python, "--method=dpo")
    run_cli("data", tmp_path / "none.jsonl", code=66)
    run_cli("data", path, "--python=/no/python", code=69)
    run_cli("data", code=64)
    told = json.loads(run_cli("data", path, *python, "--json", code=65).stdout)
    assert told["look"]["format"] == "preference"


# ---- bounds ------------------------------------------------------------------------------------------------------

DOUBLES = "{% set n = namespace(s='a ') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}"
ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
ROWS_OF = """
import json, sys
sys.path.insert(0, sys.argv[1])
import data_rows
json.dump([row.value for row in data_rows.read_rows(sys.argv[2])], sys.stdout)
"""
BOUNDED = """
import resource, sys, time
sys.path.insert(0, sys.argv[1])
import data_bounds, data_template
before = resource.getrlimit(resource.RLIMIT_DATA)
for work in (lambda: time.sleep(9), lambda: bytearray(2**30), lambda: bytearray(2**20)):
    try:
        with data_bounds.limit_memory_and_time(2**26, 0.1):
            work()
        print("done")
    except data_bounds.BoundError as error:
        print(error)
print(before == resource.getrlimit(resource.RLIMIT_DATA))
resource.setrlimit(resource.RLIMIT_DATA, (2**32, -1))
print(data_template.first_line_of_error(MemoryError()))
"""


def small(folder, mib):
    """A Python that has so little memory."""
    return make_executable(folder / "python", f'#!/bin/sh\nulimit -d {mib << 10}\nexec {sys.executable} "$@"\n')


def test_a_json_list_is_read_a_row_at_a_time(tmp_path):
    path = tmp_path / "d.json"
    path.write_bytes(b'[{"text": "a"},' + b"{},".ljust(3 * 2**16) * 200 + b"{},\n" * 2**22 + b'{"text": "b"}]')
    found = probe_files(path, python=small(tmp_path, 200), rows=1000)
    assert (found.rows, found.usable, found.all_read) == (1000, 1, False)


@pytest.mark.parametrize("more", ["", "{}", ', {"text": ', '] {"text": "c"}'])
def test_a_damaged_json_list_is_an_error_with_its_first_rows(tmp_path, more):
    path = tmp_path / "d.json"
    path.write_text('[{"text": "a"}, {"text": "b"}' + more)
    found = probe_files(path)
    assert (found.usable, places(found)) == (2, [("unreadable", 0)])
    assert levels(found, DataQuestion(files=(str(path),)))[0] == "error"


def test_rows_of_a_json_list_are_whole_wherever_it_is_cut_into_pieces(tmp_path):
    rows = [{"text": f'狐 \\ " [{"x" * (number * 997 % 60000)}'} for number in range(200)]
    path = tmp_path / "d.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1))
    words = [sys.executable, "-c", ROWS_OF, str(CHILD), str(path)]
    done = subprocess.run(words, capture_output=True, check=True)
    assert json.loads(done.stdout) == rows


def test_a_value_that_takes_too_much_memory_is_named(tmp_path):
    path = tmp_path / "d.json"
    path.write_bytes(b'{"a": [' + b"[]," * 2**21 + b"0]}")
    (problem,) = probe_files(path, python=small(tmp_path, 100)).problems
    assert (problem.kind, problem.file) == ("unreadable", str(path))
    assert "of memory" in problem.why


@pytest.mark.whole
@pytest.mark.parametrize("name", ["d.jsonl", "d.csv"])
def test_a_sparse_file_without_a_line_break_ends_soon(tmp_path, name):
    with (tmp_path / name).open("wb") as file:
        file.truncate(2**40)
    assert not probe_files(tmp_path / name, python=small(tmp_path, 300)).usable


def test_a_child_that_ends_while_it_reads_says_what(tmp_path):
    path = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT["text"]])
    text = '#!/bin/sh\necho \'{"reading": "\'"$0"\'"}\'; echo memory allocation of 9 bytes failed >&2; kill -6 $$\n'
    python = make_executable(tmp_path / "python", text)
    found = probe_data(str(python), DataQuestion(files=(str(path),)))
    assert re.fullmatch(f"{re.escape(str(python))}: it took more than the \\d+ GiB of memory.*", found.problem)


def test_bounds_hold_for_their_work_alone():
    done = subprocess.run([sys.executable, "-c", BOUNDED, str(CHILD)], capture_output=True, text=True, check=True)
    expected = ["it took more than 0.1 seconds", "it took more than 64 MiB of memory", "done", "True"]
    expected.append("it took more than 4 GiB of memory")
    assert done.stdout.splitlines() == expected


@pytest.mark.whole
def test_a_template_that_doubles_a_text_is_refused(tmp_path, warm_python, tokenizer):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW] * 4)
    found = probe_files(path, python=warm_python, model=tokenizer(DOUBLES))
    assert found.template == "it took more than 512 MiB of memory"
    assert found.counts["refused"] == 2, "it is not tried on each row"


@pytest.mark.whole
def test_a_template_without_an_end_is_refused(tmp_path, warm_python, tokenizer):
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW] * 4)
    assert probe_files(path, python=warm_python, model=tokenizer(ENDLESS)).template == "it took more than 5 seconds"


# ---- TRL itself --------------------------------------------------------------------------------------------------


@needs_trl
def test_trl_itself_learns_what_is_marked(tmp_path, tokenizer):
    rows = {
        **CONVERTED,
        **TAKEN,
        "text": ROW_BY_FORMAT["text"],
        "prompt_completion": ROW_BY_FORMAT["prompt_completion"],
    }
    rows["pair"] = {"chosen": "the sky is blue", "rejected": "the sky is green"}
    cases = [
        {"name": name, "method": "dpo" if "chosen" in row else "kto" if "label" in row else "sft", "rows": [row]}
        for name, row in rows.items()
    ]
    cases += [{"name": "answers", "method": "sft", "rows": [CHAT_ROW], "answers_only": True}]
    asked = "".join(json.dumps({"answers_only": False} | case) + "\n" for case in cases)
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "HF_DATASETS_CACHE": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    words = [TRL_PYTHON, "-B", str(SCRIPTS / "trl_labels.py"), str(CHILD), tokenizer(ANSWER_MARKING_TEMPLATE)]
    done = subprocess.run(words, input=asked, capture_output=True, text=True, check=False, env=environment, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [case["name"] for case in told if case["ours"] != case["theirs"]] == []
    assert len(told) == len(cases)
    refused = {case["name"] for case in told if case["raw"]}
    # It takes ShareGPT, but with its own names for the roles.
    assert refused == CONVERTED.keys() - {"sharegpt"}


@needs_trl
def test_trl_patches_templates_that_it_knows(tmp_path, tokenizer):
    command = [TRL_PYTHON, "-c", "import trl; print(trl.__path__[0])"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    known = (Path(found) / "chat_templates" / "qwen2_5.jinja").read_text()
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW])
    patched = probe_files(path, python=TRL_PYTHON, model=tokenizer(known), answers_only=True)
    assert patched.answers.possible
    assert [text.strip() for text in learned(patched.samples[0])][1] == "Yes<|im_end|>"
    assert not probe_files(path, python=TRL_PYTHON, model=tokenizer(PLAIN_TEMPLATE)).answers.possible


@needs_trl
def test_parquet(tmp_path):
    code = (
        "import json, sys, pyarrow as pa, pyarrow.parquet as pq; "
        "pq.write_table(pa.Table.from_pylist(json.loads(sys.argv[1])), sys.argv[2])"
    )
    path = tmp_path / "d.parquet"
    rows = [CHAT_ROW, {"messages": []}, {"messages": None}]
    subprocess.run([TRL_PYTHON, "-c", code, json.dumps(rows), str(path)], check=True)
    found = probe_files(path, python=TRL_PYTHON)
    assert (found.format, found.usable, places(found)) == ("messages", 1, [("empty", 2), ("wrong", 3)])
    (tmp_path / "no.parquet").write_bytes(b"PAR1 it is not")
    assert places(probe_files(tmp_path / "no.parquet", python=TRL_PYTHON)) == [("unreadable", 0)]


_LARGE_AFTER_SMALL_ROWS = """
import sys
sys.path.insert(0, sys.argv[1])
import data_tally
data_tally._MAX_SAMPLE_ROWS, data_tally._MAX_SAMPLE_BYTES = 100, 10_000
tally = data_tally.FormatTally()
for number in range(400):
    tally.count_and_sample(data_tally.KeptRow("f", number, {}, 10 if number < 200 else 1000))
print(sum(row.size for row in tally.sample), len(tally.sample))
"""


def test_large_rows_after_small_ones_keep_the_sample_small():
    words = [sys.executable, "-c", _LARGE_AFTER_SMALL_ROWS, str(CHILD)]
    kept, rows = map(int, subprocess.run(words, check=True, capture_output=True, text=True).stdout.split())
    assert kept <= 10_000
    assert rows


@needs_trl
def test_a_broken_torchvision_is_named_and_no_other_library(tmp_path, monkeypatch):
    (tmp_path / "torchvision-0.28.0.dist-info").mkdir()
    (tmp_path / "torchvision-0.28.0.dist-info/METADATA").write_text("Name: torchvision\nVersion: 0.28.0\n")
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision/__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    model = tmp_path / "model"
    subprocess.run([TRL_PYTHON, str(SCRIPTS / "vision_model.py"), str(model), "llava"], check=True, capture_output=True)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    data = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT["messages"]])
    said = probe_data(TRL_PYTHON, DataQuestion(files=(str(data),), model=str(model))).tokenizer
    assert said == "its torchvision does not belong to its torch (operator torchvision::nms does not exist)"
