"""Several data files with weights: what the run is given of each, and what is said of it before."""

import sys
from collections import Counter

import pytest
from chat_data import (
    CHAT_ROW,
    PLAIN_TEMPLATE,
    SYSTEM_CHAT_ROW,
    USER_FIRST_TEMPLATE,
    numbered_row,
    probe_files,
    write_rows,
)
from fine_tuning import TUNING_LIBRARIES, finetune_profile, read_rows, run_prepare_data
from msgspec.structs import replace
from support import facts, findings_of, prepare_without_errors, run_cli
from tui_train.screens.data.data_lines import data_summary_lines

from tui_train.base.command import argv
from tui_train.base.errors import BadInput
from tui_train.facts.data.data_report import DataQuestion
from tui_train.facts.data.data_use import epoch_size
from tui_train.profile import data_weights, store
from tui_train.setup.recipe.data_questions import question_about_data
from tui_train.setup.setup import Setup
from tui_train.views.data_text import file_share_lines


@pytest.fixture
def files(tmp_path):
    """Thirty rows of one kind, and ten of another."""
    many = write_rows(tmp_path / "a.jsonl", [{"text": f"a{number}"} for number in range(30)])
    return many, write_rows(tmp_path / "b.jsonl", [{"text": f"b{number}"} for number in range(10)])


def drawn(folder):
    """How often each row is in the prepared data."""
    return Counter(row["text"] for row in read_rows(folder / "train.jsonl"))


def of(counts, kind):
    return {text: many for text, many in counts.items() if text.startswith(kind)}


@pytest.mark.parametrize(("weights", "a", "b"), [("3,1", 30, 10), ("1,3", 10, 30), ("1,1", 20, 20), ("0,2", 0, 40)])
def test_each_file_has_its_share(tmp_path, files, weights, a, b):
    said = run_prepare_data(tmp_path / "data", f"--weights={weights}", *files)
    counts = drawn(tmp_path / "data")
    assert (sum(of(counts, "a").values()), sum(of(counts, "b").values())) == (a, b)
    assert f"{files[0]}: 30 rows, {a} in an epoch" in said
    assert f"{files[1]}: 10 rows, {b} in an epoch" in said
    assert "40 rows to train on" in said
    for kind, rows, taken in (("a", 30, a), ("b", 10, b)):
        # Each as often as any other, or once more.
        assert set(of(counts, kind).values()) <= {taken // rows, taken // rows + 1} - {0}


def test_which_rows_are_taken_follows_from_the_seed(tmp_path, files):
    for name, seed in (("x", 1), ("y", 1), ("z", 2)):
        run_prepare_data(tmp_path / name, "--weights=1,2", f"--seed={seed}", *files)
    x, y, z = (read_rows(tmp_path / name / "train.jsonl") for name in "xyz")
    assert (x == y, x == z) == (True, False)


def test_rows_for_evaluations_are_held_out_of_all_repetitions(tmp_path, files):
    run_prepare_data(tmp_path / "data", "--weights=1,9", "--share=0.25", *files)
    test = {row["text"] for row in read_rows(tmp_path / "data/test.jsonl")}
    counts = drawn(tmp_path / "data")
    assert (len(test), sum(counts.values()), test & counts.keys()) == (10, 30, set())
    assert sum(of(counts, "b").values()) == 27


def test_rows_that_the_template_refuses_are_never_taken(tmp_path, tokenizer, warm_python):
    one = write_rows(tmp_path / "a.jsonl", [CHAT_ROW, SYSTEM_CHAT_ROW, CHAT_ROW])
    two = write_rows(tmp_path / "b.jsonl", [SYSTEM_CHAT_ROW, numbered_row(CHAT_ROW, 7)])
    words = ("--weights=1,2", f"--model={tokenizer(USER_FIRST_TEMPLATE)}", one, two)
    run_prepare_data(tmp_path / "data", *words, python=warm_python)
    taken = read_rows(tmp_path / "data/train.jsonl")
    assert (taken.count(CHAT_ROW), taken.count(numbered_row(CHAT_ROW, 7))) == (1, 2)
    # A file with a weight of which nothing is left.
    write_rows(two, [SYSTEM_CHAT_ROW])
    assert "b.jsonl has a weight" in run_prepare_data(tmp_path / "none", *words, python=warm_python, code=65)
    assert not (tmp_path / "none").exists()


def test_an_epoch_counts_the_rows_and_tokens_that_are_taken(tmp_path, tokenizer, warm_python):
    short = write_rows(tmp_path / "a.jsonl", [{"text": f"the {number}"} for number in range(30)])
    long = write_rows(tmp_path / "b.jsonl", [{"text": f"the quick brown fox {number} " * 8} for number in range(10)])
    tokens = {}
    for weights in ((), (3, 1), (1, 3)):
        found = probe_files(short, long, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), weights=weights)
        one = epoch_size(found, "sft")
        assert one.rows == 40
        tokens[weights] = one.tokens
        taken = [share.taken for share in found.shares]
        assert taken == {(): [], (3, 1): [30, 10], (1, 3): [10, 30]}[weights]
    alone = {
        path: probe_files(path, python=warm_python, model=tokenizer(PLAIN_TEMPLATE)).tokens.epoch
        for path in (short, long)
    }
    assert tokens[()] == tokens[3, 1] == sum(alone.values())
    assert tokens[1, 3] == pytest.approx(alone[short] / 3 + alone[long] * 3, abs=1)


def test_a_file_that_is_named_twice_is_trained_on_as_it_is_shown(tmp_path, files):
    named = (files[1], files[0], files[1], tmp_path)
    found = probe_files(*named, weights=(1, 1, 1, 1))
    said = run_prepare_data(tmp_path / "data", "--weights=1,1,1,1", *named)
    assert [(share.rows, share.taken) for share in found.shares] == [(10, 23), (30, 23), (10, 22), (40, 22)]
    for share in found.shares:
        assert f"{share.file}: {share.rows} rows, {share.taken} in an epoch" in said
    assert epoch_size(found, "sft").rows == 90


def test_a_row_of_which_nothing_is_learned_counts_as_often_as_it_is_taken(tmp_path, tokenizer, warm_python):
    good = write_rows(tmp_path / "a.jsonl", [{"prompt": f"a {number}", "completion": "b"} for number in range(6)])
    rows = [{"prompt": "the quick brown fox " * 20, "completion": "so"}, {"prompt": "a", "completion": "b"}]
    lost = write_rows(tmp_path / "b.jsonl", rows)
    found = probe_files(good, lost, python=warm_python, model=tokenizer(PLAIN_TEMPLATE), length=20, weights=(1, 1))
    assert (found.tokens.lost, found.tokens.unlearned, epoch_size(found, "sft").rows) == (1, 2, 6)


@pytest.mark.parametrize(
    ("weights", "why"),
    [
        ((1,), "1 weight for 2"), ((1, 2, 3), "3 weights"), ((0, 0.0), "all weights are 0"),
    ],
)  # fmt: skip
def test_weights_that_cannot_be_used_are_refused(weights, why):
    chosen = finetune_profile(trainer__data=("/a", "/b"), data__weights=weights)
    (error,) = [each for each in findings_of(chosen, facts(packages=TUNING_LIBRARIES)) if each.key == "data.weights"]
    assert (error.forbids_plan, why in error.message, data_weights.valid_data_weights(chosen)) == (True, True, ())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('["3", 1]', "data.weights[0]: Expected float, got str"), ("[1, true]", "data.weights[1]: Expected float"),
        ("3", "data.weights: Expected array"), ("[1, -2]", "data.weights is -2.0"), ("[nan, 1]", "data.weights is nan"),
        ("[inf, 1]", "data.weights is inf"),
    ],
)  # fmt: skip
def test_a_profile_with_other_weights_is_refused(text, why):
    with pytest.raises(BadInput) as caught:
        store.profile_from_toml(f"[data]\nweights = {text}\n")
    assert why in caught.value.message


def test_the_plan_and_the_question_have_the_weights():
    chosen = finetune_profile(trainer__data=("/a", "/b"), data__weights=(0.5, 2), recipe__seed=4)
    (step,) = prepare_without_errors(chosen, facts(packages=TUNING_LIBRARIES)).plan.preparations
    assert argv(step.command, "/run")[-4:] == ["--weights=0.5,2", "--seed=4", "/a", "/b"]
    assert question_about_data(Setup(chosen, facts(packages=TUNING_LIBRARIES))).weights == (0.5, 2)


def test_the_data_view_shows_what_each_file_has_of_an_epoch(files):
    for weights, shown in (((), []), ((1, 3), ["25 % a.jsonl, each row 0.333×", "75 % b.jsonl, each row 3×"])):
        found = probe_files(*files, weights=weights)
        lines = [
            line.plain for line in data_summary_lines(found, DataQuestion(files=()), epoch_size(found, "sft"), "", 60)
        ]
        assert [line.removeprefix("of it").strip() for line in lines if "each row" in line] == shown
    many = replace(found, shares=found.shares * 3)
    assert file_share_lines(many)[-1] == "and 2 more files"


@pytest.mark.whole
def test_the_data_command_shows_the_mixture(files):
    words = ("data", *files, f"--python={sys.executable}")
    shown = run_cli(*words, "--weights", "3,1").stdout
    lines = [line.strip() for line in shown.splitlines() if "each row" in line]
    assert lines == ["of it    75 % a.jsonl, each row 1×", "25 % b.jsonl, each row 1×"]
    for weights, why in (("3", "1 weight for"), ("3,x", "'x'")):
        assert why in run_cli(*words, f"--weights={weights}", code=BadInput.exit_code).stderr
