"""The metrics of runs: from whole logs and from what the Trainer keeps, and the command that prints them."""

import csv
import io
import json
import os

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from training_results import LOG_LINES, ended_run

from tui_train.cli.app import cli
from tui_train.runner.logs.metric_series import Metrics, build_metrics, joined_metrics
from tui_train.runs.follow import read_progress
from tui_train.runs.results.metrics import read_metrics
from tui_train.runs.results.trainer_state import read_trainer_state
from tui_train.runs.status import read_status
from tui_train.views.metric_summaries import metric_pairs, metric_value_text, ordered_metrics

# As a Trainer without bars writes: no line names a step.
WITHOUT_STEPS = [
    "{'loss': '3.0', 'reward': '0.1', 'epoch': '0.5'}",
    "{'loss': '2.0', 'reward': '0.3', 'epoch': '1.0'}",
    "{'eval_loss': '1.75', 'eval_reward': '0.2', 'epoch': '1.0'}",
]
HISTORY = [
    {"loss": 3.0001, "reward": 0.1001, "epoch": 0.5, "step": 10},
    {"loss": 2.0001, "reward": 0.3001, "epoch": 1.0, "step": 20},
    {"eval_loss": 1.75, "epoch": 1.0, "step": 20},
    {"train_runtime": 9.0, "train_loss": 2.5, "step": 20},
]


def run_command(*words):
    done = CliRunner().invoke(cli, ["metrics", *words], catch_exceptions=False)
    return done.exit_code, done.output


def points(series):
    return [(bucket.last, bucket.mean) for bucket in series.all_buckets()]


def put_trainer_state(folder, history=HISTORY, step=20):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": history}))
    return folder


def test_a_log_is_read_from_its_first_line(tmp_path):
    # Longer than what a viewer reads of its end.
    lines = [f"step {step} | loss 1.0 | acc: 0.5" for step in range(1, 5)]
    run = ended_run(tmp_path, [lines[0], *["x" * 1000] * 4500, *lines[1:]])
    assert points(read_metrics(run).series_named("acc")) == [(step, 0.5) for step in range(1, 5)]
    assert points(read_progress(run, read_status(run).attempts).metrics.series_named("acc"))[0] == (2, 0.5)


def test_the_trainers_own_record_knows_steps_and_digits(tmp_path):
    run = ended_run(tmp_path, WITHOUT_STEPS)
    assert points(read_metrics(run).series_named("reward")) == [(0, 0.1), (1, 0.3)]
    put_trainer_state(tmp_path / "output")
    found = read_metrics(run)
    assert points(found.series_named("loss")) == [(10, 3.0001), (20, 2.0001)]
    assert points(found.series_named("eval_loss")) == [(20, 1.75)]
    assert found.series_named("train_loss") is None


def test_a_newer_log_goes_on_from_a_checkpoints_record(tmp_path):
    run = ended_run(tmp_path, LOG_LINES)
    put_trainer_state(tmp_path / "output" / "checkpoint-10", [{"loss": 1.50001, "step": 10}], 10)
    (tmp_path / "output" / "checkpoint-10" / "model.safetensors").write_bytes(b"")
    assert points(read_metrics(run).series_named("loss"))[-1] == (20, 2.0)


def test_what_another_run_left_in_the_output_folder_is_not_taken(tmp_path):
    run = ended_run(tmp_path, WITHOUT_STEPS)
    state = put_trainer_state(tmp_path / "output") / "trainer_state.json"
    os.utime(state, (1000, 1000))
    assert points(read_metrics(run).series_named("loss")) == [(0, 3.0), (1, 2.0)]


@pytest.mark.parametrize("history", [
    None, 3, ["x", {"step": "1"}, {"step": -1, "loss": 1.0}, {"step": 2, "loss": "x"}], [{"step": True, "loss": 1}],
    [{"step": 3, "loss": True, "a\x1b[m": 1.0}],
])  # fmt: skip
def test_a_damaged_record_gives_nothing(tmp_path, history):
    assert read_trainer_state(put_trainer_state(tmp_path, history)).metrics == Metrics()


def test_a_record_with_nan_and_a_number_without_end_is_read(tmp_path):
    folder = put_trainer_state(tmp_path, [{"step": 1, "loss": 1.0, "x": 10**300}, {"step": 2, "loss": float("nan")}])
    found = read_trainer_state(folder).metrics
    assert [each.name for each in found.series] == ["loss"]
    assert found.series_named("loss").last[0] == 2, "that it became NaN is seen"


def test_a_table_names_each_metric_with_its_last_value_and_extremes(tmp_path):
    run = ended_run(tmp_path, LOG_LINES)
    code, shown = run_command(str(tmp_path))
    assert code == 0
    rows = [line.split() for line in shown.splitlines()]
    assert [row[0] for row in rows] == ["metric", "loss", "eval_loss", "grad_norm", "learning_rate"]
    assert rows[1] == ["loss", "2", "2", "1.5", "3", "0-20"]
    assert rows[2] == ["eval_loss", "1.875", "1.875", "1.75", "1.875", "10-20"]
    assert run.name


def test_json_and_csv_hold_every_bucket(tmp_path):
    ended_run(tmp_path, [f"step {step} | loss {step}.0 | acc: 0.5" for step in range(1, 1001)])
    (loss, acc) = json.loads(run_command(str(tmp_path), "--json")[1])["metrics"]
    assert (loss["metric"], loss["last"], loss["last_step"], loss["min"], loss["max"]) == ("loss", 1000, 1000, 1, 1000)
    assert loss["mean_of_last_tenth"] == pytest.approx(950.5, abs=2)
    rows = [*csv.DictReader(io.StringIO(run_command(str(tmp_path), "--csv", "--only", "loss")[1]))]
    assert [float(row["mean"]) for row in rows] == [bucket["mean"] for bucket in loss["buckets"]]
    assert sum(int(row["values"]) for row in rows) == acc["values"] == 1000


def test_only_takes_names_and_patterns_and_says_which_there_are(tmp_path):
    ended_run(tmp_path, ["{'loss': 1.0, 'step': 1, 'rewards/a': 1, 'rewards/b': 2, 'kl': 3}"])
    shown = run_command(str(tmp_path), "--only", "Rewards/*", "--only", "kl")[1]
    assert [line.split()[0] for line in shown.splitlines()[1:]] == ["rewards/a", "rewards/b", "kl"]
    done = CliRunner().invoke(cli, ["metrics", str(tmp_path), "--only", "entropy"])
    assert "rewards/a" in done.exception.remedy
    assert CliRunner().invoke(cli, ["metrics", str(tmp_path), "--json", "--csv"]).exit_code != 0


def test_a_run_without_metrics_says_so(tmp_path):
    ended_run(tmp_path, ["nothing"])
    assert run_command(str(tmp_path)) == (0, f"{tmp_path.name}: no metrics in its log\n")
    assert json.loads(run_command(str(tmp_path), "--json")[1])["metrics"] == []


def test_losses_come_first_and_speed_last_and_evaluations_join_their_metric():
    names = ["num_tokens", "acc", "eval_runtime", "reduced_train_loss", "val_loss", "eval_acc", "test_acc", "eval_f1"]
    metrics = build_metrics([(1, dict.fromkeys(names, 1.0))])
    assert [each.name for each in ordered_metrics(metrics)] == [
        "reduced_train_loss", "val_loss", "acc", "eval_acc", "test_acc", "eval_f1", "num_tokens", "eval_runtime",
    ]  # fmt: skip
    pairs = [(pair.name, pair.evaluation and pair.evaluation.name) for pair in metric_pairs(metrics)]
    assert pairs == [
        ("reduced_train_loss", "val_loss"), ("acc", "eval_acc"), ("test_acc", "test_acc"), ("eval_f1", "eval_f1"),
        ("num_tokens", None), ("eval_runtime", "eval_runtime"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.42131, "0.4213"), (-0.5, "-0.5"), (12.0, "12"), (1234567.0, "1 234 567"), (0.000014, "1.4e-5"), (0.0, "0"),
        (12345.6, "12346"), (3.2e18, "3.2e18"), (-1.5e-7, "-1.5e-7"), (None, "not finite"),
    ],
)  # fmt: skip
def test_a_value_is_written_short(value, text):
    assert metric_value_text(value) == text


@given(st.lists(st.integers(1, 40), unique=True, min_size=1), st.lists(st.integers(1, 40), unique=True, min_size=1))
def test_a_later_reading_adds_only_later_steps(first, second):
    earlier = build_metrics((step, {"x": 1.0}) for step in sorted(first))
    later = build_metrics((step, {"x": 2.0, "y": 3.0}) for step in sorted(second))
    found = joined_metrics(earlier, later)
    newer = [step for step in sorted(second) if step > max(first)]
    # What the record does not have is only in the log.
    assert points(found.series_named("y")) == [(step, 3.0) for step in sorted(second)]
    assert points(found.series_named("x")) == [
        *((step, 1.0) for step in sorted(first)),
        *((step, 2.0) for step in newer),
    ]
