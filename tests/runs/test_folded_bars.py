"""Progress bars of a log: of the states of one bar only the newest is shown, whatever other lines stand between."""

import pytest

from tui_train.runner.logs.lines import lines_left_on_terminal
from tui_train.runs.logs import folded_bars
from tui_train.runs.logs.folded_bars import FoldedBars, bar_state
from tui_train.runs.logs.logfile import BLOCK_BYTES, LogFile


def bar(step, caption="", steps=1000):
    """A state of a bar as tqdm writes it."""
    percent = 100 * step // steps
    return f"{caption}{percent:3d}%|{'█' * (percent // 10):<10}| {step}/{steps} [00:01<00:02,  9.50it/s]"


def losses(step):
    return f"{{'loss': '{1 + 4 / (step + 1):.4f}', 'epoch': '{step / 100}'}}"


def log_of(tmp_path, *lines, end="\n"):
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + end)
    return LogFile(path)


def shown_lines(log):
    """The lines of a log without the old states of bars."""
    folded = FoldedBars(log)
    folded.forget_changed_blocks(log.change_stamp())
    return [
        text
        for line in log.lines_from(0)
        for text in lines_left_on_terminal(line.shown_data)[folded.begins_with_superseded_state(line) :]
    ]


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        (bar(400), bar(410), True),
        (bar(400), bar(400), True),
        (bar(1000), bar(0), False),
        (bar(400, "Map: "), bar(500, "Map: "), True),
        (bar(400, "Map: "), bar(500, "Load: "), False),
        (bar(400), bar(40, steps=50), False),
        (bar(400), "step 5 | loss 2.0", False),
        ("accuracy 40%|x", "accuracy 50%|x", False),
    ],
)
def test_a_state_is_old_once_the_same_bar_goes_on(tmp_path, one, other, is_same):
    assert shown_lines(log_of(tmp_path, one, "between", other)) == [*([] if is_same else [one]), "between", other]


@pytest.mark.parametrize("steps", [30, 3000])  # 3,000 take several blocks
def test_a_bar_every_step_and_losses_every_ten_are_the_losses_and_one_bar(tmp_path, steps):
    lines = []
    for step in range(1, steps + 1):
        lines += [bar(step, steps=steps), *([losses(step)] if step % 10 == 0 else [])]
    log = log_of(tmp_path, *lines)
    assert (log.size() > 2 * BLOCK_BYTES) == (steps == 3000)
    assert shown_lines(log) == [*map(losses, range(10, steps, 10)), bar(steps, steps=steps), losses(steps)]


def test_losses_written_over_a_bar_lose_its_old_states(tmp_path):
    # As transformers writes them: each state over the one before it, and the losses in their place.
    lines, step = [], 0
    for _ in range(200):
        states = [bar(step := step + 1) for _ in range(5)]
        lines.append("\r".join(["", *states, " " * 60, losses(step)]))
    log = log_of(tmp_path, *lines, f"\r{bar(1000)}", end="")
    assert shown_lines(log) == [*map(losses, range(5, 1001, 5)), bar(1000)]


def test_an_evaluation_between_ends_no_bar_of_the_training(tmp_path):
    evaluation = [bar(step, steps=20) for step in (1, 10, 20)]
    lines = [bar(1), *evaluation, losses(1), bar(2), *evaluation, losses(2), bar(3)]
    assert shown_lines(log_of(tmp_path, *lines)) == [evaluation[-1], losses(1), evaluation[-1], losses(2), bar(3)]


def test_of_bars_alone_each_block_shows_one(tmp_path):
    log = log_of(tmp_path, *(bar(step, steps=4000) for step in range(4000)))
    shown = shown_lines(log)
    assert len(shown) == -(-log.size() // BLOCK_BYTES) > 3
    assert shown[-1] == bar(3999, steps=4000)


def test_what_is_known_of_a_log_that_grows_is_read_again(tmp_path):
    log = log_of(tmp_path, bar(1), losses(1))
    folded, line = FoldedBars(log), next(log.lines_from(0))
    assert not folded.begins_with_superseded_state(line)
    with log.path.open("a") as file:
        file.write(f"{bar(2)}\n")
    folded.forget_changed_blocks(log.change_stamp())
    assert folded.begins_with_superseded_state(line)
    log.path.write_text(f"{bar(1)}\n")
    folded.forget_changed_blocks(log.change_stamp())
    assert not folded.begins_with_superseded_state(line)


def test_however_long_a_log_is_few_of_its_blocks_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(folded_bars, "_MAX_BLOCKS_KEPT", 3)
    log = log_of(tmp_path, *(bar(step, steps=8000) for step in range(8000)))
    folded = FoldedBars(log)
    assert sum(folded.begins_with_superseded_state(line) for line in log.lines_from(0)) > 7900
    assert log.size() > 7 * BLOCK_BYTES
    assert len(folded._blocks) == 3


def test_only_a_bar_is_one():
    assert bar_state("  3%|▎  | 3/100 [00:01<00:30]") == (("", "100"), 3)
    assert bar_state("Map (num_proc=4):  50%|#####     | 1.2k/2.4k [00:01]") == (("Map (num_proc=4):", "2.4k"), 50)
    assert bar_state("3% of 5% | loss") is None
