"""Runs side by side: what is computed, what the command prints, and the screen by its keys."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pilot import finished_run, press_keys, screen_text, wait_for_text, wait_for_workers
from support import profile, sample
from tui_train.screens.compare import comparison_table, widest_cells

from tui_train.base.errors import BadInput
from tui_train.base.text import loss_text
from tui_train.cli.app import cli
from tui_train.profile import store
from tui_train.profile.types import Profile
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.views.compare import (
    ComparisonRow,
    _number_comparison_row,
    common_x_quantities,
    compared_metric_names,
    curve_difference,
    differing_setting_rows,
    faster_run_sentence,
    read_compared_runs,
    result_rows,
)
from tui_train.views.previous_run import effective_changes_since, find_earlier_run_of_profile, read_as_previous_run
from tui_train.views.run_digest import DigestCache, matches_filter, searchable_run_texts
from tui_train.wizard import make_wizard


def trained(tmp_path: Path, name: str, *, pace: float = 100.0, rate: float = 1e-4, tokens: bool = False) -> RunFolder:
    """Return the folder of a run that finished after 300 steps, with its losses and its learning rate."""
    run = finished_run(tmp_path)
    run = RunFolder(run.path.rename(run.path.parent / f"20260101-12000{len(list_runs())}-{name}"))
    run.attempt_log(1).write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    lines = []
    for step in range(1, 301):
        loss = 1 + 2 * math.exp(-step / pace)
        seen = f" | num_tokens {step * 4096}" if tokens else ""
        lines.append(f"step {step}/300 | loss {loss:.5f}{seen} | mem {pace / 10:.2f} GiB | tokens/s 5000")
        lines += [f"eval | step {step} | loss {loss + 0.1:.5f}"] if step % 50 == 0 else []
    run.attempt_log(2).write_text("\n".join(lines) + "\n")
    change(run, {"recipe.learning_rate": rate})
    return run


def change(run: RunFolder, values: dict[str, Any]) -> Profile:
    """Change values in the profile of a run, and return it."""
    changed = profile(values, store.load_profile_file(str(run.profile_file)))
    run.profile_file.write_text(store.profile_to_toml(changed))
    return changed


@pytest.fixture
def two(tmp_path: Path) -> tuple[RunFolder, RunFolder]:
    return trained(tmp_path, "slow", pace=100), trained(tmp_path, "fast", pace=50, rate=2e-4)


def cell(rows: Any, label: str) -> Any:
    return next(row for row in rows if row.label == label)


def test_results_say_which_is_better(two: tuple[RunFolder, RunFolder]) -> None:
    compared = read_compared_runs(two)
    rows = result_rows(compared)
    best = cell(rows, "Eval loss, best")
    assert best.cells == ("1.200", "1.105")
    assert (best.best_index, best.note) == (1, "-0.0946")
    assert cell(rows, "Memory, peak").cells == ("10.0 GiB", "5.0 GiB")
    assert cell(rows, "Memory, peak").best_index == 1
    assert cell(rows, "Tokens/s, last").best_index is None, "one step says little"
    assert not cell(rows, "Steps").differs
    # The last loss is the one that Home shows.
    digests = DigestCache()
    shown = tuple(loss_text(digests.read_digest(run).loss) for run in two)
    assert cell(rows, "Loss, last").cells == shown


def test_any_metric_is_overlaid_and_has_rows_of_its_own(two: tuple[RunFolder, RunFolder]) -> None:
    with two[1].attempt_log(2).open("a") as log:
        log.write("{'loss': 1.0, 'kl': 0.25, 'step': 301}\n")
    compared = read_compared_runs(two)
    assert compared_metric_names(compared) == ("eval_loss", "mem", "tokens_per_second", "kl")
    assert compared[0].metric_over("mem", "step") == [(step, 10.0) for step in range(1, 301)]
    assert compared[0].metric_over("kl", "step") == []
    rows = result_rows(compared, ["mem", "kl"])
    assert (cell(rows, "mem, last").cells, cell(rows, "mem, last").note) == (("10", "5"), "-5")
    assert cell(rows, "kl, last 10 %").cells == ("-", "0.25")


def test_the_command_takes_metrics(two: tuple[RunFolder, RunFolder]) -> None:
    paths = [str(run.path) for run in two]
    done = CliRunner().invoke(cli, ["compare", *paths, "--metric", "mem"])
    assert next(line.split() for line in done.output.splitlines() if line.startswith("mem, last ")) == [
        "mem,", "last", "10", "5", "-5",
    ]  # fmt: skip
    data = json.loads(CliRunner().invoke(cli, ["compare", *paths, "--metric", "mem", "--json"]).output)
    assert data[1]["metrics"]["mem"][-1] == [300, 5.0]
    assert isinstance(CliRunner().invoke(cli, ["compare", *paths, "--metric", "nothing"]).exception, BadInput)


def test_values_take_the_free_width_and_are_cut_once() -> None:
    row = ComparisonRow(label="LoRA targets", cells=("query_key_value", *["all linear layers"] * 2), key="x")

    def drawn(width: int) -> str:
        return comparison_table(3, 2, widest_cells([row]), ("Settings", ""), [row], width)[2].plain

    assert "".join(f"  {text:>19}" for text in row.cells) in drawn(78)
    assert drawn(74).count("all linear layers") == 2
    assert [drawn(width).count("…") for width in (60, 61, 62)] == [3, 3, 3]


async def test_a_run_without_a_loss_is_named_so(machine: Any, two: tuple[RunFolder, RunFolder]) -> None:
    two[0].attempt_log(2).write_text("no numbers\n")
    two[0].attempt_log(1).write_text("no numbers\n")
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await press_keys("space", "space", "c")(pilot)
        await wait_for_text(pilot, "Loss  A slow (no loss)  B fast  by step")


async def test_a_key_chooses_the_metric_of_the_plot(machine: Any, two: tuple[RunFolder, RunFolder]) -> None:
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await press_keys("space", "space", "c")(pilot)
        await wait_for_text(pilot, "Loss  A ")
        await press_keys("m", "down", "down", "enter")(pilot)
        await wait_for_text(pilot, "mem  A slow  B fast  by step", "mem, last 10 %")
        await press_keys("m", "enter")(pilot)
        await wait_for_text(pilot, "Loss  A ")


@pytest.mark.parametrize(
    ("text", "count"),
    [("rate=2e-4", 1), ("learning_RATE=0.0002 fast", 1), ("rate=2e-4 slow", 0), ("rate=1e-4", 1), ("rate=3", 0),
     ("device=cpu", 2), ("launcher=PYTHON", 2), ("rate=", 0), ("=2e-4", 0), ("fast", 1)],
)  # fmt: skip
def test_home_filters_runs_by_a_setting(two: tuple[RunFolder, RunFolder], text: str, count: int) -> None:
    digests = [DigestCache().read_digest(run) for run in two]
    matching = [
        run
        for run in digests
        if matches_filter(text, *searchable_run_texts(run), searchable_settings=run.searchable_settings)
    ]
    assert len(matching) == count


@pytest.mark.parametrize(
    ("first", "second", "said"), [(17.6, 19.5, "+2 s"), (61.4, 60.6, ""), (80, 18.2, "-1 min 02 s")]
)
def test_times_differ_by_what_is_shown(first: float, second: float, said: str) -> None:
    assert _number_comparison_row("Time", [first, second], "time", lower_is_better=None).note == said


def test_a_loss_that_is_no_number_is_never_better() -> None:
    row = _number_comparison_row("Loss, last", [float("nan"), 2.0], "loss", lower_is_better=True)
    assert (row.best_index, row.note) == (None, "")


def test_only_settings_that_differ_are_listed(two: tuple[RunFolder, RunFolder]) -> None:
    assert [(row.key, row.cells) for row in differing_setting_rows(read_compared_runs(two))] == [
        ("recipe.learning_rate", ("0.0001", "0.0002"))
    ]
    assert differing_setting_rows(read_compared_runs((two[0], two[0]))) == ()


def test_settings_left_at_their_default_show_what_was_trained_with(two: tuple[RunFolder, RunFolder]) -> None:
    values = {"recipe.seed": 7, "recipe.layers": 2, "recipe.steps": two[0].plan()["steps"]}
    changed = change(two[1], values)
    rows = {row.key: row.cells for row in differing_setting_rows(read_compared_runs(two))}
    assert (rows["recipe.seed"], rows["recipe.layers"]) == (("1 (default)", "7"), ("4 (default)", "2"))
    assert "recipe.steps" not in rows, "both train as many"
    (found,) = (
        change
        for change in effective_changes_since(read_as_previous_run(two[0]), changed)
        if change.key == "recipe.layers"
    )
    assert (found.before, found.after) == ("4 (default)", "2")


def test_secrets_are_not_compared_openly(two: tuple[RunFolder, RunFolder]) -> None:
    change(two[1], {"trainer.environment": {"HF_TOKEN": "hf_abcdefghij"}})
    (row,) = (row for row in differing_setting_rows(read_compared_runs(two)) if row.key == "trainer.environment")
    assert "hf_abcdefghij" not in row.cells[1]
    assert "HF_TOKEN" in row.cells[1]


def test_a_run_whose_profile_cannot_be_read_is_compared_all_the_same(two: tuple[RunFolder, RunFolder]) -> None:
    two[1].profile_file.write_text("no profile")
    rows = differing_setting_rows(read_compared_runs(two))
    assert {row.cells[1] for row in rows} == {"?"}


def test_a_sentence_says_which_is_earlier(two: tuple[RunFolder, RunFolder]) -> None:
    # B has the last loss of A, 1 + 2 exp(-300 / 100), half of the way there.
    words = faster_run_sentence(read_compared_runs(two)).split()
    assert (words[0], words[6]) == ("B", "A")
    assert abs(int(words[7]) - 150) < 10
    assert faster_run_sentence(read_compared_runs((two[0], two[0]))) == ""


@pytest.mark.parametrize("why", ["reward", "method"])
def test_losses_of_different_kinds_are_not_judged(two: tuple[RunFolder, RunFolder], why: str) -> None:
    """The loss of a training on rewards says nothing, and that of pairs is another than that of examples."""
    if why == "reward":
        with two[1].attempt_log(2).open("a") as log:
            log.write("{'loss': '0.001', 'reward': '2.5', 'reward_std': '0.1', 'epoch': '1'}\n")
    else:
        for run, method in zip(two, ("sft", "dpo"), strict=True):
            change(run, {"trainer.kind": "finetune", "finetune.method": method})
    compared = read_compared_runs(two)
    assert faster_run_sentence(compared) == ""
    row = cell(result_rows(compared), "Loss, last")
    assert (row.best_index, row.note) == (None, "")


def test_the_higher_reward_is_better(two: tuple[RunFolder, RunFolder]) -> None:
    for run, reward in zip(two, (1.5, 2.5), strict=True):
        with run.attempt_log(2).open("a") as log:
            log.write(f"{{'loss': '0.001', 'reward': '{reward}', 'reward_std': '0.1', 'epoch': '1'}}\n")
    assert cell(result_rows(read_compared_runs(two)), "Reward, last").best_index == 1


def test_losses_and_metrics_over_steps_tokens_and_time(tmp_path: Path) -> None:
    runs = (trained(tmp_path, "a", tokens=True), trained(tmp_path, "b", tokens=True))
    compared = read_compared_runs(runs)
    assert common_x_quantities(compared) == ("step", "tokens", "time")
    assert compared[0].losses_over("step")[-1][0] == 300
    assert compared[0].losses_over("tokens")[-1][0] == 300 * 4096
    assert compared[0].metric_over("mem", "tokens")[-1] == (300 * 4096, 10.0)
    # The first attempt took 19.9 s, the second one 64.9 s, of which each step is a 300th.
    seconds = [second for second, _ in compared[0].losses_over("time")]
    assert seconds[0] == pytest.approx(19.9 + 64.9 / 300, abs=0.01)
    assert seconds[-1] == pytest.approx(19.9 + 64.9, abs=0.01)
    assert [second for second, _ in compared[0].metric_over("mem", "time")] == seconds


def test_what_is_not_known_of_all_runs_is_no_axis(tmp_path: Path) -> None:
    without = trained(tmp_path, "a")
    empty = finished_run(tmp_path)
    empty.attempt_log(2).write_text("nothing\n")
    assert common_x_quantities(read_compared_runs((without, empty))) == ("step",)
    assert cell(result_rows(read_compared_runs((without, empty))), "Loss, last").cells[1] == "-"


@pytest.mark.parametrize("count", [0, 1, 7])
def test_two_to_six_can_be_compared(two: tuple[RunFolder, RunFolder], count: int) -> None:
    with pytest.raises(BadInput, match=f"^{count} run"):
        read_compared_runs((two[0],) * count)


def test_the_run_before_is_of_the_same_profile(two: tuple[RunFolder, RunFolder], tmp_path: Path) -> None:
    change(trained(tmp_path, "other"), {"name": "another"})
    last = trained(tmp_path, "last")
    assert find_earlier_run_of_profile(last) == two[1]
    assert find_earlier_run_of_profile(two[0]) is None


def test_the_command_prints_tables_and_json(two: tuple[RunFolder, RunFolder]) -> None:
    change(two[0], {"name": "mine"})
    two[0].plan_file.write_text(json.dumps({**two[0].plan(), "name": "mine"}))
    # A profile's name means its newest run.
    found = json.loads(CliRunner().invoke(cli, ["compare", "--json", "last", "mine"]).output)
    assert [each["run"] for each in found] == [two[1].name, two[0].name]
    assert [each["settings"]["recipe.learning_rate"] for each in found] == ["0.0002", "0.0001"]
    assert len(found[0]["losses"]) == 300
    assert [step for step, _ in found[0]["eval_losses"]] == [50, 100, 150, 200, 250, 300]
    shown = CliRunner().invoke(cli, ["compare", *(run.name for run in two)]).output.splitlines()
    printed = [line.split() for line in shown]
    assert ["Eval", "loss,", "best", "1.200", "1.105", "-0.0946"] in printed
    assert ["Learning", "rate", "0.0001", "0.0002"] in printed
    assert all(len(line) <= 80 for line in shown)


@pytest.mark.parametrize(
    ("first", "second", "difference"),
    [
        ([(0, 3.0), (10, 1.0)], [(12, 0.0), (10, 0.5), (5, 1.0), (0, 3.5)], [(0, 0.5), (5, -1.0), (10, -0.5)]),
        ([(4, 2.0)], [(3, 1.0), (4, 1.5)], [(4, -0.5)]),
        ([], [(1, 1.0)], []),
        ([(1, 1.0)], [], []),
    ],
)
def test_a_difference_is_told_where_both_curves_are(first, second, difference):
    assert curve_difference(first, second) == difference


@pytest.mark.whole
@pytest.mark.parametrize("size", sample([(80, 24), (120, 40), (200, 50)], 3), ids=str)
async def test_marked_runs_are_compared_by_a_key(
    machine: Any, two: tuple[RunFolder, RunFolder], size: tuple[int, int]
) -> None:
    app = make_wizard()
    async with app.run_test(size=size) as pilot:
        await wait_for_text(pilot, "slow")
        assert "c Compare" not in screen_text(pilot)
        await press_keys("space", "space", "c")(pilot)
        await wait_for_text(pilot, "✓ 1.105")
        shown = screen_text(pilot)
        assert "A slow  B fast  by step" in shown
        for words in ("Memory, peak", "Learning rate", "B reaches the last loss of A"):
            assert words in shown
        assert shown.count("B") > 5, "letters are on the curves"
        assert (" B - A  by step ─" in shown) == (size[0] >= 140)
        await press_keys("x")(pilot)
        await wait_for_text(pilot, "by time")
        await press_keys("l", "a")(pilot)
        await wait_for_text(pilot, "log scale")
        await press_keys("left", "enter")(pilot)
        await wait_for_text(pilot, "✓ finished  ")
        assert "slow" in screen_text(pilot)


@pytest.mark.whole
async def test_a_run_is_compared_with_the_one_before(machine: Any, two: tuple[RunFolder, RunFolder]) -> None:
    """Runs of one name are told apart by their time."""
    later = two[1].path.rename(two[1].path.parent / "20260102-133000-slow")
    async with make_wizard(str(later)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "300 of 300")
        await press_keys("c")(pilot)
        await wait_for_text(pilot, "A slow 01-01 12:00  B slow 01-02 13:30")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "300 of 300")
        await wait_for_workers(pilot)
