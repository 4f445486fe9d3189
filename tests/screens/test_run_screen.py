"""The Run screen: what it says of a run that goes on, has failed or has finished, and what its keys do."""

import math
import os
import re
import shutil
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from pilot import (
    THREE_CARDS,
    finished_run,
    live_run,
    open_wizard,
    out_of_memory_run,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
)
from support import GIB, UUIDS, make_run_copies, start_folder_holder
from textual.widgets._toast import Toast
from training_results import safetensors_bytes, write_model
from tui_train.screens.run import run_state
from tui_train.screens.run.card_lines import CardLabel, card_lines
from tui_train.screens.run.failure_panel import split_first_clause
from tui_train.screens.run.log_view import LogView
from tui_train.screens.run.run_end import RUN_NOT_ENDED, RunEnd
from tui_train.screens.run.run_view import RunView
from tui_train.screens.widgets.card_curves import SECONDS_PER_CURVE_BLOCK, CardHistory

from tui_train import places
from tui_train.diagnose import log_reader
from tui_train.diagnose.types import FIRST_UNKNOWN_LINE_NUMBER
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import CardSample
from tui_train.runner.logs.curve import LossCurve, LossCurveBuilder, LossPoint
from tui_train.runs.follow import follow_snapshots, read_progress
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import made_step_count, read_listed_runs, read_status
from tui_train.views import plain_text
from tui_train.views.run_digest import DigestCache, run_outcome_text
from tui_train.wizard import make_wizard


def lines(first: int, last: int, of: int = 900) -> list[str]:
    """Return what a trainer prints for some steps, with an evaluation every 100."""
    found = []
    for step in range(first, last + 1):
        found.append(f"step {step}/{of} | loss {1 + 2 / step:.4f} | lr {1e-3 / step:.3e} | tokens/s 5120")
        found += [f"eval | step {step} | loss {1.5 + 1 / step:.4f}"] if step % 100 == 0 else []
    return found


def running(tmp_path: Path, *events: dict[str, Any], logs: tuple[list[str], ...]) -> RunFolder:
    """Return the folder of a run that goes on, held by this process, and the logs of its attempts."""
    run = finished_run(tmp_path)
    began = {"time": time.time() - 1500, "event": "run_started", **start_folder_holder(run.path)}
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, (began, *events))) + b"\n")
    for number, log in enumerate(logs, start=1):
        run.attempt_log(number).write_text("\n".join(log) + "\n")
    return run


BEGAN = {"time": 1.0, "event": "attempt_started", "attempt": 1, "position": 1}


def climbed(tmp_path: Path) -> RunFolder:
    """Return a live run in its second attempt, at step 558 of 900."""
    began = time.time() - 1500
    events = [
        {"time": began, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": began + 60, "event": "attempt_ended", "attempt": 1, "exit_code": 1, "out_of_memory": True},
        {"time": began + 60, "event": "attempt_started", "attempt": 2, "position": 2},
    ]
    return running(tmp_path, *events, logs=(lines(1, 31), lines(1, 558)))


def row(shown: str, words: str) -> str:
    return next((line.strip() for line in shown.splitlines() if words in line), "")


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (200, 50)], ids=str)
async def test_a_live_run_says_all_at_any_size(machine, tmp_path, size):
    async with make_wizard(str(climbed(tmp_path).path)).run_test(size=size) as pilot:
        await wait_for_text(pilot, "◆ eval", "step 558/900", "● attempt 2")
        shown = screen_text(pilot)
        assert row(shown, "running").endswith("25 min elapsed")
        assert "62 %" in row(shown, "558 of 900")
        assert "eval 1.502 best, step 500" in row(shown, "loss 1.00")
        assert all(len(line) <= size[0] for line in shown.splitlines())
        assert size[0] < 80 or "✗ attempt 1, out of memory at step 31 ── ● attempt 2" in shown


@pytest.mark.parametrize(
    ("events", "log", "said"),
    [
        ((), "", "; no process trains yet."),
        ((BEGAN,), "", "; nothing written yet."),
        ((BEGAN,), "loading the model\n", "; no step in the log yet."),
        ((BEGAN,), "\n".join(lines(1, 3)) + "\n", ""),
    ],
)
async def test_what_a_run_does_before_its_first_step_is_said(machine, tmp_path, events, log, said):
    run = running(tmp_path, *events, logs=())
    run.attempt_log(1).write_text(log)
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, said or "3 of 900")
        waits = [words in screen_text(pilot) for words in ("no process trains", "nothing written", "no step")]
        assert sum(waits) == bool(said)


async def test_a_resumed_attempt_is_at_its_checkpoint_until_a_step_is_read(tmp_path, machine):
    """And the one before is named with its end."""
    events = [
        {"time": 1.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 2.0, "event": "attempt_ended", "attempt": 1, "exit_code": 9},
        {"time": 3.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 450},
    ]
    run = running(tmp_path, *events, logs=(lines(1, 460), ["loading"]))
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        ends = "✗ attempt 1, exit code 9 at step 460 ── ● attempt 2, resumed from step 450"
        await wait_for_text(pilot, "450 of 900", "50 %", ends)
        assert DigestCache().read_digest(run).step == 450


@pytest.mark.parametrize("looks", [1, 4])
def test_an_attempt_that_begins_while_one_looks_follows_all_of_the_one_before(tmp_path, looks):
    ended = [
        {"time": 1.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 2.0, "event": "attempt_ended", "attempt": 1, "exit_code": 9},
    ]
    second = {"time": 3.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 40}
    run = running(tmp_path, *ended[:1], logs=(lines(1, 30),))
    enough = []
    snapshot = follow_snapshots(run, lambda: bool(enough))
    looked = 0
    while looked < looks:
        with run.attempt_log(1).open("a") as log:
            log.write(f"noise {looked}\nstep {31 + looked}/900 | loss 1.5\n")
        looked, _ = looked + 1, next(snapshot)
    for step in range(31 + looks, 51):
        with run.attempt_log(1).open("a") as log:
            log.write(f"step {step}/900 | loss 1.5\n")
    run.attempt_log(2).write_text("\n".join(lines(41, 60)) + "\n")
    with run.events_file.open("ab") as events:
        events.write(b"\n".join(map(msgspec.json.encode, (ended[1], second))) + b"\n")
    last = next(each for each in snapshot if each.progress.step == 60)
    assert last.progress.curve == read_progress(run, last.status.attempts).curve
    of_home = DigestCache()
    assert last.progress.curve == of_home.read_progress_of_run(of_home.read_digest(run)).curve
    assert [point.step for point in last.progress.curve.points()] == [*range(1, 61)]
    assert last.last_steps == ((1, 50),)


@pytest.mark.whole
async def test_the_plot_is_zoomed_scaled_turned_and_hidden(machine, tmp_path):
    app = make_wizard(str(climbed(tmp_path).path))
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "900")
        for key, title, labels in (
            ("z", "last quarter", ["418", "453", "488", "523", "558"]),
            ("z", "last twentieth", ["530", "537", "544", "551", "558"]),
            ("z", "Loss", ["0", "225", "450", "675", "900"]),
            ("l", "log scale", ["0", "225", "450", "675", "900"]),
            ("v", "Learning rate", ["0", "225", "450", "675", "900"]),
        ):
            await pilot.press(key)
            await wait_for_text(pilot, title)
            axes = [line.replace("step ", "").split() for line in screen_text(pilot).splitlines()]
            assert labels in axes, screen_text(pilot)
        await pilot.press("p")
        await until_true(pilot, lambda: screen_text(pilot).count("step 5") > 20)
        assert "Learning rate" not in screen_text(pilot), "the log has the room"


def test_what_can_be_done_with_a_run_follows_from_what_is_known_of_it(tmp_path):
    view = RunView(finished_run(tmp_path))
    actions = ("stop", "resume", "edit", "show_result", "fix")
    assert [action for action in actions if view.can_do(action)] == ["stop"]
    assert not view.why_key_refused("e"), "nothing is known of it"
    view.snapshot = next(follow_snapshots(view.run, lambda: False))
    assert view.end == RUN_NOT_ENDED
    assert [action for action in actions if view.can_do(action)] == ["edit"]
    view.end = RunEnd(why_not_resumable="has no checkpoint")
    assert view.why_key_refused("r").endswith("has no checkpoint.")
    view.end = RunEnd()
    assert [key for key, _ in view.next_keys_and_labels()] == ["r", "e"]
    view.previous_run = view.run
    assert [key for key, _ in view.next_keys_and_labels()] == ["r", "e", "c"]
    view.is_log_unreadable = True
    assert any("can no longer be read" in line.plain for line in view.state_lines(())(80))


async def test_an_ended_run_says_what_remains_and_what_is_next_and_does_not_ring(machine, tmp_path, monkeypatch):
    run = finished_run(tmp_path)
    write_model(run.path / "output/model", **{"model.safetensors": safetensors_bytes(3 * 2**20)})
    app = make_wizard(str(run.path))
    monkeypatch.setattr(app, "bell", lambda: pytest.fail("it rang"))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "1.067 last, 5.000 first")
        await wait_for_text(pilot, "output/model   3 MiB")
        shown = screen_text(pilot)
        assert row(shown, "finished").endswith("after 1 min 25 s, 2 attempts")
        assert "r Resume" not in shown
        await press_keys("e")(pilot)
        assert type(app.screen).__name__ == "RecipeScreen"


async def test_weights_of_another_form_are_named_where_there_is_no_checkpoint(machine, tmp_path):
    run = finished_run(tmp_path)
    saved = run.path / "output/model.pt"
    saved.parent.mkdir()
    saved.write_bytes(b"weights")
    os.utime(saved, (1050, 1050))  # while it trained
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "edit and rerun")
        assert row(screen_text(pilot), "Saved").split() == ["Saved", "output/model.pt"]


@pytest.mark.parametrize(("log", "words"), [(b"", "is empty"), (b"a\nb\n", "at its end")], ids=str)
async def test_a_log_that_is_all_in_sight_has_nothing_to_scroll(machine, tmp_path, log, words):
    run = finished_run(tmp_path, state="failed", code=3)
    run.attempt_log(2).write_bytes(log)
    async with open_wizard(run=run) as pilot:
        assert (f"attempt-2.log  {words}" in screen_text(pilot), "█" in screen_text(pilot)) == (True, False)


@pytest.mark.whole
async def test_a_failed_run_can_be_resumed_and_the_plot_had_back(machine, tmp_path):
    run = out_of_memory_run(tmp_path)
    async with open_wizard(run=run, notifications=True) as pilot:
        assert "r resume" not in screen_text(pilot)
        await press_keys("r")(pilot)
        why = "has no complete checkpoint."
        assert why in [*pilot.app._notifications][-1].message
    checkpoint = run.path / "output" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "memory was full", "r resume", "▌✗ The GPU")
        assert re.search(r"▌line 62  .*torch.OutOfMemoryError", screen_text(pilot))
        assert not pilot.app.screen.query_one("#plot").display
        await press_keys("p")(pilot)
        assert pilot.app.screen.query_one("#plot").display


@pytest.mark.parametrize(("setting", "rings"), [("", 1), ("off", 0)])
async def test_the_end_of_a_watched_run_rings(machine, tmp_path, monkeypatch, setting, rings):
    monkeypatch.setenv("TUI_TRAIN_NOTIFY", setting)
    run = climbed(tmp_path)
    app = make_wizard(str(run.path))
    rung = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "558 of 900")
        assert not rung
        for event in ({"event": "attempt_ended", "attempt": 2}, {"event": "run_ended", "state": "finished"}):
            with run.events_file.open("ab") as file:
                file.write(msgspec.json.encode({"time": time.time(), "exit_code": 0, **event}) + b"\n")
        await wait_for_text(pilot, "✓ finished")
        assert len(rung) == rings


@pytest.mark.whole
async def test_the_cards_of_a_live_run_have_their_number_and_name(seed, tmp_path, monkeypatch):
    samples = tuple(
        CardSample(uuid=uuid, memory_free=10 * GIB, memory_total=24 * GIB, utilization=use, temperature=71, power=338)
        for uuid, use in ((UUIDS[0], 95), (UUIDS[1], 95), ("GPU-other", 55))
    )
    monkeypatch.setattr(live_samples, "yield_changed_samples", lambda _cancelled: iter((samples,)))
    run = climbed(tmp_path)
    run.plan_file.write_bytes(msgspec.json.encode({"world_size": 2, "device": "cuda", "gpus": UUIDS}))
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "0 RTX 3090")
        shown = screen_text(pilot)
        for number in (THREE_CARDS[0].index, THREE_CARDS[2].index):
            card = row(shown, f"{number} RTX 3090")
            assert re.search(r"█  95%  .*▅   14\.0/24 GiB  .*▆   71 °C  .*█ 338 W", card), card
        assert not any(uuid[-6:] in shown for uuid in UUIDS)
        assert "55%" not in shown, "it trains without that card"


@pytest.mark.parametrize(
    ("losses", "mark"),
    [
        ([3 - n / 50 for n in range(40)], "↓"),
        ([2 + (-1) ** n / 10 for n in range(40)], "→"),
        ([2 + (-1) ** (n // 7) / 10 - n / 1000 for n in range(40)], "→"),
        ([1 + n / 50 for n in range(40)], "↑"),
        ([2.0] * 40, "→"),
        ([2.0, 1.0], ""),
        ([math.nan] * 40, ""),
    ],
)  # fmt: skip
def test_the_newest_losses_are_compared_with_those_before(losses, mark):
    builder = LossCurveBuilder(LossCurve())
    for step, loss in enumerate(losses):
        builder.add(LossPoint(step, loss))
    assert run_state._trend_mark(builder.curve()) == mark


@pytest.mark.parametrize(
    ("per_second", "word", "text"),
    [(4.23, "step", "4.2 steps/s"), (99.6, "step", "100 steps/s"), (0.77, "step", "1.3 s/step"),
     (0.001, "epoch", "1000 s/epoch"), (1.0, "epoch", "1.0 epochs/s")],
)  # fmt: skip
def test_a_speed_is_told_in_what_is_more_than_one(per_second, word, text):
    assert run_state.speed_text(per_second, word) == text


def cards(count: int) -> tuple[CardSample, ...]:
    return tuple(
        CardSample(uuid=f"{n}", utilization=90 + n, power=300, memory_free=n * GIB, memory_total=80 * GIB)
        for n in range(count)
    )


def test_many_cards_are_folded_and_those_that_fail_come_first():
    lost = CardSample(uuid="lost", problem="it is gone \x1b[2J")
    names = {"lost": CardLabel("9", "NVIDIA H100 80GB")}
    drawn = [line.plain for line in card_lines((*cards(8), lost), CardHistory(), names, 3, 78)]
    assert drawn[1] == "✗ 9 H100 80GB  it is gone \\x1b[2J"
    assert drawn[3].split("   ")[0] == "7 more"
    assert len(drawn) == 4
    assert len(card_lines(cards(8), CardHistory(), {}, 8, 78)) == 9


def test_the_curve_of_a_card_has_one_block_for_each_span():
    history = CardHistory()
    for second in range(int(SECONDS_PER_CURVE_BLOCK * 3)):
        history.add((CardSample(uuid="a", utilization=second),), float(second))
    assert [sample.utilization for sample in history.samples_of_card("a")] == [
        SECONDS_PER_CURVE_BLOCK * number - 1 for number in (1, 2, 3)
    ]


async def test_a_folder_that_is_deleted_while_the_ended_run_is_shown_is_called_gone(machine, tmp_path):
    run = finished_run(tmp_path)
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "finished")
        shutil.rmtree(run.path)
        await wait_for_text(pilot, "its folder is gone")


@pytest.mark.parametrize(
    ("cause", "first", "rest"),
    [
        ("The disk is full.", "The disk is full", ""),
        ("A port is taken: 29500 is in use.", "A port is taken", "29500 is in use."),
        ("One. two.", "One", "Two."),
        ("No such file: weights/missing.pt.", "No such file", "weights/missing.pt."),
        ("word " * 30, "", ("word " * 30)),
        ("", "", ""),
    ],
)
def test_a_failure_is_headed_by_the_first_words_of_its_cause(cause, first, rest):
    assert split_first_clause(cause, 60) == (first, rest)


@pytest.mark.whole
async def test_states_of_a_progress_bar_are_folded_in_the_log(machine, tmp_path):
    run = finished_run(tmp_path)
    bars = [f" {done:>2}%|{'█' * (done // 10):<10}| {done}/100 [00:01<00:02, 9.9it/s]" for done in range(99)]
    run.attempt_log(2).write_text("\n".join(["before", *bars[:50], "between", *bars[50:], "after"]) + "\n")
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "after")
        for pressed in ((), ("g",), ("end",), ("up",)):
            await press_keys(*pressed)(pilot)
            shown = [line for line in screen_text(pilot).splitlines() if "it/s]" in line]
            assert [line.split("|")[0].strip() for line in shown] == ["98%"], pressed
        await press_keys("slash", *"17%", "enter")(pilot)
        await wait_for_text(pilot, "17%|")


async def test_values_stand_in_columns_and_the_cause_is_marked_until_x(machine, tmp_path):
    run = out_of_memory_run(tmp_path)
    log = run.attempt_log(max(n for n in range(1, 9) if run.attempt_log(n).is_file()))
    log.write_text("{'loss': '2.3', 'epoch': '0.1'}\n" + log.read_text())
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "▌✗ The GPU")
        view = pilot.app.screen.query_one(LogView)
        marked = [row.strip for row in view._rows if "torch.OutOfMemoryError" in row.strip.text]
        assert [segment.style.bold for strip in marked for segment in strip if segment.text.strip()] == [True] * len(
            marked
        )
        assert marked
        await press_keys("g")(pilot)
        await wait_for_text(pilot, "epoch 0.1        loss 2.3")
        await press_keys("x")(pilot)
        await wait_for_text(pilot, "{'loss': '2.3', 'epoch': '0.1'}", "as written")
        await press_keys("x", "slash", *"oss", "enter")(pilot)
        await wait_for_text(pilot, "{'loss': '2.3', 'epoch': '0.1'}", "/oss")


def resumed_after_a_stop(tmp_path: Path) -> RunFolder:
    """Return a run that was stopped at step 31 after a minute, and resumed to its end in half of one."""
    run = finished_run(tmp_path)
    first = {"event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"}
    events = [
        {"time": 1000.0, **first},
        {"time": 1000.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 1060.0, "event": "attempt_ended", "attempt": 1, "exit_code": 143},
        {"time": 1060.0, "event": "run_ended", "state": "stopped", "exit_code": 143},
        {"time": 5000.0, **first, "mark": "n"},
        {"time": 5000.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 30},
        {"time": 5030.0, "event": "attempt_ended", "attempt": 2, "exit_code": 0},
        {"time": 5030.0, "event": "run_ended", "state": "finished", "exit_code": 0},
    ]
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    run.attempt_log(1).write_text("\n".join(lines(1, 31, 60)) + "\n")
    run.attempt_log(2).write_text("\n".join(lines(31, 60, 60)) + "\n")
    return run


async def test_a_resumed_run_is_summed_up_whole_and_its_stop_is_no_failure(machine, tmp_path):
    run = resumed_after_a_stop(tmp_path)
    async with open_wizard(run=run) as pilot:
        # What was measured and the rows of the attempts are read apart.
        await wait_for_text(pilot, "3.000 first", "○ attempt 1, stopped")
        assert row(screen_text(pilot), "finished").endswith("1 min 30 s, 2 attempts")
        assert not [part for part in ("143", "✗") if part in row(screen_text(pilot), "attempt 1")]
    assert plain_text.listed_run_row(read_listed_runs()[0])[3] == "1 min 30 s"


@pytest.mark.parametrize(("made", "beside"), [(climbed, ["step 558/900"]), (out_of_memory_run, ["▌✗", "▌F2"])])
async def test_the_log_keeps_five_lines_on_a_small_screen_also_below_a_failure(machine, tmp_path, made, beside):
    async with make_wizard(str(made(tmp_path).path)).run_test(size=(60, 20)) as pilot:

        def height() -> int:
            """Return how many lines of the log stand above its place and the keys."""
            screen = pilot.app.screen
            seen = screen.query_one(LogView).region.intersection(screen.region)
            return seen.height if seen.bottom < screen.region.bottom else 0

        await wait_for_text(pilot, *beside)
        # Of a failure four steps, and its line.
        await until_true(pilot, lambda: height() >= 5 and screen_text(pilot).count(" | loss ") >= 4)
        await wait_for_text(pilot, *beside)


@pytest.mark.whole
async def test_the_end_of_a_large_log_explains_before_the_rest_is_read(machine, tmp_path, monkeypatch):
    rest, read = threading.Event(), log_reader.KeptMiddleLines.keep_relevant_lines

    def slow(middle: log_reader.KeptMiddleLines, number: int, block: bytes) -> None:
        if number < FIRST_UNKNOWN_LINE_NUMBER:
            rest.wait(60)
        read(middle, number, block)

    monkeypatch.setattr(log_reader.KeptMiddleLines, "keep_relevant_lines", slow)
    for name, size in (("_BLOCK_BYTES", 4096), ("_MIN_LARGE_LOG_BYTES", 100_000), ("_LARGE_LOG_END_BYTES", 40_000)):
        monkeypatch.setattr(log_reader, name, size)
    run = finished_run(tmp_path, state="failed", code=1)
    with run.attempt_log(2).open("a") as log:
        log.writelines(f"{line}\n" for line in lines(61, 3000))
        log.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    async with make_wizard(str(run.path)).run_test(size=(100, 30)) as pilot:
        await wait_for_text(pilot, "▌near its end", during=True)
        assert "reading the rest of its log" in screen_text(pilot)
        assert "▌F2" not in screen_text(pilot)
        rest.set()
        await wait_for_text(pilot, "▌F2")
        assert "reading the rest" not in screen_text(pilot)
        assert "near its end" not in screen_text(pilot)


async def test_a_loss_that_became_nan_has_its_fix_on_f2_and_its_name_on_home(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("step 1/60 | loss 2.0\n" + "".join(f"step {n}/60 | loss nan\n" for n in range(2, 61)))
    cache = DigestCache()
    digest = cache.read_digest(run)
    assert cache.needs_explanation(digest)
    assert run_outcome_text(cache.explain_failure(digest)) == "loss is NaN"
    assert not cache.needs_explanation(cache.read_digest(run))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(
            pilot, "▌✗ The loss or the gradients became NaN", "clip gradients", "F2  learning rate 0.0015"
        )
        await wait_for_text(pilot, "✗ finished, loss is NaN", "✗ attempt 2")
        await press_keys("f2")(pilot)
        await wait_for_text(pilot, "● 4 Preview")
        assert pilot.app.profile.recipe.learning_rate == 0.0015
    async with open_wizard() as pilot:
        await wait_for_text(pilot, "✗ quickstart", "finished  loss is NaN")


async def test_the_outcome_of_a_training_on_rewards_is_its_reward(machine, tmp_path):
    run = finished_run(tmp_path)
    lines = (f"{{'loss': '0.01', 'entropy': '1', 'reward': '0.{n}', 'epoch': '0.{n}'}}\n" for n in range(1, 9))
    run.attempt_log(2).write_text("".join(lines))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "Reward      0.8 last, 0.1 first", "loss 0.01       reward 0.8        entropy 1")
    async with open_wizard() as pilot:
        await wait_for_text(pilot, "✓ quickstart", "finished  reward 0.8")


async def test_while_the_loss_is_nan_f2_stops_the_training_and_opens_the_fix(machine, tmp_path, monkeypatch):
    run = live_run(tmp_path)
    run.attempt_log(2).write_text("step 1/60 | loss 2.0\n" + "".join(f"step {n}/60 | loss nan\n" for n in range(2, 61)))
    stopped: list[RunFolder] = []
    place = SimpleNamespace(stop=lambda run: (stopped.append(run), read_status(run))[1])
    monkeypatch.setattr(places, "place_of_run", lambda run: place)
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "▌✗ The loss or the gradients became NaN", "F2  learning rate 0.0015", during=True)
        await pilot.press("f2")
        await wait_for_text(pilot, "Stop this training, and open Preview with learning rate 0.0015?", during=True)
        assert not stopped
        await pilot.press("down", "enter")
        await wait_for_text(pilot, "● 4 Preview", during=True)
        assert [each.path for each in stopped] == [run.path]
        assert pilot.app.profile.recipe.learning_rate == 0.0015


async def test_the_question_of_a_stop_closes_when_the_run_ends_by_itself(machine, tmp_path):
    run = live_run(tmp_path)
    async with make_wizard(str(run.path)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for_text(pilot, "● running", during=True)
        await pilot.press("s")
        await wait_for_text(pilot, "Stop this training?", "It gets", during=True)
        end = {"time": 2001.0, "event": "run_ended", "state": "finished", "exit_code": 0}
        with run.events_file.open("ab") as events:
            events.write(b"\n" + msgspec.json.encode(end))
        await wait_for_text(pilot, f"{run.name} has ended by itself: finished.", during=True)
        assert "Stop this training?" not in screen_text(pilot)


async def test_a_notice_does_not_cover_the_log(machine, tmp_path):
    async with make_wizard(str(finished_run(tmp_path).path)).run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for_text(pilot, "✓ finished", "at its end")
        await pilot.press("c")
        await wait_for_text(pilot, "There is no earlier run of quickstart.", during=True)
        log = pilot.app.screen.query_one(LogView).region
        assert not any(log.overlaps(toast.region) for toast in pilot.app.screen.query(Toast))


async def test_a_log_line_that_is_cut_says_so(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("short\n" + "x" * 78 + "end\n" + "y" * 78 + "\n")
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "short")
        await press_keys("x")(pilot)
        rows = [row.strip.text for row in pilot.app.screen.query_one(LogView)._rows]
        assert [row[-2:] for row in rows] == ["rt", "x…", "yy"]


async def test_the_log_takes_the_colours_of_another_theme_at_once(machine, tmp_path):
    async with open_wizard(run=finished_run(tmp_path)) as pilot:
        log = pilot.app.screen.query_one(LogView)
        dark = next(iter(log.render_line(0))).style.bgcolor
        pilot.app.theme = "light"
        await until_true(pilot, lambda: next(iter(log.render_line(0))).style.bgcolor == log.rich_style.bgcolor != dark)


@pytest.mark.parametrize(
    ("logged", "steps", "state", "made"),
    [(7, 8, "finished", 8), (8, 8, "finished", 8), (6, 8, "finished", 6), (7, 8, "failed", 7), (0, 1, "finished", 0)],
)
def test_a_finished_script_that_counts_from_0_has_made_all_steps(logged, steps, state, made):
    assert made_step_count(logged, steps, state) == made


async def test_a_comparison_that_is_opened_from_a_run_is_named_so(machine, tmp_path):
    run = finished_run(tmp_path)
    make_run_copies(run, 1)
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "Compare")
        await press_keys("c")(pilot)
        await wait_for_text(pilot, "Run › Compare")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "● 5 Run")


async def test_a_search_in_the_log_says_which_hit_it_is_and_its_keys(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("".join(f"line {number}.\n" for number in range(100)))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "line 99.")
        assert "n Next" not in screen_text(pilot)
        await press_keys("slash", *"line")(pilot)
        assert re.search(r"^ ?/ line {20}", screen_text(pilot), re.MULTILINE)
        assert re.search(r"Enter Find +Esc End ", screen_text(pilot))
        await press_keys("enter", "home")(pilot)
        await wait_for_text(pilot, "/line")
        await press_keys("n")(pilot)
        await wait_for_text(pilot, "/line, 1 of 100", "Esc End", "n Next", "N Before")
        await press_keys("n")(pilot)
        await wait_for_text(pilot, "/line, 2 of 100")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "Esc Back", "attempt-2.log")
        assert not [words for words in ("n Next", "N Before", "/line") if words in screen_text(pilot)]
