"""Is a result better: scores of two models on the same rows, and the verdict that follows from them."""

import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from jsonschema import Draft202012Validator
from msgspec import structs
from support import run_cli, set_variables
from training_results import LOG_LINES, ended_run, run_that_left

from tui_train.actions.evaluate import (
    Evaluation,
    EvaluationOptions,
    RowScores,
    ScoreFile,
    SideScore,
    default_scoring,
    evaluate_run,
    rows_request,
    rows_scored_by_both,
    unscored_rows_note,
)
from tui_train.actions.result_child import AnswerCancelled
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.cli import spec
from tui_train.cli.app import cli
from tui_train.programs import hub_cache
from tui_train.views.evaluation import differing_sample_texts, mean_score_texts, verdict_text

OFFLINE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}


def evaluation_of(pairs, by="loss"):
    rows = [
        RowScores(SideScore("result", number, result, 10), SideScore("other", number, other, 10))
        for number, (result, other) in enumerate(pairs)
    ]
    return Evaluation(by=by, other_name="base", rows=tuple(rows), usable_rows=len(rows))


@pytest.mark.parametrize(
    ("pairs", "verdict", "text"),
    [
        ([(-1, -2)] * 5, "no difference", "better on 100 % of 5 rows (95 % interval: 46 to 100 %)"),
        ([(-1, -2)] * 6, "better", "Better than the base, on 100 % of 6 rows"),
        ([(-2, -1)] * 40, "worse", "Worse than the base: better on 0 % of 40 rows"),
        ([(-1, -1.000001)] * 200, "no difference", "No proven difference from the base: equal on 200 rows."),
        ([(-1, -2)] * 122 + [(-2, -1)] * 78, "better", "on 61 % of 200 rows (95 % interval: 53 to 67 %)"),
        (
            [(1, 0)] * 30 + [(0, 1)] * 10 + [(0, 0)] * 160, "better",
            "on 75 % of 40 rows (95 % interval: 58 to 86 %; equal on 160 more)",
        ),
        ([(float("nan"), -1)] * 20, "worse", "better on 0 % of 20 rows"),
        ([(float("nan"), float("nan"))] * 20, "no difference", "equal on 20 rows"),
    ],
)  # fmt: skip
def test_the_verdict_needs_an_interval_on_one_side_of_a_half(pairs, verdict, text):
    evaluation = evaluation_of(pairs)
    assert evaluation.verdict == verdict
    assert text in verdict_text(evaluation)


def test_an_answer_that_no_row_expects_is_not_shown():
    sides = (SideScore("result", 0, 1, answer="a", prompt="p"), SideScore("other", 0, 0, answer=" "))
    (sample,) = differing_sample_texts(structs.replace(evaluation_of([], by="function"), rows=(RowScores(*sides),)), 3)
    assert sample == (("prompt", "p"), ("result", "a"), ("base", "(only blanks or special tokens)"))


def test_the_means_are_the_loss_per_token_and_the_grade_per_row():
    assert evaluation_of([(-10, -40), (-30, -40)]).mean_scores == (2.0, 4.0)
    assert evaluation_of([(1, 0), (0, 0)], by="exact").mean_scores == (0.5, 0.0)


def test_scores_that_are_no_numbers_or_come_twice_are_kept_once(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    request = {"data": [], "function": "", "earlier": None}
    for _ in range(2):  # two evaluations at once
        kept = ScoreFile(run, request)
        kept.scores.clear()
        kept.add(SideScore("result", 0, float("nan")))
        kept.add(SideScore("other", 0, -1))
    (row,) = rows_scored_by_both(ScoreFile(run, request).scores)
    assert (math.isnan(row.result.score), row.other.score) == (True, -1)


def test_pairs_are_no_loss_and_odd_rows_and_other_tokenizers_do_not_count():
    rows = [RowScores(SideScore("result", 0, 3, 8, pair=True), SideScore("other", 0, -1, 8, pair=True))]
    pairs = Evaluation(by="loss", other_name="base", rows=tuple(rows), usable_rows=1)
    assert mean_score_texts(pairs) == ("log-probability of chosen minus rejected answer", "3", "-1")
    other = RowScores(SideScore("result", 0, -20, 10), SideScore("other", 0, -20, 5))
    assert Evaluation(by="loss", other_name="base", rows=(other,), usable_rows=1).mean_scores == (2.0, 2.0)
    scores = [SideScore("result", 4, 0, odd="row 5 has no answer"), SideScore("other", 4, 0, odd="row 5 has no answer")]
    assert not rows_scored_by_both(scores)
    assert unscored_rows_note(scores) == "1 row could not be scored: row 5 has no answer."


def test_of_several_comparisons_each_needs_more():
    evaluation = evaluation_of([(-1, -2)] * 6)
    assert evaluation.verdict == "better"
    assert structs.replace(evaluation, comparisons=10).verdict == "no difference"


def test_scores_are_kept_for_the_very_files_that_were_scored(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES)
    data = tmp_path / "data/below"
    data.mkdir(parents=True)
    (data / "rows.jsonl").write_text("{}\n")
    request = {"data": [str(tmp_path / "data")], "function": "", "earlier": None}
    ScoreFile(run, request).add(SideScore("result", 0, 1))
    assert ScoreFile(run, request).scores
    state = (data / "rows.jsonl").stat()
    (data / "rows.jsonl").write_text('{"other": 1}\n')
    os.utime(data / "rows.jsonl", ns=(state.st_atime_ns, state.st_mtime_ns))
    assert not ScoreFile(run, request).scores


def test_rows_are_cut_where_the_training_cut_them(tmp_path):
    run = ended_run(tmp_path / "run", LOG_LINES, **{"recipe.sequence_length": 64})
    (tmp_path / "rows.jsonl").touch()
    options = EvaluationOptions(data=(str(tmp_path / "rows.jsonl"),))
    assert rows_request(run, options)["length"] == 64
    plan = run.plan()
    plan["attempts"][0]["command"]["parts"].append({"words": ["--max_length=32"]})
    run.plan_file.write_text(json.dumps(plan))
    assert rows_request(run, options)["length"] == 32, "a fallback had a smaller one"


@pytest.fixture
def rows_file(tmp_path):
    """Write rows, answers by prompt, and return their file."""

    def write(answers):
        rows = [
            {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": answer}]}
            for prompt, answer in answers.items()
        ]
        (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(tmp_path / "rows.jsonl")

    return write


def command(run, *words, code):
    return run_cli("evaluate", f"{run.path}/", *words, code=code, env={**os.environ, **OFFLINE})


@pytest.fixture
def base_run(tmp_path, models):
    """A run that left its base as it was."""
    return run_that_left(models[0], tmp_path / "untrained", models[0])


@pytest.mark.whole
def test_answers_that_are_known_tell_the_better_model_from_the_worse_and_from_itself(
    full_run, base_run, rows_file, monkeypatch
):
    set_variables(monkeypatch, OFFLINE)
    data = rows_file({f"What is {number}?": "It is." for number in range(12)})
    first = evaluate_run(base_run, EvaluationOptions(data=(data,), by="exact", max_answer_tokens=12))
    assert first.verdict == "no difference", "neither says that"
    rows_file({row.result.prompt: row.result.answer for row in first.rows})
    words = ("--data", data, "--by", "exact", "--max-tokens", "12")
    worse = command(full_run, *words, code=2).stdout
    assert "right answers  0 %     100 %" in worse
    assert "Worse than the base: better on 0 % of 12 rows" in worse
    assert "expected" in worse
    better = command(base_run, *words, "--against", f"{full_run.path}/", code=0).stdout
    assert "Better than run, on 100 % of 12 rows" in better
    same = json.loads(command(base_run, "--data", data, "--json", code=1).stdout)
    assert (same["verdict"], same["better_share"], same["result"]) == ("no difference", 0.5, same["other"])


@pytest.mark.whole
def test_an_evaluation_that_was_broken_off_goes_on_and_another_one_begins_anew(full_run, rows_file, monkeypatch):
    set_variables(monkeypatch, OFFLINE)
    options = EvaluationOptions(data=(rows_file({f"What is {number}?": "It is." for number in range(6)}),))
    done = []
    with pytest.raises(AnswerCancelled):
        evaluate_run(full_run, options, lambda _what, scores, _of: done.append(scores), lambda: 8 in done)
    (kept,) = (full_run.path / "evaluations").iterdir()
    before = len(kept.read_text().strip().splitlines())
    assert 8 <= before < 12, "some more may have come"
    kept.write_bytes(kept.read_bytes() + b'\n{"side": "other", "num')
    done.clear()
    evaluation = evaluate_run(full_run, options, lambda _what, scores, of: done.append((scores, of)))
    assert [row.other.number for row in evaluation.rows] == [0, 1, 2, 3, 4, 5]
    assert [scores for scores, of in done if of] == list(range(before + 1, 13))
    rows_file({"What is 9?": "It is."})
    assert [row.result.number for row in evaluate_run(full_run, options).rows] == [0]


@pytest.mark.whole
def test_rows_that_the_run_learned_are_told(full_run, rows_file, monkeypatch):
    set_variables(monkeypatch, OFFLINE)
    (full_run.path / "data").mkdir()
    data = rows_file({"What is 1?": "It is one.", "What is 2?": "It is two."})
    learned = Path(data).read_text().splitlines(keepends=True)
    in_training = "1 of these rows were in the training data of run"
    for rows, note in ((learned[:1], in_training), (learned, "All of these rows"), ([], "")):
        (full_run.path / "data/train.jsonl").write_text("".join(rows) or '{"text": "another"}\n')
        assert evaluate_run(full_run, EvaluationOptions(data=(data,))).note.startswith(note), note
    assert not evaluate_run(full_run, EvaluationOptions(data=(data,))).note


@pytest.mark.whole
def test_an_odd_row_is_told_and_bad_answers_are_not_counted(full_run, tmp_path, monkeypatch):
    set_variables(monkeypatch, OFFLINE)
    file, told = tmp_path / "rows.jsonl", []
    long = {"prompt": "a" * 300, "completion": "b"}
    file.write_text("".join(json.dumps(row) + "\n" for row in ({"prompt": "a", "completion": "b"}, long)))
    evaluation = evaluate_run(full_run, EvaluationOptions(data=(str(file),), by="exact", max_answer_tokens=2))
    assert [row.result.number for row in evaluation.rows] == [0]
    assert evaluation.note == "1 row could not be scored: row 2 has 300 tokens, and the model takes 256."
    rows = ({"prompt": str(number), "completion": "b", "label": number < 2} for number in range(5))
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    evaluation = evaluate_run(full_run, EvaluationOptions(data=(str(file),)), lambda *words: told.append(words))
    assert (len(evaluation.rows), evaluation.usable_rows, told[-1]) == (2, 2, ("", 4, 4))


@pytest.mark.whole
def test_a_function_of_the_user_grades_and_what_it_raises_is_told_with_its_row(full_run, rows_file, tmp_path):
    data = rows_file({"What is 1?": "It is one.", "What is 2?": "It is two."})
    (tmp_path / "score.py").write_text(
        "def length(prompt, answer, expected):\n    assert prompt != 'What is 2?', 'no two'\n    return len(expected)\n"
    )
    options = EvaluationOptions(data=(data,), by=f"function:{tmp_path}/score.py:length", max_answer_tokens=4)
    with pytest.raises(Unavailable, match="row 2: AssertionError: no two"):
        evaluate_run(full_run, options)
    with pytest.raises(Unavailable, match=r"score\.py has no width"):
        evaluate_run(full_run, EvaluationOptions(data=(data,), by=f"function:{tmp_path}/score.py:width"))


REWARD = """
from beside import weight

def letters(completions, target, **kwargs):
    return [None if one == 2 else one * weight + 0 * len(each[0]["content"]) for each, one in zip(completions, target)]

def by_name(prompts, **given):
    return [one + 0 * len(given["completions"]) for one in given["target"]]
"""


@pytest.mark.whole
def test_a_reward_scores_answers_to_prompts_as_in_the_training(full_run, tmp_path, monkeypatch):
    set_variables(monkeypatch, OFFLINE)
    rows = ({"prompt": [{"role": "user", "content": f"Say {n}"}], "target": n} for n in range(4))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "beside.py").write_text("weight = 2")
    (tmp_path / "rewards.py").write_text(REWARD)
    options = EvaluationOptions(data=(str(tmp_path / "rows.jsonl"),), max_answer_tokens=4)
    by = f"function:{tmp_path}/rewards.py:letters"
    evaluation = evaluate_run(full_run, structs.replace(options, by=by))
    assert [row.result.score for row in evaluation.rows] == [0, 2, 6]
    assert (evaluation.rows[0].result.prompt, bool(evaluation.rows[0].result.answer)) == ("Say 0", True)
    assert evaluation.note == "1 row could not be scored: row 3 gets no reward (None)."
    evaluation = evaluate_run(full_run, structs.replace(options, by=by.replace("letters", "by_name")))
    assert [row.result.score for row in evaluation.rows] == [0, 1, 2, 3]
    with pytest.raises(Unavailable, match="only GRPO and RLOO learn"):
        evaluate_run(full_run, options)


def test_what_learned_from_a_reward_of_the_users_is_scored_by_it(full_run, tmp_path):
    assert default_scoring(full_run) == "loss"
    rewards = ("accuracy_reward", "/x/my.py:score")
    chosen = {"trainer.kind": "finetune", "finetune.method": "grpo", "finetune.rewards": rewards}
    chosen |= {"trainer.data": ("/d.jsonl",), "trainer.model": "org/base"}
    assert default_scoring(ended_run(tmp_path / "rewarded", LOG_LINES, **chosen)) == "function:/x/my.py:score"


def test_what_cannot_be_evaluated_is_said_before_anything_is_loaded(full_run, tmp_path):
    with pytest.raises(NotFound, match=r"kept no rows for evaluations") as error:
        evaluate_run(full_run, EvaluationOptions())
    assert "data.evaluation" in error.value.remedy
    for by in ("taste", "regex:(", "function:score.py", "function:score.py:"):
        with pytest.raises(BadInput):
            evaluate_run(full_run, EvaluationOptions(by=by))
    with pytest.raises(NotFound, match=r"there is no .*score\.py"):
        evaluate_run(full_run, EvaluationOptions(by="function:score.py:score"))
    with pytest.raises(NotFound, match="there is no"):
        evaluate_run(full_run, EvaluationOptions(data=(str(tmp_path / "missing"),)))


GRADES = """
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import evaluate_child as child
regex = child._GRADER_BY_KIND["regex"]({"pattern": r"#### (\\d+)"})
assert regex("", "so #### 3 or #### 42", "the sum is #### 42")
assert not regex("", "so #### 41", "the sum is #### 42")
assert not regex("", "so 42", "the sum is #### 42")
assert regex("", "#### 1", "no mark") and not regex("", "1", "no mark")
ask, tell = {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}
assert child.prompt_and_expected_answer({"messages": [ask, tell]}, 1) == ([ask], "b")
assert child.prompt_and_expected_answer({"prompt": "a", "completion": "b"}, 1) == ("a", "b")
assert child.prompt_and_expected_answer({"prompt": [ask], "chosen": [tell], "rejected": [ask]}, 1) == ([ask], "b")
assert child.prompt_and_expected_answer({"prompt": "a"}, 1) == ("a", "")
class Tokenizer:
    chat_template = "any"
    def apply_chat_template(self, messages, tokenize=True, **more):
        self.given = more
        return {name: Tensor() for name in ("input_ids", "attention_mask")} if tokenize else ""
class Tensor:
    shape = (1,)
    def to(self, device):
        return self
row = {"messages": [ask, tell], "tools": [{"name": "clock"}], "chat_template_kwargs": {"thinking": False}}
child._encoded_prompt(tokenizer := Tokenizer(), [ask], "cpu", child.template.apply_chat_template_options(row))
assert (tokenizer.given["tools"], tokenizer.given["thinking"]) == (row["tools"], False)
read, write = os.pipe()
os.dup2(write, 1)
child.MessagePipe().send("score", expected="half \\udc80")
assert json.loads(os.read(read, 4096).decode())["expected"] == "half ?"
for row in ({"messages": [ask]}, {"messages": [tell]}, {"text": "a"}):
    try:
        child.prompt_and_expected_answer(row, 7)
    except child.RefusedError as error:
        assert "row 7" in str(error)
    else:
        raise AssertionError(row)
"""


def test_an_answer_is_likened_to_that_of_its_row():
    folder = str(Path(hub_cache.__file__).parent / "result")
    subprocess.run([sys.executable, "-c", GRADES, folder], check=True)


@pytest.fixture
def run_with_checkpoints(tmp_path, models):
    """A run whose result is one model, with a checkpoint of each of two."""
    run = ended_run(tmp_path / "run", LOG_LINES, python=warm.training(), **{"trainer.model": str(models[0])})
    shutil.copytree(models[1], run.path / "output")
    for step, model in ((5, models[0]), (10, models[1])):
        folder = run.path / f"output/checkpoint-{step}"
        shutil.copytree(model, folder)
        for name in run.plan()["attempts"][0]["checkpoints"]["complete"]:
            (folder / name).write_text("{}")
    return run


def test_a_checkpoint_that_is_named_is_the_result(run_with_checkpoints):
    for reference, words in (("@5", "checkpoint of step 5"), ("@10", "checkpoint of step 10"), ("", "final weights")):
        told = run_cli("result", f"{run_with_checkpoints.path}{reference}").stdout
        assert words in told
        assert (f"output/checkpoint-{reference[1:]}" in told) == bool(reference)
        assert f"tui-train try {run_with_checkpoints.name}{reference}\n" in told
    words = (
        "evaluate",
        f"{run_with_checkpoints.path}/",
        "--checkpoints",
        "--against",
        f"{run_with_checkpoints.path}@5",
    )
    assert "Leave out --task, --against and @STEP" in run_cli(*words, code=65).stderr
    refused = run_cli("try", f"{run_with_checkpoints.path}@7", "--prompt", "a", code=66).stderr
    assert "no complete checkpoint of step 7" in refused
    assert "run@5, run@10" in refused
    for command in ("logs", "metrics", "resume"):
        assert "@5 is a checkpoint" in run_cli(command, f"{run_with_checkpoints.path}@5", code=66).stderr


@pytest.mark.whole
def test_the_best_checkpoint_is_found_and_told_from_the_result(run_with_checkpoints, base_run, rows_file, monkeypatch):
    set_variables(monkeypatch, OFFLINE)
    data = rows_file({f"What is {number}?": "It is." for number in range(12)})
    first = evaluate_run(base_run, EvaluationOptions(data=(data,), by="exact", max_answer_tokens=8))
    rows_file({row.result.prompt: row.result.answer for row in first.rows})
    words = ("--checkpoints", "--data", data, "--by", "exact", "--max-tokens", "8")
    told = command(run_with_checkpoints, *words, code=0).stdout
    assert "step 5      100 %          best" in told
    assert "step 10     0 %            worse" in told
    assert "Step 5 scores best. Better than the result as it is, on 100 % of 12 rows" in told
    assert "tui-train try run@5" in told
    surface = spec.command_surface(cli)
    (schema,) = [each["answer"] for each in surface["commands"] if each["name"] == "evaluate"]
    answer = json.loads(command(run_with_checkpoints, *words, "--json", code=0).stdout)
    Draft202012Validator({**schema, "$defs": surface["$defs"]}).validate(answer)
    assert (answer["best"], answer["proven_better"]) == (5, True)
    assert {side: each["verdict"] for side, each in answer["compared"].items()} == {
        "result": "better", "step 10": "better",
    }  # fmt: skip
    shutil.rmtree(run_with_checkpoints.path / "output/checkpoint-5")
    assert "The result as it is scores best" in command(run_with_checkpoints, *words, code=1).stdout
