"""Hardware beside its list: all that is known of the card in whose row the cursor is."""

import threading

import msgspec
import pytest
from pilot import (
    CPU_MACHINE,
    CUDA_PYTHON,
    MACHINE_WITHOUT_CARDS,
    PRETRAIN_KEY,
    THREE_CARD_MACHINE,
    THREE_CARDS,
    go_to_fields,
    open_wizard,
    press_keys,
    screen_text,
    until_true,
    wait_for_text,
    wait_for_workers,
)
from support import GIB, profile
from tui_train.screens.hardware.card_panel import card_panel_lines
from tui_train.screens.widgets.hint import Hint

from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.machine import probe
from tui_train.facts.other_machines.cluster import Cluster
from tui_train.facts.types import FactGap, Gpu, GpuProcess, GpuVerdict, PcieLink
from tui_train.runner.queue.listing import CardInQueue
from tui_train.wizard import make_wizard


def panel(gpu: Gpu, verdict: GpuVerdict, *samples: CardSample, picked: bool = True, width: int = 60) -> list[str]:
    return [line.plain.rstrip() for line in card_panel_lines(gpu, verdict, samples, CardInQueue(""), picked, width)]


async def test_beside_the_list_stands_the_card_in_whose_row_the_cursor_is(seed):
    async with open_wizard(PRETRAIN_KEY, size=(120, 40)) as pilot:
        assert "GPU 0  GeForce RTX 3090" in screen_text(pilot)
        await press_keys("down")(pilot)
        shown = screen_text(pilot)
        for words in ("GPU 1  GeForce GT 1030", "left out; Space picks it", "Xorg holds 200 MiB", "drives a display"):
            assert words in shown
        assert "GPU 0  GeForce RTX 3090" not in shown
        # What the panel says is not told again by the hint.
        assert shown.count("drives a display") == 1
        await press_keys("space")(pilot)
        assert "picked all the same" in screen_text(pilot)
        await press_keys("down", "down", "down")(pilot)
        assert "GPU 2  GeForce RTX 3090" in screen_text(pilot)


async def test_a_low_terminal_says_it_in_the_hint_also_after_another_size(seed):
    async with open_wizard(PRETRAIN_KEY, "down", size=(120, 40)) as pilot:
        for size, is_said in (((120, 24), True), ((80, 24), True), ((120, 40), False)):
            await pilot.resize_terminal(*size)
            await wait_for_workers(pilot)
            hint = " ".join(str(pilot.app.screen.query_one(Hint).render()).split())
            assert ("drives a display" in hint) == is_said, size


async def test_a_card_that_a_run_has_taken_is_shown_and_can_be_waited_for_or_left(seed, queued):
    queued("mine", THREE_CARDS[0].uuid)
    queued("next", THREE_CARDS[0].uuid, waits=True)
    async with open_wizard(PRETRAIN_KEY, size=(120, 40)) as pilot:
        shown = screen_text(pilot)
        assert "use, busy" in shown
        assert shown.count("mine (") == 3, "the row, the panel beside it and the finding"
        assert "next (" in shown
        await press_keys("enter", "enter", "enter")(pilot)
        assert "w when its GPUs are free" in screen_text(pilot)
        assert "F2 train on free GPUs" in screen_text(pilot)
        await press_keys("f2")(pilot)
        assert pilot.app.profile.hardware.gpus == (THREE_CARDS[2].uuid,)
        assert "w when its GPUs are free" not in screen_text(pilot)


async def test_the_hidden_list_of_a_machine_without_gpus_is_not_focused_when_the_screen_is_back(machine):
    machine(CPU_MACHINE)
    async with open_wizard(PRETRAIN_KEY) as pilot:
        hardware = pilot.app.screen
        await press_keys("f1")(pilot)
        hardware.set_focus(None)
        await press_keys("escape", "up")(pilot)
        assert pilot.app.screen is hardware
        assert hardware.form.has_focus_within


@pytest.mark.parametrize(
    ("capability", "says"), [("6.1", ". Space picks it or leaves it out."), ("3.5", ". It cannot be picked")]
)
async def test_where_there_is_no_room_the_hint_says_it(machine, capability, says):
    card = msgspec.structs.replace(THREE_CARDS[1], compute_capability=capability)
    machine(msgspec.structs.replace(THREE_CARD_MACHINE, gpus=(THREE_CARDS[0], card)))
    async with open_wizard(PRETRAIN_KEY, "down") as pilot:
        assert "left out" not in screen_text(pilot)
        hint = " ".join(screen_text(pilot).split())
        assert f"cc {capability}, bus 03:00.0" in hint
        assert (says in hint, "Space picks" in hint) == (True, capability == "6.1")


def test_what_the_driver_reports_is_said_and_nothing_else():
    now = CardSample(uuid="u", memory_free=4 * GIB, memory_total=24 * GIB, utilization=97, temperature=71, power=340)
    link = PcieLink(generation=1, width=8, generation_max=4, width_max=16)
    card = msgspec.structs.replace(
        THREE_CARDS[0], pcie=link, peers=(2, 3), throttled_by=("power cap",), sm_clock_max=2100, nvlinks=1,
        processes=tuple(GpuProcess(n, "/usr/bin/python3", "ann", n * GIB) for n in range(1, 9)),
    )  # fmt: skip
    lines = panel(card, GpuVerdict("use"), now)
    assert lines[:2] == ["GPU 0  GeForce RTX 3090 " + "─" * 36, "✓ can train"]
    assert [line.split(maxsplit=2)[0::2] for line in lines[3:7]] == [
        ["Use", "97 %"], ["Memory", "20.0 GiB of 24.0 GiB"], ["Heat", "71 °C"], ["Power", "340 W"],
    ]  # fmt: skip
    assert lines[8:15] == [*(f"· ann python3 holds {n}.0 GiB" for n in range(1, 7)), "  and 2 more"]
    assert lines[16:] == [
        "compute capability 8.6, 82 SMs, up to 2100 MHz", "PCIe 4 x8 of x16", "1 NVLink",
        "direct memory access with GPU 2, 3", "limited now by power cap", "bus 01:00.0",
    ]  # fmt: skip
    silent = panel(Gpu(index=3, name="\x1b[2J[bold]"), GpuVerdict("blocked", ("the driver lost it",)), width=30)
    assert silent[1:3] == ["✗ cannot train", "  the driver lost it"]
    assert panel(THREE_CARDS[0], GpuVerdict("use"), picked=False)[1] == "✓ can train; Space picks it"
    assert "\x1b" not in "".join(silent)
    assert "[bold]" in silent[0]
    assert not any(line for line in silent[3:])


async def test_nothing_is_said_of_a_machine_before_it_was_looked_at(machine, monkeypatch):
    known = threading.Event()
    none = FactGap("No NVIDIA GPU", "the driver lists no GPU", "Trainings run on the CPU here.")
    found = msgspec.structs.replace(MACHINE_WITHOUT_CARDS, gaps=(none,))
    monkeypatch.setattr(probe, "probe_machine", lambda *_args, **_named: known.wait(30) and found)
    async with make_wizard().run_test(size=(120, 40)) as pilot:
        await until_true(pilot, lambda: pilot.app.facts is not None)
        pilot.app.screen.open_step_with_profile(profile({}), save_as_draft=False)
        await wait_for_text(pilot, "Looking at this machine", "auto ›                looking …", during=True)
        before = screen_text(pilot)
        assert not [words for words in ("no GPU", "nothing is wrong", "What starts") if words in before]
        known.set()
        await wait_for_text(pilot, "○ No NVIDIA GPU", "nothing is wrong", "What starts")


async def test_why_no_gpu_can_train_is_told_once(machine):
    none = FactGap("No NVIDIA GPU", "the driver lists no GPU", "Trainings run on the CPU here.")
    for gaps in ((), (none,), (FactGap("No logind", "it cannot be asked", "Nothing to do."),)):
        machine(msgspec.structs.replace(MACHINE_WITHOUT_CARDS, gaps=gaps))
        async with open_wizard(PRETRAIN_KEY, size=(120, 40)) as pilot:
            assert ("No GPU was found: training runs on the CPU." in screen_text(pilot)) == (gaps != (none,))
            assert ("lists no GPU" in screen_text(pilot)) == (gaps == (none,))


async def test_the_one_cause_of_all_cards_stands_above_them(seed, monkeypatch):
    without_cuda = msgspec.structs.replace(CUDA_PYTHON, torch="2.13.0+cpu", cuda=None, arch_list=())
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (without_cuda,))
    async with open_wizard(PRETRAIN_KEY) as pilot:
        shown = screen_text(pilot)
        cause, first_card = shown.index("has no CUDA, so none of the 3 GPUs"), shown.index("RTX 3090")
        assert shown.index(" GPUs ─") < cause < first_card


async def test_of_cards_without_the_right_torch_is_said_which_would_train(seed, monkeypatch):
    without_cuda = msgspec.structs.replace(CUDA_PYTHON, torch="2.13.0+cpu", cuda=None, arch_list=())
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_args, **_named: (without_cuda,))
    async with open_wizard(PRETRAIN_KEY) as pilot:
        shown = screen_text(pilot)
        assert shown.count("would train with the right torch") == 2
        assert shown.count("left out with the right torch too: display card: ") == 1


async def test_f3_says_why_a_field_of_slurm_has_no_values(machine):
    async with open_wizard(PRETRAIN_KEY) as pilot:
        pilot.app.edits.set_profile(profile({"hardware.scheduler": "slurm"}))
        await wait_for_workers(pilot)
        silent = Cluster(problem="sinfo: no")
        pilot.app.facts = msgspec.structs.replace(pilot.app.facts, scheduler="slurm", cluster=silent)
        await go_to_fields(pilot, "slurm.partition")
        await press_keys("f3")(pilot)
        words = "The cluster does not answer, so nothing is known for Partition: type it."
        assert [notification.message for notification in pilot.app._notifications] == [words]
        assert "sinfo: no" not in screen_text(pilot), "the gap above says it"
