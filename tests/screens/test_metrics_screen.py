"""Metrics of a run as a grid of plots: which are seen, where the cursor goes, and what its keys do."""

import json
import math
import time

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pilot import finished_run, open_wizard, screen_text, until_true, wait_for_text
from support import start_folder_holder
from tui_train.screens.run.metric_grid import (
    MetricDrawer,
    MetricGridOptions,
    cursor_index,
    grid_shape,
    order_pinned_first,
    with_cursor_moved,
)
from tui_train.screens.widgets.text_layout import differing_cells

from tui_train.runner.logs.metric_series import build_metrics
from tui_train.views.metric_summaries import metric_pairs
from tui_train.wizard import make_wizard

NAMES = ("loss", "reward", "kl", "entropy", "grad_norm", "rewards/margins", "rewards/chosen", "logps/chosen", "f1")


def record(step, **more):
    values = {name: round(number + 1 / step, 4) for number, name in enumerate(NAMES)}
    return str({**values, "step": step, **more})


def run_with_metrics(tmp_path, *, live=False):
    run = finished_run(tmp_path)
    lines = [record(step) for step in range(1, 41)]
    lines.append(str({"eval_loss": 0.75, "eval_reward": 1.25, "epoch": 1.0}))
    lines.append(str({"loss": 0.5, "zero": -1.0, "step": 41}))
    run.attempt_log(2).write_text("\n".join(lines) + "\n")
    if live:
        began = time.time() - 1500
        events = [
            {"time": began, "event": "run_started", **start_folder_holder(run.path)},
            {"time": began, "event": "attempt_started", "attempt": 2, "position": 2},
        ]
        run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    return run


@pytest.mark.parametrize(("size", "seen"), [((80, 24), 6), ((120, 40), 10), ((160, 50), 10)], ids=str)
async def test_as_many_plots_are_shown_as_fit(machine, tmp_path, size, seen):
    async with open_wizard("m", run=run_with_metrics(tmp_path), size=size) as pilot:
        await wait_for_text(pilot, "Run › Metrics", "loss  0.5  ◆ 0.75", "reward  1.025  ◆ 1.25")
        shown = screen_text(pilot)
        assert sum(f"{name}  " in shown for name in (*NAMES, "zero")) == seen
        assert ("1-6 of 10" in shown) == (seen < 10)


async def test_how_a_training_on_rewards_goes_comes_first(machine, tmp_path):
    run = finished_run(tmp_path)
    told = ("loss", "kl", "completions/mean_length", "clip_ratio", "reward", "reward_std", "frac_reward_zero_std")
    run.attempt_log(2).write_text("".join(f"{dict.fromkeys(told, 0.5) | {'step': step}}\n" for step in range(1, 9)))
    async with open_wizard("m", run=run) as pilot:
        await wait_for_text(pilot, "1-6 of 7", "reward_std", "frac_reward_zero_std", "completions/mean_length")
        assert "clip_ratio" not in screen_text(pilot)


async def test_run_shows_rewards_where_the_loss_says_nothing(machine, tmp_path):
    async with open_wizard("m", run=run_with_metrics(tmp_path)) as pilot:
        await until_true(pilot, lambda: "Run › Metrics" in screen_text(pilot))
        await pilot.press("escape")
        await until_true(pilot, lambda: "Reward  ━ train  ◆ eval" in screen_text(pilot))


@pytest.mark.whole
async def test_a_new_step_is_drawn_while_the_grid_is_seen(machine, tmp_path):
    run = run_with_metrics(tmp_path, live=True)
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "41 of 60", during=True)
        await pilot.press("m")
        await wait_for_text(pilot, "loss  0.5 ", during=True)
        with run.attempt_log(2).open("a") as log:
            log.write(record(42, loss=0.125) + "\n")
        await wait_for_text(pilot, "loss  0.125", during=True)


@pytest.mark.whole
async def test_keys_move_pin_scale_and_open_a_plot(machine, tmp_path):
    async with open_wizard("m", run=run_with_metrics(tmp_path)) as pilot:
        screen = pilot.app.screen
        await pilot.press("right", "down")
        assert screen._view.metrics.cursor == "entropy"
        await pilot.press("l", "p")
        await wait_for_text(pilot, "entropy  3.025  log  put first")
        assert screen_text(pilot).index("entropy") < screen_text(pilot).index("loss")
        await pilot.press("enter")
        await wait_for_text(pilot, "entropy  log scale, put first", "mean of last 10 %", "40 values", "1 of 10")
        await pilot.press("z")
        await wait_for_text(pilot, "last quarter, log scale")
        await pilot.press("right")
        await wait_for_text(pilot, "━ train  ◆ eval", "eval_loss  last 0.75", "2 of 10")
        await pilot.press("escape")
        await wait_for_text(pilot, "1-6 of 10")
        await pilot.press("pagedown", "pagedown")
        await wait_for_text(pilot, "7-10 of 10")
        assert screen._view.metrics.cursor == "zero"
        await pilot.press("l")
        await wait_for_text(pilot, "no value above 0")
        await pilot.press("escape")
        await until_true(pilot, lambda: pilot.app.screen is not screen)
        await pilot.press("m", "pageup")
        await wait_for_text(pilot, "entropy  3.025  log  put first")


async def test_the_trainers_record_has_what_the_log_has_not(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("nothing\n")
    async with open_wizard("m", run=run) as pilot:
        await wait_for_text(pilot, "No metrics in the log yet.")
        await pilot.press("escape")
        (run.path / "output").mkdir(exist_ok=True)
        state = {"global_step": 20, "log_history": [{"reward": step / 10, "step": step} for step in range(1, 21)]}
        (run.path / "output" / "trainer_state.json").write_text(json.dumps(state))
        await pilot.press("m")
        await wait_for_text(pilot, "reward  2 ")


def pairs_of(count):
    return metric_pairs(build_metrics((step, {f"m{n}": step + n for n in range(count)}) for step in range(1, 9)))


sizes = st.tuples(st.integers(20, 250), st.integers(8, 80))


@given(st.integers(1, 64), sizes)
def test_every_metric_is_on_a_page_that_fits(count, size):
    pairs, drawing = pairs_of(count), MetricDrawer()
    shape = grid_shape(count, *size)
    seen = set()
    for first in range(0, count, shape.page_size):
        choices = with_cursor_moved(pairs, MetricGridOptions(), first)
        lines = drawing.grid_lines(pairs, choices, 0, size)
        assert len(lines) <= size[1]
        assert all(line.cell_length <= size[0] for line in lines)
        text = "\n".join(line.plain for line in lines)
        seen |= {pair.name for pair in pairs if f"{pair.name}  " in text}
        assert text.count("▌") == 1
    assert size[0] < 40 or seen == {pair.name for pair in pairs}
    full = drawing.full_metric_lines(pairs[0], MetricGridOptions(), 0, size)
    assert len(full) == size[1]
    assert all(line.cell_length <= size[0] for line in full)


def test_a_new_step_is_written_in_a_few_cells_only():
    def lines_at(step):
        rows = ((at, {f"m{n}": math.exp(-at / 60) + n for n in range(9)}) for at in range(step))
        return MetricDrawer().grid_lines(metric_pairs(build_metrics(rows)), MetricGridOptions(), 300, (80, 22))

    spans = [span for old, new in zip(lines_at(150), lines_at(151), strict=True) for span in differing_cells(old, new)]
    assert 0 < sum(end - start for start, end in spans) < 80


@given(
    st.integers(1, 20),
    st.lists(st.sampled_from(("p", "l", "z", -30, -3, -1, 1, 2, 9)), max_size=12),
    st.integers(1, 20),
)
def test_whatever_is_pressed_the_cursor_is_on_a_metric_and_none_is_lost(count, pressed, later):
    pairs, choices = pairs_of(count), MetricGridOptions()
    for key in pressed:
        shown = order_pinned_first(pairs, choices)
        choices = with_cursor_moved(shown, choices, key if isinstance(key, int) else 0)
        if key == "p":
            choices = choices.with_pin_toggled()
        elif key == "l":
            choices = choices.with_log_scale_toggled()
        elif key == "z":
            choices = choices.with_next_zoom_step()
    shown = order_pinned_first(pairs, choices)
    assert {pair.name for pair in shown} == {pair.name for pair in pairs}
    assert [pair.name for pair in shown[: len(choices.pinned)]] == [*choices.pinned]
    # A log that is read again may have others.
    assert 0 <= cursor_index(order_pinned_first(pairs_of(later), choices), choices) < later
