"""What the probes find out, through the real binding and real children, on fake machines and broken interpreters."""

import itertools
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import msgspec
import psutil
import pytest
from ssh import survey_with_python
from support import make_executable, old_python, sample, set_variables, wait_until

from tests.fake_driver import MACHINES_FOLDER, driver_environment
from tui_train.facts.machine import child_memory_limit, probe, trusted_pythons
from tui_train.facts.machine.child_process import ChildResult, run_child
from tui_train.facts.other_machines.remote import CARDS_SURVEY_QUESTION, surveyed_machine
from tui_train.facts.other_machines.training_hosts import probe_hosts
from tui_train.facts.types import Gpu, PcieLink, Toolchain
from tui_train.runner.gpus import nvml, pci
from tui_train.runner.system import cgroup_limits, host_facts, numa, safe_text
from tui_train.runner.system.cgroup_limits import CgroupLimits

MIB = 2**20


@pytest.fixture
def on(monkeypatch, tmp_path):
    """Return a function that puts NVML on a machine, given by its name or by its text, and returns what is found."""

    def read(machine, deadline=8.0):
        if "=" in machine:
            (tmp_path / "machine.txt").write_text(machine)
            machine = tmp_path / "machine.txt"
        set_variables(monkeypatch, driver_environment(machine))
        return probe.probe_machine(deadline)

    return read


def gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


# Cards


@pytest.mark.whole
@pytest.mark.parametrize("python", [sys.executable, "the oldest"])
@pytest.mark.parametrize("machine", sample(["two-3090-one-busy", "a100-mig", "one-card-hangs", "strange-names"], 2))
def test_the_runner_alone_reads_the_cards_of_a_host_as_this_machine_reads_its_own(on, machine, python):
    if python != sys.executable and not (python := old_python()):
        pytest.skip("NOT TESTED, for want of Python 3.8: how it reads NVIDIA cards")
    question = {"probe": "", "hub": "", **CARDS_SURVEY_QUESTION}
    survey = survey_with_python(python, question, driver_environment(machine))
    found, here = surveyed_machine("there", survey), on(machine)
    assert here.gpus
    assert (found.gpus, found.driver_version, found.driver_cuda) == (here.gpus, here.driver_version, here.driver_cuda)
    names = ("shm_total", "shm_file_system", "max_open_files", "max_locked_bytes", "numa_nodes", "rdma_devices")
    assert [getattr(found, name) for name in names] == [getattr(here, name) for name in names]
    assert survey.smi is None


@pytest.mark.parametrize("machine", ["load-hangs", "version-mismatch"])
def test_a_host_whose_driver_library_fails_is_asked_by_nvidia_smi(tmp_path, machine):
    make_executable(
        tmp_path / "nvidia-smi", "#!/bin/sh\necho '0, GPU-1, A, 00000000:01:00.0, 8.6, 9, 9, Disabled, 580.1'\n"
    )
    variables = driver_environment(machine) | {"PATH": f"{tmp_path}:/bin:/usr/bin"}
    question = {"probe": "", "hub": "", **CARDS_SURVEY_QUESTION, "cards": 1.0}
    survey = survey_with_python(sys.executable, question, variables)
    assert (survey.cards, survey.knows_cards) == (None, True)
    assert [gpu.name for gpu in surveyed_machine("there", survey).gpus] == ["A"]


def test_three_cards_are_read(on):
    machine = on("seed-3090-gt1030-3090")
    assert (machine.driver_version, machine.driver_cuda, machine.gaps) == ("580.95.05", "13.0", ())
    first, display, last = machine.gpus
    assert first == Gpu(
        index=0,
        uuid="GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60",
        name="NVIDIA GeForce RTX 3090",
        pci_bus="00000000:01:00.0",
        compute_capability="8.6",
        memory_total=24576 * MIB,
        memory_free=(24576 - 325 - 2) * MIB,
        sm_count=82,
        sm_clock_max=2100,
        display_active=False,
        compute_mode="default",
    )
    assert (display.index, display.sm_count, display.display_active) == (1, 3, True)
    assert [(p.name, p.memory, p.graphics) for p in display.processes] == [
        ("/usr/lib/xorg/Xorg", 190 * MIB, True),
        ("/usr/bin/gnome-shell", 84 * MIB, True),
    ]
    assert last.uuid == "GPU-ff67d0d7-648f-d302-c50e-49297407cd04"
    assert machine.hostname
    assert machine.memory_total > 0


def test_names_are_kept_as_read_and_nonsense_stays_in_its_field(on):
    machine = on("strange-names")
    assert machine.driver_cuda == "11.4"
    markup, bytes_, wide, long, nameless = machine.gpus
    assert markup.name == "[bold red]$(touch /tmp/owned)[/] \x1b[2J\x07`id`"
    assert bytes_.name == "RTX \ufffd\ufffd 3090"
    assert (bytes_.memory_total, bytes_.memory_free) == (24576 * MIB, 24176 * MIB)  # by the first memory call
    assert (bytes_.sm_count, bytes_.compute_capability) == (None, "8.6")
    assert wide.name.startswith("\u202e0903 XTR")
    assert long == Gpu(index=3, uuid="GPU-00000000-0000-4000-8000-000000000004")
    assert (nameless.uuid, nameless.problem) == ("", "the driver reports no UUID for it")


# Of each line of a machine, the field that it fills, and a value.
FIELDS = {
    "name": ("name", "A"), "bus": ("pci_bus", "00000000:01:00.0"), "compute": ("compute_capability", "8.6"),
    "memory": ("memory_total", "1024 MiB"), "cores": ("sm_count", "1280"), "display": ("display_active", "on"),
    "mode": ("compute_mode", "default"), "process": ("processes", "5000001 compute 5 MiB x"),
    "clock": ("sm_clock_max", "1500"), "ecc": ("ecc", "on"), "throttle": ("throttled_by", "0x4"),
    "pcie": ("pcie", "1 x8 of 4 x16"), "nvlinks": ("nvlinks", "4"), "peers": ("peers", "0"),
    "ecc_errors": ("uncorrected_errors", "2"), "repair": ("repair", "failed"),
}  # fmt: skip


@pytest.mark.parametrize("error", ["UNKNOWN", "NO_PERMISSION", "GPU_IS_LOST"])
def test_each_field_fails_alone(on, error):
    whole = {key: value for key, (_, value) in FIELDS.items()}
    text = "driver = !UNKNOWN\ncuda = !UNKNOWN\n"
    for number, field in enumerate(FIELDS):
        lines = {"uuid": f"GPU-{number}", **whole, field: f"!{error}"}
        text += "[card]\n" + "".join(f"{key} = {value}\n" for key, value in lines.items())
    machine = on(text)
    assert (machine.driver_version, machine.driver_cuda, machine.gaps) == (None, None, ())
    fields = {field for field, _ in FIELDS.values()}
    for gpu, (key, (field, _)) in zip(machine.gpus, FIELDS.items(), strict=True):
        # One pair of which nothing is known leaves all pairs unknown: a half-known table would say too much.
        empty = {other for other in fields if not getattr(gpu, other)} - {"peers"}
        # The number of multiprocessors follows from the compute capability.
        assert empty == {field, *(["sm_count"] if key == "compute" else [])} - {"peers"}
        assert bool(gpu.problem) == (error == "GPU_IS_LOST" and key != "peers")


def test_a_lost_card_hides_no_other(on):
    first, lost, last = on("one-card-lost").gpus
    assert lost == Gpu(index=1, problem=lost.problem)
    assert lost.problem
    assert first.memory_total == last.memory_total == 24576 * MIB
    assert not first.problem


@pytest.mark.parametrize("name", ["gb10", "jetson-orin"])
def test_a_chip_without_memory_of_its_own_has_the_hosts(on, name):
    found = on(name)
    assert [(gpu.shares_memory, gpu.memory_total) for gpu in found.gpus] == [(True, found.memory_total)]
    assert not any(gpu.shares_memory for gpu in on("seed-3090-gt1030-3090").gpus)


def test_clocks_and_links(on):
    cards = on("8xh100-nvlink").gpus
    assert cards[3].peers == (0, 1, 2, 4, 5, 6, 7)
    assert [(card.nvlinks, card.sm_clock_max, card.ecc, card.pcie) for card in cards] == [
        (18, 1980, True, PcieLink(5, 16, 5, 16))
    ] * 8
    assert {card.throttled_by for card in cards} == {()}  # idle is no throttling
    slowed, idle = on("two-3090-display-and-busy").gpus
    assert slowed.throttled_by == ("the power limit", "heat")
    assert (idle.throttled_by, idle.pcie, idle.peers) == ((), PcieLink(1, 16, 4, 16), None)
    assert (slowed.ecc, slowed.nvlinks, slowed.numa_node) == (None, None, None)


def test_limits_and_errors_of_cards(on):
    cards = ("ecc_errors = 0\nrepair = none\npower_limit = 350 of 350", "repair = failed", "repair = retired", "")
    found = on("".join(f"[card]\nuuid = GPU-{number}\n{lines}\n" for number, lines in enumerate(cards)))
    assert [
        (card.uncorrected_errors, card.repair, card.power_limit, card.power_limit_default) for card in found.gpus
    ] == [(0, "none", 350, 350), (None, "failed", None, None), (None, "pending", None, None), (None, None, None, None)]


def test_lanes_of_a_slot(tmp_path):
    port = tmp_path / "0000:00:01.0"
    card = port / "0000:01:00.0"
    card.mkdir(parents=True)
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / card.name).symlink_to(card)
    (port / "current_link_width").write_text("4\n")
    (port / "max_link_width").write_text("16\n")
    address = "00000000:01:00.0"
    widths = [pci.read_slot_width(address, width, tmp_path / "bus") for width in (4, 16, None)]
    assert widths == [16, None, None], "a port of another width is not the card's"
    assert pci.read_slot_width("00000000:02:00.0", 4, tmp_path / "bus") is None


def test_numa_nodes(tmp_path):
    for name, node in (("0000:01:00.0", "1"), ("0000:02:00.0", "-1"), ("0000:03:00.0", "rubbish")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(f"{node}\n")
    addresses = ("00000000:01:00.0", "00000000:02:00.0", "00000000:03:00.0", "00000000:04:00.0", "../x", "", None)
    assert [pci.read_numa_node(address, tmp_path) for address in addresses] == [1, None, None, None, None, None, None]


def test_a_hanging_card_hides_and_delays_no_other(on):
    first, silent, last = on("one-card-hangs").gpus
    assert (silent.name, silent.uuid[-1], silent.memory_total) == ("NVIDIA GeForce RTX 3090", "2", None)
    assert silent.problem.startswith("it does not respond")
    assert (first.problem, last.problem, last.sm_clock_max) == ("", "", 2100)


@pytest.mark.whole
@pytest.mark.parametrize("field", sample(["handle", "uuid", "process", "peers"], 2))
def test_a_card_may_hang_anywhere(on, field):
    hanging = f"{field} = !HANG\n" + ("" if field == "uuid" else "uuid = GPU-1\n")
    cards = f"[card]\nuuid = GPU-0\n[card]\n{hanging}[card]\nuuid = GPU-2\n"
    found = on(cards, deadline=4.0)
    # Only a pair of cards that hangs leaves each of them as it is.
    assert [bool(gpu.problem) for gpu in found.gpus] == [False, field != "peers", False]
    assert found.gaps == ()


WATCHER = """
import sys, pynvml
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(1)
print(pynvml.nvmlDeviceGetName(card), flush=True)
sys.stdin.readline()
try:
    pynvml.nvmlDeviceGetName(card)
except pynvml.NVMLError as error:
    print(error.value == pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.nvmlDeviceGetCount())
"""


def test_a_card_that_is_lost_under_a_running_program(on, tmp_path):
    text = (MACHINES_FOLDER / "two-3090-one-busy.txt").read_text()
    assert [card.problem for card in on(text).gpus] == ["", ""]
    command = [sys.executable, "-c", WATCHER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as watcher:
        assert watcher.stdout.readline() == "NVIDIA GeForce RTX 3090\n"
        head, _, second = text.rpartition("[card]\n")
        lost = "".join(f"{line.partition('=')[0]}= !GPU_IS_LOST\n" for line in second.splitlines())
        (tmp_path / "next.txt").write_text(f"{head}[card]\nhandle = !GPU_IS_LOST\n{lost}")
        (tmp_path / "next.txt").rename(tmp_path / "machine.txt")
        assert watcher.communicate("\n")[0] == "True 2\n"
    first, second = probe.probe_machine().gpus
    assert (first.problem, first.memory_total) == ("", 24576 * MIB)
    assert "lost" in second.problem


def test_processes_of_both_kinds_are_one(on):
    process = psutil.Process()
    (gpu,) = on("""
[card]
uuid = GPU-1
process = parent both 700 MiB something else
process = 5000001 compute ? python train.py
process = 5000002 graphics 3 MiB Xorg
""").gpus
    mine, training, desktop = gpu.processes
    assert (mine.pid, mine.name, mine.user) == (process.pid, process.name(), process.username())
    assert (mine.memory, mine.graphics) == (700 * MIB, True)
    assert (training.name, training.user, training.memory, training.graphics) == ("python train.py", "", None, False)
    assert desktop.graphics


def test_instances_of_a_divided_card(on):
    small, large, whole, empty = on("a100-mig").gpus
    assert (small.index, small.uuid[:4], small.sm_count, small.memory_total) == (0, "MIG-", 28, 19968 * MIB)
    assert (large.sm_count, large.compute_capability, large.pci_bus) == (42, "8.0", "00000000:07:00.0")
    assert (whole.sm_count, whole.compute_mode) == (108, "exclusive")
    assert "MIG mode is on" in empty.problem


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ("driver-not-loaded", "The NVIDIA driver is not loaded"),
        ("version-mismatch", "The NVIDIA driver was updated: reboot needed"),
        ("no-cards", "No NVIDIA GPU"),
        ("init = !NO_PERMISSION", "No permission for the NVIDIA driver"),
        ("init = !UNKNOWN", "The NVIDIA driver does not start"),
        ("count = !UNKNOWN", "The NVIDIA driver cannot list its GPUs"),
        ("what = is this", "The NVIDIA GPUs cannot be read"),
    ],
)
def test_without_cards_a_gap_says_why(on, machine, words):
    found = on(machine)
    assert found.gpus == ()
    assert words in [gap.what for gap in found.gaps]
    assert all(gap.what and gap.why and gap.remedy for gap in found.gaps)
    assert machine != "what = is this" or found.gaps[0].why.endswith("code 70: fake NVML: unknown key: what")
    assert found.memory_total


# The child is told three quarters of the deadline, by which it is known: each has its own, for both run at a time.
@pytest.mark.parametrize(("machine", "deadline", "told"), [("init-hangs", 1.37, "1.03"), ("load-hangs", 1.44, "1.08")])
def test_a_driver_that_hangs_costs_the_cards_only(on, machine, deadline, told):
    found = on(machine, deadline=deadline)
    assert (found.gpus, bool(found.hostname), bool(found.memory_total)) == ((), True, True)
    assert [("not respond" in gap.what or "in time" in gap.what) for gap in found.gaps] == [True]
    assert not [p for p in psutil.process_iter(["cmdline"]) if told in (p.info["cmdline"] or [])]


def test_the_child_itself_does_not_wait_for_the_driver():
    command = [sys.executable, "-m", "tui_train.facts.machine.machine_child", "0.5"]
    answer = run_child(command, 60, {**driver_environment("init-hangs"), "PYTHONPATH": str(Path(__file__).parents[2])})
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert (found["cards"], found["machine"]["memory_total"] > 0) == (None, True)


def test_a_slow_driver_and_a_slow_card_are_waited_for(on):
    cards = on("init = @0.3 ok\n[card]\nuuid = GPU-0\n[card]\nuuid = GPU-1\nname = @0.5 Slow\n").gpus
    assert [(card.name, card.problem) for card in cards] == [("", ""), ("Slow", "")]


def test_no_library_at_all(monkeypatch):
    monkeypatch.setattr(nvml.pynvml, "nvmlLib", None)
    monkeypatch.setattr(nvml.pynvml, "CDLL", lambda name: (_ for _ in ()).throw(OSError(name)))
    (gap,) = nvml.read_cards()["gaps"]
    assert "libnvidia-ml.so.1" in gap["why"]


def pci_tree(root, **devices):
    for number, (vendor, class_, driver) in enumerate(devices.values(), 1):
        folder = root / f"0000:{number:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(vendor + "\n")
        (folder / "class").write_text(class_ + "\n")
        (folder / "device").write_text("0x1d01\n")
        if driver:
            (root / "drivers" / driver).mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(root / "drivers" / driver)


def test_cards_without_driver_are_named(tmp_path):
    pci_tree(
        tmp_path,
        shown=("0x10de", "0x030000", "nvidia"),
        sound=("0x10de", "0x040300", "snd"),
        other=("0x1002", "0x030000", "amdgpu"),
        undriven=("0x10de", "0x030000", ""),
        passed_on=("0x10de", "0x030200", "vfio-pci"),
        lost=("0x10de", "0x030200", "nvidia"),
    )
    pci_tree(tmp_path / "function", virtual=("0x10de", "0x030200", "nvidia"))
    (tmp_path / "function" / "0000:01:00.0" / "physfn").mkdir()
    assert pci.read_pci_cards(tmp_path / "function") == ()
    cards = pci.read_pci_cards(tmp_path)
    assert [card.address[5:7] for card in cards] == ["01", "04", "05", "06"]
    undriven, passed_on, lost = pci.unlisted_card_gaps(cards, ["00000000:01:00.0"])
    assert undriven.what == "1 NVIDIA GPU without driver: 0000:04:00.0 (10de:1d01)"
    assert "vfio-pci" in passed_on.why
    assert "0000:06:00.0" in lost.what
    assert pci.unlisted_card_gaps(cards, ["00000000:01:00.0", None]) == (undriven, passed_on)
    assert pci.unlisted_card_gaps(cards, ["00000000:41:00.0"]) == ()  # NVML speaks of another bus
    assert len(pci.unlisted_card_gaps(cards, [])) == 4


@pytest.mark.parametrize(
    ("release", "inside", "cards", "words"),
    [
        ("6.1", False, (), "No NVIDIA GPU"),
        ("6.1", False, (pci.PciCard("0000:01:00.0", "10de:2204", ""),), "The NVIDIA driver is not installed"),
        ("6.1", True, (), "No NVIDIA GPU is visible here"),
        ("6.1", True, (pci.PciCard("0000:01:00.0", "10de:2204", ""),), "This container was started without GPUs"),
        ("5.15-microsoft-standard-WSL2", False, (), "The NVIDIA driver is not visible in WSL"),
    ],
)
def test_a_missing_library_has_five_causes(monkeypatch, release, inside, cards, words):
    monkeypatch.setattr(pci.platform, "release", lambda: release)
    monkeypatch.setattr(pci, "is_in_container", lambda: inside)
    gap = pci.nvml_failure_gap("library", "", cards)
    assert gap.what == words
    assert ("0000:01:00.0 (10de:2204)" in gap.why) == bool(cards)


@pytest.mark.parametrize(
    ("mark", "variables", "remedy"),
    [
        ("/.dockerenv", {}, "`docker run --gpus all ...`"),
        ("/run/.containerenv", {}, "`podman run --device nvidia.com/gpu=all ...`"),
        ("/.dockerenv", {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "for the pod"),
        ("", {"container": "lxc"}, "where the container is configured"),
    ],
)
def test_a_container_without_gpus_is_told_of_what_started_it(monkeypatch, mark, variables, remedy):
    monkeypatch.setattr(pci.Path, "exists", lambda path: str(path) == mark)
    monkeypatch.setattr(pci, "_is_host_or_virtual_machine", lambda: False)
    for name in ("container", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    set_variables(monkeypatch, variables)
    gap = pci.nvml_failure_gap("library", "", ())
    assert gap.what == "No NVIDIA GPU is visible here"
    assert remedy in gap.remedy
    assert ("docker" in gap.remedy) == ("docker" in remedy)


@pytest.mark.parametrize(
    ("namespace", "device_kind", "inside"),
    [
        ("pid:[4026531836]", "devtmpfs", False),  # a virtual machine made of an image
        ("pid:[4026532417]", "tmpfs", True),
        ("pid:[4026531836]", "tmpfs", True),  # --pid=host
        ("pid:[4026532417]", "devtmpfs", True),  # --volume /dev:/dev
        ("", "", True),  # /proc is not mounted
    ],
)
def test_a_machine_made_of_an_image_is_no_container(tmp_path, monkeypatch, namespace, device_kind, inside):
    if namespace:
        (tmp_path / "ns").mkdir()
        (tmp_path / "ns" / "pid").symlink_to(namespace)
        (tmp_path / "mounts").write_text(f"proc /proc proc rw 0 0\n{device_kind} /dev {device_kind} rw,nosuid 0 0\n")
    monkeypatch.setattr(pci, "_is_host_or_virtual_machine", partial(pci._is_host_or_virtual_machine, tmp_path))
    monkeypatch.setattr(pci.Path, "exists", lambda path: str(path) == "/.dockerenv")
    for name in ("container", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert pci.is_in_container() == inside


# The host


def cgroup(root: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """Where a process reads its own groups, and the file system of all groups."""
    (root / "own").write_text(own)
    for name, text in files.items():
        (root / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "fs" / name).write_text(text)
    return root / "own", root / "fs"


V2 = {
    "cpu.max": "150000 100000\n", "memory.max": "2000000\n", "memory.current": "5", "pids.max": "100\n",
    "pids.current": "30\n", "job/cpu.max": "max 100000\n", "job/memory.max": "1000000\n",
    "job/memory.current": "600000\n", "job/memory.stat": "anon 1\ninactive_file 200000\nactive_file 7\n",
    "job/pids.max": "max\n", "job/pids.current": "9\n",
}  # fmt: skip
# In a container that sees only its top.
V1_GROUPS = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:pids:/x\n1:name=systemd:/x\n0::/\n"
V1 = {
    "memory/memory.limit_in_bytes": "3000\n", "memory/memory.usage_in_bytes": "1000\n",
    "memory/memory.stat": "total_inactive_file 400\n", "cpu,cpuacct/cpu.cfs_quota_us": "50000\n",
    "cpu,cpuacct/cpu.cfs_period_us": "100000\n", "pids/x/pids.max": "64\n", "pids/x/pids.current": "65\n",
}  # fmt: skip
HUGE = {"memory/memory.limit_in_bytes": "9223372036854771712\n", "memory/memory.usage_in_bytes": "1000\n"}


@pytest.mark.parametrize(
    ("own", "files", "limits"),
    [
        # The tightest on the way up.
        ("0::/user/job\n", {f"user/{name}": text for name, text in V2.items()}, CgroupLimits(1.5, 1000000, 600000, 70)),
        (V1_GROUPS, V1, CgroupLimits(0.5, 3000, 2400, 0)),
        *(
            ("4:memory:/\n3:cpu:/\nrubbish\n", files, CgroupLimits())
            for files in (
                HUGE,
                {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
                {"memory/memory.limit_in_bytes": "rubbish\n"},
                {},
            )
        ),
    ],
)
def test_limits_of_groups(tmp_path, own, files, limits):
    own_groups, all_groups = cgroup(tmp_path, own, files)
    assert cgroup_limits.cgroup_limits(own_groups, all_groups) == limits
    assert cgroup_limits.cgroup_limits(tmp_path / "missing", all_groups) == CgroupLimits()


@pytest.mark.parametrize(
    ("own", "files", "kills"),
    [
        ("4:memory:/a\n0::/\n", {"memory/a/memory.oom_control": "under_oom 0\noom_kill 2\n"}, 2),
        # A container of version 1 sees its own group as the top; another group of it may have had the kill.
        ("4:memory:/a\n", {"memory/memory.oom_control": "oom_kill 2\n"}, 2),
        ("4:memory:/a\n", {"memory/a/memory.oom_control": "oom_kill 0\n"}, None),
        ("0::/user/1\n", {"user/1/memory.events": "oom 9\noom_kill 3\n", "user/memory.events": "oom_kill 4\n"}, 3),
        ("0::/user/1\n", {"user/1/memory.events": "oom_kill 0\n", "user/memory.events": "oom_kill 0\n"}, 0),
        # In another session, or as a service.
        ("0::/user/1\n", {"user/1/memory.events": "oom_kill 0\n", "user/memory.events": "oom_kill 4\n"}, None),
        ("0::/user/1\n", {"user/1/memory.events": "oom_kill 0\n", "job/memory.events": "oom_kill 4\n"}, None),
        ("0::/\nrubbish\n", {"memory.events": "oom_kill x\n\noom_kill\n"}, None),
        ("0::/\n", {}, None),
    ],
)
def test_kills_for_lack_of_memory_are_counted_where_they_are_known(tmp_path, own, files, kills):
    assert cgroup_limits.count_oom_kills(*cgroup(tmp_path, own, files)) == kills


def test_usable_cpus(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert [host_facts.count_usable_cpus(quota) for quota in (None, 0.2, 1.5, 64.0)] == [8, 1, 2, 8]


def test_limits_reach_the_machine(monkeypatch):
    monkeypatch.setattr(host_facts, "cgroup_limits", lambda: CgroupLimits(1.0, 5 * MIB, 2 * MIB))
    found = host_facts.read_machine_facts()
    assert (found["cpu_count"], found["memory_total"], found["memory_available"]) == (1, 5 * MIB, 2 * MIB)
    assert found.get("shm_total") is None or found["shm_total"] >= found["shm_free"] >= 0


def test_shared_memory(tmp_path):
    mounts = "1 0 0:1 / / rw - overlay overlay rw\n2 1 0:5 / /dev rw shared:2 - devtmpfs udev rw\nrubbish\n"
    (tmp_path / "mounts").write_text(mounts + f"3 2 0:6 / {tmp_path}/no\\040one rw - tmpfs shm rw\n")
    (tmp_path / "no one").mkdir(mode=0o555)
    found = host_facts.read_shared_memory_facts(str(tmp_path / "no one"), tmp_path / "mounts")
    assert found["shm_total"] >= found["shm_free"] > 0
    assert found["shm_file_system"] == "tmpfs"
    assert bool(found["shm_problem"]) == (os.geteuid() != 0), "root may write anywhere"
    (tmp_path / "mounts").write_text(mounts)
    assert host_facts.read_shared_memory_facts(str(tmp_path), tmp_path / "mounts")["shm_file_system"] == "overlay"
    assert host_facts.read_shared_memory_facts("/proc/none") == {"shm_problem": "does not exist"}


def test_nodes_of_a_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 9})
    for number, (cpus, memory) in enumerate((("0-3,8-9", 100), ("4-7", 0), ("", 100))):
        node = tmp_path / f"node{number}"
        node.mkdir()
        (node / "cpulist").write_text(f"{cpus}\n")
        (node / "meminfo").write_text(f"\nNode {number} MemTotal:       {memory} kB\nNode {number} MemFree: 1 kB\n")
    nodes = [tuple(node.values()) for node in numa.read_numa_nodes(tmp_path)]
    assert nodes == [(0, True, 6, 3), (1, False, 4, 0), (2, True, 0, 0)]
    (tmp_path / "node1" / "cpulist").write_text("rubbish\n")
    assert numa.read_numa_nodes(tmp_path) == [], "half of them would say too much"
    assert numa.read_numa_nodes(tmp_path / "missing") == []


def test_active_devices_of_infiniband(tmp_path):
    for name, state in (("mlx5_1", "4: ACTIVE"), ("mlx5_0", "4: ACTIVE"), ("mlx5_2", "1: DOWN")):
        (tmp_path / name / "ports" / "1").mkdir(parents=True)
        (tmp_path / name / "ports" / "1" / "state").write_text(f"{state}\n")
    assert host_facts.read_rdma_devices(tmp_path) == ["mlx5_0", "mlx5_1"]
    assert host_facts.read_rdma_devices(tmp_path / "missing") == []


def test_a_clock_that_is_behind(tmp_path):
    (tmp_path / "installed").touch()
    files = [str(tmp_path / name) for name in ("installed", "missing")]
    assert host_facts.read_clock_lag(files) < 60
    os.utime(tmp_path / "installed", (2e9, 2e9))
    assert host_facts.read_clock_lag(files) > 60
    assert host_facts.read_clock_lag([]) == 0


def test_limits_of_a_process():
    read = "from tui_train.runner.system.process_limits import read_process_limits as r; print(*r(5).values())"
    words = ("bash", "-c", 'ulimit -n 77 && exec "$0" "$@"', sys.executable, "-c", read)
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    files, _, tasks = done.stdout.split()
    assert (files, tasks) == ("77", "5")


def test_names_that_are_no_utf8(tmp_path):
    (tmp_path / "cpuinfo").write_bytes(b"processor : 0\nmodel name\t: AMD \xff 7742: big\nmodel name : second\n")
    assert host_facts.read_cpu_name(tmp_path / "cpuinfo") == "AMD \ufffd 7742: big"
    assert host_facts.read_cpu_name(tmp_path / "missing")
    assert safe_text.as_valid_utf8("a\udcffb") == "a\ufffdb"


# Children


def test_a_hostile_folder_is_not_imported(on, monkeypatch, tmp_path):
    hostile = tmp_path / "hostile"
    trap = f"open({str(tmp_path / 'sprung')!r}, 'a').write(__name__ + chr(10))\n"
    for name in ("psutil", "pynvml", "msgspec", "json", "re", "ast", "pathlib", "platform", "torch", "sitecustomize"):
        make_executable(hostile / f"{name}.py", trap)
    make_executable(hostile / "tui_train" / "__init__.py", trap)
    expected = probe.probe_toolchain(sys.executable)
    monkeypatch.chdir(hostile)
    # `python -m tui_train`, started there, has that folder on its own path.
    monkeypatch.setattr(sys, "path", [str(hostile), *sys.path])
    assert [gpu.name for gpu in on("6000-ada").gpus] == ["NVIDIA RTX 6000 Ada Generation"]
    assert probe.probe_toolchain(sys.executable) == expected
    assert not expected.problem
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\necho oh no >&2; exit 3\n", "it ended with exit code 3: oh no"),
        ("#!/bin/sh\nkill -SEGV $$\n", "it was ended by signal 11"),
        ("#!/bin/sh\necho hello; echo '[1, 2]'\n", "no usable answer"),
        ('#!/bin/sh\necho \'{"prefix": 5, "executable": "", "toolchain": {"python": 7}}\'\n', "no usable answer"),
        ("#!/bin/sh\nprintf '\\377\\376\\0'\n", "no usable answer"),
        ("#!/bin/sh\nexec cat /dev/zero\n", "it wrote more than 1 MiB"),
        ('#!/bin/sh\necho "SyntaxError: invalid syntax" >&2; exit 1\n', "it is older than Python 3.8"),
        ("#!/no/such/interpreter\n", "cannot be started: No such file or directory"),
        ("\x00\x01\x02", "cannot be started: Exec format error"),
    ],
)
def test_a_broken_interpreter_is_a_problem(tmp_path, script, words):
    python = str(make_executable(tmp_path / "python", script))
    found = probe.probe_toolchain(python)
    assert found == Toolchain(python=python, problem=found.problem)
    assert found.problem.startswith(words)


def test_a_child_has_a_bound_of_memory_and_ends_before_a_training():
    limit = child_memory_limit.memory_limit_for_reading()
    hungry = run_child([sys.executable, "-c", f"import time; time.sleep(0.1); bytearray({2 * limit})"], 20)
    assert hungry.why_unusable() == f"it took more than the {limit / 2**30:.0f} GiB of memory that it may"
    assert run_child(["sh", "-c", "sleep 0.1; cat /proc/$$/oom_score_adj"], 20).stdout == b"1000\n"


@pytest.mark.parametrize("total", [2**30, 2**33, 2**36, 2**40, None])
def test_reading_may_take_half_of_a_small_machine(monkeypatch, total):
    monkeypatch.setattr(child_memory_limit, "usable_memory_total", lambda: total)
    threads = 2**24 * (os.cpu_count() or 1)
    assert child_memory_limit.memory_limit_for_reading.__wrapped__() - threads == (
        2 << 30 if total == 2**30 else 4 << 30
    )


def test_loading_may_take_several_times_the_weights(tmp_path):
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2**37)
    assert child_memory_limit.memory_limit_for_loading((str(tmp_path), "/no/folder", ""), uses_cuda=False) > 2**39


def test_an_interpreter_that_is_none(tmp_path):
    (tmp_path / "python").write_text("no program")
    for python, problem in (tmp_path / "python", "not executable"), ("no-such-python-anywhere", "No such file"):
        assert problem in probe.probe_toolchain(str(python)).problem
    assert probe.probe_toolchain("/bin/ls").problem == "it is not a Python"


def test_an_interpreter_that_hangs_is_killed_with_all_it_started(tmp_path):
    python = make_executable(
        tmp_path / "python", f"#!/bin/sh\necho $$ > {tmp_path}/own\nsleep 100 &\necho $! > {tmp_path}/child\nwait\n"
    )
    assert probe.probe_toolchain(str(python), deadline=0.7).problem == "no answer in time"
    wait_until(lambda: all(gone(int((tmp_path / name).read_text())) for name in ("own", "child")))


def test_an_answer_is_not_held_up_by_what_the_child_left_behind(tmp_path):
    answer = run_child(["/bin/sh", "-c", f"sleep 100 & echo $! > {tmp_path}/child; echo done"], 90)
    assert (answer.stdout, answer.exit_code, answer.timed_out) == (b"done\n", 0, False)
    wait_until(lambda: gone(int((tmp_path / "child").read_text())))


def test_an_ending_is_waited_for():
    answer = run_child(["/bin/sh", "-c", "exec >&- 2>&-; sleep 0.3; exit 3"], 20)
    assert (answer.exit_code, answer.failure) == (3, "")


# Toolchains


def environment(folder: Path, torch="", cuda="", flags="", packages=()) -> Path:
    """Make a virtual environment in which `torch`, a text file or two, and the metadata of `packages` are installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in packages:
        make_executable(site / name / "__init__.py", "raise SystemExit('imported')")
        make_executable(
            site / f"{name}-1.2.3.dist-info" / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n"
        )
    if torch:
        install_torch(site, torch, cuda, flags)
    return folder


def install_torch(site: Path, torch: str, cuda: str = "", flags: str = "", table: str = "") -> None:
    make_executable(site / "torch" / "__init__.py", "raise SystemExit('imported')")
    make_executable(
        site / "torch" / "version.py",
        f"from typing import Optional\n__version__ = '{torch}'\ncuda: Optional[str] = {cuda or None!r}\n",
    )
    make_executable(site / "torch" / "cuda" / "__init__.py", table)
    (site / "torch" / "lib").mkdir()
    with (site / "torch" / "lib" / "libtorch_python.so").open("wb") as library:
        library.write(b"\x7fELF\0sm_\0compute_ \0xsm_99\0")
        # As far behind as in the real one.
        library.seek(33 << 20)
        library.write(b"\0" + flags.encode() + b"\0\0rest")


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """Return a current folder in which no environment is active, noted or on PATH."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    return folder


def test_toolchains_are_found_once_and_the_best_comes_first(bare, monkeypatch, tmp_path):
    whole = ("accelerate", "transformers")
    here = environment(bare / ".venv", "2.13.0+cu130", "13.0", "sm_75 sm_120 compute_120", whole)
    conda = environment(tmp_path / "conda" / "envs" / "llm", "2.9.1+cu128", "12.8", "sm_70 sm_90a")
    noted = environment(tmp_path / "conda" / "envs" / "old")
    make_executable(tmp_path / "home" / ".conda" / "environments.txt", f"{conda}\n\n{noted}\n{tmp_path}/removed\n")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "stale"))
    monkeypatch.setenv("CONDA_PREFIX", str(conda))
    # The same environment by another name, through a shim.
    make_executable(tmp_path / "shims" / "python3", f'#!/bin/sh\nexec "{here}/bin/python" "$@"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:/bin:/usr/bin")
    (tmp_path / "shims" / "python").symlink_to(conda / "bin" / "python")
    trusted_pythons.remember_chosen_python(f"{here}/bin/python")
    found = probe.probe_toolchains([str(noted / "bin" / "python3")])
    assert [(t.label, t.torch) for t in found if t.label not in {"this environment", "PATH"}] == [
        (".venv here", "2.13.0+cu130"),
        ("active conda env (llm)", "2.9.1+cu128"),
        ("chosen", None),
        ("active venv (stale)", None),
    ]
    by_label = {toolchain.label: toolchain for toolchain in found}
    assert msgspec.structs.replace(by_label[".venv here"], modules=()) == Toolchain(
        python=f"{here}/bin/python",
        label=".venv here",
        version=by_label["chosen"].version,
        torch="2.13.0+cu130",
        cuda="13.0",
        arch_list=("sm_75", "sm_120", "compute_120"),
        accelerate="1.2.3",
        transformers="1.2.3",
    )
    assert by_label["active conda env (llm)"].arch_list == ("sm_70", "sm_90a")
    assert "No such file" in by_label["active venv (stale)"].problem
    assert "this environment" in by_label
    assert not list(tmp_path.rglob("torch/__pycache__"))


def marking(prefix, mark):
    """Make an environment whose Python leaves a mark when it is started."""
    environment(prefix, "2.13.0", "13.0", "sm_75")
    python = prefix / "bin" / "python"
    real = python.resolve()
    python.unlink()
    make_executable(python, f'#!/bin/sh\n: > "{mark}"\nexec "{real}" "$@"\n')
    return python


def site_of(prefix):
    return next(prefix.glob("lib/python*/site-packages"))


def theirs(path):
    os.chown(path, 65534, 65534, follow_symlinks=False)


@pytest.mark.parametrize(
    ("spoil", "why"),
    sample(
        [
            (theirs, "belongs to"),
            (lambda prefix: theirs(prefix / "bin"), "belongs to"),
            # Another file than the one that was chosen.
            (lambda prefix: theirs(prefix / "bin" / "python"), "not started until you choose it"),
            (lambda prefix: theirs(prefix / "pyvenv.cfg"), "belongs to"),
            (lambda prefix: prefix.chmod(0o777), "other users may write"),
            (lambda prefix: (prefix / "bin").chmod(0o777), "other users may write"),
            (lambda prefix: (prefix / "bin" / "python").chmod(0o757), "other users may write"),
            (lambda prefix: site_of(prefix).chmod(0o777), "other users may write"),
            (lambda prefix: theirs(make_executable(site_of(prefix) / "x.pth", "")), "belongs"),
        ],
        3,
    ),
)
def test_a_python_here_that_others_could_have_put_is_named_and_not_started(bare, tmp_path, spoil, why):
    if ("belongs" in why or "choose" in why) and os.geteuid():
        pytest.skip("NOT TESTED: files of another user, which takes root")
    mark = tmp_path / "started"
    python = marking(bare / ".venv", mark)
    trusted_pythons.remember_chosen_python(str(python))
    spoil(bare / ".venv")
    mark.unlink(missing_ok=True)
    (here,) = [tool for tool in probe.probe_toolchains() if tool.label == ".venv here"]
    assert why in here.problem
    assert here.unchosen or "trainer.python" in here.problem
    assert not mark.exists()
    # Named, it is started.
    trusted_pythons.remember_chosen_python(str(python))
    (named,) = [tool for tool in probe.probe_toolchains([str(python)]) if tool.label == "chosen"]
    assert not named.problem
    assert mark.exists()


@pytest.mark.whole
def test_a_python_here_is_started_once_it_was_chosen_and_not_in_another_ones_place(bare, tmp_path):
    mark = tmp_path / "started"
    python = marking(bare / ".venv", mark)
    (site_of(bare / ".venv") / "torch-2.13.0+cu130.dist-info").mkdir()
    (tmp_path / "link").symlink_to(bare)
    # As a profile from the same clone names it, without knowing where that is.
    foreign = [str(python), "/proc/self/cwd/.venv/bin/python", str(tmp_path / "link/.venv/bin/python")]
    for tool in (*probe.probe_toolchains(), *probe.probe_toolchains(foreign), *map(probe.probe_toolchain, foreign)):
        if tool.python in foreign:
            assert (tool.unchosen, tool.torch, "torch 2.13.0+cu130" in tool.problem) == (True, None, True)
    assert not mark.exists()
    trusted_pythons.remember_chosen_python(str(python))
    assert not [tool for tool in probe.probe_toolchains() if tool.label == ".venv here" and tool.problem]
    assert mark.exists()
    mark.unlink()
    shutil.rmtree(bare / ".venv")
    marking(bare / ".venv", mark)
    (here,) = [tool for tool in probe.probe_toolchains() if tool.label == ".venv here"]
    assert here.unchosen
    assert not mark.exists()


def test_the_environment_that_is_activated_here_is_started(bare, tmp_path, monkeypatch):
    mark = tmp_path / "started"
    marking(bare / ".venv", mark)
    monkeypatch.setenv("VIRTUAL_ENV", ".venv")
    assert [tool.unchosen for tool in probe.probe_toolchains() if "venv" in tool.label] == [True]
    assert not mark.exists()
    monkeypatch.setenv("VIRTUAL_ENV", str(bare / ".venv"))
    assert not any(tool.unchosen for tool in probe.probe_toolchains())
    assert mark.exists()


@pytest.mark.whole
def test_nothing_of_a_cloned_folder_is_run(bare, tmp_path, monkeypatch):
    mark = tmp_path / "started"
    for name in (".venv", "venv"):
        marking(bare / name, mark)
    for folder in (bare, bare / "bin"):
        for name in ("python3", "python", "uv", "docker", "podman", "apptainer", "sbatch", "nvidia-smi", "busctl"):
            make_executable(folder / name, f'#!/bin/sh\n: > "{mark}-{name}"\nexit 1\n')
    for name in ("json", "torch", "pip", "platform", "uuid", "venv_", "msgspec", "psutil", "click", "textual"):
        make_executable(bare / f"{name}.py", f"open({str(tmp_path / 'started')!r} + '-{name}.py', 'w')")
    # As asdf's, which obeys a path.
    shim = tmp_path / "shims" / "python3"
    make_executable(
        shim, f'#!/bin/sh\n[ -e .tool-versions ] && exec ./.venv/bin/python "$@"\nexec {sys.executable} "$@"\n'
    )
    (bare / ".tool-versions").write_text("python path:./.venv\n")
    monkeypatch.setenv("PATH", f"bin:.::{shim.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:")
    for words in (["facts"], ["env", "create", "hf", "--dry-run"]):
        command = [sys.executable, "-m", "tui_train", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.glob("started*")), words
    chosen = ["--set=trainer.python=.venv/bin/python"]
    subprocess.run([sys.executable, "-m", "tui_train", "plan", "quickstart", *chosen], capture_output=True, check=False)
    assert list(tmp_path.glob("started*")) == [mark]


def test_a_shim_on_path_gives_the_interpreter_behind_it(bare, monkeypatch, tmp_path):
    real = environment(tmp_path / "real", "2.13.0+cpu")
    make_executable(
        tmp_path / "shims" / "python3", f'#!/bin/sh\n[ "$PWD" = "{bare}" ] && exec "{real}/bin/python" "$@"\n'
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'shims'}:/bin")
    by_label = {toolchain.label: toolchain for toolchain in probe.probe_toolchains()}
    assert by_label["PATH"].python == f"{real}/bin/python"
    assert (by_label["PATH"].torch, by_label["PATH"].cuda, by_label["PATH"].arch_list) == ("2.13.0+cpu", None, ())
    assert probe.probe_toolchain("python3").python == f"{real}/bin/python"


def test_a_venv_and_its_base_are_two(bare):
    here = environment(bare / "venv")
    trusted_pythons.remember_chosen_python(f"{here}/bin/python")
    base = os.path.realpath(here / "bin" / "python")
    found = probe.probe_toolchains([base])
    assert {"chosen", "venv here"} <= {toolchain.label for toolchain in found}


@pytest.mark.whole
def test_libraries_outside_the_environment_are_those_a_training_finds(bare, monkeypatch, tmp_path):
    python = str(environment(tmp_path / "env") / "bin" / "python")
    assert probe.probe_toolchain(python).torch is None
    install_torch(tmp_path / "module", "2.7.1+cu126", "12.6", "sm_50 sm_60")
    (tmp_path / "module" / "sitecustomize.py").write_text("print('module loaded')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "module"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    assert probe.probe_toolchain(python).arch_list == ("sm_50", "sm_60")
    assert not (tmp_path / "module" / "__pycache__").exists()


def test_architectures_of_a_release_where_the_library_tells_none(bare, monkeypatch, tmp_path):
    table = (
        "PYTORCH_RELEASES_CODE_CC: dict[str, dict[str, set[int]]] = "
        "{'13.0': {'x86_64': {120, 75, 80}, 'aarch64': {120, 75, 80}}}\n"
    )
    install_torch(tmp_path / "module", "2.13.0+cu130", "13.0", "", table)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "module"))
    assert probe.probe_toolchain(sys.executable).arch_list == ("sm_75", "sm_80", "sm_120")


def test_the_modules_that_a_python_can_import(tmp_path, monkeypatch):
    (tmp_path / "spaced").mkdir()
    (tmp_path / "alone.py").touch()
    (tmp_path / "no-name.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    modules = {*probe.probe_toolchain(sys.executable).modules}
    assert modules >= {"spaced", "alone", "json", "sys", "msgspec", "tui_train"}
    assert not modules & {"no-name", "absent", "__future__"}
    code = f"import importlib.util as util; print([n for n in {sorted(modules)} if not util.find_spec(n)])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"


def test_no_package_is_looked_into_for_the_modules_of_a_python(tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "sitecustomize.py").write_text(
        f"import sys\nlisted = open({str(tmp_path / 'listed')!r}, 'w', buffering=1)\n"
        "sys.addaudithook(lambda name, words: name in ('os.listdir', 'os.scandir') and print(words[0], file=listed))"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "package" in probe.probe_toolchain(sys.executable).modules
    listed = (tmp_path / "listed").read_text().splitlines()
    assert str(tmp_path) in listed
    assert str(tmp_path / "package") not in listed


@pytest.mark.parametrize(
    "hook",
    [
        "sys.meta_path.append(type('Finder', (), {'find_spec': None}))",
        "sys.path_hooks.append(lambda path: None)",
        "load = builtins.__import__; builtins.__import__ = lambda *words, **more: load(*words, **more)",
    ],
)
def test_modules_are_not_known_where_something_unknown_imports_more(tmp_path, monkeypatch, hook):
    (tmp_path / "sitecustomize.py").write_text(f"import builtins, sys\n{hook}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert probe.probe_toolchain(sys.executable).modules == ()


@pytest.mark.skipif(find_spec("torch") is None, reason="NOT TESTED, for want of torch: how a real one is read")
def test_the_real_torch_of_this_environment():
    found = probe.probe_toolchain(sys.executable)
    command = [sys.executable, "-c", "import torch; print(torch.__version__, torch.version.cuda)"]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout.split()
    assert [found.torch, str(found.cuda)] == told


def test_many_slow_interpreters_are_asked_at_once_and_share_one_deadline(bare, tmp_path, monkeypatch):
    met = f"$(/bin/ls {tmp_path} | /bin/grep -c here)"
    meets = f"#!/bin/sh\n: > {tmp_path}/$$.here\nwhile [ {met} -lt 8 ]; do /bin/sleep 0.05; done\nexit 3\n"
    slow = [str(make_executable(tmp_path / f"slow{n}" / "python", meets)) for n in range(8)]
    found = probe.probe_toolchains(slow, deadline=100)
    assert [t.problem for t in found if t.label == "chosen"] == ["it ended with exit code 3"] * 8
    clock, given = itertools.chain([0.0], itertools.repeat(1.5)), []
    monkeypatch.setattr(probe, "monotonic", lambda: next(clock))
    monkeypatch.setattr(probe, "run_child", lambda _, left, **more: given.append(left) or ChildResult(failure="late"))
    probe.probe_toolchains(slow, deadline=2)
    assert {*given} == {0.5}


def test_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "data.txt").write_text("")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    states = {
        "data.txt": "file", "~/data.txt": "file", "~": "folder", ".": "folder", "": "missing", "data.txt/x": "missing",
        "dangling": "missing", "loop": "unreadable", "a\0b": "unreadable", "é" * 300: "unreadable",
        "/dev/zero": "unreadable",
    }  # fmt: skip
    assert probe.read_path_states([*states]) == states
    if os.geteuid():
        (tmp_path / "data.txt").chmod(0)
        assert probe.read_path_states(["data.txt"]) == {"data.txt": "unreadable"}


def test_hosts_are_asked_at_a_lower_priority_and_a_shared_connection_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_executable(tmp_path / "ssh", f"#!/bin/sh\nnice >> {tmp_path}/nice\necho nobody answers >&2\nexit 255\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    answers = [probe_hosts(["a", "b"], "/py", []), probe_hosts(["b"], "/py", [], asking_host="a")]
    assert {peer.problem for found in answers for peer in found.values()} == {"nobody answers"}
    asked = [int(line) for line in (tmp_path / "nice").read_text().split()]
    assert (asked[:2], {*asked[2:]}) == ([min(19, own + 10)] * 2, {own})
