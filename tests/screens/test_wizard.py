"""The wizard driven by keys: what each screen shows at two sizes, and what each key does."""

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import msgspec
import pytest
from pilot import (
    BARE_PYTHON,
    CPU_MACHINE,
    CUDA_PYTHON,
    PRETRAIN_KEY,
    THREE_CARD_MACHINE,
    THREE_CARDS,
    finished_run,
    go_to_fields,
    live_run,
    open_wizard,
    out_of_memory_run,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from support import GIB, UUIDS, inside, living_run_pids, profile, sample
from textual.widgets import Input
from tui_train.screens import tuning
from tui_train.screens.discovery.machine_queries import QUERY_BY_FACTS_PART
from tui_train.screens.messages import OpenRun, OpenStep, ValueChosen
from tui_train.screens.run.log_view import LogView
from tui_train.screens.run.screen import RunScreen
from tui_train.screens.widgets.multi_select import MultiSelect

from tui_train.actions.last_profile import load_last_session_profile, remember_profile_without_secrets
from tui_train.actions.tune.search import Trial, TrialSetting
from tui_train.actions.tune.tune import TuningState
from tui_train.base.app_paths import last_profile_file, presets_folder, trials_folder
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import CardSample, CardSamples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.types import ContainerImage, FactGap, Gpu, ResourcesInUse
from tui_train.profile import store
from tui_train.profile.changes import Change
from tui_train.profile.fields import profile_with_value
from tui_train.profile.types import Profile
from tui_train.runs import conflicts as taken
from tui_train.runs import run_folders
from tui_train.runs.status import read_status
from tui_train.wizard import make_wizard

SIZES = sample([(80, 24), (120, 40)], 2)
MIXED = tuple(
    Gpu(index=n, uuid=f"GPU-0000000{n}", name=f"NVIDIA GeForce RTX {name}", pci_bus=f"00000000:0{n}:00.0",
        compute_capability="8.6", memory_total=memory * GIB, memory_free=memory * GIB, sm_count=count,
        sm_clock_max=2100)
    for n, (name, memory, count) in enumerate(((3080, 10, 68), (3080, 10, 68), (3090, 24, 82)))
)  # fmt: skip
SETS = msgspec.structs.replace(THREE_CARD_MACHINE, gpus=MIXED)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("found", "pressed"),
    [
        pytest.param(CPU_MACHINE, (), id="home"),
        pytest.param(CPU_MACHINE, (PRETRAIN_KEY,), id="hardware-cpu"),
        pytest.param(THREE_CARD_MACHINE, (PRETRAIN_KEY,), id="hardware-seed"),
        pytest.param(SETS, (PRETRAIN_KEY,), id="hardware-sets"),
        pytest.param(THREE_CARD_MACHINE, (PRETRAIN_KEY, "enter"), id="backend"),
        pytest.param(THREE_CARD_MACHINE, (PRETRAIN_KEY, "enter", "right"), id="backend-script"),
        pytest.param(THREE_CARD_MACHINE, (PRETRAIN_KEY, "enter", "enter"), id="recipe"),
        pytest.param(CPU_MACHINE, (PRETRAIN_KEY, "enter", "enter", "enter"), id="preview"),
        pytest.param(CPU_MACHINE, (PRETRAIN_KEY, "enter", "enter", "f1"), id="help"),
        pytest.param(CPU_MACHINE, (PRETRAIN_KEY, "enter", "enter", "enter", "s"), id="save"),
    ],
)
def test_pictures(snap_compare, machine, size, found, pressed):
    machine(found)
    assert snap_compare(make_wizard(), terminal_size=size, run_before=press_keys(*pressed))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_a_run(snap_compare, machine, tmp_path, size):
    run = finished_run(tmp_path)
    assert snap_compare(make_wizard(str(run.path)), terminal_size=size, run_before=press_keys())


@pytest.mark.whole
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_a_failed_run(snap_compare, machine, tmp_path, size):
    assert snap_compare(make_wizard(str(out_of_memory_run(tmp_path).path)), terminal_size=size, run_before=press_keys())


async def test_the_memory_of_a_fix_is_estimated_once_the_machine_is_known(machine, tmp_path, monkeypatch):
    known = threading.Event()
    monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: known.wait(30) and CPU_MACHINE)
    async with make_wizard(str(out_of_memory_run(tmp_path).path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "micro batch 4 → 2", during=True)
        before = screen_text(pilot)
        known.set()
        await wait_for_workers(pilot)
        assert ("✓ fits" in before, "MiB ✓ fits" in screen_text(pilot)) == (False, True)


async def test_cards_are_picked_by_space_and_kept_by_uuid(seed):
    async with open_wizard(PRETRAIN_KEY) as pilot:
        assert screen_text(pilot).count("[x]") == 2, "the two that train well"
        for pressed, picked in (
            (("down", "space"), {card.uuid for card in THREE_CARDS}),
            (("up", "space"), {UUIDS[1], THREE_CARDS[1].uuid}),
            (("down", "space"), {UUIDS[1]}),
            (("down", "space"), {UUIDS[1]}),
        ):
            await press_keys(*pressed)(pilot)
            assert set(pilot.app.profile.hardware.gpus) == picked
        assert "set Device to CPU" in screen_text(pilot), "the last one stays"
        await press_keys("down", "left")(pilot)
        assert pilot.app.profile.hardware.device == "cpu"
        assert "RTX 3090" in screen_text(pilot)
        assert pilot.app.screen.query_one("#gpus").disabled


@pytest.mark.whole
async def test_the_next_set_is_one_key_away(machine):
    machine(SETS)
    async with open_wizard(PRETRAIN_KEY) as pilot:
        assert screen_text(pilot).count("[x]") == 3, "the fastest set has all of them"
        await press_keys("s")(pilot)
        assert pilot.app.profile.hardware.gpus == (MIXED[2].uuid,)
        assert "● most memory: GPU 2" in screen_text(pilot)
        await press_keys("s")(pilot)
        assert pilot.app.profile.hardware.gpus == ()
        machine(THREE_CARD_MACHINE)
        await press_keys("r", "s")(pilot)
        assert pilot.app.profile.hardware.gpus == (), "one set leaves nothing to choose"
        assert "Next set" not in screen_text(pilot)


async def test_what_the_cards_do_is_shown_as_it_changes(seed, monkeypatch):
    told = SimpleQueue()

    def samples(cancelled: Callable[[], bool]) -> Iterator[CardSamples]:
        while not cancelled():
            with contextlib.suppress(Empty):
                yield told.get(timeout=0.05)

    monkeypatch.setattr(live_samples, "yield_changed_samples", samples)
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "See it work", during=True)
        await pilot.press("enter")
        for sample, words in (
            (
                CardSample(uuid=UUIDS[0], memory_free=5 * GIB, utilization=97, temperature=71, power=320),
                "97 % 71 °C 320 W",
            ),
            (CardSample(uuid=UUIDS[0], memory_free=5 * GIB, problem="it has fallen off the bus"), "fallen off the bus"),
        ):
            told.put((sample,))
            await wait_for_text(pilot, words)
            assert "5.0 GiB free" in screen_text(pilot)
        await wait_for_text(pilot, "blocked")
        assert "[x] 0" not in screen_text(pilot)
        told.put((CardSample(uuid=UUIDS[0], memory_free=5 * GIB),))
        await wait_for_text(pilot, "[x] 0")


@pytest.mark.whole
async def test_rungs_are_reordered_and_one_that_changes_the_training_asks_for_consent(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", size=(80, 40)) as pilot:
        await go_to_fields(pilot, "ladder")
        await press_keys(*["down"] * 4, "right_square_bracket")(pilot)
        assert pilot.app.profile.ladder.rungs[3:] == ("activation_checkpointing", "micro_batch")
        await press_keys("left_square_bracket")(pilot)
        assert pilot.app.profile.ladder.rungs[3:] == ("micro_batch", "activation_checkpointing")
        ladder = pilot.app.screen.query_one(MultiSelect)
        rows = [pick.value for pick in ladder.select_rows]
        await press_keys(*["down"] * (rows.index("sequence_length") - rows.index(ladder.cursor)), "space")(pilot)
        assert "out of memory do this" in screen_text(pilot)
        # Behind the question it is not picked yet.
        assert "sequence_length" not in ladder.picked
        assert pilot.app.profile.ladder.consent == ()
        await press_keys("down", "enter")(pilot)
        assert pilot.app.profile.ladder.consent == ("sequence_length",)
        assert "sequence_length" in pilot.app.profile.ladder.rungs
        await press_keys("space")(pilot)
        assert (pilot.app.profile.ladder.consent, "sequence_length" in pilot.app.profile.ladder.rungs) == ((), False)


async def test_the_hint_of_a_list_says_what_space_does_now(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter") as pilot:
        await go_to_fields(pilot, "ladder")
        assert "Space closes the list." in screen_text(pilot)
        await press_keys("space")(pilot)
        assert "Space opens the list." in screen_text(pilot)


async def test_a_fallback_without_effect_here_looks_the_same_whether_it_is_picked_or_not(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter") as pilot:
        await go_to_fields(pilot, "ladder")
        for label in ("Expandable segments", "Fused cross entropy"):
            assert f"  –  {label:26}only for GPUs" in screen_text(pilot)
        before = pilot.app.profile.ladder.rungs
        await press_keys("down", "space")(pilot)
        assert "Expandable segments is left out here: only for GPUs." in screen_text(pilot)
        assert pilot.app.profile.ladder.rungs == before


@pytest.mark.whole
async def test_the_marked_row_of_a_long_step_is_always_seen(machine):
    def marked() -> list[str]:
        return [line[1:24] for line in screen_text(pilot).splitlines() if line.startswith("▌")]

    async with open_wizard(PRETRAIN_KEY, "enter", "enter", size=(80, 20)) as pilot:
        await go_to_fields(pilot, "ladder")
        for keys, row in (
            (["down"], "Expandable segments"),
            (["end"], "Halve the layers"),
            (["down"], "Halve the layers"),
            (["up"], "LoRA"),
            (["tab"], "LoRA"),
            (["home"], "Expandable segments"),
            (["end", "shift+tab"], "Out of memory"),
            (["down"], "Halve the layers"),
            (["pageup", "pageup"], "Expandable segments"),
            (["up"], "Out of memory"),
            (["up"], "Advanced"),
            (["pageup", "pageup"], "Layers"),
            (["up"], "Layers"),
            (["pagedown"], "Out of memory"),
            (["pagedown"], "Expandable segments"),
        ):
            await press_keys(*keys)(pilot)
            assert [row in line for line in marked()] == [True], (keys, marked())


@pytest.mark.parametrize("edited", [False, True])
async def test_a_draft_goes_when_its_run_has_started_and_stays_beside_another(machine, tmp_path, edited):
    del machine
    run = finished_run(tmp_path)
    remember_profile_without_secrets(profile({"recipe.layers": 42}))
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "Continue the draft")
        await press_keys("end", "up", "enter")(pilot)
        assert pilot.app.profile.recipe.layers == 42
        if edited:
            pilot.app.edits.set_profile(profile({"recipe.layers": 7}), save_as_draft=False)
        pilot.app.screen.post_message(OpenRun(run))  # as Preview does once it has started one
        await wait_for_text(pilot, "quickstart", "60 of 60")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "New training")
        await until_true(pilot, lambda: last_profile_file().exists() is edited)
        await until_true(pilot, lambda: ("Continue the draft" in screen_text(pilot)) is edited)


@pytest.mark.whole
async def test_preview_tells_of_a_run_that_has_begun_meanwhile(machine, tmp_path, monkeypatch):
    del machine
    begun = []
    monkeypatch.setattr(taken, "resources_in_use", lambda *_: tuple(begun))
    trainer = msgspec.structs.replace(Profile().trainer, output=str(tmp_path / "out"))
    remember_profile_without_secrets(msgspec.structs.replace(Profile(), trainer=trainer))
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await wait_for_text(pilot, "Continue the draft")
        await press_keys("end", "enter", "enter", "enter")(pilot)
        begun.append(ResourcesInUse(run="other", outputs=(str(tmp_path / "out"),)))
        await press_keys("enter")(pilot)
        await wait_for_text(pilot, "the run other is already writing")
        assert "#!/usr/bin/env bash" in screen_text(pilot), "it can be read and exported all the same"
        await pilot.press("enter")
        await wait_for_workers(pilot, refused=True)
        assert "● 4 Preview" in screen_text(pilot)
        assert run_folders.list_runs() == ()


async def test_preview_is_what_is_exported(machine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter") as pilot:
        shown = {file.path: file.content for file in pilot.app.screen._prepared.files}
        copied = []
        monkeypatch.setattr(pilot.app, "copy_to_clipboard", copied.append)
        await press_keys("f", "y", "e", "enter")(pilot)
        assert copied == [shown["launch.sh"].decode()]
        for path, content in shown.items():
            assert (tmp_path / "quickstart" / path).read_bytes() == content
        (tmp_path / "quickstart" / "launch.sh").write_text("mine")
        await press_keys("e", "enter")(pilot)
        assert "Overwrite" in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert (tmp_path / "quickstart" / "launch.sh").read_text() == "mine"


async def test_saving_asks_before_it_replaces(machine):
    store.save_profile(Profile(name="quickstart"))
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter", "s", "enter", notifications=True) as pilot:
        assert "already exists" in screen_text(pilot)
        await press_keys("down", "enter")(pilot)
        assert "Replaced" in screen_text(pilot)


async def test_hostile_text_reaches_the_screen_only_as_text(tmp_path, machine):
    evil = "[red]$(x)[/] \x1b]0;pwned\x07\x1b[2J" + "长" * 300
    card = msgspec.structs.replace(THREE_CARDS[0], name=evil, pci_bus=evil)
    machine(msgspec.structs.replace(THREE_CARD_MACHINE, hostname=evil, gpus=(card,), gaps=(FactGap(evil, evil, evil),)))
    run = finished_run(tmp_path)
    shutil.copytree(run.path, run.path.parent / evil.replace("/", "|")[:60])
    async with open_wizard(notifications=True) as pilot:
        assert "[red]" in screen_text(pilot)
        assert not {"\x1b", "\x07"} & {*screen_text(pilot)}
        secret = with_trainer(kind="script", script=f"/{evil}.py", environment={f"{evil}X_TOKEN": "x"})
        for profile in (None, msgspec.structs.replace(secret, name=evil)):
            pilot.app.edits.set_profile(profile or pilot.app.profile)
            for pressed in (
                PRETRAIN_KEY,
                "enter",
                "enter",
                "f2",
                "enter",
                "s",
                "escape",
                "f2",
                "f2",
                "s",
                *["escape"] * 6,
            ):
                await press_keys(pressed)(pilot)
                assert not {"\x1b", "\x07"} & {*screen_text(pilot)}, pressed
            assert type(pilot.app.screen).__name__ == "HomeScreen"


async def test_quitting_a_live_run_asks_and_leaves_it_running(machine, tmp_path, capfd):
    run = live_run(tmp_path)
    app = make_wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "running")
        await pilot.press("q")
        await wait_for_text(pilot, "Leave it running")
        await pilot.press("escape")
        await pilot.pause()
        assert app.is_running
        await pilot.press("q", "enter")
        await pilot.pause()
    assert app.return_code == 0
    assert read_status(run).is_live
    said = " ".join(capfd.readouterr().err.split())
    assert said == "quickstart keeps training. Come back with: tui-train attach quickstart"


@pytest.mark.parametrize(
    ("pressed", "says"),
    [
        ((), "Ctrl+C stops nothing here. q quits"),
        (("n",), "Ctrl+C stops nothing here. Ctrl+Q quits"),
        (("n", "up", "enter", "a"), "Ctrl+C stops nothing here. Ctrl+Q quits"),
        (("n", "up", "enter", "a", "shift+left"), "Ctrl+C copies what is selected. Ctrl+Q quits"),
    ],
)
async def test_ctrl_c_says_which_key_quits(machine, pressed, says):
    async with open_wizard(*pressed, notifications=True) as pilot:
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert says in [notice.message.partition(",")[0] for notice in pilot.app._notifications]
        assert pilot.app.clipboard == ("a" if "copies" in says else "")


@pytest.mark.parametrize("is_live", [True, False])
async def test_leaving_home_says_what_goes_on(machine, tmp_path, capfd, is_live):
    make_run = live_run if is_live else finished_run
    make_run(tmp_path)
    async with open_wizard("q"):
        pass
    assert ("keeps training" in capfd.readouterr().err) is is_live


async def test_a_stop_says_from_where_it_would_resume(machine, tmp_path):
    run = live_run(tmp_path)
    app = make_wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "s Stop", during=True)
        await pilot.press("s")
        await wait_for_text(pilot, "It has no checkpoint yet", during=True)


def with_trainer(**values: Any) -> Profile:
    """Return a profile whose trainer has these values."""
    return msgspec.structs.replace(Profile(), trainer=msgspec.structs.replace(Profile().trainer, **values))


@pytest.mark.whole
async def test_an_unknown_preset_is_said_on_every_step_and_can_be_mended(machine):
    async with open_wizard(PRETRAIN_KEY, size=(80, 40)) as pilot:
        pilot.app.edits.set_profile(with_trainer(kind="script", preset="no-such"))
        await press_keys()(pilot)
        assert "no-such" in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert "no-such" in screen_text(pilot)
        await press_keys("f2")(pilot)
        assert pilot.app.profile.trainer.preset == Profile().trainer.preset
        assert "My own script" in screen_text(pilot)


async def test_losses_that_cannot_be_drawn_are_left_out_of_the_plot_and_called_out(machine, tmp_path):
    run = finished_run(tmp_path)
    lines = [f"step {number}/60 | loss {loss} | lr 1.0" for number, loss in enumerate(("inf", "1e308", "nan"), start=1)]
    run.attempt_log(2).write_text("\n".join(lines) + "\n")
    async with open_wizard(run=run) as pilot:
        assert not pilot.app.screen.query_one("#plot").display
        assert "✗ The loss or the gradients became NaN or infinite" in screen_text(pilot)
        assert "the loss is" not in screen_text(pilot), "said once"
        await press_keys("g")(pilot)
        assert "step 1/60 | loss inf" in screen_text(pilot)


@pytest.mark.whole
async def test_what_was_edited_is_a_draft_that_a_lost_connection_keeps(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "4", "2", "escape") as pilot:
        assert load_last_session_profile().recipe.layers == 42, "kept as soon as the step is left"
        await press_keys("escape", "escape")(pilot)
        await wait_for_text(pilot, "Continue the draft")
        await press_keys("home", "enter")(pilot)
        assert pilot.app.profile == profile({"trainer.kind": "finetune"}), "a new training begins with defaults"
        await press_keys("escape", "end", "enter")(pilot)
        assert pilot.app.profile.recipe.layers == 42
        assert "● 3 Recipe" in screen_text(pilot), "where it was left, whatever one went back through"
        await press_keys("enter", "ctrl+q")(pilot)
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "Continue the draft")
        await press_keys("end", "enter")(pilot)
        await wait_for_text(pilot, "● 4 Preview", "42")
        await press_keys(*["escape"] * 4, "up", "up", "enter")(pilot)
        assert "● 4 Preview" in screen_text(pilot), "See it work"
        assert pilot.app.profile == Profile()


async def test_backend_begins_where_something_has_to_be_named(machine):
    async with open_wizard("home", "enter", "enter", *"org/base") as pilot:
        # o is a key of the screen as well.
        assert pilot.app.profile.trainer.model == "org/base", "typed at once, without a key to get there"
        await press_keys("escape", "enter")(pilot)
        assert pilot.app.screen.form.cursor == "trainer.data"
        assert "org/base" in screen_text(pilot)
    async with open_wizard("home", "down", "enter", "enter", *"/x.py") as pilot:
        assert pilot.app.profile.trainer.script == "/x.py"
        await press_keys("escape", "enter")(pilot)
        assert pilot.app.screen.form.cursor == "trainer.kind"


async def test_a_burst_of_enter_opens_each_step_once(machine, tmp_path):
    async with open_wizard() as pilot:
        for _ in range(2):
            pilot.app.screen.post_message(OpenStep("hardware"))
            pilot.app.screen.post_message(OpenRun(run_folders.RunFolder(tmp_path)))
        await wait_for_workers(pilot)
        assert [type(screen).__name__ for screen in pilot.app.screen_stack] == ["HomeScreen", "RunScreen"]


@pytest.mark.parametrize(("is_live", "shown"), [(False, ["second"]), (True, ["20260101-120000-quickstart", "second"])])
async def test_a_rerun_takes_the_place_of_an_ended_run_that_was_edited(machine, tmp_path, is_live, shown):
    run = live_run(tmp_path) if is_live else finished_run(tmp_path)
    async with make_wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "running" if is_live else "edit and rerun")
        pilot.app.screen.post_message(OpenStep("preview", pilot.app.screen))
        await wait_for_text(pilot, "● 4 Preview")
        pilot.app.screen.post_message(OpenRun(run_folders.RunFolder(tmp_path / "second")))
        await wait_for_text(pilot, "second")
        assert [screen.run.name for screen in pilot.app.screen_stack if isinstance(screen, RunScreen)] == shown


@pytest.mark.whole
async def test_nothing_starts_while_the_machine_is_looked_at(machine, monkeypatch):
    go = threading.Event()
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "enter", notifications=True) as pilot:
        monkeypatch.setattr(probe, "probe_machine", lambda: go.wait(20) and THREE_CARD_MACHINE)
        pilot.app.action_refresh_facts()
        await pilot.press("enter")
        await pilot.pause()
        assert "press the key again" in screen_text(pilot)
        go.set()
        await wait_for_workers(pilot)
        assert not run_folders.list_runs()
        assert pilot.app.facts is not None
        assert pilot.app.facts.machine == THREE_CARD_MACHINE


async def test_opening_hardware_looks_at_the_machine_again(machine):
    async with open_wizard(PRETRAIN_KEY, "escape") as pilot:
        machine(THREE_CARD_MACHINE)
        await press_keys("enter")(pilot)
        assert "RTX 3090" in screen_text(pilot)


async def test_another_python_is_not_missing_while_it_is_asked(machine, monkeypatch):
    go = threading.Event()
    async with open_wizard(PRETRAIN_KEY, "enter", size=(80, 40)) as pilot:
        monkeypatch.setattr(probe, "probe_toolchains", lambda *_args: go.wait(20) and (CUDA_PYTHON, BARE_PYTHON))
        pilot.app.edits.set_profile(with_trainer(python="/opt/other/bin/python"))
        await pilot.pause()
        assert "was not found" not in screen_text(pilot)
        go.set()
        await wait_for_workers(pilot)
        assert "/opt/other/bin/python was not found" in screen_text(pilot)
        assert "✗ was not found" in screen_text(pilot)


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}.\n" for number in range(first, last))


@pytest.mark.whole
async def test_a_log_that_is_scrolled_stays_on_its_lines(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text(numbered(0, 5000))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "line 4999.")
        await press_keys("pageup", "pageup")(pilot)
        before = re.findall(r"line \d+", screen_text(pilot))
        assert before
        view = pilot.app.screen.query_one(LogView)
        with run.attempt_log(2).open("a") as log:
            log.write(numbered(5000, 5100))
        await until_true(pilot, lambda: view._bytes == run.attempt_log(2).stat().st_size)
        assert re.findall(r"line \d+", screen_text(pilot)) == before
        await press_keys("G")(pilot)
        assert "line 5099." in screen_text(pilot)
        with run.attempt_log(2).open("a") as log:
            log.write("the end")
        await wait_for_text(pilot, "the end")
        await press_keys("g")(pilot)
        assert "line 0." in screen_text(pilot)


@pytest.mark.parametrize("filtered", [False, pytest.param(True, marks=pytest.mark.whole)])
async def test_a_log_may_be_emptied_replaced_and_deleted_under_the_wizard(machine, tmp_path, filtered):
    run = finished_run(tmp_path)
    log = run.attempt_log(2)
    log.write_text(numbered(0, 500))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "line 499.")
        await press_keys(*(("f", *"9[.]", "enter") if filtered else ("home", "down")))(pilot)
        await wait_for_text(pilot, "50 lines matching" if filtered else "line 1.")
        log.write_text("emptied 9.\n")
        await wait_for_text(pilot, "emptied 9.", "1 line matching" if filtered else "at its end")
        beside = tmp_path / "beside"
        beside.write_text("replaced 9.\n")
        beside.rename(log)
        await wait_for_text(pilot, "replaced 9.")
        log.unlink()
        await until_true(pilot, lambda: "replaced" not in screen_text(pilot))
        log.write_bytes(bytes(range(256)) * 1000 + b"\n\x1f9.\n")
        await wait_for_text(pilot, "\\x1f9.")
        assert "\x1b" not in screen_text(pilot)


@pytest.mark.whole
async def test_a_log_is_searched_filtered_and_wrapped(machine, tmp_path):
    run = finished_run(tmp_path)
    long = "[rank1]: \x1b[31mwanted\x1b[0m " + "word " * 60 + "tail"
    run.attempt_log(2).write_text(numbered(0, 3000) + long + "\n" + numbered(3000, 9000))
    app = make_wizard(str(run.path))
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for_text(pilot, "line 8999.")
        await press_keys("slash", *"Wanted", "enter")(pilot)
        await wait_for_text(pilot, "no line matches Wanted")
        await pilot.press("slash", *"wa.ted", "enter")
        await wait_for_text(pilot, "from the other end")
        assert "[rank1]: wanted word" in screen_text(pilot)
        assert "tail" not in screen_text(pilot)
        await press_keys("w")(pilot)
        assert "tail" in screen_text(pilot)
        await press_keys("f", *"line 1.*7", "enter")(pilot)
        await wait_for_text(pilot, "line 107.")
        await press_keys("end")(pilot)
        assert re.findall(r"line \d+\.", screen_text(pilot))[-3:-1] == ["line 1987.", "line 1997."]
        await press_keys("n")(pilot)
        await wait_for_text(pilot, "no line matches wa.ted")
        await press_keys("escape")(pilot)
        await wait_for_text(pilot, "line 8999.")
        assert "e Edit" in screen_text(pilot), "Esc ended the filter and stayed"
        for wrong in (("slash", *"(a", "enter"), ("f", *"[z", "enter")):
            app.clear_notifications()
            await press_keys(*wrong)(pilot)
            await wait_for_text(pilot, "Not a regular expression")
        await press_keys("escape", "escape")(pilot)
        assert "New training" in screen_text(pilot)


@pytest.mark.whole
async def test_a_hit_is_in_sight_also_in_a_long_line(machine, tmp_path):
    run = finished_run(tmp_path)
    long = "中\t" + "word " * 3000 + "\x1b[31mnee\x1b[0mdle" + " word" * 3000
    run.attempt_log(2).write_text(numbered(0, 300) + long + "\n" + numbered(300, 600))
    app = make_wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await wait_for_text(pilot, "line 599.")
        await press_keys("slash")(pilot)
        assert "Search" not in screen_text(pilot), "keys are letters while one types"
        await pilot.press(*"(f|needle)", "enter")
        await wait_for_text(pilot, "word needle word")
        view = app.screen.query_one(LogView)

        def pointed_out() -> list[str]:
            segments = (segment for y in range(view.size.height) for segment in view.render_line(y))
            return [segment.text for segment in segments if segment.style and segment.style.reverse]

        assert pointed_out() == ["nee", "dle"]
        await press_keys("w", "G")(pilot)
        assert not pointed_out()
        await press_keys("N")(pilot)
        await wait_for_text(pilot, "needle")
        assert "".join(pointed_out()) == "needle"


async def test_an_expression_that_takes_for_ever_leaves_every_key_at_work(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("a" * 60 + "!\n" + numbered(0, 100))
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "line 99.")
        await pilot.press("slash", *"(a+)+$", "enter")
        for pressed, words in (((), "searching (a+)+$"), (("home",), "line 0."), (("escape",), "stopped searching")):
            await pilot.press(*pressed)
            await wait_for_text(pilot, words, during=True)


@pytest.mark.whole
async def test_another_attempt_and_one_rank_can_be_chosen(machine, tmp_path):
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("[rank0]: first\n[rank1]: second\nthird\n")
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "third")
        await press_keys("o", "down", "down", "enter")(pilot)
        await wait_for_text(pilot, "rank 1", "second")
        assert "first" not in screen_text(pilot)
        await press_keys("escape", "a", "down", "enter")(pilot)
        await wait_for_text(pilot, "torch.OutOfMemoryError", "attempt-1.log")


@pytest.mark.parametrize("no_color", [False, True])
async def test_colours_of_a_log_are_kept_where_there_are_colours(machine, tmp_path, monkeypatch, no_color):
    monkeypatch.setenv("NO_COLOR", "1")
    if not no_color:
        monkeypatch.delenv("NO_COLOR")
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("plain \x1b[38;2;1;2;3;8;5mcoloured\x1b[0m\n")
    async with open_wizard(run=run) as pilot:
        await wait_for_text(pilot, "plain coloured")
        view = pilot.app.screen.query_one(LogView)
        segments = [segment for y in range(view.size.height) for segment in view.render_line(y)]
        style = next(segment.style for segment in segments if "coloured" in segment.text)
        assert (style.color is not None and style.color.triplet == (1, 2, 3)) is not no_color
        assert not style.conceal
        assert not style.blink


@pytest.mark.whole
async def test_a_value_with_control_characters_cannot_be_typed_over(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", size=(80, 40)) as pilot:
        pilot.app.edits.set_profile(with_trainer(arguments=("--text", "a\nb")))
        await wait_for_workers(pilot)
        await go_to_fields(pilot, "advanced", "trainer.arguments")
        assert "control characters: edit the profile file" in screen_text(pilot)
        await press_keys("x")(pilot)
        assert pilot.app.profile.trainer.arguments == ("--text", "a\nb")


async def test_a_key_tries_the_remedy_of_a_failed_run(machine, tmp_path):
    run = out_of_memory_run(tmp_path)
    with run.attempt_log(2).open("a") as log:
        log.write("[rank1]: torch.OutOfMemoryError: [bold] CUDA out of memory. Tried to allocate 9.00 GiB.\x1b[31m\n")
    async with open_wizard(run=run) as pilot:
        assert re.search(r"F2 +micro batch 4 → 2", screen_text(pilot)), "the second attempt had 4 already"
        assert "[bold]" in screen_text(pilot)
        await press_keys("f2")(pilot)
        assert type(pilot.app.screen).__name__ == "PreviewScreen"
        assert pilot.app.profile.recipe.micro_batch == 2
        await press_keys("ctrl+z")(pilot)
        assert pilot.app.profile.recipe.micro_batch is None


@pytest.mark.whole
async def test_the_script_is_run_for_its_help_only_when_asked(machine, tmp_path, monkeypatch):
    own_python(monkeypatch)
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--stage', help='[b]pretrain[/b] or \x1b[31msft')\n"
        "parser.add_argument('--fast', action='store_true')\n"
        "parser.parse_args()\n"
    )
    async with open_wizard(PRETRAIN_KEY, size=(80, 40), notifications=True) as pilot:
        app = pilot.app
        app.edits.set_profile(with_trainer(kind="script", script=str(script), preset="total-batch"))
        await press_keys("enter")(pilot)
        assert not (tmp_path / "ran").exists()
        await press_keys("h")(pilot)
        assert "--stage  [b]pretrain[/b] or" in screen_text(pilot)
        assert "\x1b" not in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert app.profile.trainer.arguments == ("--stage=",)
        await press_keys("s", "f", "t", "escape")(pilot)
        assert app.profile.trainer.arguments == ("--stage=sft",)
        await press_keys("enter", "h", "down", "enter")(pilot)
        assert app.profile.trainer.arguments == ("--stage=sft", "--fast")
        script.write_text("import nothing_of_that_name")
        await press_keys("escape", "enter", "h")(pilot)
        assert "ModuleNotFoundError" in " ".join(notice.message for notice in app._notifications)


def own_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the Python of these tests be the one that trains."""
    tool = msgspec.structs.replace(CUDA_PYTHON, python=sys.executable)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (tool,))


async def test_a_broken_preset_of_ones_own_is_shown_with_its_reason(machine):
    presets_folder().mkdir(parents=True)
    (presets_folder() / "bad.toml").write_text("label = 5")
    (presets_folder() / "good.toml").write_text('label = "Mine [b]"\nabout = "x"\n')
    async with open_wizard(PRETRAIN_KEY, size=(200, 40)) as pilot:
        pilot.app.edits.set_profile(with_trainer(kind="script", script="/t.py"))
        await press_keys("enter")(pilot)
        await go_to_fields(pilot, "trainer.preset")
        await press_keys("space", *["down"] * 10)(pilot)
        assert re.search(r"› bad: .*bad.toml: label: Expected", screen_text(pilot))
        assert "Mine [b]" in screen_text(pilot)


async def test_a_yaml_that_was_edited_meanwhile_is_read_again(machine, tmp_path):
    config = tmp_path / "mine.yaml"
    config.write_text("training: 5")
    app = make_wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        trainer = {"kind": "script", "preset": "total-batch-yaml", "script": str(config), "config": str(config)}
        await press_keys("enter")(pilot)
        app.edits.set_profile(with_trainer(**trainer))
        await press_keys("enter")(pilot)
        assert "is a single value" in " ".join(screen_text(pilot).split())
        config.write_text("training: {steps: 7}")
        await press_keys("escape", "enter")(pilot)
        assert "is a single value" not in " ".join(screen_text(pilot).split())
        assert app.facts is not None
        assert app.facts.documents[str(config)].values == {"training": {"steps": 7}}


NEMO = ContainerImage(
    engine="docker", name="nemo:25.04", id="abc", toolchain=msgspec.structs.replace(CUDA_PYTHON, label="nemo:25.04")
)


@pytest.mark.whole
async def test_a_python_of_a_cloned_folder_is_started_after_it_was_chosen_by_key(monkeypatch, tmp_path):
    python, mark = tmp_path / "clone" / ".venv" / "bin" / "python", tmp_path / "started"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n: > "{mark}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path / "clone")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        await go_to_fields(pilot, "start", "trainer.python")
        await press_keys("space")(pilot)
        assert re.search(r"✗ .venv here +in this folder; F4 trusts it", screen_text(pilot))
        await press_keys("escape", "right", "right", "right")(pilot)
        assert not mark.exists(), "passing over it is not choosing it"
        pilot.app.edits.set_profile(Profile())
        await press_keys("o")(pilot)
        assert pilot.app.screen.query_one(Input).value == str(python)
        assert not mark.exists()
        await press_keys("enter")(pilot)
        assert mark.exists()
        assert pilot.app.profile.trainer.python == str(python)
        assert not [tool for tool in pilot.app.facts.toolchains if tool.problem and tool.python == str(python)]


@pytest.mark.whole
async def test_rows_of_a_container_are_there_when_one_is_chosen(machine):
    async with open_wizard(PRETRAIN_KEY, "enter", size=(120, 50)) as pilot:
        assert ("Shared memory" in screen_text(pilot), "Other Python" in screen_text(pilot)) == (False, True)
        await go_to_fields(pilot, "container.engine")
        await press_keys("space")(pilot)
        assert re.search(r"● none .*○ docker .*✗ podman +not installed", screen_text(pilot), re.DOTALL)
        await press_keys("escape", "right")(pilot)
        assert pilot.app.profile.container.engine == "docker"
        text = screen_text(pilot)
        assert re.search("docker . +28.2.2", text)
        assert ("Shared memory" in text, "Other Python" in text) == (True, False)
        assert "no image is named" in text


async def test_the_evaluation_share_shows_its_default_where_it_is_empty(machine):
    async with open_wizard(PRETRAIN_KEY, "enter") as pilot:
        pilot.app.edits.set_profile(profile({"trainer.kind": "finetune"}))
        await wait_for_workers(pilot)
        assert re.search(r"Evaluation share +auto ", screen_text(pilot))


async def test_an_image_is_looked_into_without_holding_the_screen_up(machine, monkeypatch):
    machine(THREE_CARD_MACHINE)
    go = threading.Event()
    monkeypatch.setattr(container_images, "probe_image", lambda *_args: go.wait(20) and NEMO)
    async with open_wizard(PRETRAIN_KEY, "enter", size=(120, 50)) as pilot:
        pilot.app.edits.set_profile(profile(inside()))
        await pilot.pause()
        assert "is not on this machine" not in screen_text(pilot)
        assert "images" in pilot.app.awaited_parts
        go.set()
        await wait_for_workers(pilot)
        assert "images" not in pilot.app.awaited_parts
        assert pilot.app.facts.images == (NEMO,)
        pilot.app.edits.set_profile(profile(inside(image="another:1")))
        await wait_for_workers(pilot)
        assert "✗ the image another:1 is not on this" in screen_text(pilot)


@pytest.mark.whole
async def test_an_image_is_looked_at_once_its_name_is_typed(machine, monkeypatch):
    asked = []
    monkeypatch.setitem(QUERY_BY_FACTS_PART, "images", lambda profile: asked.append(profile.container.image) or ())
    async with open_wizard(PRETRAIN_KEY, "enter", size=(120, 50)) as pilot:
        pilot.app.edits.set_profile(profile(inside(image="")))
        await wait_for_workers(pilot)
        asked.clear()
        for typed in ("n", "ne", "nem", "nemo"):
            pilot.app.screen.post_message(ValueChosen("container.image", typed))
            await pilot.pause()
        await wait_for_workers(pilot)
        await until_true(pilot, lambda: asked and "images" not in pilot.app.awaited_parts)
        assert asked == ["nemo"]


async def test_v_says_what_is_in_the_image(seed, monkeypatch):
    asked = []

    def run(*words: Any, **_where: Any) -> ChildResult:
        asked.append(words[-1])
        return ChildResult(
            stdout=f"GPU 0: RTX 3090 (UUID: {UUIDS[0]})\n\x1b[31mGPU 1 ({UUIDS[1]})".encode(), exit_code=0
        )

    monkeypatch.setattr(container_images, "probe_image", lambda *_args: NEMO)
    monkeypatch.setattr(container_images, "run_in_image", run)
    async with open_wizard(PRETRAIN_KEY, "enter", size=(120, 50)) as pilot:
        pilot.app.edits.set_profile(profile(inside()))
        await press_keys("v")(pilot)
        text = screen_text(pilot)
        assert "torch   2.7.1+cu126, CUDA 12.6 for sm_50" in text
        assert f"GPU 0: RTX 3090 (UUID: {UUIDS[0]})" in text
        assert "\\x1b[31mGPU 1" in text
        assert "It can train." in text
    assert asked == [("--gpus", f'"device={UUIDS[0]},{UUIDS[1]}"')]


async def test_memory_is_estimated_while_one_types(seed):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter") as pilot:
        assert re.search("needs 70 MiB ±15 % of 22.0 GiB free +✓ fits", screen_text(pilot))
        await press_keys("down", *"12800", "down", *"40")(pilot)
        assert "✗ will not fit" in screen_text(pilot).splitlines()[2]
        # What frees gaps alone counts as well: reserved is what is shown.
        assert re.search("fused optimizer -.*, expandable segments -", screen_text(pilot).splitlines()[1])


@pytest.mark.whole
@pytest.mark.training
async def test_f3_traces_the_memory_and_ends_it(machine, monkeypatch):
    own_python(monkeypatch)
    async with open_wizard(PRETRAIN_KEY, "enter", "enter") as pilot:
        await pilot.press("f3")
        await wait_for_text(pilot, "F3 cancels it", during=True)
        await pilot.press("f3")
        await wait_for_workers(pilot)
        assert "F3 cancels it" not in screen_text(pilot)
        assert "counted" not in screen_text(pilot)
        await press_keys("f3")(pilot)
        assert re.search(r"a second estimate \(F3\): 6\d MiB ±10 %; judged", screen_text(pilot).splitlines()[1])


def trials_of_a_card(*_args: Any, **_named: Any) -> Iterator[TuningState]:
    """Yield what four trials on a card came to, which there is none of here."""
    tried = [(8, 9100.0, 11), (32, 0.0, 24), (16, 11800.0, 19), (16, 9400.0, 8)]
    trials = tuple(
        Trial(
            setting=TrialSetting(micro, number == 3, "bf16"),
            outcome="measured" if rate else "out of memory",
            rate=rate / 128,
            memory=memory * GIB,
        )
        for number, (micro, rate, memory) in enumerate(tried)
    )
    change = Change("micro batch 8 -> 16", "1.30 times as fast", (("recipe.micro_batch", 16),))
    now = TuningState(
        folder=Path("/trials"), trials=trials[:1], setting_in_progress=trials[1].setting, tokens_per_sample=128
    )
    yield now
    yield msgspec.structs.replace(now, trials=trials, setting_in_progress=None, change=change)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_the_trials(snap_compare, machine, monkeypatch, size):
    machine(THREE_CARD_MACHINE)
    monkeypatch.setattr(tuning, "run_tuning", trials_of_a_card)
    assert snap_compare(
        make_wizard(), terminal_size=size, run_before=press_keys(PRETRAIN_KEY, "enter", "enter", "f4", "enter")
    )


@pytest.mark.whole
async def test_enter_takes_what_the_trials_found(seed, monkeypatch):
    monkeypatch.setattr(tuning, "run_tuning", trials_of_a_card)
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "f4") as pilot:
        assert "Also bf16" in screen_text(pilot)
        await press_keys("p")(pilot)
        assert "bf16 is tried as well" in screen_text(pilot)
        await press_keys("enter")(pilot)
        assert pilot.app.profile.recipe.micro_batch is None
        await press_keys("enter")(pilot)
        assert pilot.app.profile.recipe.micro_batch == 16
        assert "● 3 Recipe" in screen_text(pilot)
        await press_keys("ctrl+z")(pilot)
        assert pilot.app.profile.recipe.micro_batch is None


async def test_what_cannot_be_tuned_says_why(seed):
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", notifications=True) as pilot:
        pilot.app.edits.set_profile(profile_with_value(pilot.app.profile, "recipe.global_batch", 13))
        await pilot.press("f4")
        await wait_for_text(pilot, "The global batch 13 is not a multiple")
        assert "● 3 Recipe" in screen_text(pilot)


@pytest.mark.training
@pytest.mark.parametrize("key", sample(["escape", "q"], 2, 1))
async def test_whoever_leaves_ends_the_trial_under_way(machine, monkeypatch, key):
    own_python(monkeypatch)
    async with open_wizard(PRETRAIN_KEY, "enter", "enter", "f4") as pilot:
        await pilot.press("enter")
        await wait_for_text(pilot, "A trial is under way", during=True)
        await until_true(pilot, lambda: [*trials_folder().glob("*/trial-1/events.jsonl")])
        run = run_folders.RunFolder(next(trials_folder().glob("*/trial-1")))
        await until_true(pilot, lambda: read_status(run).leader)
        await pilot.press(key)
        await wait_for_workers(pilot)
        assert key == "q" or "● 3 Recipe" in screen_text(pilot)
    assert not living_run_pids(read_status(run).mark)
