"""The Run screen: what it says of a run that goes on, has failed or has finished, and what its keys do."""

import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pilot import CARDS, SEED, finished_run, keys, settle, shows, until_shown
from results import put_model, tensors
from support import GIB, UUIDS, holder
from tui_train.screens.run.card_lines import SPAN_SECONDS, CardHistory, CardLabel, card_lines
from tui_train.screens.run.failure import split_cause
from tui_train.screens.run.log_view import LogView
from tui_train.screens.run.run_end import STILL_RUNS, RunEnd
from tui_train.screens.run.run_plot import PlotOptions
from tui_train.screens.run.run_view import RunView

from tui_train.diagnose import reader
from tui_train.diagnose.types import UNKNOWN_NUMBER
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import Sample
from tui_train.runs.follow import read_progress, watch
from tui_train.runs.rundir import RunDir
from tui_train.views.run_digest import DigestCache
from tui_train.wizard import wizard


def lines(first: int, last: int, of: int = 900) -> list[str]:
    """Return what a trainer prints for some steps, with an evaluation every 100."""
    found = []
    for step in range(first, last + 1):
        found.append(f"step {step}/{of} | loss {1 + 2 / step:.4f} | lr {1e-3 / step:.3e} | tokens/s 5120")
        found += [f"eval | step {step} | loss {1.5 + 1 / step:.4f}"] if step % 100 == 0 else []
    return found


def running(tmp_path: Path, *events: dict[str, Any], logs: tuple[list[str], ...]) -> RunDir:
    """Return the folder of a run that goes on, held by this process, and the logs of its attempts."""
    run = finished_run(tmp_path)
    began = {"time": time.time() - 1500, "event": "run_started", **holder(run.path)}
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, (began, *events))) + b"\n")
    for number, log in enumerate(logs, start=1):
        run.attempt_log(number).write_text("\n".join(log) + "\n")
    return run


def climbed(tmp_path: Path) -> RunDir:
    """Return a live run in its second attempt, at step 558 of 900."""
    began = time.time() - 1500
    events: list[dict[str, Any]] = [
        {"time": began, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": began + 60, "event": "attempt_ended", "attempt": 1, "exit_code": 1, "out_of_memory": True},
        {"time": began + 60, "event": "attempt_started", "attempt": 2, "position": 2},
    ]
    return running(tmp_path, *events, logs=(lines(1, 31), lines(1, 558)))


def row(shown: str, words: str) -> str:
    return next((line.strip() for line in shown.splitlines() if words in line), "")


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (120, 40), (160, 50), (200, 50)], ids=str)
async def test_a_live_run_says_all_at_any_size(machine: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    app = wizard(str(climbed(tmp_path).path))
    async with app.run_test(size=size) as pilot:
        await until_shown(pilot, "◆ eval")
        await until_shown(pilot, "step 558/900")
        shown = shows(pilot)
        assert row(shown, "running").endswith("25 min elapsed")
        assert "62 %" in row(shown, "558 of 900")
        assert "eval 1.502 best, step 500" in row(shown, "loss 1.00")
        assert "● attempt 2" in row(shown, "attempt 2 ") or "● attempt 2" in shown
        assert "◆" in shown
        assert "step 558/900" in shown
        assert all(len(line) <= size[0] for line in shown.splitlines())
        if size[0] >= 80:
            assert "✗ attempt 1, out of memory at step 31 ── ● attempt 2" in shown


async def test_the_losses_of_earlier_attempts_are_in_the_plot(tmp_path: Path, machine: Any) -> None:
    events = [
        {"time": 1.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 2.0, "event": "attempt_ended", "attempt": 1, "exit_code": 9},
        {"time": 3.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 40},
    ]
    run = running(tmp_path, *events, logs=(lines(1, 50), lines(41, 60)))
    told = []
    for news in watch(run, lambda: len(told) > 3):
        told.append(news)
        if news.progress.step == 60:
            break
    assert [point.step for point in told[-1].progress.curve.points()] == [*range(1, 61)]
    assert told[-1].last_steps == ((1, 50),)
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "✗ attempt 1, exit code 9 at step 50 ── ● attempt 2, resumed from step 40")


@pytest.mark.parametrize("looks", [1, 2, 4])
def test_an_attempt_that_begins_while_one_looks_follows_all_of_the_one_before(tmp_path: Path, looks: int) -> None:
    ended = [
        {"time": 1.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 2.0, "event": "attempt_ended", "attempt": 1, "exit_code": 9},
    ]
    second = {"time": 3.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 40}
    run = running(tmp_path, *ended[:1], logs=(lines(1, 30),))
    enough: list[bool] = []
    news = watch(run, lambda: bool(enough))
    looked = 0
    while looked < looks:
        with run.attempt_log(1).open("a") as log:
            log.write(f"noise {looked}\nstep {31 + looked}/900 | loss 1.5\n")
        looked, _ = looked + 1, next(news)
    for step in range(31 + looks, 51):
        with run.attempt_log(1).open("a") as log:
            log.write(f"step {step}/900 | loss 1.5\n")
    run.attempt_log(2).write_text("\n".join(lines(41, 60)) + "\n")
    with run.events_file.open("ab") as events:
        events.write(b"\n".join(map(msgspec.json.encode, (ended[1], second))) + b"\n")
    last = next(each for each in news if each.progress.step == 60)
    assert last.progress.curve == read_progress(run, last.status.attempts).curve
    of_home = DigestCache()
    assert last.progress.curve == of_home.read_losses(of_home.digest_of(run)).curve
    assert [point.step for point in last.progress.curve.points()] == [*range(1, 61)]
    assert last.last_steps == ((1, 50),)


async def test_the_plot_is_zoomed_scaled_turned_and_hidden(machine: Any, tmp_path: Path) -> None:
    app = wizard(str(climbed(tmp_path).path))
    async with app.run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "900")
        for key, title, labels in (
            ("z", "last quarter", ["418", "453", "488", "523", "558"]),
            ("z", "last twentieth", ["530", "537", "544", "551", "558"]),
            ("z", "Loss", ["0", "225", "450", "675", "900"]),
            ("l", "log scale", ["0", "225", "450", "675", "900"]),
            ("v", "Learning rate", ["0", "225", "450", "675", "900"]),
        ):
            await pilot.press(key)
            await until_shown(pilot, title)
            assert labels in [line.split() for line in shows(pilot).splitlines()], shows(pilot)
        await pilot.press("p")
        await pilot.pause(0.2)
        assert "Learning rate" not in shows(pilot)
        assert shows(pilot).count("step 5") > 20, "the log has the room"


def test_what_can_be_done_with_a_run_follows_from_what_is_known_of_it(tmp_path: Path) -> None:
    view = RunView(finished_run(tmp_path))
    actions = ("stop", "again", "edit", "result", "fix")
    assert [action for action in actions if view.can_do(action)] == ["stop"]
    assert not view.why_key_refused("e"), "nothing is known of it"
    view.news = next(watch(view.run, lambda: False))
    assert view.end == STILL_RUNS
    assert [action for action in actions if view.can_do(action)] == ["edit"]
    view.end = RunEnd(why_not_resumable="has no checkpoint")
    assert view.why_key_refused("r").endswith("has no checkpoint.")
    view.end = RunEnd(previous_run=view.run)
    assert [key for key, _ in view.next_keys()] == ["r", "e", "c"]
    view.is_unread = True
    assert any("can no longer be read" in line.plain for line in view.state_lines(())(80))


def test_zooming_begins_again() -> None:
    assert PlotOptions().changed_by("z").changed_by("z").changed_by("z") == PlotOptions()


async def test_an_ended_run_says_what_remains_and_what_is_next(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    put_model(run.path / "output/model", **{"model.safetensors": tensors(3 * 2**20)})
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "1.067 last, 5.000 first")
        await until_shown(pilot, "output/model   3 MiB")
        shown = shows(pilot)
        assert row(shown, "finished").endswith("after 1 min 25 s, 2 attempts")
        assert "r Resume" not in shown
        await keys("e")(pilot)
        assert type(app.screen).__name__ == "Recipe"


async def test_an_empty_log_is_called_so_and_has_nothing_to_scroll(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path, state="failed", code=3)
    run.attempt_log(2).write_bytes(b"")
    async with wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert ("attempt-2.log  is empty" in shows(pilot), "█" in shows(pilot)) == (True, False)


async def test_a_failed_run_can_be_resumed_and_the_plot_had_back(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path, state="failed", code=1)
    with run.attempt_log(2).open("a") as log:
        log.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    async with wizard(str(run.path)).run_test(size=(80, 24), notifications=True) as pilot:
        await until_shown(pilot, "memory was full")
        assert "r resume" not in shows(pilot)
        await keys("r")(pilot)
        assert "no complete checkpoint" in [*pilot.app._notifications][-1].message
    checkpoint = run.path / "output" / "checkpoint-5"
    checkpoint.mkdir(parents=True)
    (checkpoint / "trainer_state.json").write_text("{}")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "memory was full")
        shown = shows(pilot)
        assert "r resume" in shown
        assert "▌✗ The GPU" in shown
        assert re.search(r"▌line 62  torch.OutOfMemoryError", shown)
        assert not app.screen.query_one("#plot").display
        await keys("p")(pilot)
        assert app.screen.query_one("#plot").display


@pytest.mark.parametrize(("setting", "rings"), [("", 1), ("off", 0)])
async def test_the_end_of_a_watched_run_rings(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, rings: int
) -> None:
    monkeypatch.setenv("TUI_TRAIN_NOTIFY", setting)
    run = climbed(tmp_path)
    app = wizard(str(run.path))
    rung: list[int] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "558 of 900")
        assert not rung
        for event in (
            {"time": time.time(), "event": "attempt_ended", "attempt": 2, "exit_code": 0},
            {"time": time.time(), "event": "run_ended", "state": "finished", "exit_code": 0},
        ):
            with run.events_file.open("ab") as file:
                file.write(msgspec.json.encode(event) + b"\n")
        await until_shown(pilot, "✓ finished")
        assert len(rung) == rings


async def test_a_run_that_had_ended_before_does_not_ring(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = wizard(str(finished_run(tmp_path).path))
    rung: list[int] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(1))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "✓ finished")
        await settle(pilot)
        assert not rung


async def test_the_cards_have_their_number_and_name(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(SEED)
    samples = tuple(
        Sample(uuid=uuid, memory_free=10 * GIB, memory_total=24 * GIB, use=95, temperature=71, power=338)
        for uuid in UUIDS
    )
    monkeypatch.setattr(live_samples, "live_samples", lambda _cancelled: iter((samples,)))
    run = climbed(tmp_path)
    run.plan_file.write_bytes(msgspec.json.encode({"world_size": 2, "device": "cuda", "gpus": UUIDS}))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "0 RTX 3090")
        shown = shows(pilot)
        for number in (CARDS[0].index, CARDS[2].index):
            card = row(shown, f"{number} RTX 3090")
            assert re.search(r"█  95%  .*▅   14\.0/24 GiB  .*▆   71 °C  .*█ 338 W", card), card
        assert not any(uuid[-6:] in shown for uuid in UUIDS)


def cards(count: int) -> tuple[Sample, ...]:
    return tuple(
        Sample(uuid=f"{n}", use=90 + n, power=300, memory_free=n * GIB, memory_total=80 * GIB) for n in range(count)
    )


def test_many_cards_are_folded_and_those_that_fail_come_first() -> None:
    lost = Sample(uuid="lost", problem="it is gone \x1b[2J")
    names = {"lost": CardLabel("9", "NVIDIA H100 80GB")}
    drawn = [line.plain for line in card_lines((*cards(8), lost), CardHistory(), names, 3, 78)]
    assert drawn[1] == "✗ 9 H100 80GB  it is gone \\x1b[2J"
    assert drawn[3].split("   ")[0] == "7 more"
    assert len(drawn) == 4
    assert len(card_lines(cards(8), CardHistory(), {}, 8, 78)) == 9


def test_the_curve_of_a_card_has_one_block_for_each_span() -> None:
    history = CardHistory()
    for second in range(int(SPAN_SECONDS * 3)):
        history.add((Sample(uuid="a", use=second),), float(second))
    assert [sample.use for sample in history.samples_of("a")] == [
        SPAN_SECONDS - 1,
        SPAN_SECONDS * 2 - 1,
        SPAN_SECONDS * 3 - 1,
    ]


@pytest.mark.parametrize(
    ("cause", "first", "rest"),
    [
        ("The disk is full.", "The disk is full", ""),
        ("A port is taken: 29500 is in use.", "A port is taken", "29500 is in use."),
        ("One. two.", "One", "Two."),
        ("word " * 30, "It failed", ("word " * 30)),
        ("", "", ""),
    ],
)
def test_a_failure_is_headed_by_the_first_words_of_its_cause(cause: str, first: str, rest: str) -> None:
    assert split_cause(cause, 60) == (first, rest)


async def test_states_of_a_progress_bar_are_folded_in_the_log(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    bars = [
        f" {percent:>2}%|{'█' * (percent // 10):<10}| {percent}/100 [00:01<00:02, 9.9it/s]" for percent in range(99)
    ]
    run.attempt_log(2).write_text("\n".join(["before", *bars[:50], "between", *bars[50:], "after"]) + "\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "after")
        for key in ("", "g", "end", "up"):
            await keys(*filter(None, (key,)))(pilot)
            shown = [line for line in shows(pilot).splitlines() if "it/s]" in line]
            assert [line.split("|")[0].strip() for line in shown] == ["49%", "98%"], key
        await keys("slash", *"17%", "enter")(pilot)
        await until_shown(pilot, "17%|")


async def lines_of_the_log(pilot: Any) -> int:
    """Wait until five lines of the log stand above its place and the keys; return how many do."""
    screen = pilot.app.screen
    height = 0
    for _ in range(100):
        seen = screen.query_one(LogView).region.intersection(screen.region)
        height = seen.height if seen.bottom < screen.region.bottom else 0
        if height >= 5:
            break
        await pilot.pause(0.05)
    return height


async def test_the_log_keeps_five_lines_on_a_small_screen(machine: Any, tmp_path: Path) -> None:
    app = wizard(str(climbed(tmp_path).path))
    async with app.run_test(size=(60, 20)) as pilot:
        await until_shown(pilot, "step 558/900")
        assert await lines_of_the_log(pilot) >= 5


def resumed_after_a_stop(tmp_path: Path, state: str = "finished") -> RunDir:
    """Return a run that was stopped at step 31 after a minute, and resumed to its end in half of one."""
    run = finished_run(tmp_path)
    first = {"event": "run_started", "mark": "m", "pid": 1, "start_ticks": 0, "boot_id": "none"}
    events: list[dict[str, Any]] = [
        {"time": 1000.0, **first},
        {"time": 1000.0, "event": "attempt_started", "attempt": 1, "position": 1},
        {"time": 1060.0, "event": "attempt_ended", "attempt": 1, "exit_code": 143},
        {"time": 1060.0, "event": "run_ended", "state": "stopped", "exit_code": 143},
        {"time": 5000.0, **first, "mark": "n"},
        {"time": 5000.0, "event": "attempt_started", "attempt": 2, "position": 1, "resumed": 30},
        {"time": 5030.0, "event": "attempt_ended", "attempt": 2, "exit_code": 0},
        {"time": 5030.0, "event": "run_ended", "state": state, "exit_code": 0},
    ]
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    run.attempt_log(1).write_text("\n".join(lines(1, 31, 60)) + "\n")
    run.attempt_log(2).write_text("\n".join(lines(31, 60, 60)) + "\n")
    return run


async def test_a_resumed_run_is_summed_up_whole_and_its_stop_is_no_failure(machine: Any, tmp_path: Path) -> None:
    run = resumed_after_a_stop(tmp_path)
    async with wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        # What was measured and the rows of the attempts are read apart.
        await until_shown(pilot, "3.000 first")
        await until_shown(pilot, "attempt 1")
        shown = shows(pilot)
        assert row(shown, "finished").endswith("1 min 30 s, 2 attempts")
        attempts = row(shown, "attempt 1")
        assert "○ attempt 1, stopped" in attempts
        assert "143" not in attempts
        assert "✗" not in attempts


def test_a_list_has_the_time_of_all_attempts(tmp_path: Path) -> None:
    resumed_after_a_stop(tmp_path)
    done = subprocess.run([sys.executable, "-m", "tui_train", "runs"], capture_output=True, text=True, check=True)
    assert "1 min 30 s" in done.stdout


async def test_the_log_keeps_five_lines_below_a_failure_on_a_small_screen(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path, state="failed", code=1)
    with run.attempt_log(2).open("a") as log:
        log.write("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(60, 20)) as pilot:
        await until_shown(pilot, "▌✗")
        await until_shown(pilot, "▌F2")
        assert await lines_of_the_log(pilot) >= 5
        assert "▌F2" in shows(pilot), "beside what F2 does"
        for _ in range(100):
            # Four steps, and the line of the failure.
            if shows(pilot).count(" | loss ") >= 4:
                return
            await pilot.pause(0.05)
        pytest.fail(shows(pilot))


async def test_the_end_of_a_large_log_explains_before_the_rest_is_read(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rest, read = threading.Event(), reader.MiddleLines.read

    def slow(middle: reader.MiddleLines, number: int, block: bytes) -> None:
        if number < UNKNOWN_NUMBER:
            rest.wait(60)
        read(middle, number, block)

    monkeypatch.setattr(reader.MiddleLines, "read", slow)
    for name, size in (("_BLOCK", 4096), ("_LARGE_BYTES", 100_000), ("_END_BYTES", 40_000)):
        monkeypatch.setattr(reader, name, size)
    run = finished_run(tmp_path, state="failed", code=1)
    with run.attempt_log(2).open("a") as log:
        log.writelines(f"{line}\n" for line in lines(61, 3000))
        log.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    async with wizard(str(run.path)).run_test(size=(100, 30)) as pilot:
        await until_shown(pilot, "▌near its end", during=True)
        assert "reading the rest of its log" in shows(pilot)
        assert "▌F2" not in shows(pilot)
        rest.set()
        await until_shown(pilot, "▌F2")
        assert "reading the rest" not in shows(pilot)
        assert "near its end" not in shows(pilot)
