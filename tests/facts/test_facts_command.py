"""`tui-train facts` as a process: files of machines and toolchains, other hosts, and what no machine file may bring."""

import json
import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest
import warm
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import GIB, UUIDS, example_count, facts, gpu, machine, make_executable, toolchain

from tests.fake_driver import driver_environment
from tui_train.base.errors import BadInput, CannotWrite, Unavailable
from tui_train.cli.printing import print_json
from tui_train.facts.gpus import gpu_sets
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.other_machines import machine_files, remote
from tui_train.facts.types import FactGap, Facts, Gpu, GpuProcess, Machine, Toolchain
from tui_train.profile.types import Profile
from tui_train.setup.machine.toolchain import pick_toolchain
from tui_train.views import plain_text

ROOT = Path(__file__).parents[2]
SEED = "seed-3090-gt1030-3090"
CU126 = {"torch": "2.13.0+cu126", "cuda": "12.6", "arch_list": [f"sm_{code}" for code in (50, 60, 70, 75, 80, 86, 90)]}
CU130 = {"torch": "2.13.0+cu130", "cuda": "13.0", "arch_list": [f"sm_{code}" for code in (75, 80, 86, 90, 100, 120)]}
# What a terminal obeys, or what makes text read other than it is.
UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wheel, text in (("cu126", CU126), ("cu130", CU130)):
        (tmp_path / f"{wheel}.json").write_text(json.dumps(text))


def tui(*arguments, code=0, on="", **environment):
    """Run `tui-train facts` on a machine; nothing it says is ever a traceback."""
    done = subprocess.run(
        warm.cli_command("facts", *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT), **(driver_environment(on) if on else {}), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    out, error = done.stdout.decode(), done.stderr.decode()
    assert "Traceback" not in out + error, error
    assert not UNSAFE.search(out + error)
    assert done.returncode == code, out + error
    return out if code == 0 else error


def told(*arguments, **more):
    return json.loads(tui("--json", *arguments, **more))


# Toolchains


@pytest.mark.parametrize(
    ("wheel", "verdicts"), [("cu126", ["use", "skip", "use"]), ("cu130", ["use", "blocked", "use"])]
)
def test_a_saved_toolchain_decides(wheel, verdicts):
    found = told("--toolchain", f"{wheel}.json", on=SEED)
    cards = [(card["verdict"], card["chosen"], card["busy"]) for card in found["gpus"]]
    assert cards == [*zip(verdicts, (True, False, True), ("", "", ""), strict=True)]
    assert ("CUDA 12.6" in "".join(found["gpus"][1]["reasons"])) == (wheel == "cu130")
    (default,) = found["sets"]
    assert tuple(default["uuids"]) == UUIDS
    assert found["judged_for"]["torch"] == f"2.13.0+{wheel}"
    assert found["toolchains"] == [found["judged_for"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"torch": "2.13", "cuda": "12.6"}',
        '{"torch": "2.13", "arch_list": []}',
        '{"torch": null, "cuda": "12.6", "arch_list": []}',
        '{"torch": "2.13", "cuda": 12.6, "arch_list": []}',
        '{"torch": "2.13", "cuda": "12.6", "arch_list": "sm_50"}',
        '{"torch": "2.13", "cuda": "12.6", "arch_list": [50]}',
        '{"torch": "2.13\\ud800", "cuda": "12.6", "arch_list": []}',
        "[" * 100_000,
    ],
)
def test_a_bad_toolchain_is_refused(text, tmp_path):
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(BadInput, match=r"bad\.json cannot be used"):
        machine_files.load_toolchain_file(tmp_path / "bad.json")


def test_bad_files_have_exit_codes_of_their_own(tmp_path):
    (tmp_path / "bad.json").write_text('{"torch": "2.13"}')
    error = tui("--toolchain", "bad.json", code=65)
    assert "cuda" in error
    assert '"arch_list": [' in error
    assert "it is a folder" in tui("--toolchain", ".", code=65)
    assert "does not exist" in tui("--machine", "missing.json", code=66)
    assert "cannot be used" in tui("--machine", "bad.json", code=65)
    assert "not both" in tui("--machine", "bad.json", "--host", "box", code=64)


@pytest.mark.whole
def test_a_build_without_cuda(tmp_path):
    (tmp_path / "cpu.json").write_text('{"torch": "2.13.0+cpu", "cuda": null, "arch_list": [], "more": {"a": 1}}')
    found = told("--toolchain", "cpu.json", on=SEED)
    assert {card["verdict"] for card in found["gpus"]} == {"blocked"}
    assert found["sets"] == []
    assert f"! {found['all_blocked']}" in " ".join(tui("--toolchain", "cpu.json", on=SEED).split())


# Machine files


@pytest.mark.whole
def test_shared_memory_is_shown_with_what_is_wrong_with_it():
    states = ({}, {"shm_free": 3 << 30}, {"shm_free": 3 << 30, "shm_problem": "is read-only"})
    shown = [plain_text.shared_memory_text(Machine(hostname="box", **state)).partition("shm")[2] for state in states]
    assert shown == ["", " 3.0 GiB free", " is read-only"]


def test_a_saved_machine_is_the_same_elsewhere(tmp_path):
    shown = tui("--toolchain", "cu130.json", "--save", "box.json", on=SEED)
    assert "saved box.json" in shown
    first = told("--toolchain", "cu130.json", on=SEED)
    again = told("--machine", "box.json")
    assert again["gpus"] == first["gpus"]
    assert again["machine"]["hostname"] == "host"
    other = told("--machine", "box.json", "--toolchain", "cu126.json")
    assert [card["verdict"] for card in other["gpus"]] == ["use", "skip", "use"]
    before = (tmp_path / "box.json").read_bytes()
    assert "already exists" in tui("--save", "box.json", code=73)
    assert (tmp_path / "box.json").read_bytes() == before
    (tmp_path / "link").symlink_to("nowhere")
    assert "already exists" in tui("--save", "link", code=73)
    assert "cannot write" in tui("--machine", "box.json", "--save", "no/such/folder", code=73)
    # What --json prints is a machine file as well.
    (tmp_path / "printed.json").write_text(json.dumps(first))
    assert told("--machine", "printed.json")["gpus"] == first["gpus"]
    assert told("--machine", "box.json", "--save", "second.json")["gpus"] == first["gpus"]


def test_a_file_that_appears_while_we_look_is_kept(tmp_path):
    (tmp_path / "new.json").write_text("mine")
    with pytest.raises(CannotWrite):
        machine_files.save_machine_file(tmp_path / "new.json", facts())
    assert (tmp_path / "new.json").read_text() == "mine"


def test_names_of_people_and_places_are_masked(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/srv/people/ann")
    monkeypatch.setenv("USER", "ann")
    monkeypatch.delenv("LOGNAME", raising=False)
    processes = (
        GpuProcess(7, "/home/bob/bin/python", "bob", GIB),
        GpuProcess(8, "python train.py --for=ann", "ann", GIB),
        GpuProcess(9, "Xorg", "root", GIB, graphics=True),
    )
    found = Facts(
        machine=msgspec.structs.replace(
            machine(gpus=[gpu(0, processes=processes)]),
            hostname="lab7.example.org",
            gaps=(FactGap("what", "/dev/x of lab7 is bob's", "ask /srv/people/annette"),),
        ),
        toolchains=(toolchain("/srv/people/ann/env/bin/python"),),
    )
    text = machine_files.machine_file_text(found)
    for word in ("bob", "lab7", "example.org", "people/ann/"):
        assert word not in text
    (tmp_path / "saved.json").write_text(text)
    again = machine_files.load_machine_file(tmp_path / "saved.json")
    assert [(p.user, p.name) for p in again.machine.gpus[0].processes] == [
        ("user2", "/home/user/bin/python"),
        ("user1", "python train.py --for=user1"),
        ("root", "Xorg"),
    ]
    assert again.machine.gaps[0].remedy == "ask /srv/people/annette"
    assert again.toolchains[0].python == "~/env/bin/python"
    assert again.machine.gpus[0].uuid == UUIDS[0]


# Other hosts

# A host whose nvidia-smi says what stands in a file, and does not run without one.
SSH = """#!/bin/sh
for word in "$@"; do printf '%s\\n' "$word"; last=$word; done >> "$NOTES"
export PATH="$THERE:$PATH"
echo 'Welcome {to} this host!'; printf '{"runner": "odd"}'
exec sh -c "$last"
"""
NVIDIA_SMI = '#!/bin/sh\ncat "$SMI" 2>/dev/null || exit 9\n'
CSV = """\
0, GPU-ac50e9bd-5330-6ce2-2d4b-8f95df663b60, RTX 3090, 00000000:01:00.0, 8.6, 24576, 24249, Disabled, 580.95
1, GPU-addf6be6-9a6e-c331-da9e-b0ab90813984, A name, with a comma, 00000000:03:00.0, 6.1, [N/A], [N/A], Enabled, 580.95
2, [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], [GPU is lost], 580.95
strange \x1b[31mline
"""


@pytest.fixture
def ssh(tmp_path, monkeypatch):
    program = make_executable(tmp_path / "bin" / "ssh", SSH)
    for name in ("NOTES", "SMI", "THERE"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    make_executable(tmp_path / "there" / "nvidia-smi", NVIDIA_SMI)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def test_another_host_with_nvidia_smi_only(ssh):
    (ssh / "smi").write_text(CSV)
    found = told("--host", "ann@box", "--toolchain", "cu126.json")
    asked = (ssh / "notes").read_text().splitlines()
    assert asked[:3] == ["-T", "-o", "BatchMode=yes"]
    assert asked[-3:-1] == ["--", "ann@box"]
    assert asked[-1].startswith("exec python3 ")
    first, second, lost = found["gpus"]
    assert (first["uuid"], first["memory_free"], first["display_active"]) == (UUIDS[0], 24249 * 2**20, False)
    assert (second["name"], second["memory_total"]) == ("A name, with a comma", None)
    assert (lost["verdict"], lost["reasons"]) == ("blocked", ["nvidia-smi: [GPU is lost]"])
    assert (found["machine"]["hostname"], found["machine"]["driver_version"]) == ("ann@box", "580.95")
    assert found["machine"]["gaps"] == []
    shown = tui("--host", "box")
    assert shown.startswith("box: ")
    assert "\nNVIDIA driver 580.95\n\n" in shown
    (ssh / "smi").write_text("strange \x1b[31mline\n")
    assert "strange \\x1b[31mline" in tui("--host", "box")


def test_hosts_that_cannot_be_asked(ssh, monkeypatch):
    (ssh / "bin" / "ssh").write_text("#!/bin/sh\necho 'sh: 1: exec: python3: not found' >&2; exit 127\n")
    assert "Install python3" in tui("--host", "box", code=69)
    (ssh / "bin" / "ssh").write_text("#!/bin/sh\necho 'Permission denied\x1b[0m (publickey).' >&2; exit 255\n")
    assert "Permission denied" in tui("--host", "box", code=69)
    (ssh / "bin" / "ssh").write_text("#!/bin/sh\nsleep 100\n")
    with pytest.raises(Unavailable, match="gave no answer in 0 s"):
        remote.read_host_facts("box", deadline=0.5)


@pytest.mark.parametrize("name", ["-oProxyCommand=touch pwned", "-h", "a b", "a;touch pwned", "$(x)", "a\nb", "é"])
def test_a_host_is_a_name_and_nothing_else(ssh, name):
    with pytest.raises(BadInput):
        remote.read_host_facts(name)
    assert not (ssh / "notes").exists()
    tui(f"--host={name}", code=64 if name.startswith("-") else 65)
    assert not (ssh / "notes").exists()


# Anything at all

# Text that a driver, a host or a file may hold, and much that none should.
TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(["\x1b[2J\x9b31m", "[bold red]x[/]", "\u202eabc", "9" * 5000, "8.6", "sm_86", "NaN", "", "0.0.0"]),
)
SIZE = st.one_of(st.none(), st.integers(0, 2**62), st.sampled_from([0, 1, 24 * GIB]))
SMALL = st.one_of(st.none(), st.integers(-5, 2**62))
PROCESSES = st.lists(st.builds(GpuProcess, st.integers(), TEXT, TEXT, SIZE, st.booleans()), max_size=3).map(tuple)
CARDS = st.builds(
    Gpu,
    index=st.integers(-1, 70),
    uuid=st.one_of(TEXT, st.sampled_from([*UUIDS, "MIG-1", "GPU-1"])),
    name=TEXT,
    **dict.fromkeys(("pci_bus", "compute_capability"), st.none() | TEXT),
    **dict.fromkeys(("memory_total", "memory_free"), SIZE),
    **dict.fromkeys(("sm_count", "sm_clock_max"), SMALL),
    display_active=st.sampled_from([None, True, False]),
    compute_mode=st.sampled_from([None, "default", "exclusive", "prohibited"]),
    processes=PROCESSES,
    problem=st.sampled_from(["", "", ""]) | TEXT,
)
TOOLCHAINS = st.builds(
    Toolchain,
    **dict.fromkeys(("python", "label"), TEXT),
    **dict.fromkeys(("torch", "cuda"), st.none() | TEXT),
    **dict.fromkeys(("accelerate", "transformers"), st.just("1")),
    arch_list=st.lists(TEXT, max_size=4).map(tuple),
    problem=st.just("") | TEXT,
)
MACHINES_OF_ANY_KIND = st.builds(
    Machine,
    **dict.fromkeys(("hostname", "cpu_name"), TEXT),
    **dict.fromkeys(("driver_version", "driver_cuda"), st.none() | TEXT),
    cpu_count=st.integers(),
    memory_total=SIZE,
    gpus=st.lists(CARDS, max_size=5).map(tuple),
    gaps=st.lists(st.builds(FactGap, TEXT, TEXT, TEXT), max_size=2).map(tuple),
)


@settings(
    deadline=None,
    max_examples=example_count(200),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(MACHINES_OF_ANY_KIND, TOOLCHAINS)
@pytest.mark.whole
def test_no_machine_brings_a_traceback_or_a_control_byte(any_machine, any_toolchain):
    found = Facts(machine=any_machine, toolchains=(any_toolchain,))
    picked = pick_toolchain(Profile(), found)
    verdicts = gpu_verdicts(any_machine.gpus, picked, any_machine.driver_cuda)
    offered = gpu_sets.rank_card_sets(any_machine.gpus, verdicts)
    usable = [card for card, v in zip(any_machine.gpus, verdicts, strict=True) if v.kind != "blocked"]
    for one in offered:
        assert one.uuids
        assert set(one.uuids) <= {card.uuid for card in usable} - {""}
    assert bool(offered) == bool(usable) or not all(card.uuid for card in usable)
    shown = plain_text.facts_text(found, picked, gpu_sets.recommended_uuids(any_machine.gpus, verdicts))
    assert not UNSAFE.search(shown.replace("\n", ""))


def test_what_json_prints_holds_no_control_byte(capsys):
    print_json({"a\x7f": "\x1b[31m\x9b\u202e\x00\t\n\\"})
    out = capsys.readouterr().out
    assert not UNSAFE.search(out)
    assert json.loads(out) == {"a\x7f": "\x1b[31m\x9b\u202e\x00\t\n\\"}
