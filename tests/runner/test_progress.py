"""Progress: what the lines of the built-in trainer, of scripts, of HF Trainer and of tqdm tell."""

import itertools
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tui_train.runner.logs import curve
from tui_train.runner.logs.curve import LossPoint
from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress
from tui_train.runs.logs.tail import LogTail

# As the built-in trainer writes, whose bar is too slow for its steps.
BUILTIN = """\
batch | micro 8 x accumulation 2 x world 1 = global 16
  0%|          | 0/60 [00:00<?, ?it/s]rank 0/1 | host box | device cpu | backend none
{'loss': '5.569', 'grad_norm': '2.654', 'learning_rate': '0.0005', 'step': 1, 'tokens_per_second': 10711, 'epoch': '0.01667'}
{'loss': '5.122', 'grad_norm': '2.654', 'learning_rate': '0.001', 'step': 2, 'tokens_per_second': 11711, 'epoch': '0.03333'}
  3%|▎         | 2/60 [00:00<00:01, 50.10it/s]
"""  # noqa: E501 - as it is written
# As transformers 5.23 writes it into a file, with an evaluation and a checkpoint on the way.
HF = (
    b"[transformers] Model config: bos_token_id must be `None` or an integer within the vocabulary\n"
    b"Map:  40%|####      | 4000/9999 [00:01<00:02, 5000.00 examples/s]\n"
    b"\rLoading weights: 100%|##########| 290/290 [00:00<00:00, 900.11it/s]\n"
    b"\r  0%|          | 0/12 [00:00<?, ?it/s]/site-packages/torch/data/dataloader.py:759: UserWarning: 'pin_memory'\n"
    b"  super().__init__(loader)\n"
    b"\r  8%|\xe2\x96\x8a         | 1/12 [00:00<00:02,  4.10it/s]"
    b"\r 17%|\xe2\x96\x88\xe2\x96\x8b        | 2/12 [00:00<00:01,  5.51it/s]"
    b"\r                                              "
    b"\r{'loss': '3.911', 'grad_norm': '0.8378', 'learning_rate': '4.583e-05', 'epoch': '0.125'}\n"
    b"\r 33%|\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x8e      | 4/12 [00:00<00:00,  9.93it/s]"
    b"\r                                              "
    b"\r\x1b[32m{'loss': '3.905', 'grad_norm': '0.9287', 'learning_rate': '3.75e-05', 'epoch': '0.25'}\x1b[0m\n"
    b"\r 33%|\xe2\x96\x88\xe2\x96\x88\xe2\x96\x88\xe2\x96\x8e      | 4/12 [00:00<00:00,  9.93it/s]\n"
    b"\r  0%|          | 0/8 [00:00<?, ?it/s]\x1b[A\n"
    b"\r 50%|#####     | 4/8 [00:00<00:00, 36.35it/s]\x1b[A\r                           \r\n"
    b"\r                                             \r\x1b[A"
    b"{'eval_loss': '3.906', 'eval_runtime': '0.2378', 'eval_samples_per_second': '269.1', 'epoch': '0.25'}\n"
    b"\r100%|##########| 8/8 [00:00<00:00, 36.35it/s]\x1b[A\n"
    b"\r                                             \x1b[A\n"
    b"\rWriting model shards:   0%|          | 0/1 [00:00<?, ?it/s]\x1b[A"
    b"\rWriting model shards: 100%|##########| 1/1 [00:00<00:00, 285.99it/s]\n"
    b"\r 50%|#####     | 6/12 [00:01<00:01,  5.60it/s]\r                            "
    b"\r{'loss': 3.894, 'grad_norm': 0.8228, 'learning_rate': 2.917e-05, 'epoch': 0.375}\n"
    b"\r 58%|######    | 7/12 [00:01<00:00,  6.01it/s]"
)


def losses(curve):
    return [(point.step, point.loss) for point in curve.points()]


def test_the_built_in_trainer():
    found = advance_progress(Progress(), BUILTIN.splitlines())
    assert (found.step, found.steps) == (2, 60)
    assert found.curve.points() == (LossPoint(1, 5.569, 5e-4), LossPoint(2, 5.122, 1e-3))
    assert (found.first, found.last) == found.curve.points()
    assert found.gradient_norm == pytest.approx(2.654)
    assert found.tokens_per_second == pytest.approx(11711)


def test_the_hf_trainer_in_old_and_new_wording(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(HF)
    tail = LogTail(log)
    found = advance_progress(Progress(), tail.remaining_lines())
    assert (found.step, found.steps) == (6, 12)
    assert losses(found.curve) == [(2, 3.911), (4, 3.905), (6, 3.894)]
    assert losses(found.evaluations) == [(4, 3.906)]
    assert found.learning_rate == pytest.approx(2.917e-05)
    assert found.gradient_norm == pytest.approx(0.8228)
    # The bar at work is ahead of the last line.
    assert advance_progress(found, [tail.progress_bar]).step == 7


def tqdm_bar(step):
    return f"\r  {step}%|          | {step}/6 [00:04<00:12, 3.83it/s]"


@pytest.mark.parametrize("at_once", [True, False])
def test_each_step_keeps_its_loss_where_steps_are_faster_than_the_bar(at_once):
    """tqdm draws its bar again behind a record, and within 0.1 s not before the next one."""
    log = tqdm_bar(0)
    for step in range(1, 7):
        drawn = tqdm_bar(step) if step == 4 else ""
        log += f"{drawn}\r        \r{{'loss': '{step}.5', 'learning_rate': '1e-05', 'epoch': '{step / 6:.4g}'}}\n"
        # What a script of the user's own prints of the same record.
        log += f"{tqdm_bar(step)}\n{{'loss': {step}.5, 'learning_rate': 1e-05, 'epoch': {step / 6}}}\n{tqdm_bar(step)}"
    lines = [shown for line in log.encode().split(b"\n") for shown in lines_left_on_terminal(line)]
    found = Progress()
    for part in [lines] if at_once else [[line] for line in lines]:
        found = advance_progress(found, part)
    assert losses(found.curve) == [(step, step + 0.5) for step in range(1, 7)]
    assert (found.step, found.steps, found.metrics.series_named("loss").newest) == (6, 6, (6, 6.5))


@pytest.mark.parametrize(
    ("line", "step", "steps"),
    [
        (" 17%|█▋        | 2/12 [00:00<00:01,  5.51it/s]", 2, 12),
        ("100%|##########| 1000/1000 [1:02:03<00:00,  5.51s/it, v_num=5]", 1000, 1000),
        ("Epoch 3:  45%|████▌     | 450/1000 [00:10<00:12, 44.0it/s, v_num=0]", 2450, 0),
        ("train: 10%|█| 1/10 [00:10<?, ?it/s]", 1, 10),
        ("Map: 100%|##########| 5000/5000 [00:01<00:00, 4000 examples/s]", 0, 0),
        ("Loading checkpoint shards: 100%|##########| 2/2 [00:01<00:00]", 0, 0),
        ("wrote 3/4 [ok]", 0, 0),
        ("step by step", 0, 0),
        ("step 1/2 without a loss", 0, 0),
        ("started 5/6 [00:01<00:02]", 0, 0),
        ("{'loss': __import__('os').system('touch pwned')}", 0, 0),
        ("{'loss': " + "[" * 5000 + "}", 0, 0),
        ("{'loss': 'low'}", 0, 0),
    ],
)
def test_only_what_is_progress_counts(line, step, steps):
    found = advance_progress(Progress(), [line])
    assert (found.step, found.steps, found.curve.points()) == (step, steps, ())


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (("Training epoch 0, iteration 0/1 | lr: 5.988e-07 | global_batch_size: 2 | global_step: 0 | "
          "reduced_train_loss: 11.93 | train_step_timing in s: 3.62 | consumed_samples: 4"),
         (1, 2, 11.93, 5.988e-07, None, None)),
        (("i.llm/0 [default1]:Training epoch 1, iteration 4/9 | lr: 1e-06 | global_step: 14 | "
          "reduced_train_loss: 2.5 | train_step_timing in s: 3.62"), (15, 20, 2.5, 1e-6, None, None)),
        ("[2026-11-20 22:46:52,123] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05]",
         (10, 0, None, 1e-5, None, None)),
        ("step 3/60 | loss nan | lr 5.000e-04 | grad_norm inf | tokens/s 9", (3, 60, math.nan, 5e-4, math.inf, 9)),
        ("[rank1]: Step: 7 of 70, Loss=1.25e-2, learning_rate=3e-4", (7, 70, 0.0125, 3e-4, None, None)),
        ("step: 10  loss: 8.2  grad_norm: 1,234.5  memory: 1.0GiB(2%)  tps: 12,345  mfu: 3%",
         (10, 0, 8.2, None, 1234.5, 12345)),
        ("step 10 loss 0.5 lr 1e-4 tok/s 12.3k", (10, 0, 0.5, 1e-4, None, 12300)),
        ("step 10 | loss 0.5 | tok/sec: 1.2M", (10, 0, 0.5, None, None, 1.2e6)),
        ("step 10 | loss 0.5 | lr 0,001 | grad_norm 1.5,3 | tokens/s: 12_345", (10, 0, 0.5, None, None, None)),
        ("checkpoint-10/loss 5", (0, 0, None, None, None, None)),
    ],
)  # fmt: skip
def test_what_trainers_print(line, told):
    found = advance_progress(Progress(), [line])
    loss = found.last.loss if found.last else None
    numbers = (found.step, found.steps, loss, found.learning_rate, found.gradient_norm, found.tokens_per_second)
    assert numbers == pytest.approx(told, nan_ok=True)


@pytest.mark.parametrize(
    "line",
    ["step 1 loss" + " loss: step " * 100_000, " " * 1300 + "1" + " " * 2600 + "x loss"],
    ids=["words", "blanks"],
)
def test_a_long_line_takes_no_time(line):
    assert not advance_progress(Progress(), [line] * 10).curve.size


def test_a_bar_of_something_else_is_not_the_training():
    told = advance_progress(Progress(), ["step 5/1000 | loss 2.0", "100%|##########| 100/100 [00:01<00:00, 99.0it/s]"])
    assert (told.step, told.steps) == (5, 1000)


LONG = "9" * 400


@pytest.mark.parametrize(
    "line",
    [
        f"step {LONG}/60 | loss 2.0",
        f"step 5/60 | loss {LONG}",
        f"step 5/60 | loss 1e{LONG}",
        f"{{'loss': {LONG}, 'grad_norm': {LONG}, 'epoch': 0.1}}",
        f"{{'loss': '{LONG}'}}",
        f" 17%|#| {LONG}/{LONG} [00:00<00:01,  5.51it/s]",
        f"start | step {LONG} of {LONG}",
        f"epoch 0, iteration {LONG}/{LONG} | global_step: {LONG} | reduced_train_loss: 2.0",
        f"step {LONG} | epoch 0 | loss 6.2",
        f"step={LONG}, skipped=0, lr=[{LONG}]",
        "{'loss': " + "9" * 5000 + "}",
    ],
)
def test_a_number_without_end_is_not_told(line):
    before = advance_progress(Progress(), ["step 4/60 | loss 2.5 | lr 1.0e-03"])
    found = advance_progress(before, [line])
    assert (found.curve.points(), found.learning_rate) == ((LossPoint(4, 2.5, 1e-3),), 1e-3)
    assert (found.step, found.steps) in {(4, 60), (5, 60)}


def test_a_number_without_end_of_a_presets_own_is_not_told():
    reading = LogReadingOptions((re.compile(r"s=(?P<step>\S+) l=(?P<loss>\S+) r=(?P<lr>\S+)"),))
    found = advance_progress(
        Progress(step=4), [f"s={LONG} l={LONG} r={LONG}", "s=nan l=inf r=-", "s=1e300 l=2.5 r=1"], reading
    )
    assert found.step == 4
    assert [point.loss for point in found.curve.points()] == [2.5]


def test_to_advance_leaves_what_was_there_where_it_is():
    """It costs what is new, however long the curve is."""
    long = curve.build_loss_curve(LossPoint(step, 2.0) for step in range(1, 200_000))
    longer = advance_progress(Progress(curve=long), ["step 1000000 | loss 2.0"]).curve
    assert longer.last == LossPoint(10**6, 2.0)
    assert len(long.chunks) > 10
    assert all(one is other for one, other in zip(long.chunks, longer.chunks, strict=True))


@pytest.mark.whole
def test_a_curve_of_a_million_steps_keeps_its_shape_in_bounded_memory():
    long = curve.build_loss_curve(LossPoint(step, step / 10**6) for step in range(1, 10**6 + 1))
    kept = long.points()
    steps = [point.step for point in kept]
    assert long.size == len(kept) < 40_000
    assert steps == sorted(set(steps))
    assert steps[0] == 1
    assert steps[-1000:] == [*range(10**6 - 999, 10**6 + 1)]
    # No gap is wider than a column of a plot.
    assert max(after - before for before, after in itertools.pairwise(steps)) < 10**6 / 400


def test_a_thinned_curve_is_resumed_from_an_earlier_step():
    long = curve.build_loss_curve(LossPoint(step, 1.0) for step in range(1, 100_001))
    resumed = advance_progress(Progress(curve=long), ["step 50001 | loss 2.0"]).curve
    assert resumed.last == LossPoint(50_001, 2.0)
    assert all(point.step <= 50_000 for point in resumed.points()[:-1])
    assert resumed.size > 1000


# How trainers print an evaluation, as they were seen to: the steps and losses of the training, and of evaluations.
BAR = " 50%|#####     | 4/8 [00:00<00:00, 36.35it/s]"
EVALUATED = {
    "a bar that is behind": (
        [BAR, "{'loss': '3.9'}", "{'eval_loss': '3.8'}", BAR, "{'loss': '3.7'}"], [(4, 3.7)], [(4, 3.8)],
    ),
    "several sets of an evaluation": (
        [BAR, "{'eval_code_loss': 2.0, 'eval_code_runtime': 1.0, 'epoch': 1.0}"],
        [], [(4, 2.0)],
    ),
    "TRL": (
        ["{'loss': 2.0, 'num_tokens': 4096.0, 'epoch': 0.1}", "{'eval_loss': nan, 'eval_num_tokens': 5000.0}"],
        [(0, 2.0)], [(0, math.nan)],
    ),
    "NeMo repeats it": (
        [f"Training epoch 0, iteration {at}/9 | global_step: {at} | reduced_train_loss: 1.5 | val_loss: {loss}"
         for at, loss in enumerate((4.1, 4.1, 4.1, 3.9, 3.9))],
        [(at, 1.5) for at in range(1, 6)], [(1, 4.1), (4, 3.9)],
    ),
    "Megatron": (
        [" iteration       10/     100 | lm loss: 1.2E+01 |",
         " validation loss at iteration 10 | lm loss value: 7.487306E+00 | lm loss PPL: 1.785236E+03 | ",
         " validation loss at iteration 10 on test set | lm loss value: 1.0E+00 | lm loss PPL: 1.0E+00 | "],
        [(10, 12.0)], [(10, 7.487306)],
    ),
    "AutoModel": (
        ["2026-11-20 22:46:52 | INFO | root | step 8 | epoch 0 | loss 2.0 | grad_norm 1.0 | lr 1e-05 |",
         '2026-11-20 22:46:52 | INFO | root | [val] name "default" | step 8 | epoch 0 | loss 1.9 | lr 1.00e-05 |'],
        [(9, 2.0)], [(9, 1.9)],
    ),
    "a line of its own": (
        ["step 5/9 | loss 2.0", "eval | step 5 | loss 1.5", "step 5/9 | eval_loss 1.25"], [(5, 2.0)], [(5, 1.25)],
    ),
    "nothing of an evaluation": (
        ["evaluate the loss of 3 sets", "interval loss: 3.0", "Validation logs: val_per_token_loss: 3.0"], [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("trainer", EVALUATED)
def test_evaluations_are_apart_from_the_training(trainer):
    lines, trained, evaluated = EVALUATED[trainer]
    found = advance_progress(Progress(), lines)
    for kept, expected in ((found.curve, trained), (found.evaluations, evaluated)):
        assert [step for step, _ in losses(kept)] == [step for step, _ in expected]
        assert [loss for _, loss in losses(kept)] == pytest.approx([loss for _, loss in expected], nan_ok=True)


def test_what_came_after_the_step_of_a_resume_is_dropped():
    lines = [f"step {at}/90 | loss 2.0" for at in range(1, 61)]
    before = advance_progress(
        Progress(), [*lines[:20], "eval | step 20 | loss 1.5", *lines[20:40], "eval | step 40 | loss 1.4"]
    )
    assert before.best_evaluation == LossPoint(40, 1.4)
    found = advance_progress(before, ["step 21/90 | loss 3.0"])
    assert (found.step, losses(found.curve)[-2:], losses(found.evaluations)) == (
        21, [(20, 2.0), (21, 3.0)], [(20, 1.5)],
    )  # fmt: skip


def test_the_rate_and_the_tokens_are_kept_by_step():
    found = advance_progress(Progress(), ["{'loss': 2.0, 'learning_rate': 1e-05, 'num_tokens': 4096.0, 'epoch': 0.1}",
                                 "step 7 | loss 1.0 | lr 2e-5 | tokens seen: 8192"])  # fmt: skip
    assert found.curve.points() == (LossPoint(0, 2.0, 1e-5, 4096), LossPoint(7, 1.0, 2e-5, 8192))
    assert found.tokens == 8192


@given(st.lists(st.integers(1, 2000), max_size=60), st.integers(0, 1600), st.integers(1, 50))
def test_a_curve_is_its_points(steps, before, most):
    expected = [LossPoint(step, 0.5) for step in range(1, before + 1)]
    begun = curve.build_loss_curve(expected)
    growing = curve.LossCurveBuilder(begun)
    for step in steps:
        growing.add(LossPoint(step, 1.0))
        while expected and expected[-1].step >= step:
            expected.pop()
        expected.append(LossPoint(step, 1.0))
    found = growing.curve()
    assert found.points() == tuple(expected)
    assert begun.points() == tuple(LossPoint(step, 0.5) for step in range(1, before + 1)), "it stays what it was"
    assert [*found.points_newest_first()] == expected[::-1]
    assert (found.size, found.first, found.last) == (
        len(expected),
        *(expected[:1] or [None]),
        *(expected[-1:] or [None]),
    )
    thin = found.thinned_points(most)
    assert len(thin) <= most + 1
    assert thin[:1] + thin[-1:] == expected[:1] + expected[-1:]
    assert {*thin} <= {*expected}
    assert found.size > most or thin == expected
