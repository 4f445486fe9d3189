"""The wizard driven by keys: what each screen shows at two sizes, and what each key does."""

import contextlib
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from time import thread_time
from typing import Any

import msgspec
import pytest
from pilot import BARE, CARDS, CPU, CUDA, SEED, finished_run, keys, settle, shows, to, until_shown, until_true
from support import GIB, UUIDS, holder, marked, sample
from textual.pilot import Pilot
from textual.widgets import Input
from tui_train.screens import tuning
from tui_train.screens.messages import OpenRun, OpenStep, ValueChosen
from tui_train.screens.run.log_view import LogView
from tui_train.screens.widgets.multi_select import MultiSelect

from tui_train.actions.last_profile import last_session_profile, remember_profile
from tui_train.actions.tune.search import Setting, Trial
from tui_train.actions.tune.tune import TuningState
from tui_train.base.app_paths import trials_folder
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.samples import Sample, Samples
from tui_train.facts.machine import container_images, probe
from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.types import (
    ContainerImage,
    Gap,
    Gpu,
    Machine,
    ResourcesInUse,
)
from tui_train.profile import store
from tui_train.profile.changes import Change
from tui_train.profile.fields import put
from tui_train.profile.types import Profile
from tui_train.runs import conflicts as taken
from tui_train.runs import rundir
from tui_train.runs.status import status
from tui_train.targets import here
from tui_train.wizard import wizard

SIZES = sample([(80, 24), (120, 40)], 2)
MIXED = tuple(
    Gpu(index=n, uuid=f"GPU-0000000{n}", name=f"NVIDIA GeForce RTX {name}", pci_bus=f"00000000:0{n}:00.0",
        compute_capability="8.6", memory_total=memory * GIB, memory_free=memory * GIB, sm_count=count,
        sm_clock_max=2100)
    for n, (name, memory, count) in enumerate(((3080, 10, 68), (3080, 10, 68), (3090, 24, 82)))
)  # fmt: skip
SETS = msgspec.structs.replace(SEED, gpus=MIXED)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize(
    ("found", "pressed"),
    [
        pytest.param(CPU, (), id="home"),
        pytest.param(CPU, ("enter",), id="hardware-cpu"),
        pytest.param(SEED, ("enter",), id="hardware-seed"),
        pytest.param(SETS, ("enter",), id="hardware-sets"),
        pytest.param(SEED, ("enter", "enter"), id="backend"),
        pytest.param(SEED, ("enter", "enter", "right"), id="backend-script"),
        pytest.param(SEED, ("enter", "enter", "enter"), id="recipe"),
        pytest.param(CPU, ("enter", "enter", "enter", "enter"), id="preview"),
        pytest.param(CPU, ("enter", "enter", "enter", "f1"), id="help"),
        pytest.param(CPU, ("enter", "enter", "enter", "enter", "s"), id="save"),
    ],
)
def test_pictures(
    snap_compare: Any, machine: Any, size: tuple[int, int], found: Machine, pressed: tuple[str, ...]
) -> None:
    """Each screen looks as it was last looked at and found good."""
    machine(found)
    assert snap_compare(wizard(), terminal_size=size, run_before=keys(*pressed))


def live_run(tmp_path: Path) -> rundir.RunDir:
    """Return the folder of a run that was started again, by a process that lives."""
    run = finished_run(tmp_path)
    event = {"time": 2000.0, "event": "run_started", **holder(run.path)}
    run.events_file.write_bytes(run.events_file.read_bytes() + b"\n" + msgspec.json.encode(event))
    return run


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_a_run(snap_compare: Any, machine: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    """A run that was opened again shows its end, its losses and its attempts."""
    run = finished_run(tmp_path)
    assert snap_compare(wizard(str(run.path)), terminal_size=size, run_before=keys())


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_a_failed_run(snap_compare: Any, machine: Any, tmp_path: Path, size: tuple[int, int]) -> None:
    """What failed, what to do, and the key that does it."""
    why = "the plan has no further fallback"
    run = finished_run(tmp_path, state="failed", code=1, why=why)
    with run.attempt_log(2).open("a") as log:
        log.write("[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    assert snap_compare(wizard(str(run.path)), terminal_size=size, run_before=keys())


async def test_the_memory_of_a_fix_is_estimated_once_the_machine_is_known(
    machine: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    known = threading.Event()
    monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: known.wait(30) and CPU)
    run = finished_run(tmp_path, state="failed", code=1)
    run.attempt_log(2).write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB.\n")
    async with wizard(str(run.path)).run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "micro batch 4 → 2", during=True)
        before = shows(pilot)
        known.set()
        await settle(pilot)
        assert ("✓ fits" in before, "MiB reserved ✓ fits" in shows(pilot)) == (False, True)


@pytest.fixture
def profile_in(machine: Any) -> Callable[[Pilot[Any]], Profile]:
    """Read the profile that the wizard holds."""

    def read(pilot: Pilot[Any]) -> Profile:
        profile: Profile = pilot.app.profile
        return profile

    return read


async def test_typing_changes_the_profile_and_undo_takes_it_back(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "4", "2")(pilot)
        assert profile_in(pilot).recipe.layers == 42
        await keys("backspace", "backspace")(pilot)
        assert profile_in(pilot).recipe.layers is None, "an empty row leaves it to the trainer"
        await keys("ctrl+z")(pilot)
        assert profile_in(pilot).recipe.layers is None
        assert "42" not in shows(pilot).splitlines()[1]


async def test_what_cannot_be_read_is_said_and_stops_next(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "end", "x")(pilot)
        assert "Type a whole number" in shows(pilot)
        await keys("enter")(pilot)
        assert "● 3 Recipe" in shows(pilot)
        assert profile_in(pilot).recipe.layers is None


@pytest.mark.whole
async def test_a_batch_that_does_not_divide_is_said_and_f2_mends_it(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", *["down"] * 4, "8", "down", "end", "backspace", "backspace", "2", "3")(
            pilot
        )
        assert "is not a multiple" in shows(pilot)
        assert "16 or 24" in shows(pilot)
        await keys("enter")(pilot)
        assert "● 3 Recipe" in shows(pilot)
        await keys("f2")(pilot)
        assert profile_in(pilot).recipe.global_batch == 24
        assert "is not a multiple" not in shows(pilot)


async def test_what_cannot_work_is_shown_with_its_reason_and_cannot_be_chosen(machine: Any, profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter")(pilot)
        await to(pilot, "trainer.python")
        await keys("space")(pilot)
        assert "✗ PATH" in shows(pilot)
        assert "has no torch" in shows(pilot)
        await keys("down", "down", "enter")(pilot)
        assert profile_in(pilot).trainer.python == ""
        await keys("escape", *["right"] * 5)(pilot)
        assert profile_in(pilot).trainer.python != BARE.python


async def test_cards_are_picked_by_space_and_kept_by_uuid(machine: Any, profile_in: Any) -> None:
    machine(SEED)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter")(pilot)
        text = shows(pilot)
        assert text.count("[x]") == 2, "the two that train well"
        await keys("down", "space")(pilot)
        assert set(profile_in(pilot).hardware.gpus) == {card.uuid for card in CARDS}
        await keys("up", "space")(pilot)
        assert set(profile_in(pilot).hardware.gpus) == {UUIDS[1], CARDS[1].uuid}


async def test_the_next_set_is_one_key_away(machine: Any, profile_in: Any) -> None:
    machine(SETS)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter")(pilot)
        assert shows(pilot).count("[x]") == 3, "the fastest set has all of them"
        await keys("s")(pilot)
        assert profile_in(pilot).hardware.gpus == (MIXED[2].uuid,)
        assert "● most memory: GPU 2" in shows(pilot)
        await keys("s")(pilot)
        assert profile_in(pilot).hardware.gpus == ()
        machine(SEED)
        await keys("r", "s")(pilot)
        assert profile_in(pilot).hardware.gpus == (), "one set leaves nothing to choose"
        assert "Next set" not in shows(pilot)


async def test_what_the_cards_do_is_shown_as_it_changes(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(SEED)
    told: SimpleQueue[Samples] = SimpleQueue()

    def samples(cancelled: Callable[[], bool]) -> Iterator[Samples]:
        while not cancelled():
            with contextlib.suppress(Empty):
                yield told.get(timeout=0.05)

    monkeypatch.setattr(live_samples, "live_samples", samples)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.2)
        await pilot.press("enter")
        for sample, words in (
            (Sample(uuid=UUIDS[0], memory_free=5 * GIB, use=97, temperature=71, power=320), "97 % 71 °C 320 W"),
            (Sample(uuid=UUIDS[0], memory_free=5 * GIB, problem="it has fallen off the bus"), "fallen off the bus"),
        ):
            told.put((sample,))
            await until_shown(pilot, words)
            assert "5.0 GiB free" in shows(pilot)
        await until_shown(pilot, "blocked")
        assert "[x] 0" not in shows(pilot)
        told.put((Sample(uuid=UUIDS[0], memory_free=5 * GIB),))
        await until_shown(pilot, "[x] 0")


async def test_the_cards_of_a_live_run_are_shown_beside_it(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(SEED)
    own = Sample(uuid=UUIDS[0], memory_free=GIB, memory_total=24 * GIB, use=97)
    other = Sample(uuid="GPU-other", memory_free=GIB, memory_total=24 * GIB, use=55)
    monkeypatch.setattr(live_samples, "live_samples", lambda _cancelled: iter(((own, other),)))
    run = live_run(tmp_path)
    (run.path / "plan.json").write_bytes(msgspec.json.encode({"world_size": 1, "device": "cuda", "gpus": [UUIDS[0]]}))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "97%")
        assert "55%" not in shows(pilot)


async def test_a_rung_that_changes_the_training_asks_for_consent(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        await to(pilot, "ladder")
        ladder = pilot.app.screen.query_one(MultiSelect)
        at = [pick.value for pick in ladder.picks].index("sequence_length")
        await keys(*["down"] * (at + 1), "space")(pilot)
        assert "changes the training" in shows(pilot)
        assert profile_in(pilot).ladder.consent == ()
        await keys("down", "enter")(pilot)
        assert profile_in(pilot).ladder.consent == ("sequence_length",)
        assert "sequence_length" in profile_in(pilot).ladder.rungs


@pytest.mark.parametrize("rows", [24, 12])
async def test_down_reaches_every_row_also_when_the_form_scrolls(machine: Any, rows: int) -> None:
    app = wizard()
    async with app.run_test(size=(80, rows)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        for label in (
            "Hidden size",
            "Heads",
            "Sequence",
            "Micro",
            "Global",
            "Steps",
            "Learning rate",
            "Prec",
            "▸ Advanced",
            "▸ Out of memory",
        ):
            await pilot.press("down")
            await pilot.pause()
            assert f"▌{label}" in shows(pilot)


@pytest.mark.whole
async def test_rungs_can_be_reordered(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        await to(pilot, "ladder")
        await keys(*["down"] * 4, "right_square_bracket")(pilot)
        assert profile_in(pilot).ladder.rungs[3:] == ("activation_checkpointing", "micro_batch")
        await keys("left_square_bracket")(pilot)
        assert profile_in(pilot).ladder.rungs[3:] == ("micro_batch", "activation_checkpointing")


async def test_preview_tells_of_a_run_that_has_begun_meanwhile(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del machine
    begun: list[ResourcesInUse] = []
    monkeypatch.setattr(taken, "resources_in_use", lambda *_: tuple(begun))
    trainer = msgspec.structs.replace(Profile().trainer, output=str(tmp_path / "out"))
    remember_profile(msgspec.structs.replace(Profile(), trainer=trainer))
    async with wizard().run_test(size=(120, 40)) as pilot:
        await until_shown(pilot, "Continue the draft")
        await keys("down", "enter", "enter", "enter")(pilot)
        begun.append(ResourcesInUse(run="other", outputs=(str(tmp_path / "out"),)))
        await keys("enter")(pilot)
        await until_shown(pilot, "the run other is already writing")
        assert "#!/usr/bin/env bash" in shows(pilot), "it can be read and exported all the same"
        await keys("enter")(pilot)
        assert "● 4 Preview" in shows(pilot)
        assert rundir.all_runs() == ()


async def test_preview_is_what_is_exported(machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "enter")(pilot)
        shown = {file.path: file.text for file in app.screen._prepared.files}
        copied: list[str] = []
        monkeypatch.setattr(app, "copy_to_clipboard", copied.append)
        await keys("f", "y", "e", "enter")(pilot)
        assert copied == [shown["launch.sh"]]
        for path, text in shown.items():
            assert (tmp_path / "quickstart" / path).read_bytes() == text.encode()
        (tmp_path / "quickstart" / "launch.sh").write_text("mine")
        await keys("e", "enter")(pilot)
        assert "Overwrite" in shows(pilot)
        await keys("enter")(pilot)
        assert (tmp_path / "quickstart" / "launch.sh").read_text() == "mine"


async def test_saving_asks_before_it_replaces(machine: Any) -> None:
    store.save(Profile(name="quickstart"))
    app = wizard()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await keys("enter", "enter", "enter", "enter", "s", "enter")(pilot)
        assert "already exists" in shows(pilot)
        await keys("down", "enter")(pilot)
        assert "Replaced" in shows(pilot)


async def test_no_toolchain_stops_the_start_with_a_remedy(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (BARE,))
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        assert "● 2 Backend" in shows(pilot)
        assert "pip install" in shows(pilot)


async def test_every_action_is_in_the_palette(machine: Any) -> None:
    app = wizard()
    async with app.run_test(size=(120, 40)) as pilot:
        await keys("enter", "enter", "enter", "enter")(pilot)
        offered = {command.title.partition(" (")[0] for command in app.get_system_commands(app.screen)}
        assert {
            "Run",
            "Back",
            "Save profile",
            "Export",
            "Copy",
            "File",
            "Undo",
            "Help",
            "Quit",
            "Look again at the machine and its Pythons",
        } <= offered


async def test_hostile_text_reaches_the_screen_only_as_text(machine: Any, tmp_path: Path) -> None:
    evil = "[red]$(x)[/] \x1b[2J\x07" + "长" * 300
    machine(
        msgspec.structs.replace(
            SEED, hostname=evil, gpus=(msgspec.structs.replace(CARDS[0], name=evil, pci_bus=evil),),
            gaps=(Gap(evil, evil, evil),),
        )
    )  # fmt: skip
    store.save(Profile(name="fine"))
    run = finished_run(tmp_path)
    shutil.copytree(run.path, run.path.parent / evil.replace("/", "|")[:60])
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        for step in ((), ("enter",), ("enter",), ("enter",), ("enter",)):
            await keys(*step)(pilot)
            assert "\x1b" not in shows(pilot)
            assert "\x07" not in shows(pilot)
        await keys("escape", "escape", "escape")(pilot)
        assert "[red]" in shows(pilot)


async def test_quitting_a_live_run_asks(machine: Any, tmp_path: Path) -> None:
    run = live_run(tmp_path)
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.pause(0.5)
        assert "running" in shows(pilot)
        await pilot.press("q")
        await pilot.pause(0.3)
        assert "Leave it running" in shows(pilot)
        await pilot.press("escape")
        await pilot.pause(0.3)
        assert app.is_running
        await pilot.press("q", "enter")
        await pilot.pause(0.3)
    assert app.return_code == 0


def with_trainer(**values: Any) -> Profile:
    """Return a profile whose trainer has these values."""
    return msgspec.structs.replace(Profile(), trainer=msgspec.structs.replace(Profile().trainer, **values))


async def test_an_unknown_preset_is_said_on_every_step_and_can_be_mended(machine: Any, profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter")(pilot)
        app.set_profile(with_trainer(kind="script", preset="no-such"))
        await keys()(pilot)
        assert "no-such" in shows(pilot)
        await keys("enter")(pilot)
        assert "no-such" in shows(pilot)
        await keys("f2")(pilot)
        assert profile_in(pilot).trainer.preset == Profile().trainer.preset
        assert "My own script" in shows(pilot)


@pytest.mark.parametrize("losses", [("inf", "nan", "1e308"), ("inf", "2.5", "1e308", "nan", "1.5")], ids=str)
async def test_losses_that_cannot_be_drawn_are_left_out_of_the_plot(
    machine: Any, tmp_path: Path, losses: tuple[str, ...]
) -> None:
    run = finished_run(tmp_path)
    lines = [f"step {number}/60 | loss {loss} | lr 1.0" for number, loss in enumerate(losses, start=1)]
    run.attempt_log(2).write_text("\n".join(lines) + "\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await keys()(pilot)
        assert app.screen.query_one("#plot").display == ("2.5" in losses)
        await keys("g")(pilot)
        assert "step 1/60 | loss inf" in shows(pilot)


async def test_no_escape_of_a_profile_reaches_the_terminal(machine: Any) -> None:
    evil = "\x1b]0;pwned\x07"
    app = wizard()
    async with app.run_test(size=(80, 40), notifications=True) as pilot:
        await keys()(pilot)
        secret = with_trainer(kind="script", script=f"/{evil}.py", environment={f"{evil}X_TOKEN": "x"})
        app.set_profile(msgspec.structs.replace(secret, name=evil))
        for pressed in ("enter", "enter", "enter", "f2", "enter", "s", "escape", "f2", "f2", "s"):
            await keys(pressed)(pilot)
            assert not {"\x1b", "\x07"} & set(shows(pilot)), pressed


async def test_what_was_edited_is_a_draft_that_a_lost_connection_keeps(machine: Any, profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "4", "2", "escape")(pilot)
        assert last_session_profile().recipe.layers == 42, "kept as soon as the step is left"
        await keys("escape", "escape")(pilot)
        await until_shown(pilot, "Continue the draft")
        await keys("home", "enter")(pilot)
        assert profile_in(pilot).recipe.layers is None, "a new training begins with defaults"
        await keys("escape", "home", "down", "enter")(pilot)
        assert profile_in(pilot).recipe.layers == 42


async def test_a_word_that_is_typed_is_one_undo(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "4", "2", "3", "down", *"100", "ctrl+z")(pilot)
        assert (profile_in(pilot).recipe.layers, profile_in(pilot).recipe.hidden_size) == (423, None)
        await keys("ctrl+z")(pilot)
        assert profile_in(pilot).recipe.layers is None


async def test_a_burst_of_enter_opens_each_step_once(machine: Any, tmp_path: Path) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys()(pilot)
        for _ in range(2):
            app.screen.post_message(OpenStep("hardware"))
            app.screen.post_message(OpenRun(rundir.RunDir(tmp_path)))
        await settle(pilot)
        assert [type(screen).__name__ for screen in app.screen_stack] == ["Home", "RunScreen"]


async def test_nothing_starts_while_the_machine_is_looked_at(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    app = wizard()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await keys("enter", "enter", "enter", "enter")(pilot)
        monkeypatch.setattr(probe, "probe_machine", lambda: go.wait(20) and SEED)
        app.action_look()
        await pilot.press("enter")
        await pilot.pause()
        assert "press Enter again" in shows(pilot)
        go.set()
        await settle(pilot)
        assert not rundir.all_runs()
        assert app.facts is not None
        assert app.facts.machine == SEED


async def test_opening_hardware_looks_at_the_machine_again(machine: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "escape")(pilot)
        machine(SEED)
        await keys("enter")(pilot)
        assert "RTX 3090" in shows(pilot)


async def test_another_python_is_not_missing_while_it_is_asked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    go = threading.Event()
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter", "enter")(pilot)
        monkeypatch.setattr(probe, "probe_toolchains", lambda *_args: go.wait(20) and (CUDA, BARE))
        app.set_profile(with_trainer(python="/opt/other/bin/python"))
        await pilot.pause()
        assert "was not found" not in shows(pilot)
        go.set()
        await settle(pilot)
        assert "/opt/other/bin/python was not found" in shows(pilot)


async def test_fast_typing_is_kept_whole(profile_in: Any) -> None:
    """Answers to earlier keys come late, and never write over what was typed since."""
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "end", "backspace")(pilot)
        for digit in "9876":
            app.simulate_key(digit)
        await settle(pilot)
        assert app.screen.query_one(Input).value == "9876"
        await keys(*["backspace"] * 4)(pilot)
        for digit in "123":
            app.simulate_key(digit)
        await settle(pilot)
        assert profile_in(pilot).recipe.layers == 123
        await keys("enter", "escape")(pilot)
        assert profile_in(pilot).recipe.layers == 123


async def test_an_error_goes_when_the_value_is_again_what_it_was(profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "end", "x")(pilot)
        assert "Type a whole number" in shows(pilot)
        await keys("backspace")(pilot)
        assert "Type a whole number" not in shows(pilot)


async def test_the_last_card_stays_picked(machine: Any, profile_in: Any) -> None:
    machine(SEED)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "space")(pilot)
        assert profile_in(pilot).hardware.gpus == (UUIDS[1],)
        await keys("down", "down", "space")(pilot)
        assert profile_in(pilot).hardware.gpus == (UUIDS[1],)
        assert "choose the device CPU" in shows(pilot)
        assert shows(pilot).count("[x]") == 1


async def test_cards_are_shown_but_not_picked_on_the_cpu(machine: Any, profile_in: Any) -> None:
    machine(SEED)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "down", "down", "down", "left")(pilot)
        assert profile_in(pilot).hardware.device == "cpu"
        app.screen.query_one("#gpus").focus()
        await keys("up")(pilot)
        assert "RTX 3090" in shows(pilot)
        assert profile_in(pilot).hardware.gpus == ()
        assert app.screen.query_one("#gpus").disabled


async def test_a_blocked_card_says_that_it_cannot_be_picked(machine: Any) -> None:
    old = msgspec.structs.replace(CARDS[1], compute_capability="3.5")
    machine(msgspec.structs.replace(SEED, gpus=(CARDS[0], old)))
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "down")(pilot)
        shown = " ".join(shows(pilot).split())
        assert "It cannot be picked" in shown
        assert "Space picks it" not in shown


def numbered(first: int, last: int) -> str:
    return "".join(f"line {number}.\n" for number in range(first, last))


async def test_a_log_that_is_scrolled_stays_on_its_lines(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text(numbered(0, 5000))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 4999.")
        await keys("pageup", "pageup")(pilot)
        before = re.findall(r"line \d+", shows(pilot))
        assert before
        with run.attempt_log(2).open("a") as log:
            log.write(numbered(5000, 5100))
        await pilot.pause(0.5)
        assert re.findall(r"line \d+", shows(pilot)) == before
        await keys("G")(pilot)
        assert "line 5099." in shows(pilot)
        with run.attempt_log(2).open("a") as log:
            log.write("the end")
        await until_shown(pilot, "the end")
        await keys("g")(pilot)
        assert "line 0." in shows(pilot)


async def test_a_log_may_be_emptied_replaced_and_deleted_under_the_wizard(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    log = run.attempt_log(2)
    log.write_text(numbered(0, 5000))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 4999.")
        await keys("home", "down")(pilot)
        log.write_text("emptied\n")
        await until_shown(pilot, "emptied")
        await until_shown(pilot, "at its end")
        beside = tmp_path / "beside"
        beside.write_text("replaced\n")
        beside.rename(log)
        await until_shown(pilot, "replaced")
        log.unlink()
        await pilot.pause(0.4)
        assert "replaced" not in shows(pilot)
        log.write_bytes(bytes(range(256)) * 1000)
        await until_shown(pilot, "\\x1f")
        assert "\x1b" not in shows(pilot)


@pytest.mark.whole
async def test_a_log_is_searched_filtered_and_wrapped(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    long = "[rank1]: \x1b[31mwanted\x1b[0m " + "word " * 60 + "tail"
    run.attempt_log(2).write_text(numbered(0, 3000) + long + "\n" + numbered(3000, 9000))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 8999.")
        await keys("slash", *"Wanted", "enter")(pilot)
        await until_shown(pilot, "no line matches Wanted")
        await pilot.press("slash", *"wa.ted", "enter")
        await until_shown(pilot, "from the other end")
        assert "[rank1]: wanted word" in shows(pilot)
        assert "tail" not in shows(pilot)
        await keys("w")(pilot)
        assert "tail" in shows(pilot)
        await keys("f", *"line 1.*7", "enter")(pilot)
        await until_shown(pilot, "line 107.")
        await keys("end")(pilot)
        assert re.findall(r"line \d+\.", shows(pilot))[-3:-1] == ["line 1987.", "line 1997."]
        await keys("n")(pilot)
        await until_shown(pilot, "no line matches wa.ted")
        await keys("escape")(pilot)
        await until_shown(pilot, "line 8999.")
        assert "e Edit" in shows(pilot), "Esc ended the filter and stayed"
        await keys("slash", *"(a", "enter")(pilot)
        await pilot.pause(1)
        assert "no regular expression" in [*app._notifications][-1].message
        await keys("f", *"[z", "enter")(pilot)
        await pilot.pause(1)
        assert "no regular expression" in [*app._notifications][-1].message
        await keys("escape", "escape")(pilot)
        assert "New training" in shows(pilot)


async def test_a_hit_is_in_sight_also_in_a_long_line(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    long = "中\t" + "word " * 3000 + "\x1b[31mnee\x1b[0mdle" + " word" * 3000
    run.attempt_log(2).write_text(numbered(0, 300) + long + "\n" + numbered(300, 600))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 599.")
        await keys("slash")(pilot)
        assert "Search" not in shows(pilot), "keys are letters while one types"
        await pilot.press(*"(f|needle)", "enter")
        await until_shown(pilot, "word needle word")
        view = app.screen.query_one(LogView)

        def pointed_out() -> list[str]:
            segments = (segment for y in range(view.size.height) for segment in view.render_line(y))
            return [segment.text for segment in segments if segment.style and segment.style.reverse]

        assert pointed_out() == ["nee", "dle"]
        await keys("w", "G")(pilot)
        assert not pointed_out()
        await keys("N")(pilot)
        for _ in range(100):
            if pointed_out():
                break
            await pilot.pause(0.05)
        assert "".join(pointed_out()) == "needle"


@pytest.mark.whole
async def test_a_filter_looks_anew_when_the_log_is_emptied_or_replaced(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    log = run.attempt_log(2)
    log.write_text(numbered(0, 500))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 499.")
        await keys("f", *"9[.]", "enter")(pilot)
        await until_shown(pilot, "50 lines")
        log.write_text("emptied 9.\n")
        await until_shown(pilot, "emptied 9.")
        assert "1 line matching" in shows(pilot)
        beside = tmp_path / "beside"
        beside.write_text(numbered(0, 1000))
        beside.rename(log)
        await until_shown(pilot, "100 lines")
        log.unlink()
        await until_shown(pilot, "0 lines")
        log.write_text("back 9.\n")
        await until_shown(pilot, "back 9.")


async def test_lines_that_are_hard_to_draw_are_drawn_at_once(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.attempt_log(2).write_bytes((b"\x1b[31mred\x1b[0m ok " * 3000 + b"\n") * 40 + b"\0" * (2 << 20) + b"\nend.\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "end.")
        view = app.screen.query_one(LogView)
        for key in ("home", "w", "end"):
            await pilot.press(key)
            began = thread_time()
            view._lay_out()
            assert thread_time() - began < 1, key


async def test_an_expression_that_takes_for_ever_leaves_every_key_at_work(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("a" * 60 + "!\n" + numbered(0, 100))
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "line 99.")
        await pilot.press("slash", *"(a+)+$", "enter")
        await pilot.pause(0.5)
        assert "searching (a+)+$" in shows(pilot)
        await pilot.press("home")
        await pilot.pause(0.2)
        assert "line 0." in shows(pilot)
        await pilot.press("escape")
        await pilot.pause(0.3)
        assert "stopped searching" in shows(pilot)


async def test_another_attempt_and_one_rank_can_be_chosen(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("[rank0]: first\n[rank1]: second\nthird\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "third")
        await keys("o", "down", "down", "enter")(pilot)
        await until_shown(pilot, "rank 1")
        await pilot.pause(0.5)
        assert "second" in shows(pilot)
        assert "first" not in shows(pilot)
        await keys("escape", "a", "down", "enter")(pilot)
        await until_shown(pilot, "torch.OutOfMemoryError")
        assert "attempt-1.log" in shows(pilot)


@pytest.mark.parametrize("no_color", [False, True])
async def test_colours_of_a_log_are_kept_where_there_are_colours(
    machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, no_color: bool
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("plain \x1b[38;2;1;2;3;8;5mcoloured\x1b[0m\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "plain coloured")
        view = app.screen.query_one(LogView)
        segments = [segment for y in range(view.size.height) for segment in view.render_line(y)]
        style = next(segment.style for segment in segments if "coloured" in segment.text)
        assert style
        assert (style.color is not None and style.color.triplet == (1, 2, 3)) is not no_color
        assert not style.conceal
        assert not style.blink


async def test_a_loss_that_is_none_is_called_out(machine: Any, tmp_path: Path) -> None:
    run = finished_run(tmp_path)
    run.attempt_log(2).write_text("step 1/9 | loss 2.0\nstep 2/9 | loss nan\nstep 3/9 | loss nan\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await until_shown(pilot, "! the loss is nan since step 2")


async def test_a_value_with_control_characters_cannot_be_typed_over(machine: Any, profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter", "enter")(pilot)
        app.set_profile(with_trainer(arguments=("--text", "a\nb")))
        await settle(pilot)
        await to(pilot, "advanced", "trainer.arguments")
        assert "control characters: edit the profile file" in shows(pilot)
        await keys("x")(pilot)
        assert profile_in(pilot).trainer.arguments == ("--text", "a\nb")


async def test_home_says_that_enter_opens_and_stops_only_what_goes(machine: Any, tmp_path: Path) -> None:
    finished_run(tmp_path)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("end")(pilot)
        assert "Enter Open" in shows(pilot)
        assert "Stop run" not in shows(pilot)


async def test_a_failed_run_says_why_and_a_key_tries_the_remedy(machine: Any, tmp_path: Path) -> None:
    why = "the plan has no further fallback"
    run = finished_run(tmp_path, state="failed", code=1, why=why)
    with run.attempt_log(2).open("a") as log:
        log.write("\n[rank1]: torch.OutOfMemoryError: [bold] CUDA out of memory. Tried to allocate 9.00 GiB.\x1b[31m\n")
    app = wizard(str(run.path))
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert "requested on rank 1" in shows(pilot)
        assert "memory was full when 9.00 GiB" in shows(pilot)
        assert re.search(r"F2 +micro batch 4 → 2", shows(pilot)), "the second attempt had 4 already"
        assert "[bold]" in shows(pilot)
        await keys("f2")(pilot)
        assert type(app.screen).__name__ == "Preview"
        assert app.profile.recipe.micro_batch == 2
        await keys("ctrl+z")(pilot)
        assert app.profile.recipe.micro_batch is None


async def test_a_finished_run_has_nothing_to_explain(machine: Any, tmp_path: Path) -> None:
    async with wizard(str(finished_run(tmp_path).path)).run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert not pilot.app.screen.query_one("#why").display
        assert "Fix it" not in shows(pilot)


async def test_what_runs_is_in_sight_however_many_profiles_there_are(machine: Any, tmp_path: Path) -> None:
    live_run(tmp_path)
    for number in range(40):
        store.save(Profile(name=f"mine-{number}"))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert re.search(r"Running.*● quickstart.*Profiles", shows(pilot), re.DOTALL)


async def test_the_script_is_run_for_its_help_only_when_asked(machine: Any, tmp_path: Path, monkeypatch: Any) -> None:
    tool = msgspec.structs.replace(CUDA, python=sys.executable)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (tool,))
    script = tmp_path / "train.py"
    script.write_text(
        "import argparse, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--stage', help='[b]pretrain[/b] or \x1b[31msft')\n"
        "parser.add_argument('--fast', action='store_true')\n"
        "parser.parse_args()\n"
    )
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        await keys("enter")(pilot)
        app.set_profile(with_trainer(kind="script", script=str(script), preset="total-batch"))
        await keys("enter")(pilot)
        assert not (tmp_path / "ran").exists()
        await keys("h")(pilot)
        assert "--stage  [b]pretrain[/b] or" in shows(pilot)
        assert "\x1b" not in shows(pilot)
        await keys("enter")(pilot)
        assert app.profile.trainer.arguments == ("--stage=",)
        await keys("s", "f", "t", "escape")(pilot)
        assert app.profile.trainer.arguments == ("--stage=sft",)
        await keys("enter", "h", "down", "enter")(pilot)
        assert app.profile.trainer.arguments == ("--stage=sft", "--fast")


async def test_a_script_that_cannot_say_its_help_says_why(machine: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        probe, "probe_toolchains", lambda *_args, **_named: (msgspec.structs.replace(CUDA, python=sys.executable),)
    )
    (tmp_path / "train.py").write_text("import nothing_of_that_name")
    app = wizard()
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await keys("enter")(pilot)
        app.set_profile(with_trainer(kind="script", script=str(tmp_path / "train.py")))
        await keys("enter", "h")(pilot)
        assert "ModuleNotFoundError" in " ".join(notice.message for notice in app._notifications)


async def test_a_broken_preset_of_ones_own_is_shown_with_its_reason(
    machine: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "tui-train" / "presets").mkdir(parents=True)
    (tmp_path / "tui-train" / "presets" / "bad.toml").write_text("label = 5")
    (tmp_path / "tui-train" / "presets" / "good.toml").write_text('label = "Mine [b]"\nabout = "x"\n')
    app = wizard()
    async with app.run_test(size=(200, 40)) as pilot:
        await keys("enter")(pilot)
        app.set_profile(with_trainer(kind="script", script="/t.py"))
        await keys("enter")(pilot)
        await to(pilot, "trainer.preset")
        await keys("space", *["down"] * 10)(pilot)
        assert re.search(r"› bad: .*bad.toml: label: Expected", shows(pilot))
        assert "Mine [b]" in shows(pilot)


async def test_a_yaml_that_was_edited_meanwhile_is_read_again(machine: Any, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("training: 5")
    app = wizard()
    async with app.run_test(size=(80, 40)) as pilot:
        trainer = {"kind": "script", "preset": "total-batch-yaml", "script": str(config), "config": str(config)}
        await keys("enter")(pilot)
        app.set_profile(with_trainer(**trainer))
        await keys("enter")(pilot)
        assert "is a single value" in " ".join(shows(pilot).split())
        config.write_text("training: {steps: 7}")
        await keys("escape", "enter")(pilot)
        assert "is a single value" not in " ".join(shows(pilot).split())
        assert app.facts is not None
        assert app.facts.documents[str(config)].values == {"training": {"steps": 7}}


NEMO = ContainerImage(
    engine="docker", name="nemo:25.04", id="abc", toolchain=msgspec.structs.replace(CUDA, label="nemo:25.04")
)


def in_container(**more: Any) -> Profile:
    chosen = msgspec.structs.replace(Profile().container, **({"engine": "docker", "image": "nemo:25.04"} | more))
    return msgspec.structs.replace(Profile(), container=chosen)


@pytest.mark.whole
async def test_a_python_of_a_cloned_folder_is_started_after_it_was_chosen_by_key(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python, mark = tmp_path / "clone" / ".venv" / "bin" / "python", tmp_path / "started"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\n: > "{mark}"\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.chdir(tmp_path / "clone")
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)
    app = wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter")(pilot)
        await to(pilot, "trainer.python")
        await keys("space")(pilot)
        assert re.search(r"✗ .venv here +in this folder, not started", shows(pilot))
        await keys("escape", "right", "right", "right")(pilot)
        assert not mark.exists(), "passing over it is not choosing it"
        app.set_profile(Profile())
        await keys("o")(pilot)
        assert app.screen.query_one(Input).value == str(python)
        assert not mark.exists()
        await keys("enter")(pilot)
        assert mark.exists()
        assert app.profile.trainer.python == str(python)
        assert not [tool for tool in app.facts.toolchains if tool.problem and tool.python == str(python)]


async def test_rows_of_a_container_are_there_when_one_is_chosen(machine: Any, profile_in: Any) -> None:
    app = wizard()
    async with app.run_test(size=(120, 50)) as pilot:
        await keys("enter", "enter")(pilot)
        assert "Shared memory" not in shows(pilot)
        assert "Other Python" in shows(pilot)
        await to(pilot, "container.engine")
        await keys("space")(pilot)
        assert re.search(r"● none .*○ docker .*✗ podman +not installed", shows(pilot), re.DOTALL)
        await keys("escape", "right")(pilot)
        assert profile_in(pilot).container.engine == "docker"
        text = shows(pilot)
        assert re.search("docker . +28.2.2", text)
        assert "Extra mounts" in text
        assert "Shared memory" in text
        assert "Other Python" not in text
        assert "no image is named" in text


async def test_an_image_is_looked_into_without_holding_the_screen_up(
    machine: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(SEED)
    go = threading.Event()
    monkeypatch.setattr(container_images, "read_image", lambda *_args: go.wait(20) and NEMO)
    app = wizard()
    async with app.run_test(size=(120, 50)) as pilot:
        await keys("enter", "enter")(pilot)
        app.set_profile(in_container())
        await pilot.pause()
        assert "is not on this machine" not in shows(pilot)
        assert "images" in app.looking
        go.set()
        await settle(pilot)
        assert "images" not in app.looking
        assert app.facts.images == (NEMO,)
        app.set_profile(in_container(image="another:1"))
        await settle(pilot)
        assert "the image another:1 is not on this machine" in shows(pilot)


async def test_an_image_is_looked_at_once_its_name_is_typed(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(here, "chosen_image", lambda profile: asked.append(profile.container.image) or ())
    app = wizard()
    async with app.run_test(size=(120, 50)) as pilot:
        await keys("enter", "enter")(pilot)
        app.set_profile(in_container(image=""))
        await settle(pilot)
        asked.clear()
        for typed in ("n", "ne", "nem", "nemo"):
            app.screen.post_message(ValueChosen("container.image", typed))
            await pilot.pause(0.05)
        assert asked == []
        await pilot.pause(1.5)
        assert asked == ["nemo"]
        assert "images" not in app.looking


async def test_v_says_what_is_in_the_image(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine(SEED)
    asked: list[tuple[str, ...]] = []

    def run(*words: Any) -> ChildResult:
        asked.append(words[-1])
        return ChildResult(out=f"GPU 0: RTX 3090 (UUID: {UUIDS[0]})\n\x1b[31mGPU 1 ({UUIDS[1]})".encode(), code=0)

    monkeypatch.setattr(container_images, "read_image", lambda *_args: NEMO)
    monkeypatch.setattr(container_images, "run_in_image", run)
    app = wizard()
    async with app.run_test(size=(120, 50)) as pilot:
        await keys("enter", "enter")(pilot)
        app.set_profile(in_container())
        await keys("v")(pilot)
        text = shows(pilot)
        assert "torch   2.7.1+cu126, CUDA 12.6 for sm_50" in text
        assert f"GPU 0: RTX 3090 (UUID: {UUIDS[0]})" in text
        assert "\\x1b[31mGPU 1" in text
        assert "It can train." in text
    assert asked == [("--gpus", f'"device={UUIDS[0]},{UUIDS[1]}"')]


async def test_memory_is_foretold_as_one_types(machine: Any) -> None:
    machine(SEED)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        assert re.search("70 MiB of 22.0 GiB reserved ±15 % +✓ fits", shows(pilot))
        await keys("down", *"12800", "down", *"40")(pilot)
        assert "✗ will not fit" in shows(pilot).splitlines()[2]
        # What frees gaps alone counts as well: reserved is what is shown.
        assert re.search("fused optimizer -.*, expandable segments -", shows(pilot).splitlines()[1])


@pytest.mark.whole
@pytest.mark.training
async def test_f3_traces_the_memory_and_ends_it(machine: Any, monkeypatch: Any) -> None:
    machine(CPU)
    tool = msgspec.structs.replace(CUDA, python=sys.executable)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (tool,))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        await pilot.press("f3")
        await until_shown(pilot, "F3 ends it", during=True)
        await pilot.press("f3")
        await settle(pilot)
        assert "F3 ends it" not in shows(pilot)
        assert "traced" not in shows(pilot)
        await pilot.press("f3")
        await settle(pilot)
        assert re.search(r"traced 6\d MiB ±10 %", shows(pilot).splitlines()[1])


def trials_of_a_card(*_args: Any, **_named: Any) -> Iterator[TuningState]:
    """Yield what four trials on a card came to, which there is none of here."""
    tried = [(8, 9100.0, 11), (32, 0.0, 24), (16, 11800.0, 19), (16, 9400.0, 8)]
    trials = tuple(
        Trial(
            setting=Setting(micro, number == 3, "bf16"),
            outcome="measured" if rate else "out of memory",
            rate=rate / 128,
            memory=memory * GIB,
        )
        for number, (micro, rate, memory) in enumerate(tried)
    )
    change = Change("micro batch 8 -> 16", "1.30 times as fast", (("recipe.micro_batch", 16),))
    now = TuningState(folder=Path("/trials"), trials=trials[:1], trying=trials[1].setting, tokens=128)
    yield now
    yield msgspec.structs.replace(now, trials=trials, trying=None, change=change)


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_picture_of_the_trials(snap_compare: Any, machine: Any, monkeypatch: Any, size: tuple[int, int]) -> None:
    """What was tried, what it came to, and the key that takes it."""
    machine(SEED)
    monkeypatch.setattr(tuning, "tune", trials_of_a_card)
    assert snap_compare(wizard(), terminal_size=size, run_before=keys("enter", "enter", "enter", "f4", "enter"))


async def test_enter_takes_what_the_trials_found(machine: Any, monkeypatch: Any, profile_in: Any) -> None:
    machine(SEED)
    monkeypatch.setattr(tuning, "tune", trials_of_a_card)
    async with wizard().run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "f4")(pilot)
        assert "Also bf16" in shows(pilot)
        await keys("p")(pilot)
        assert "bf16 is tried as well" in shows(pilot)
        await keys("enter")(pilot)
        assert profile_in(pilot).recipe.micro_batch is None
        await keys("enter")(pilot)
        assert profile_in(pilot).recipe.micro_batch == 16
        assert "● 3 Recipe" in shows(pilot)
        await keys("ctrl+z")(pilot)
        assert profile_in(pilot).recipe.micro_batch is None


async def test_what_cannot_be_tuned_says_why(machine: Any) -> None:
    machine(SEED)
    async with wizard().run_test(size=(80, 24), notifications=True) as pilot:
        await keys("enter", "enter", "enter")(pilot)
        pilot.app.set_profile(put(pilot.app.profile, "recipe.global_batch", 13))
        await pilot.press("f4")
        await until_shown(pilot, "the global batch 13 is not a multiple")
        assert "● 3 Recipe" in shows(pilot)


@pytest.mark.training
@pytest.mark.parametrize("key", sample(["escape", "q"], 2, 1))
async def test_whoever_leaves_ends_the_trial_under_way(machine: Any, monkeypatch: Any, key: str) -> None:
    machine(CPU)
    tool = msgspec.structs.replace(CUDA, python=sys.executable)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (tool,))
    async with wizard().run_test(size=(80, 24)) as pilot:
        await keys("enter", "enter", "enter", "f4")(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "A trial is under way", during=True)

        def begun() -> list[Path]:
            return [*trials_folder().glob("*/trial-1/events.jsonl")]

        await until_true(pilot, begun)
        run = rundir.RunDir(begun()[0].parent)
        await until_true(pilot, lambda: status(run).leader)
        await pilot.press(key)
        await settle(pilot)
        assert key == "q" or "● 3 Recipe" in shows(pilot)
    assert not marked(status(run).mark)
