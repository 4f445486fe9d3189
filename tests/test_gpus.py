"""Which card can train with which PyTorch, on the machines of `tests/machines/` read by the real binding."""

import json
import subprocess
import sys
from importlib.util import find_spec

import msgspec
import pytest

from tests.fake_driver import driver_environment
from tui_train.facts import gpus, probe
from tui_train.facts.types import Gpu, GpuProcess, Toolchain, Verdict

GIB = 2**30


def toolchain(torch=None, cuda=None, codes=()):
    return Toolchain(python="p", torch=torch, cuda=cuda, arch_list=tuple(f"sm_{code}" for code in codes))


TOOLCHAINS = {
    "cu126": toolchain("2.13.0+cu126", "12.6", (50, 60, 70, 75, 80, 86, 90)),
    "cu128": toolchain("2.9.1+cu128", "12.8", (70, 75, 80, 86, 90, 100, 120)),
    "cu130": toolchain("2.13.0+cu130", "13.0", (75, 80, 86, 90, 100, 120)),
    "cpu": toolchain("2.13.0+cpu"),
    "none": toolchain(),
}

# One word a card: U use, S spare, B blocked. The last column is what is selected at first under cu126, by position.
TABLE = """
machine               | cu126     | cu128     | cu130     | cpu       | none      | selected
seed-3090-gt1030-3090 | U S U     | U B U     | U B U     | B B B     | U S U     | 0 2
6000-ada              | U         | U         | B         | B         | U         | 0
two-3090-one-busy     | U U       | U U       | U U       | B B       | U U       | 0
lone-gtx1060          | U         | B         | B         | B         | U         | 0
one-card-lost         | U B U     | U B U     | U B U     | B B B     | U B U     | 0 2
strange-names         | B B B B B | B B B B B | B B B B B | B B B B B | U U U U B |
a100-mig              | S U U B   | S U U B   | B B B B   | B B B B   | S U U B   | 2
no-cards              |           |           |           |           |           |
"""
HEAD, *ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_verdicts(row, monkeypatch):
    for name, value in driver_environment(row[0]).items():
        monkeypatch.setenv(name, value)
    machine = probe.machine()
    found = [row[0]]
    for column in HEAD[1:-1]:
        verdicts = gpus.judge(machine.gpus, TOOLCHAINS[column], machine.driver_cuda)
        assert all(verdict.kind == "use" or all(verdict.reasons) for verdict in verdicts)
        found.append(" ".join(verdict.kind[0].upper() for verdict in verdicts))
    selected = gpus.recommended(machine.gpus, gpus.judge(machine.gpus, TOOLCHAINS["cu126"], machine.driver_cuda))
    found.append(" ".join(str(at) for at, gpu in enumerate(machine.gpus) if gpu.uuid in selected))
    assert found == row


def card(name="", memory=24 * GIB, sms=82, capability="8.6", **more):
    return Gpu(index=0, uuid=f"GPU-{name}", memory_total=memory, sm_count=sms, compute_capability=capability, **more)


def reasons(cards, wheel="cu126", driver_cuda="13.0"):
    return [" ".join(verdict.reasons) for verdict in gpus.judge(cards, TOOLCHAINS[wheel], driver_cuda)]


GT1030 = card("gt1030", 2 * GIB, 3, "6.1")
T400 = card("t400", 4 * GIB, 6, "7.5")
P40 = card("p40", 24 * GIB, 30, "6.1")
RTX5090 = card("5090", 32 * GIB, 170, "12.0")


def test_reasons_say_what_to_do():
    assert reasons([GT1030], "cu130") == [
        (
            "this PyTorch (2.13.0+cu130) has no code for compute capability 6.1: "
            "a wheel for CUDA 12.6 (cu126) has it, up to torch 2.14"
        )
    ]
    assert "cu128) or later has it" in reasons([RTX5090], "cu126")[0]
    assert "Jetson" in reasons([card(capability="8.7")], "cu130")[0]
    assert "no official wheel" in reasons([card(capability="3.5")])[0]
    assert reasons([card()], "cpu") == [
        "this PyTorch was built without CUDA: every official wheel for CUDA 12.6 or later has it"
    ]
    assert reasons([card()], "cu130", "12.4") == [
        (
            "this PyTorch (2.13.0+cu130) needs a driver for CUDA 13, this one is for CUDA 12: "
            "update the driver, or install a PyTorch for CUDA 12"
        )
    ]
    assert reasons([card()], "none") == ["not checked against a PyTorch yet"]
    assert reasons([card(), GT1030]) == [
        "",
        "display card: 3 multiprocessors beside 82, and the slowest card sets the pace",
    ]
    assert reasons([card(), card(memory=8 * GIB)])[1] == "8.0 GiB beside 24.0 GiB, and the smallest card sets the limit"


@pytest.mark.parametrize(
    ("cards", "wheel", "kinds"),
    [
        pytest.param([GT1030], "cu126", "U", id="a lone display card is all there is"),
        pytest.param([GT1030, T400], "cu126", "S U", id="the better of two display cards"),
        pytest.param([T400, T400], "cu126", "U U", id="two equal display cards"),
        pytest.param([T400, RTX5090], "cu130", "S U", id="a display card that the wheel knows"),
        pytest.param([RTX5090, P40], "cu126", "B U", id="no wheel has both"),
        pytest.param([RTX5090, P40], "cu130", "U B", id="no wheel has both, the other way"),
        pytest.param([RTX5090, GT1030], "cu126", "B U", id="a blocked card makes none spare"),
        pytest.param([card(display_active=True), card()], "cu126", "U U", id="a monitor leaves no card out"),
        pytest.param([card(memory=None, sms=None), card()], "cu126", "U U", id="unknown is not zero"),
        pytest.param([card(capability=None)], "cu130", "U", id="unknown capability"),
        pytest.param(
            [card(memory=12282 * 2**20), card(memory=24576 * 2**20)], "cu126", "U U", id="half, but for a few MiB"
        ),
        pytest.param([card(compute_mode="prohibited"), card()], "cu126", "B U", id="compute mode prohibited"),
        pytest.param(
            [card(compute_mode="exclusive", processes=(GpuProcess(1, "x", "", None),)), card(compute_mode="exclusive")],
            "cu126",
            "B U",
            id="exclusive and taken",
        ),
    ],
)
def test_rules(cards, wheel, kinds):
    verdicts = gpus.judge(cards, TOOLCHAINS[wheel], "13.0")
    assert " ".join(verdict.kind[0].upper() for verdict in verdicts) == kinds


def test_unknown_architectures_and_drivers_block_nothing():
    unread = msgspec.structs.replace(TOOLCHAINS["cu130"], arch_list=())
    assert gpus.judge([GT1030], unread, None) == (Verdict("use"),)


@pytest.mark.skipif(find_spec("torch") is None, reason="NOT TESTED, for want of torch: its own compatibility table")
def test_torch_agrees_on_every_pair():
    program = """
import json, torch.cuda
table = torch.cuda.DEVICE_REQUIREMENT.items()
print(json.dumps([[code, device, device in needs] for code, needs in table for device in range(30, 130)]))
"""
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout
    pairs = json.loads(told)
    assert len(pairs) > 1000
    for code, device, expected in pairs:
        assert gpus.runs([f"sm_{code}"], f"{device // 10}.{device % 10}") is expected, (code, device)


@pytest.mark.parametrize(
    ("entry", "runs", "runs_not"),
    [
        ("sm_90a", "9.0", "10.0 8.9"),
        ("sm_100a", "10.0", "10.3 12.0"),
        ("sm_100f", "10.0 10.3", "9.0 10.1 12.0"),
        ("sm_120f", "12.0 12.1", "10.0"),
        ("compute_120", "12.0 12.1 13.0", "9.0 10.3"),
        ("compute_90a", "9.0", "10.0"),
        ("compute_70", "7.0 7.2 8.7 12.0", "6.1"),
        ("sm_101", "10.1 11.0", "10.0 10.3"),
        ("gfx942", "", "9.0 8.6"),
        ("sm_86", "8.6 8.9", "8.0 8.7 N/A 86"),
    ],
)
def test_suffixes_and_ptx(entry, runs, runs_not):
    assert [capability for capability in runs.split() if not gpus.runs([entry], capability)] == []
    assert [capability for capability in runs_not.split() if gpus.runs([entry], capability)] == []


def test_busy_cards_are_selected_only_where_all_are_busy():
    held = GpuProcess(1, "python", "ann", 20 * GIB)
    hidden = card("hidden", memory_free=2 * GIB)
    desktop = card("desktop", processes=(GpuProcess(2, "Xorg", "root", 2 * GIB, graphics=True),))
    small = card("small", processes=(GpuProcess(3, "python", "ann", GIB // 4),))
    taken = card("taken", processes=(held,))
    cards = [taken, hidden, desktop, small]
    assert [gpus.busy(gpu) for gpu in cards] == [True, True, False, False]
    assert gpus.recommended(cards, gpus.judge(cards)) == ("GPU-desktop", "GPU-small")
    assert gpus.recommended(cards[:2], gpus.judge(cards[:2])) == ("GPU-taken", "GPU-hidden")
    assert gpus.recommended([], ()) == ()


def test_one_instance_of_a_divided_card():
    instances = [msgspec.structs.replace(card(memory=size * GIB), uuid=f"MIG-{size}") for size in (20, 40, 30)]
    assert gpus.recommended(instances, gpus.judge(instances)) == ("MIG-40",)


def test_bf16_needs_every_card():
    assert gpus.supports_bf16([card(), card(capability="8.0")])
    assert not gpus.supports_bf16([card(), card(capability="7.5")])
    assert not gpus.supports_bf16([card(), card(capability=None)])
    assert gpus.supports_bf16([card(capability="10.0"), card(capability="12.1")])
    assert not gpus.supports_bf16([])
