"""Is a result better on tasks of lm-eval: both sides answer the same documents, and each is compared by itself."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from support import set_variables
from training_results import LOG_LINES, ended_run
from upload_hub import UploadHub

from tui_train.actions.evaluate import EvaluationOptions, evaluate_run
from tui_train.actions.result_child import AnswerCancelled
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.views.evaluation import mean_score_texts, verdict_text

PROGRAMS = Path(__file__).parents[2] / "tui_train/programs/result"
PYTHON = os.environ.get("TUI_TRAIN_TEST_LM_EVAL", "")
with_lm_eval = pytest.mark.skipif(
    not PYTHON, reason="NOT TESTED: tasks of lm-eval, for which TUI_TRAIN_TEST_LM_EVAL names a Python that has it"
)
ONLINE_NOWHERE = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
TASK = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {folder}/documents.jsonl
test_split: test
doc_to_text: "Q: {{{{question}}}} A:"
"""
CHOICE = """
output_type: multiple_choice
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - metric: brier_score
    higher_is_better: false
  - metric: acc
    aggregation: mean
    higher_is_better: true
"""
WRITING = """
output_type: generate_until
doc_to_target: "it is"
generation_kwargs:
  until: ["!"]
  max_gen_toks: 4
metric_list:
  - metric: exact_match
    aggregation: mean
    higher_is_better: true
"""


def write_task(folder, answers):
    """Write the files of two tasks with as many documents as there are answers."""
    words = ("zebra", "house", "quick", "12345", "WALTZ", "a b c", "...!?", "jumpy")
    documents = (
        {"question": f"What is {at}?", "answer": answer, "choices": [words[at % 8], words[(at * 3 + 1) % 8]]}
        for at, answer in enumerate(answers)
    )
    (folder / "documents.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    for name, rest in (("choice", CHOICE), ("writing", WRITING)):
        (folder / f"{name}.yaml").write_text(TASK.format(name=f"own_{name}", folder=folder) + rest)
    return str(folder / "choice.yaml")


@pytest.fixture
def task_programs():
    """Returns what an expression of the child's own gives, and whether it then stays off the Hub."""
    program = (
        "import json, os, task_child; task_child._HUB_ANSWER_SECONDS = 0.2; "
        "print(json.dumps([eval('task_child.' + os.environ['ASKED']), os.environ.get('HF_HUB_OFFLINE', '')]))"
    )

    def ask(expression, **variables):
        environment = {**os.environ, "PYTHONPATH": str(PROGRAMS), "ASKED": expression, "HF_HUB_OFFLINE": ""} | variables
        done = subprocess.run(
            [sys.executable, "-c", program], env=environment, capture_output=True, check=True, timeout=20
        )
        return json.loads(done.stdout)

    return ask


@pytest.fixture
def task_run(tmp_path, models, monkeypatch):
    """A run whose output is a full model, and whose Python has lm-eval."""
    set_variables(monkeypatch, ONLINE_NOWHERE)
    run = ended_run(tmp_path / "run", LOG_LINES, python=PYTHON, **{"trainer.model": str(models[0])})
    (run.path / "output").symlink_to(models[1])
    return run


@pytest.mark.whole
@with_lm_eval
def test_documents_whose_answers_are_those_of_one_side_tell_it_from_the_other(task_run, tmp_path):
    (tmp_path / "tasks").mkdir()
    task = write_task(tmp_path / "tasks", [0, 1] * 12)
    first = evaluate_run(task_run, EvaluationOptions(tasks=(task,), by="acc"))
    wanted = [number % 2 if row.result.score else 1 - number % 2 for number, row in enumerate(first.rows)]
    assert len(set(wanted)) == 2, "else the documents tell nothing"
    write_task(tmp_path / "tasks", wanted)
    told = []
    better = evaluate_run(task_run, EvaluationOptions(tasks=(task,), by="acc"), lambda *words: told.append(words))
    assert better.mean_scores[0] == 1
    assert better.mean_scores[1] < 1, "another model prefers others of words that are equally long"
    assert mean_score_texts(better)[0] == "own_choice acc"
    assert f"100 % of {24 - better.equal_row_count} rows" in verdict_text(better)
    assert ("", 48, 96) in told, "the other side's requests begin"
    (figure,) = [each for each in better.figures if each.name == "own_choice acc"]
    assert (figure.result, figure.other) == better.mean_scores, "lm-eval's own figures"


@pytest.mark.whole
@with_lm_eval
def test_an_evaluation_that_was_broken_off_keeps_what_was_answered(task_run, tmp_path):
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks", [0, 1])
    options, told = EvaluationOptions(tasks=(str(tmp_path / "tasks"),)), []
    with pytest.raises(AnswerCancelled):
        evaluate_run(task_run, options, lambda *words: told.append(words), lambda: any(word[1] for word in told))
    told.clear()
    evaluation = evaluate_run(task_run, options, lambda *words: told.append(words))
    assert not any(count and done < count / 2 for _, done, count in told), "the result's answers were kept"
    assert {row.result.group for row in evaluation.rows} == {"own_choice acc", "own_writing exact_match"}
    assert {path.suffix for path in (task_run.path / "evaluations").iterdir()} == {".json", ".jsonl"}


@pytest.mark.whole
@with_lm_eval
def test_what_is_no_task_or_has_no_such_metric_is_refused(task_run, tmp_path):
    (tmp_path / "tasks").mkdir()
    task = write_task(tmp_path / "tasks", [0, 1])
    with pytest.raises(Unavailable, match="knows no task own_taste"):
        evaluate_run(task_run, EvaluationOptions(tasks=("own_taste",)))
    with pytest.raises(Unavailable, match="own_choice has no f1 of each document; it has acc"):
        evaluate_run(task_run, EvaluationOptions(tasks=(task,), by="f1"))


@pytest.mark.whole
@with_lm_eval
def test_data_that_would_be_downloaded_are_missed_before_a_model_is_loaded(task_run):
    told = []
    with pytest.raises(Unavailable, match="are not here, and the Hub is not asked") as raised:
        evaluate_run(task_run, EvaluationOptions(tasks=("arc_easy",)), lambda *step: told.append(step[0]))
    assert raised.value.remedy.startswith("Unset HF_HUB_OFFLINE once")
    assert told == ["the tasks"]


@pytest.mark.whole
@with_lm_eval
def test_a_file_of_a_task_that_is_not_there_is_named(task_run, tmp_path):
    (tmp_path / "tasks").mkdir()
    task = write_task(tmp_path / "tasks", [0, 1])
    (tmp_path / "tasks/documents.jsonl").unlink()
    with pytest.raises(Unavailable, match=r"cannot be loaded: .*documents\.jsonl"):
        evaluate_run(task_run, EvaluationOptions(tasks=(task,)))


def test_a_python_without_lm_eval_is_told_how_it_gets_it(full_run, tmp_path):
    with pytest.raises(Unavailable, match="tasks need lm-eval") as error:
        evaluate_run(full_run, EvaluationOptions(tasks=("gsm8k",)))
    assert error.value.remedy.endswith(" lm-eval")
    with pytest.raises(NotFound, match="there is no"):
        evaluate_run(full_run, EvaluationOptions(tasks=(str(tmp_path / "none.yaml"),)))
    with pytest.raises(BadInput, match="documents of their own"):
        evaluate_run(full_run, EvaluationOptions(tasks=("gsm8k",), data=("rows.jsonl",)))


def test_a_hub_that_does_not_answer_is_asked_once(task_programs):
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"http://127.0.0.1:{mute.getsockname()[1]}"
        reason, offline = task_programs("_go_offline_without_hub()", HF_ENDPOINT=address)
        assert (reason, offline) == (f"{address} does not answer: timed out", "1")
    with UploadHub() as hub:
        assert task_programs("_go_offline_without_hub()", HF_ENDPOINT=hub.url) == ["", ""]


def test_of_choices_the_likeliest_is_the_answer(task_programs):
    assert task_programs("_answer_text([(-9.5, False), (-2.5, True)])")[0] == "1"
    assert task_programs("_answer_text(['it is', 'so'])")[0] == "it is; so"
