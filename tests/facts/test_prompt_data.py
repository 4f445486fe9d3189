"""Prompts without answers, and rewards that are tried on them."""

import sys

import pytest
from chat_data import (
    CHAT_ROW,
    PLAIN_TEMPLATE,
    ROW_BY_FORMAT,
    USER_FIRST_TEMPLATE,
    assistant_message,
    probe_files,
    user_message,
    write_rows,
)
from fine_tuning import read_rows, run_prepare_data

from tui_train.checks.recipe.data import data_findings
from tui_train.facts.data import data_cache
from tui_train.facts.data.data_report import DataQuestion, RewardQuestion, RewardTrial, probe_data
from tui_train.facts.data.data_use import epoch_size, suitable_methods
from tui_train.facts.types import Toolchain

PROMPTS = [{"prompt": f"Say {number}", "target": number} for number in range(4)]
CHAT_PROMPTS = [{"prompt": [user_message(f"Say {number}")], "text": "kept"} for number in range(4)]
REWARDS = """
import os, time
import beside

def score(prompts, completions, completion_ids, target, trainer_state, log_extra, log_metric, **kwargs):
    print("what it prints is no answer")
    assert trainer_state.global_step == 0 and len(completion_ids) == 3
    log_metric("m", 1.0)
    return [len(text) + one for text, one in zip(completions, target)]

async def later(completions, **kwargs):
    return [None for _ in completions]

def chat(completions, text, **kwargs):
    return [float(len(answer[0]["content"])) for answer in completions]

def raises(completions, **kwargs):
    return [text.missing for text in completions]

def short(completions, **kwargs):
    return [1.0]

def words(completions, **kwargs):
    return ["good"] * len(completions)

def one(completions, **kwargs):
    return 1.0

def nothing(completions, **kwargs):
    pass

def needs_gpu(completions, **kwargs):
    raise RuntimeError("No CUDA GPUs are available")

def ends(completions, **kwargs):
    os._exit(3)

def variable(completions, **kwargs):
    return [float(os.environ["JUDGE"])] * len(completions)

number = 3
"""


@pytest.fixture
def rewards(tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/beside.py").write_text("")
    (tmp_path / "code/my.py").write_text(REWARDS)
    return tmp_path / "code/my.py"


def question_of(path, rewards, *names, **more):
    asked = tuple(RewardQuestion(f"{rewards}:{name}", f"{rewards.stem}.{name}", str(rewards), more) for name in names)
    return DataQuestion(files=(str(path),), method="grpo", rewards=asked)


def test_prompts_are_taken_as_they_are(tmp_path, tokenizer, warm_python):
    path = write_rows(tmp_path / "d.jsonl", [*PROMPTS, {"target": 1}, {"prompt": ""}])
    question = DataQuestion(files=(str(path),), method="rloo", model=tokenizer(PLAIN_TEMPLATE))
    found = probe_data(str(warm_python), question)
    assert (found.format, found.chat, found.usable, found.counts) == ("prompt", False, 4, {"empty": 1, "other": 1})
    assert {piece.state for sample in found.samples for piece in sample.pieces} == {"read"}
    assert (found.tokens.lost, found.tokens.learned, epoch_size(found, "grpo", 2).steps) == (0, 0, 0)
    assert suitable_methods(found) == ("grpo", "rloo")
    assert [each.level for each in data_findings(found, question)] == ["warning"]
    # From prompts alone nothing else can learn.
    other = probe_files(path)
    (finding, _) = data_findings(other, DataQuestion(files=(str(path),)))
    assert (finding.level, finding.change.edits) == ("error", (("finetune.method", "grpo"),))
    assert "only GRPO and RLOO learn" in run_prepare_data(tmp_path / "data", path, code=65)


def test_columns_stay_for_the_rewards(tmp_path):
    run_prepare_data(tmp_path / "text", "--method=grpo", write_rows(tmp_path / "d.jsonl", PROMPTS))
    assert read_rows(tmp_path / "text/train.jsonl") == PROMPTS
    # A reward may compare with the answer that a row has, whatever format that would be to others.
    rows = [*CHAT_PROMPTS, {"prompt": [user_message("Hi")], "completion": "yo", "chosen": "a", "rejected": "b"}]
    run_prepare_data(tmp_path / "chat", "--method=grpo", write_rows(tmp_path / "c.jsonl", rows))
    assert read_rows(tmp_path / "chat/train.jsonl") == rows


def test_chats_become_prompts_up_to_the_last_answer(tmp_path):
    turns = CHAT_ROW["messages"]
    only_answer = {"messages": [assistant_message("Hello")]}
    path = write_rows(tmp_path / "d.jsonl", [CHAT_ROW, {"messages": turns[:3]}, only_answer])
    said = run_prepare_data(tmp_path / "data", "--method=grpo", path)
    assert "line 3: messages have no prompt before the answer" in said
    assert [row["prompt"] for row in read_rows(tmp_path / "data/train.jsonl")] == [turns[:3]] * 2
    assert read_rows(tmp_path / "data/train.jsonl")[0]["messages"] == turns
    assert probe_files(path, method="grpo").conversions[0].rows == 2


def test_prompts_that_the_template_refuses_are_left_out(tmp_path, tokenizer, warm_python):
    refused = {"prompt": [{"role": "system", "content": "s"}], "messages": CHAT_ROW["messages"]}
    path = write_rows(tmp_path / "d.jsonl", [*CHAT_PROMPTS, refused])
    words = ("--method=grpo", f"--model={tokenizer(USER_FIRST_TEMPLATE)}", path)
    assert "line 5: the template refuses it" in run_prepare_data(tmp_path / "data", *words, python=warm_python)
    assert read_rows(tmp_path / "data/train.jsonl") == CHAT_PROMPTS


def test_rewards_are_called_as_trl_calls_them(tmp_path, rewards):
    path = write_rows(tmp_path / "d.jsonl", PROMPTS)
    for each in probe_data(sys.executable, question_of(path, rewards, "score", "later")).rewards:
        assert (each.problem, each.untried) == ("", ""), each
    chat = write_rows(tmp_path / "c.jsonl", CHAT_PROMPTS)
    (found,) = probe_data(sys.executable, question_of(chat, rewards, "chat")).rewards
    assert not found.problem
    (found,) = probe_data(sys.executable, question_of(path, rewards, "variable", JUDGE="2.5")).rewards
    assert not found.problem


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "line 18: AttributeError: 'str' object has no attribute 'missing'"),
        ("short", "it returns 1 values for 3 answers"),
        ("words", "it returns str 'good' for an answer, not a number"),
        ("one", "it returns float 1.0, not a list with one number for each answer"),
        ("nothing", "it returns nothing (None), not a list with one number for each answer"),
        ("number", "it is no function, but int"),
        ("absent", "it is not in {file}"),
        ("ends", "it ends Python: exit code 3"),
        ("chat", "TypeError: chat() missing 1 required positional argument: 'text'"),
    ],
)
def test_what_is_wrong_with_a_reward_is_named(tmp_path, rewards, name, said):
    path = write_rows(tmp_path / "d.jsonl", PROMPTS)
    (found,) = probe_data(sys.executable, question_of(path, rewards, name)).rewards
    assert (found.problem, found.untried) == (said.format(file=rewards), "")


def test_a_reward_that_needs_a_gpu_is_no_error(tmp_path, rewards):
    path = write_rows(tmp_path / "d.jsonl", PROMPTS)
    (found,) = probe_data(sys.executable, question_of(path, rewards, "needs_gpu")).rewards
    assert (found.problem, found.untried) == ("", "line 33: RuntimeError: No CUDA GPUs are available")


def test_a_file_that_cannot_be_imported_is_named(tmp_path, rewards):
    path = write_rows(tmp_path / "d.jsonl", PROMPTS)

    def problem(file):
        return probe_data(sys.executable, question_of(path, file, "score")).rewards[0].problem

    assert problem(tmp_path / "gone.py") == "there is no such file"
    (rewards.parent / "beside.py").unlink()
    assert problem(rewards) == "line 3: ModuleNotFoundError: No module named 'beside'"
    rewards.write_text("def score(:")
    assert problem(rewards).startswith("line 1: SyntaxError: ")
    (rewards.parent / "torch.py").write_text("")
    assert problem(rewards) == "beside it lies torch.py, which Python would import instead of its own torch"


def test_a_reward_that_takes_too_long_is_told_from_one_that_fails(tmp_path, rewards):
    rewards.write_text("import time\ndef score(completions, **more):\n    time.sleep(100)\n")
    path = write_rows(tmp_path / "d.jsonl", PROMPTS)
    found = probe_data(sys.executable, question_of(path, rewards, "score"), deadline=8)
    assert (found.usable, found.rewards) == (
        4,
        (RewardTrial(f"{rewards}:score", untried="it gave no answer in time"),),
    )


def test_what_was_tried_is_kept_until_a_file_beside_it_changes(tmp_path, rewards, monkeypatch):
    monkeypatch.setattr(data_cache, "_MIN_CACHEABLE_FILE_AGE_SECONDS", -1.0)
    tool = Toolchain(python=sys.executable)
    question = question_of(write_rows(tmp_path / "d.jsonl", PROMPTS), rewards, "score")
    first = data_cache.read_data_report(tool, question)
    assert not first.rewards[0].problem
    assert data_cache.read_data_report(tool, question) == first
    (rewards.parent / "beside.py").write_text("raise ValueError('changed')\n")
    assert "ValueError: changed" in data_cache.read_data_report(tool, question).rewards[0].problem


def test_rewards_are_tried_only_on_prompts(tmp_path, rewards):
    path = write_rows(tmp_path / "d.jsonl", [ROW_BY_FORMAT["text"]])
    assert probe_data(sys.executable, question_of(path, rewards, "score")).rewards == ()
