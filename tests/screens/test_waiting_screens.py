"""Runs that wait for GPUs on Home and Run, and the key that starts one on Preview."""

import sys
import time

import msgspec
import pytest
from fake_driver import driver_environment
from pilot import (
    PRETRAIN_KEY,
    THREE_CARD_MACHINE,
    THREE_CARDS,
    finished_run,
    open_wizard,
    screen_text,
    until_true,
    wait_for_text,
)
from support import make_run_copies, profile, set_variables, start_folder_holder, wait_until
from tui_train.screens.home.home_rows import waiting_sentence
from tui_train.screens.messages import CompareRuns
from tui_train.screens.preview.screen import PreviewScreen

from tui_train.facts.types import GpuProcess
from tui_train.profile import store
from tui_train.runner.queue.listing import list_waiting_starts
from tui_train.runs import run_folders
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run
from tui_train.views.run_outline import queue_position_text, read_run_outline
from tui_train.wizard import make_wizard


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (160, 50)], ids=str)
async def test_home_and_run_say_what_a_run_waits_for(machine, tmp_path, size):
    run, now, reason = finished_run(tmp_path), {"time": time.time() - 120}, "GPU 1: pid 812, ann, python train.py"
    began = {**now, "event": "run_started", "waits": "chosen", **start_folder_holder(run.path)}
    events = (began, {**now, "event": "waiting", "why": reason})
    run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    async with make_wizard().run_test(size=size) as pilot:
        await wait_for_text(pilot, "Waiting ─", "waiting", "waits for GPU 1 (pid 812, ann, python train.py)")
        assert "Running" not in screen_text(pilot)
    async with make_wizard(str(run.path)).run_test(size=size) as pilot:
        since = time.strftime("since %H:%M", time.localtime(now["time"]))
        await wait_for_text(pilot, "○ waiting", f"Waits for {reason}", since)
        await wait_for_text(pilot, "Plan  what it does once it starts", "on the CPU", "Batch", "learning rate")


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("GPU 1: not there", "waits for GPU 1 (not there)"),
        ("GPU 1: chat (ann) is before it", "waits for GPU 1: chat (ann) is before it"),
        ("1 of 2 GPUs: GPU 0: pid 812", "waits for 1 of 2 GPUs: GPU 0: pid 812"),
        ("4 CPU cores, 0 of 8 free: chat (ann)", "waits for 4 CPU cores, 0 of 8 free: chat (ann)"),
        ("its turn is next", "waits: its turn is next"),
        ("", ""),
    ],
)
def test_why_a_run_waits_is_a_sentence(reason, sentence):
    assert waiting_sentence(reason) == sentence


async def test_a_comparison_of_runs_that_wait_says_so(machine, tmp_path):
    make_run_copies(finished_run(tmp_path), 1)
    for run in run_folders.list_runs():
        began = {"time": time.time(), "event": "run_started", "waits": "chosen", **start_folder_holder(run.path)}
        events = (began, {"time": time.time(), "event": "waiting", "why": "0 of 2 CPU cores free"})
        run.events_file.write_bytes(b"\n".join(map(msgspec.json.encode, events)) + b"\n")
    async with open_wizard() as pilot:
        pilot.app.post_message(CompareRuns(run_folders.list_runs()))
        await wait_for_text(pilot, "Home › Compare", "All of these runs wait: 0 of 2 CPU cores free.")


def test_no_placeholder_is_shown_of_the_arguments_of_a_run(tmp_path):
    run = finished_run(tmp_path)
    arguments = ("--steps={steps}", "--lr", "{learning_rate}", "--folder={output}")
    run.profile_file.write_text(
        store.profile_to_toml(profile({"trainer.kind": "script", "trainer.arguments": arguments}))
    )
    run.plan_file.write_bytes(msgspec.json.encode({"steps": 300, "learning_rate": 2e-4}))
    assert dict(read_run_outline(run))["Arguments"] == "--steps=300 --lr 0.0002 '--folder=…'"


def test_the_place_in_the_queue_names_those_before():
    assert queue_position_text(None) == ""
    assert queue_position_text(()) == "next to start"
    assert queue_position_text(("a (ann)", "b (bob)")) == "place 3, after b (bob), a (ann)"
    assert queue_position_text(("a", "b", "c", "d", "e")) == "place 6, after e, d, c and 2 more"


async def test_w_on_preview_waits_for_gpus_that_others_use(machine, monkeypatch):
    monkeypatch.setenv("TUI_TRAIN_PYTHON", sys.executable)
    busy = tuple(
        msgspec.structs.replace(card, processes=(GpuProcess(7, "python", "ann", 9 << 30),)) for card in THREE_CARDS
    )
    machine(msgspec.structs.replace(THREE_CARD_MACHINE, gpus=busy))
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter", size=(120, 40)) as pilot:
        await wait_for_text(pilot, "w when its GPUs are free")
        await pilot.press("w")
        await wait_for_text(pilot, "○ waiting", "next to start")
        (run,) = run_folders.list_runs()
        assert stop_local_run(run).state == "stopped"
        wait_until(lambda: read_status(run).never_had_turn)


async def test_w_on_tune_waits_in_the_queue_and_esc_leaves_it(seed, queued, monkeypatch):
    set_variables(monkeypatch, driver_environment("seed-3090-gt1030-3090"))
    queued("mine", THREE_CARDS[0].uuid)
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "f4") as pilot:
        await wait_for_text(pilot, "w once its GPUs are free", "w When free")
        await pilot.press("w")
        await wait_for_text(pilot, "Waits: GPU 0: mine (", "Esc leaves the queue", during=True)
        (waiting,) = list_waiting_starts()
        assert waiting.gpus == 2
        await pilot.press("escape")
        await until_true(pilot, lambda: not list_waiting_starts())
        assert "● 3 Recipe" in screen_text(pilot)


@pytest.mark.whole
async def test_nothing_is_waited_for_where_the_gpus_are_free(seed):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter", size=(120, 40)) as pilot:
        await wait_for_text(pilot, " (s saves it under another name). It keeps")
        assert isinstance(pilot.app.screen, PreviewScreen)
        await pilot.press("w")
        await pilot.pause()
        assert "When free" not in screen_text(pilot)
        assert not run_folders.list_runs()
