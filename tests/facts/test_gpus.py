"""Which card can train with which PyTorch, on the machines of `tests/machines/` read by the real binding."""

import json
import subprocess
import sys
from importlib.util import find_spec

import msgspec
import pytest
from fake_driver import driver_environment
from support import set_variables

from tui_train.facts.gpus import gpu_sets
from tui_train.facts.gpus.capability import any_arch_runs_on, do_all_support_bf16
from tui_train.facts.gpus.verdicts import all_gpus_blocked_by_torch_sentence, gpu_verdicts
from tui_train.facts.machine import probe
from tui_train.facts.types import Gpu, GpuProcess, GpuVerdict, Toolchain

GIB = 2**30


def toolchain(torch=None, cuda=None, codes=()):
    return Toolchain(python="p", torch=torch, cuda=cuda, arch_list=tuple(f"sm_{code}" for code in codes))


TOOLCHAINS = {
    "cu118": toolchain("2.6.0+cu118", "11.8", (50, 60, 70, 75, 80, 86, 90)),
    "cu126": toolchain("2.13.0+cu126", "12.6", (50, 60, 70, 75, 80, 86, 90)),
    "cu128": toolchain("2.9.1+cu128", "12.8", (70, 75, 80, 86, 90, 100, 120)),
    "cu130": toolchain("2.13.0+cu130", "13.0", (75, 80, 86, 90, 100, 120)),
    "cpu": toolchain("2.13.0+cpu"),
    "none": toolchain(),
}

# A letter a card, in order: U use, S skip, B blocked; * = in the set to take at first; ~ = busy now.
TABLE = """
machine                   | cu118         | cu126     | cu128     | cu130     | cpu       | none
seed-3090-gt1030-3090     | U* S U*       | U* S U*   | U* B U*   | U* B U*   | B B B     | U* S U*
6000-ada                  | U*            | U*        | U*        | B         | B         | U*
lone-gtx1060              | U*            | U*        | B         | B         | B         | U*
laptop-4060               | U*            | U*        | U*        | U*        | B         | U*
4090-t400                 | S U*          | S U*      | S U*      | S U*      | B B       | S U*
5090-gtx1080ti            | B U*          | B U*      | U* B      | U* B      | B B       | U* S
p40-v100                  | S U*          | S U*      | B U*      | B B       | B B       | S U*
two-3090-one-busy         | U* U~         | U* U~     | U* U~     | U* U~     | B B~      | U* U~
two-3090-display-and-busy | U~ U*         | U~ U*     | U~ U*     | U~ U*     | B~ B      | U~ U*
a100-mig                  | S U U* B      | S U U* B  | S U U* B  | B B B B   | B B B B   | S U U* B
jetson-orin               | B             | B         | B         | B         | B         | U*
gb10                      | B             | B         | U*        | U*        | B         | U*
one-card-lost             | U* B U*       | U* B U*   | U* B U*   | U* B U*   | B B B     | U* B U*
one-card-hangs            | U* B U*       | U* B U*   | U* B U*   | U* B U*   | B B B     | U* B U*
one-card-no-permission    | U* B U*       | U* B U*   | U* B U*   | U* B U*   | B B B     | U* B U*
strange-names             | U* U* U* U* B | B B B B B | B B B B B | B B B B B | B B B B B | U* U* U* U* B
no-cards                  |               |           |           |           |           |
driver-not-loaded         |               |           |           |           |           |
version-mismatch          |               |           |           |           |           |
"""
HEAD, *ROWS = [[cell.strip() for cell in line.split("|")] for line in TABLE.strip().splitlines()]


def read(name, monkeypatch):
    set_variables(monkeypatch, driver_environment(name))
    return probe.probe_machine()


def shown(machine, wheel):
    """A cell of the table."""
    verdicts = gpu_verdicts(machine.gpus, TOOLCHAINS[wheel], machine.driver_cuda)
    assert all(verdict.kind == "use" or all(verdict.reasons) for verdict in verdicts)
    chosen = gpu_sets.recommended_uuids(machine.gpus, verdicts)
    return " ".join(
        verdict.kind[0].upper() + "*" * (bool(gpu.uuid) and gpu.uuid in chosen) + "~" * bool(verdict.busy)
        for gpu, verdict in zip(machine.gpus, verdicts, strict=True)
    )


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_verdicts(row, monkeypatch):
    machine = read(row[0], monkeypatch)
    assert [row[0], *(shown(machine, wheel) for wheel in HEAD[1:])] == row


def test_eight_and_sixty_four_cards(monkeypatch):
    eight = read("8xh100-nvlink", monkeypatch)
    for wheel, cell in ("cu118", "U*"), ("cu128", "U*"), ("cpu", "B"):
        assert shown(eight, wheel).split() == [cell] * 8
    assert shown(read("64-cards", monkeypatch), "cu126").split() == [*["U*"] * 40, "B", *["U*"] * 23]


def card(name="", memory=24 * GIB, sms=82, capability="8.6", **more):
    return Gpu(index=0, uuid=f"GPU-{name}", memory_total=memory, sm_count=sms, compute_capability=capability, **more)


def reasons(cards, wheel="cu126", driver_cuda="13.0"):
    return [" ".join(verdict.reasons) for verdict in gpu_verdicts(cards, TOOLCHAINS[wheel], driver_cuda)]


GT1030 = card("gt1030", 2 * GIB, 3, "6.1")
T400 = card("t400", 4 * GIB, 6, "7.5")
P40 = card("p40", 24 * GIB, 30, "6.1")
RTX5090 = card("5090", 32 * GIB, 170, "12.0")


def test_reasons_say_what_to_do():
    assert reasons([GT1030], "cu130") == [
        "this PyTorch (2.13.0+cu130) does not support compute capability 6.1: install torch 2.13 for CUDA 12.6"
    ]
    assert reasons([RTX5090], "cu126")[0].endswith(": install torch 2.13 for CUDA 13.0")
    assert reasons([RTX5090], "cu126", "12.8")[0].endswith(": install torch 2.13 for CUDA 12.9")
    assert "Jetson" in reasons([card(capability="8.7")], "cu130")[0]
    assert "no official torch" in reasons([card(capability="3.5")])[0]
    assert reasons([card()], "cpu") == ["this PyTorch has no CUDA"]
    assert reasons([card()], "cu130", "12.4") == [
        (
            "this PyTorch (2.13.0+cu130) needs a driver for CUDA 13, but the driver supports CUDA 12: "
            "update the driver, or install torch 2.13 for CUDA 12.9"
        )
    ]
    assert reasons([card()], "none") == ["not yet checked with a PyTorch"]
    assert reasons([card(), GT1030]) == ["", "display card: would slow the others (3 multiprocessors, not 82)"]
    assert reasons([card(), card(memory=8 * GIB)])[1] == "would limit the others (memory 8.0 GiB, not 24.0 GiB)"


@pytest.mark.parametrize(
    ("cards", "wheel", "kinds"),
    [
        pytest.param([GT1030, T400], "cu126", "S U", id="the better of two display cards"),
        pytest.param([T400, T400], "cu126", "U U", id="two equal display cards"),
        pytest.param([T400, RTX5090], "cu130", "S U", id="a display card that the wheel knows"),
        pytest.param([RTX5090, P40], "cu126", "B U", id="no wheel has both"),
        pytest.param([RTX5090, P40], "cu130", "U B", id="no wheel has both, the other way"),
        pytest.param([RTX5090, GT1030], "cu126", "B U", id="a blocked GPU has none skipped"),
        pytest.param([card(display_active=True), card()], "cu126", "U U", id="a monitor leaves no GPU out"),
        pytest.param([card(memory=None, sms=None), card()], "cu126", "U U", id="unknown is not zero"),
        pytest.param([card(capability=None)], "cu130", "U", id="unknown capability"),
        pytest.param([card(memory=12282 * 2**20), card()], "cu126", "U U", id="half, but for a few MiB"),
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
    verdicts = gpu_verdicts(cards, TOOLCHAINS[wheel], "13.0")
    assert " ".join(verdict.kind[0].upper() for verdict in verdicts) == kinds


def test_unknown_architectures_and_drivers_block_nothing():
    unread = msgspec.structs.replace(TOOLCHAINS["cu130"], arch_list=())
    assert gpu_verdicts([GT1030], unread, None) == (GpuVerdict("use"),)


@pytest.mark.skipif(find_spec("torch") is None, reason="NOT TESTED, for want of torch: its own compatibility table")
@pytest.mark.whole
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
        assert any_arch_runs_on([f"sm_{code}"], f"{device // 10}.{device % 10}") is expected, (code, device)


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
    assert [capability for capability in runs.split() if not any_arch_runs_on([entry], capability)] == []
    assert [capability for capability in runs_not.split() if any_arch_runs_on([entry], capability)] == []


def test_busy_cards_are_selected_only_where_all_are_busy():
    held = GpuProcess(1, "python", "ann", 20 * GIB)
    hidden = card("hidden", memory_free=2 * GIB)
    desktop = card("desktop", processes=(GpuProcess(2, "Xorg", "root", 2 * GIB, graphics=True),))
    small = card("small", processes=(GpuProcess(3, "python", "ann", GIB // 4),))
    taken = card("taken", processes=(held,))
    cards = [taken, hidden, desktop, small]
    assert [gpu_sets.is_busy(gpu) for gpu in cards] == [True, True, False, False]
    assert not gpu_sets.is_busy(card("shared", memory_free=2 * GIB, shares_memory=True)), "it is the host that is full"
    assert gpu_sets.recommended_uuids(cards, gpu_verdicts(cards)) == ("GPU-desktop", "GPU-small")
    assert gpu_sets.recommended_uuids(cards[:2], gpu_verdicts(cards[:2])) == ("GPU-taken", "GPU-hidden")
    assert gpu_sets.recommended_uuids([], ()) == ()


def test_one_instance_of_a_divided_card():
    instances = [msgspec.structs.replace(card(memory=size * GIB), uuid=f"MIG-{size}") for size in (20, 40, 30)]
    assert gpu_sets.recommended_uuids(instances, gpu_verdicts(instances)) == ("MIG-40",)


def test_bf16_needs_every_card():
    assert do_all_support_bf16([card(), card(capability="8.0")])
    assert not do_all_support_bf16([card(), card(capability="7.5")])
    assert not do_all_support_bf16([card(), card(capability=None)])
    assert do_all_support_bf16([card(capability="10.0"), card(capability="12.1")])
    assert not do_all_support_bf16([])


# Sets. Clocks are the makers' boost clocks, so that the speeds are those that they publish.


CARDS = {
    "1030": ("GeForce GT 1030", 2, 3, "6.1", 1468),
    "3080": ("GeForce RTX 3080", 10, 68, "8.6", 1710),
    "3090": ("GeForce RTX 3090", 24, 82, "8.6", 1695),
    "4090": ("GeForce RTX 4090", 24, 128, "8.9", 2520),
    "5090": ("GeForce RTX 5090", 32, 170, "12.0", 2407),
    "a100": ("A100-SXM4-80GB", 80, 108, "8.0", 1410),
    "a6000": ("RTX A6000", 48, 84, "8.6", 1800),
    "p40": ("Tesla P40", 24, 30, "6.1", 1531),
    "t1000": ("T1000 8GB", 8, 14, "7.5", 1395),
    "t4": ("Tesla T4", 16, 40, "7.5", 1590),
    "v100": ("Tesla V100-SXM2-32GB", 32, 80, "7.0", 1530),
}


def machine_of(words):
    made = []
    for number, (name, memory, sms, capability, clock) in enumerate(CARDS[word] for word in words.split()):
        one = card(name, memory * GIB, sms, capability, sm_clock_max=clock)
        made.append(msgspec.structs.replace(one, index=number, uuid=f"GPU-{name}-{number}", name=name))
    return made


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        pytest.param("3080 3080 3090", ["0 1 2: 179, 10", "2: 71, 24"], id="twice the memory or 2.5 times the speed"),
        pytest.param("4090 a6000", ["0 1: 310, 24", "1: 155, 48"], id="4090 and A6000"),
        pytest.param("5090 3090 3090 3090", ["0 1 2 3: 285, 24", "0: 210, 32"], id="a 5090 and three 3090"),
        pytest.param("3090 1030 3090", ["0 2: 142, 24"], id="two GPUs and one for the display"),
        pytest.param("4090 t1000", ["0: 165, 24"], id="4090 and T1000"),
        pytest.param("p40 v100", ["1: 125, 32"], id="P40 and V100"),
        pytest.param("3090 3090 a100", ["2: 312, 80"], id="one GPU that outdoes two"),
        pytest.param("3090 t4", ["0 1: 130, 16", "0: 71, 24"], id="a slower professional GPU"),
        pytest.param("1030", ["0: 1, 2"], id="all there is"),
        pytest.param("", [], id="no GPU"),
    ],
)
def test_sets(cards, expected):
    cards = machine_of(cards)
    verdicts = gpu_verdicts(cards, None)
    found = gpu_sets.rank_card_sets(cards, verdicts)
    shown = [
        f"{' '.join(uuid.rpartition('-')[2] for uuid in one.uuids)}: {one.speed:.0f}, {one.memory // GIB}"
        for one in found
    ]
    assert shown == expected
    assert [one.title for one in found] == ["fastest", "most memory"][: len(found)]
    assert gpu_sets.recommended_uuids(cards, verdicts) == (found[0].uuids if found else ())
    # What is not in the set that is taken at first is skipped, and the other way round.
    assert {card.uuid for card, verdict in zip(cards, verdicts, strict=True) if verdict.kind == "use"} == set(
        gpu_sets.recommended_uuids(cards, verdicts)
    )


def test_sets_say_what_they_gain():
    cards = machine_of("3080 3080 3090")
    fastest, roomiest = gpu_sets.rank_card_sets(cards, gpu_verdicts(cards))
    assert fastest.gain == "3 GPUs with 10.0 GiB each, 2.5 times as fast"
    assert roomiest.gain == "24.0 GiB each instead of 10.0 GiB, at 39 % of the speed"
    cards = machine_of("3090 t4")
    assert gpu_sets.rank_card_sets(cards, gpu_verdicts(cards))[0].gain.endswith(
        "no bf16, which some of them do not support"
    )


def test_a_slower_card_is_skipped_with_numbers():
    cards = machine_of("3090 p40 3090")
    verdict = gpu_verdicts(cards, TOOLCHAINS["cu126"])[1]
    assert verdict == GpuVerdict("skip", ("slower: the other 2 alone about 142 TFLOPS, with it 35",))
    assert reasons(machine_of("4090 p40"))[1] == "slower: the other GPU alone about 165 TFLOPS, with it 24"


def test_a_set_with_the_busy_cards_is_one_of_the_others():
    free, taken = machine_of("3090 3090")
    taken = msgspec.structs.replace(taken, processes=(GpuProcess(7, "python", "ann", 20 * GIB),))
    found = gpu_sets.rank_card_sets([free, taken], gpu_verdicts([free, taken]))
    assert [(one.title, one.uuids) for one in found] == [
        ("fastest", (free.uuid,)),
        ("with busy GPUs", (free.uuid, taken.uuid)),
    ]
    assert found[1].gain == "2 GPUs with 24.0 GiB each, once the busy GPUs are free"


def test_who_keeps_a_card_busy():
    def verdict(**more):
        return gpu_verdicts([card(**more)])[0]

    many = tuple(GpuProcess(number, "/usr/bin/python", "ann", number * GIB) for number in (1, 2, 3, 4))
    assert verdict().busy == ""
    assert verdict(processes=many).busy == (
        "ann: python (pid 4), 4096 MiB; ann: python (pid 3), 3072 MiB; ann: python (pid 2), 2048 MiB; 1 more"
    )
    nameless = (GpuProcess(9, "", "", None), GpuProcess(8, "Xorg", "root", GIB, graphics=True))
    assert verdict(processes=nameless).busy == "unknown user: ? (pid 9), unknown memory"
    assert verdict(memory_free=4 * GIB).busy == "a hidden process: 20480 MiB"
    assert verdict(processes=nameless[1:]).busy == ""


@pytest.mark.parametrize(
    ("cards", "wheel", "words"),
    [
        ("p40 v100", "cu130", "none of the 2 GPUs can be used: install torch 2.13 for CUDA 12.6"),
        ("5090", "cu126", "so the GPU cannot be used: install torch 2.13 for CUDA 13.0"),
        ("3090", "cpu", "This Python's PyTorch (2.13.0+cpu) has no CUDA, so the GPU cannot be used."),
        ("p40 3090", "cu130", ""),
        ("3090", "none", ""),
        ("", "cu130", ""),
    ],
)
def test_one_sentence_where_all_are_blocked(cards, wheel, words):
    cards = machine_of(cards)
    found = all_gpus_blocked_by_torch_sentence(cards, gpu_verdicts(cards, TOOLCHAINS[wheel]), TOOLCHAINS[wheel], "13.0")
    assert words in found
    assert bool(found) == bool(words)


def test_a_lost_card_is_not_blamed_on_the_wheel():
    lost = Gpu(index=1, problem="lost")
    assert (
        all_gpus_blocked_by_torch_sentence([lost], gpu_verdicts([lost], TOOLCHAINS["cu126"]), TOOLCHAINS["cu126"], None)
        == ""
    )
    cards = [lost, *machine_of("p40")]
    verdicts = gpu_verdicts(cards, TOOLCHAINS["cu130"])
    assert "CUDA 12.6" in all_gpus_blocked_by_torch_sentence(cards, verdicts, TOOLCHAINS["cu130"], "13.0")
