"""Metrics: every number that a log reports by its name, over its steps, in bounded memory."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_train.runner.logs import metric_series
from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runner.logs.metric_series import Metrics, MetricsBuilder, build_metrics
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress

GRPO = (
    "{'loss': '0.01', 'grad_norm': '2.3', 'learning_rate': '9e-06', 'num_tokens': '2802', "
    "'completions/mean_length': '64', 'rewards/length/mean': '-0.5', 'reward': '0.25', 'kl': '0.001', "
    "'entropy': '1.5', 'epoch': '0.1'}"
)


def read(*lines):
    return advance_progress(Progress(), [shown for line in lines for shown in lines_left_on_terminal(line.encode())])


def values(found, name):
    series = found.metrics.series_named(name)
    return [(bucket.last, bucket.mean) for bucket in series.all_buckets()] if series else None


def names(found):
    return [each.name for each in found.metrics.series]


def test_a_trainers_dictionary_is_read_by_name_at_the_step_of_its_bar():
    found = read("  4%|4         | 10/250 [00:01<00:30, 8.0it/s]", GRPO)
    assert names(found) == [
        "loss", "grad_norm", "learning_rate", "num_tokens", "completions/mean_length", "rewards/length/mean", "reward",
        "kl", "entropy",
    ]  # fmt: skip
    assert values(found, "rewards/length/mean") == [(10, -0.5)]
    assert values(found, "kl") == [(10, 0.001)]


def test_an_evaluation_has_metrics_of_its_own_at_the_step_of_the_training():
    found = read(
        "{'loss': 2.0, 'step': 5, 'mean_token_accuracy': 0.5}",
        "{'eval_loss': 1.5, 'eval_mean_token_accuracy': 0.6, 'eval_runtime': 3.0, 'epoch': 1.0}",
        "{'loss': 1.9, 'step': 6, 'mean_token_accuracy': 0.7}",
        "{'eval_rewards/margins': 0.25, 'epoch': 1.0}",
        "{'train_runtime': 9.0, 'train_loss': 1.2, 'epoch': 1.0}",
    )
    assert values(found, "mean_token_accuracy") == [(5, 0.5), (6, 0.7)]
    assert values(found, "eval_mean_token_accuracy") == [(5, 0.6)]
    assert values(found, "eval_rewards/margins") == [(6, 0.25)]
    assert values(found, "train_loss") is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("step 7/60 | loss 5.5 | lr 5.000e-04 | grad_norm 2.6 | tokens/s 10711",
         {"loss": 5.5, "learning_rate": 5e-4, "grad_norm": 2.6, "tokens_per_second": 10711}),
        ("iter 7: loss 2.1, time 23.4ms, mfu 3.4%", {"loss": 2.1, "time": 23.4, "mfu": 3.4}),
        ("step 7 loss 2.1 after 875 batches", {"loss": 2.1}),
        ("step=7 train/loss=2.31 val/loss=2.4 val/acc=0.5", {"loss": 2.31, "eval_loss": 2.4, "val/acc": 0.5}),
        ("step 7 | loss 2.1 | reward: -0.25 | kl -1.5e-3 | tok/s 12.3k",
         {"loss": 2.1, "reward": -0.25, "kl": -0.0015, "tokens_per_second": 12300}),
        ("step 7 | aux loss: 0.01 | loss: 2.31 | acc: 90.1% (9010/10000) | clock: 10:32 | part: 3/10 | v: 1.2.3",
         {"loss": 2.31, "aux_loss": 0.01, "acc": 90.1}),
        ("step 7  Time  0.5 ( 0.5)  Loss 6.9e+00 (7.0e+00)  Acc@1   0.0 (0.0)  Acc@5 12.5 (0.3)",
         {"loss": 6.9, "time": 0.5, "acc@1": 0.0, "acc@5": 12.5}),
        (("Training epoch 0, iteration 6/9 | lr: 5.988e-07 | global_batch_size: 2 | global_step: 6 | "
         "reduced_train_loss: 11.93 | train_step_timing in s: 3.62 | consumed_samples: 4"),
         {"loss": 11.93, "learning_rate": 5.988e-07, "train_step_timing": 3.62, "consumed_samples": 4}),
        (("2026-11-20 22:46:52 | INFO | root | step 6 | epoch 0 | loss 6.2 | grad_norm 1.8 | lr 1.00e-04 | "
         "mem 0.50 GiB | tps 4.65(2.32/gpu) | num_label_tokens 76"),
         {"loss": 6.2, "grad_norm": 1.8, "learning_rate": 1e-4, "mem": 0.5, "tokens_per_second": 4.65,
          "num_label_tokens": 76}),
        ((" [2026-11-20 22:46:52] iteration        7/     100 | consumed samples:          160 | elapsed time per "
         "iteration (ms): 123.4 | learning rate: 1.500000E-04 | lm loss: 1.067332E+01 | loss scale: 1.0 | "
         "grad norm: 1.234 | number of skipped iterations:   0 |"),
         {"loss": 10.67332, "consumed_samples": 160, "elapsed_time_per_iteration": 123.4, "learning_rate": 1.5e-4,
          "loss_scale": 1, "grad_norm": 1.234, "number_of_skipped_iterations": 0}),
        ("Steps:  40%|####      | 7/50 [00:00<00:00, 18.29it/s, loss=6.24, lr=0.001, acc=0.5]",
         {"loss": 6.24, "learning_rate": 0.001, "acc": 0.5}),
        ("7/938 [====>....] - ETA: 5s - loss: 2.1 - accuracy: 0.5", {"loss": 2.1, "accuracy": 0.5}),
        ('{"step": 7, "loss": 2.0, "metrics": {"f1": 0.5}, "note": "x"}', {"loss": 2.0, "f1": 0.5}),
        ('{"step": 7, "reward": 0.5, "kl": 0.1}', {"reward": 0.5, "kl": 0.1}),
        ('{"mode": "val", "step": 7, "loss": 2.0, "acc": 0.5}', {"eval_loss": 2.0, "eval_acc": 0.5}),
        ("Epoch 7 val loss 0.5, acc: 0.8", {"eval_loss": 0.5, "eval_acc": 0.8}),
    ],
)  # fmt: skip
def test_a_line_gives_the_numbers_that_it_names(line, expected):
    found = read(line)
    assert {each.name: each.last for each in found.metrics.series} == {
        name: (7, pytest.approx(value)) for name, value in expected.items()
    }


@pytest.mark.parametrize("line", [
    "acc: 0.5, f1: 0.7", "config: {'lr': 0.1, 'epochs': 3}", '{"step": 7, "size_mb": 12}',
    "saved at step 100: size=3.2",
    "done | step 60 | loss 5.5689 -> 2.3778 | tokens/s 2312 | model saved in /runs/x",
])  # fmt: skip
def test_a_line_that_reports_no_result_of_a_step_gives_none(line):
    assert read(line).metrics == Metrics()


def test_a_table_gives_its_columns():
    found = read("step,loss,acc,lr", "1,2.0,0.5,0.1", "2,1.0,0.75,0.1")
    assert values(found, "acc") == [(1, 0.5), (2, 0.75)]


def test_a_presets_expression_gives_its_groups():
    reading = LogReadingOptions((re.compile(r"#(?P<step>\d+) L (?P<loss>\S+) r (?P<lr>\S+)"),))
    found = advance_progress(Progress(), ["#3 L 2.5 r 0.1"], reading)
    assert {each.name: each.last for each in found.metrics.series} == {"loss": (3, 2.5), "learning_rate": (3, 0.1)}


def test_steps_that_are_told_again_replace_what_came_after():
    found = read(
        *(f"step {step} | loss {step}.5 | acc: 0.{step}" for step in range(1, 8)),
        "step 7 | val loss 1.0",
        "step 4 | loss 9.0 | acc: 0.9",
    )
    assert values(found, "acc") == [(1, 0.1), (2, 0.2), (3, 0.3), (4, 0.9)]
    assert values(found, "eval_loss") == []


def test_an_evaluation_that_every_step_repeats_is_one_but_another_one_after_a_step_back():
    found = read("step 5 | loss 1.0 | val loss 0.5 | val_acc: 0.1", "step 2 | loss 2.0 | val loss 0.5 | val_acc: 0.2")
    assert [(point.step, point.loss) for point in found.evaluations.points()] == [(2, 0.5)]
    assert (values(found, "eval_loss"), values(found, "val_acc")) == ([(2, 0.5)], [(2, 0.2)])
    found = read("step 1 | loss 1.0 | val loss 0.5 | val_acc: 0.1", "step 2 | loss 2.0 | val loss 0.5 | val_acc: 0.1")
    assert (values(found, "eval_loss"), values(found, "val_acc")) == ([(1, 0.5)], [(1, 0.1)])


def test_a_bar_that_is_read_again_and_again_is_no_news():
    bar = " 40%|####      | 7/50 [00:00<00:00, 18.29it/s, loss=nan, acc=0.5]"
    first = read(bar)
    again = advance_progress(first, [bar])
    assert again.metrics == first.metrics
    assert values(again, "acc") == [(7, 0.5)]


def test_lines_may_come_one_by_one_or_all_at_once():
    more = (" | lr 1e-3 | grad_norm 2.0 | tokens/s 9 | tokens seen: 8", "")
    lines = [
        f"step {step} | loss {step / 7} | acc: {step % 5}{more[step % 2]}" for step in [*range(900), *range(700, 1300)]
    ]
    found = Progress()
    for line in lines:
        found = advance_progress(found, [line])
    whole = advance_progress(Progress(), lines)
    assert found == whole


def test_what_is_no_number_is_counted_and_left_out():
    found = build_metrics([(1, {"x": 1.0}), (2, {"x": math.nan}), (3, {"x": math.inf}), (4, {"x": 3.0})])
    series = found.series_named("x")
    assert [bucket.mean for bucket in series.all_buckets()] == [1.0, 3.0]
    assert (series.left_out, series.last) == (2, (4, 3.0))
    broken = build_metrics([(1, {"x": 1.0}), (2, {"x": math.nan})]).series_named("x")
    assert [bucket.mean for bucket in broken.all_buckets()] == [1.0]
    assert math.isnan(broken.last[1])


@pytest.mark.parametrize("name", ["", "x" * 65, "9", "\x1b[31m", "a\nb", "loss\u202e", "<b>", "step", "epoch", "[x]"])
def test_an_unsafe_name_or_that_of_a_counter_is_no_metric(name):
    assert not build_metrics([(1, {name: 1.0})]).series


def test_metrics_and_their_buckets_are_bounded_and_keep_their_extremes():
    builder = MetricsBuilder(Metrics())
    for step in range(1, 100_001):
        builder.add(step, {"x": float(step % 1000), **({f"m{step}": 1.0} if step < 200 else {})})
    found = builder.metrics()
    series = found.series_named("x")
    assert len(found.series) == metric_series.MAX_METRICS
    assert len(series.buckets) <= 400
    assert sum(bucket.value_count for bucket in series.all_buckets()) == 100_000
    assert (min(bucket.low for bucket in series.buckets), max(bucket.high for bucket in series.buckets)) == (0, 999)
    assert series.last == (100_000, 0.0)


rows = st.lists(
    st.tuples(st.integers(0, 60), st.dictionaries(st.sampled_from("abc"), st.floats(-9, 9, width=16), min_size=1)),
    max_size=60,
)


@given(rows, st.sets(st.integers(0, 60)))
def test_few_values_are_kept_as_they_are_whenever_they_are_looked_at(told, looks):
    builder, expected = MetricsBuilder(Metrics()), {}
    for number, (step, found) in enumerate(told):
        if number in looks:
            builder = MetricsBuilder(builder.metrics())
        builder.add(step, found)
        for name, value in found.items():
            kept = {at: old for at, old in expected.get(name, {}).items() if at < step}
            expected[name] = {**kept, step: value}
    found = builder.metrics()
    assert {
        each.name: {bucket.first: bucket.mean for bucket in each.all_buckets()} for each in found.series
    } == expected


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000), st.integers(1, 500))
def test_many_values_keep_count_extremes_and_mean(told, piece):
    builder = MetricsBuilder(Metrics())
    for at in range(0, len(told), piece):
        for step, value in enumerate(told[at : at + piece], start=at):
            builder.add(step, {"x": value})
        builder = MetricsBuilder(builder.metrics())
    buckets = builder.metrics().series_named("x").all_buckets()
    assert len(buckets) <= 401
    assert sum(bucket.value_count for bucket in buckets) == len(told)
    assert min(bucket.low for bucket in buckets) == min(told)
    assert max(bucket.high for bucket in buckets) == max(told)
    assert sum(bucket.total for bucket in buckets) == pytest.approx(math.fsum(told), abs=1e-3)
    assert all(before.last < after.first for before, after in itertools.pairwise(buckets))


@given(st.text(max_size=200), st.integers(0, 9))
def test_no_line_breaks_the_reading(text, number):
    found = read(
        f"step {number} | loss 1.{number} | {text}: {number}", text, f"{{'loss': 1.0, 'step': 3, {text!r}: 2}}"
    )
    assert all(each.name.isprintable() and len(each.name) <= 64 for each in found.metrics.series)
