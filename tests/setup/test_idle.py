"""No card stays idle without a word: what is refused, what is consent, and what the quickstart and make say and do."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from fake_driver import driver_environment, run_cli_on_machine
from pilot import PRETRAIN_KEY, go_to_fields, press_keys, screen_text
from support import (
    GIB,
    UUIDS,
    boxed,
    copy_checkout,
    facts,
    findings_of,
    gpu,
    inside,
    machine,
    make_executable,
    plan,
    profile,
    sample,
    set_variables,
    toolchain,
    wait_until,
)

from tui_train.actions.environments import makefile_helper
from tui_train.checks.finding import EnvironmentInstall
from tui_train.facts.gpus import live_samples
from tui_train.facts.gpus.verdicts import recommended_torch_build
from tui_train.facts.machine import probe
from tui_train.facts.types import FactGap, Facts
from tui_train.profile.changes import apply_change
from tui_train.runner.gpus import pci
from tui_train.runner.system.environments import UNFINISHED_MARKER_NAME, environments_folder
from tui_train.views import plain_text
from tui_train.wizard import make_wizard

CPU = {"cuda": None, "torch": "2.13.0+cpu", "arch_list": ()}
CU126 = tuple(f"sm_{code}" for code in (50, 60, 70, 75, 80, 86, 90))
HIDDEN = FactGap("The NVIDIA driver is not loaded", "its module does not run", "`sudo modprobe nvidia`.", hides=True)
GT_1030 = {"name": "NVIDIA GeForce GT 1030", "compute_capability": "6.1", "memory_total": 2 * GIB, "sm_count": 3}
V100 = {"name": "Tesla V100-SXM2-32GB", "compute_capability": "7.0", "memory_total": 32 * GIB, "sm_count": 80}
CLOCK = {"sm_clock_max": 1500}
WITH_DISPLAY = (gpu(0, **CLOCK), gpu(1, "GPU-display", **GT_1030, **CLOCK), gpu(2, UUIDS[1], **CLOCK))
SMALL = tuple(f"--set=recipe.{edit}" for edit in ("layers=1", "hidden_size=16", "heads=2", "steps=2"))


def errors(values, where):
    return [finding for finding in findings_of(profile(values), where) if finding.level == "error"]


def hiding(*gaps):
    found = facts()
    return msgspec.structs.replace(found, machine=msgspec.structs.replace(found.machine, gaps=gaps))


# The CPU


@pytest.mark.parametrize("more", [CPU, {"arch_list": ("sm_75",)}, {"cuda": "13.0", "arch_list": ("sm_70",)}])
def test_the_cpu_beside_idle_cards_is_refused_until_it_is_chosen(more):
    where = facts(gpus=(gpu(0, **V100), gpu(1, **V100)), **more)
    (error,) = errors({}, where)
    assert error.message.startswith("2 Tesla V100-SXM2-32GB are idle: this Python's torch")
    install = EnvironmentInstall("hf", "install torch 2.13 for CUDA 12.6", with_cuda=True)
    assert error.fix == error.install == install, "before the CPU"
    assert error.machine
    chosen = apply_change(error.change, profile())
    assert (chosen.hardware.device, findings_of(chosen, where)) == ("cpu", ())
    assert plan(chosen, where).device == "cpu"


def test_another_python_that_can_use_the_cards_is_offered():
    cards = (gpu(0), gpu(1))
    tools = (toolchain("/cpu", **CPU), toolchain("/gpu"))
    where = Facts(machine=machine(gpus=cards), toolchains=tools)
    assert plan(profile(), where).python == "/gpu", "nothing is refused where the right one is taken anyway"
    (error,) = errors({"trainer.python": "/cpu"}, where)
    assert error.fix == error.change
    assert dict(error.change.edits) == {"trainer.python": "/gpu"}


def test_a_python_is_offered_for_a_fine_tuning_only_where_it_has_trl():
    with_trl = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0"}
    values = {"trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d",), "trainer.python": "/cpu"}
    chosen = toolchain("/cpu", packages=with_trl, **CPU)
    for packages in (with_trl, {}):
        tools = (chosen, toolchain("/gpu", packages=packages))
        (error,) = errors(values, Facts(machine=machine(gpus=(gpu(0),)), toolchains=tools))
        offered = dict(error.change.edits).get("trainer.python")
        assert (offered, "tui-train env create hf" in error.remedy) == (("/gpu", False) if packages else (None, True))


def on_host(where, name="gpu box"):
    """The same machine as a host over ssh."""
    host = msgspec.structs.replace(where.machine, hostname=name)
    return msgspec.structs.replace(where, machine=host, other_machine=name)


OLD_TORCH = facts(gpus=(gpu(0, **V100), gpu(1, **V100)), **CPU)
NO_TORCH = Facts(machine=machine(gpus=(gpu(0),)), toolchains=(toolchain("/bare", torch=None, packages={}),))


@pytest.mark.parametrize("where", [OLD_TORCH, NO_TORCH], ids=["old torch", "no torch"])
@pytest.mark.parametrize("kind", ["builtin", "script", "finetune", "nemo"])
def test_what_a_host_lacks_is_never_built_on_this_machine(where, kind):
    values = {"trainer.kind": kind, "trainer.model": "/m", "trainer.data": ("/d",), "trainer.script": "/s.py"}
    here, there = errors(values, where), errors(values, on_host(where))
    advice = "tui-train env create", "nstall them there"
    assert any(words in error.remedy for error in there for words in advice)
    for error in there:
        for text in (error.remedy, error.keys):
            assert text.count("tui-train env create") == text.count(" --on 'gpu box'")
            assert "nstall them there (" not in text or "(ssh 'gpu box')" in text
    assert [error.install for error in here] == [error.install for error in there], "by the same key"
    of_file = msgspec.structs.replace(where, other_machine="box.json")
    nameless = msgspec.structs.replace(of_file, machine=msgspec.structs.replace(where.machine, hostname=""))
    for there in (errors(values, of_file), errors(values, nameless)):
        assert there
        assert not any(error.install for error in there), "nobody is there to make it"


def test_the_facts_of_a_host_advise_to_make_it_there():
    told = plain_text.facts_text(on_host(OLD_TORCH), OLD_TORCH.toolchains[0], ())
    assert "tui-train env create hf --on 'gpu box' (torch" in told


def test_an_image_is_chosen_not_an_environment():
    (error,) = errors(inside(), boxed(gpus=(gpu(0),), **CPU))
    assert ("Choose an image" in error.remedy, "env create" in error.remedy) == (True, False)


def test_a_driver_that_hides_its_cards_is_no_reason_for_the_cpu():
    (error,) = errors({}, hiding(HIDDEN))
    assert f"{HIDDEN.what}: {HIDDEN.why}" in error.message
    assert plan(apply_change(error.change, profile()), hiding(HIDDEN)).device == "cpu"


@pytest.mark.parametrize("kind", ["library", "module", "mismatch", "permission", "other"])
def test_what_keeps_the_driver_from_starting_hides_the_cards_on_the_bus(kind):
    assert pci.nvml_failure_gap(kind, "detail", (pci.PciCard("0000:01:00.0", "10de:2204", ""),)).hides


def test_a_driver_without_a_card_on_the_bus_hides_none(monkeypatch):
    monkeypatch.setattr(pci, "_has_pci_bus", lambda: True)
    assert not pci.nvml_failure_gap("module", "detail", ()).hides
    assert not pci.nvml_failure_gap("library", "detail", ()).hides
    (gap,) = pci.unlisted_card_gaps((pci.PciCard("0000:01:00.0", "10de:2204", "vfio-pci"),), ())
    assert not gap.hides


def test_a_card_that_nothing_has_code_for_is_only_told():
    assert findings_of(profile(), hiding(FactGap("No NVIDIA GPU", "none", "Trainings run on the CPU here."))) == ()
    where = facts(gpus=(gpu(0, name="NVIDIA GeForce GT 710", compute_capability="3.5"),))
    assert findings_of(profile(), where) == ()
    (note,) = plan(profile(), where).notes
    assert "no official torch" in note
    assert errors({"hardware.device": "cuda"}, where)[0].key == "hardware.device"


# Fewer and lesser cards


def test_cards_that_another_build_has_code_for_are_not_left_out_silently():
    where = facts(gpus=(gpu(0, **CLOCK), gpu(1, **V100, **CLOCK)), cuda="12.8", arch_list=("sm_75", "sm_86"))
    (error,) = errors({}, where)
    assert (error.key, error.fix) == ("hardware.gpus", error.install)
    named = apply_change(error.change, profile())
    assert named.hardware.gpus == UUIDS[:1]
    assert plan(named, where).gpus == UUIDS[:1]


def test_the_worse_card_does_not_train_in_the_place_of_the_better():
    new = {"name": "NVIDIA GeForce RTX 5090", "compute_capability": "12.0", "memory_total": 32 * GIB, "sm_count": 170}
    old = {"name": "NVIDIA GeForce GTX 1080 Ti", "compute_capability": "6.1", "memory_total": 11 * GIB, "sm_count": 28}
    cards = (gpu(0, **new, **CLOCK), gpu(1, **old, **CLOCK))
    (error,) = errors({}, facts(gpus=cards, cuda="12.6", arch_list=CU126))
    assert "1 RTX 5090 is idle" in error.message
    made = plan(profile(), facts(gpus=cards))
    assert made.gpus == UUIDS[:1]
    assert f"GPU 1 {old['name']}" in made.notes[0]


def test_another_python_for_all_cards_is_offered():
    cards = (gpu(0, **CLOCK), gpu(1, **V100, **CLOCK))
    tools = (toolchain("/one", arch_list=("sm_86",)), toolchain("/both", arch_list=CU126))
    (error,) = errors({}, Facts(machine=machine(gpus=cards), toolchains=tools))
    assert dict(error.change.edits) == {"trainer.python": "/both"}


def test_a_display_card_is_left_out_and_said():
    for more in ({}, {"cuda": "12.6", "arch_list": CU126}):
        where = facts(gpus=WITH_DISPLAY, **more)
        assert findings_of(profile(), where) == ()
        made = plan(profile(), where)
        assert made.gpus == UUIDS
        assert f"GPU 1 {GT_1030['name']}: " in made.notes[0]
    assert not plan(profile({"hardware.gpus": UUIDS}), where).notes


def test_plain_python_takes_the_first_of_several_cards_only_by_name():
    where = facts(gpus=(gpu(0), gpu(1)))
    (error,) = errors({"trainer.launcher": "python"}, where)
    assert (error.key, dict(error.change.edits)) == ("trainer.launcher", {"trainer.launcher": "torchrun"})
    assert errors({"trainer.launcher": "python", "hardware.gpus": UUIDS[1:]}, where) == []
    assert errors({"trainer.launcher": "python"}, facts(gpus=(gpu(0),))) == []


# As a user has it


@pytest.mark.whole
def test_two_cards_and_a_torch_for_the_cpu(tmp_path):
    for words in (("plan", "quickstart"), ("export", "quickstart", str(tmp_path / "out")), ("run", "quickstart")):
        said = run_cli_on_machine(*words, code=69).stderr
        assert all(
            part in said for part in ("2 RTX 3090 are idle", "(torch 2.13 for CUDA 12.9)", "hardware.device=cpu")
        )
    assert not (tmp_path / "out").exists()
    assert run_cli_on_machine("export", "quickstart", str(tmp_path / "out"), "--set=hardware.device=cpu").stderr == ""
    assert (tmp_path / "out" / "launch.sh").exists()


@pytest.mark.whole
@pytest.mark.training
@pytest.mark.parametrize("on", sample(["two-3090", "version-mismatch"], 2))
def test_the_quickstart_says_first_and_last_that_it_trains_on_the_cpu(on):
    out = run_cli_on_machine("quickstart", *SMALL, on=on).stdout
    lines = out.splitlines()
    assert lines[1].startswith("! This trains on the CPU")
    assert lines[-2:] == lines[1:3]
    assert ("env create hf" if on == "two-3090" else "Reboot") in lines[-1]
    assert "done | model saved in" in out


def test_the_quickstart_changes_nothing_that_was_chosen():
    said = run_cli_on_machine("quickstart", "--set=hardware.device=cuda", code=69)
    assert "no GPU here can train" in said.stderr
    assert "changed" not in said.stdout


# make run


def test_a_small_card_that_is_left_out_pulls_no_other_build():
    for driver, cuda in (("13.0", "13.0"), ("12.8", "12.9")):
        found = recommended_torch_build(msgspec.structs.replace(machine(gpus=WITH_DISPLAY), driver_cuda=driver))
        assert (found.cuda, found.why.partition(";")[0]) == (cuda, f"the build for CUDA {cuda} supports all 2 GPUs")


def test_facts_and_plan_advise_the_same_torch_that_the_driver_can_run():
    """No "or later", which would take a build that it cannot."""
    cards = (gpu(0, **CLOCK), gpu(1, UUIDS[1], **CLOCK))
    old = toolchain(torch="2.6.0+cu118", cuda="11.8", arch_list=("sm_50", "sm_60", "sm_70"))
    box = msgspec.structs.replace(machine(gpus=cards), driver_cuda="12.8")
    where = Facts(machine=box, toolchains=(old,))
    (finding,) = [each for each in findings_of(profile(), where) if each.key == "hardware.device"]
    said = [plain_text.facts_text(where, old, ()), finding.remedy, finding.fix.title]
    for text in said:
        assert "torch 2.13 for CUDA 12.9" in text
        assert "or later" not in text


@pytest.mark.parametrize("pip", ["--index-url https://mine", "-f /wheels", "--find-links=/wheels --no-index"])
def test_pip_arguments_that_name_an_index_win(pip):
    words, *said = makefile_helper.pip_torch_arguments_and_messages(machine(gpus=(gpu(0),)), pip)
    assert words == ""
    assert "CUDA 12.9" in said[-1]


def test_cards_for_which_there_is_no_build_get_the_small_one_and_the_reason():
    words, *said = makefile_helper.pip_torch_arguments_and_messages(
        machine(gpus=(gpu(0, compute_capability="8.7"),)), ""
    )
    assert words == "--index-url https://download.pytorch.org/whl/cpu torch==2.13.0"
    assert "PyTorch for Jetson" in " ".join(said)


INDEX = "--index-url https://download.pytorch.org/whl"
# They note what they are told and install nothing; where uv is to fail, it says so by its exit code.
PIP = """\
import sys
with open({notes!r}, "a") as notes:
    notes.write("pip " + " ".join(sys.argv[1:]) + "\\n")
"""
UV = """\
#!/bin/sh
[ "$1" = --version ] || printf 'uv %s\\n' "$*" >> {notes}
[ "$1" = --version ] || [ ! -e {notes}.uv-fails ]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A checkout, and a PATH and a Python path with a uv and a pip that note, and what asks the driver."""
    if not shutil.which("timeout"):
        pytest.skip("NOT TESTED, for want of coreutils: what make run installs")
    folder = tmp_path_factory.mktemp("make run")
    (folder / "path" / "pip").mkdir(parents=True)
    (folder / "path" / "pip" / "__init__.py").touch()
    (folder / "path" / "pip" / "__main__.py").write_text(PIP.format(notes=str(folder / "notes")))
    for name in ("click", "msgspec", "packaging", "platformdirs", "psutil", "pynvml", "yaml", "tomli", "tomli_w"):
        if spec := find_spec(name):
            where = Path(spec.origin)
            where = where.parent if where.name == "__init__.py" else where
            (folder / "path" / where.name).symlink_to(where)
    make_executable(folder / "bin" / "uv", UV.format(notes=shlex.quote(str(folder / "notes"))))
    return copy_checkout(folder), folder


@pytest.fixture
def made(checkout):
    """The checkout, whose .venv is of before a change of what is needed: making it takes longer than what is tested."""
    tree, folder = checkout
    if (tree / ".venv" / ".ready").exists():
        (tree / ".venv" / ".ready").write_text(f"{tree}\nbefore\n\nrun\n")
    yield checkout
    (folder / "notes.uv-fails").unlink(missing_ok=True)


def make_run(made, on, **variables):
    """What make run prints, and what uv was told to install, or pip where uv was not asked or failed."""
    tree, folder = made
    left = {name: value for name, value in os.environ.items() if name not in {"TORCH", "PIP_ARGS", "PYTHON"}}
    base = Path(sys.base_prefix, "bin", "python3")
    more = {"PYTHONPATH": str(folder / "path"), "PYTHON": str(base), **driver_environment(on), **variables}
    more["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
    command = ["bash", ".ci/environment", "run"]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, cwd=tree, env={**left, **more}, stdout=pipe, stderr=both, text=True, check=False)
    assert done.returncode == 0, done.stdout
    installer, last = ("pip", "--progress-bar off") if (folder / "notes.uv-fails").exists() else ("uv", "-best-match")
    notes = [line for line in (folder / "notes").read_text().splitlines() if line.startswith(installer)]
    (folder / "notes").unlink()
    return done.stdout, [line.partition(last)[2].strip() for line in notes if last in line]


@pytest.mark.xdist_group("make run")
@pytest.mark.skipif(find_spec("torch") is None, reason="its absence elsewhere is what is tested")
@pytest.mark.parametrize(
    ("on", "torch", "why"),
    sample(
        [
            ("two-3090", f"{INDEX}/cu129 torch==2.13.0", "the driver does not support"),
            ("p40-v100", f"{INDEX}/cu126 torch==2.13.0", "CUDA 12.6 supports the GPU"),
            # A display card has no say.
            ("4090-t400", "torch==2.13.0", "CUDA 13.0 supports the GPU"),
            ("seed-3090-gt1030-3090", "torch==2.13.0", "CUDA 13.0 supports all 2 GPUs"),
            ("no-cards", "", ""),
        ],
        2,
    ),
)
@pytest.mark.whole
def test_make_run_installs_the_torch_for_the_cards(made, on, torch, why):
    said, asked = make_run(made, on)
    assert asked == ["-e .", *[torch] * bool(torch), "-e .[train]"]
    assert why in said
    assert ("TORCH=" in said, "PIP_ARGS=" in said, "Installing torch" in said) == (
        bool(torch),
        bool(torch),
        bool(torch),
    )


@pytest.mark.xdist_group("make run")
@pytest.mark.skipif(find_spec("torch") is None, reason="its absence elsewhere is what is tested")
@pytest.mark.parametrize("uv_fails", [False, True])
@pytest.mark.whole
def test_make_run_takes_the_torch_that_is_named(made, uv_fails):
    if uv_fails:
        (made[1] / "notes.uv-fails").touch()
    said, asked = make_run(made, "p40-v100", TORCH="2.9.1")
    assert asked == ["-e .[train-libraries] torch==2.9.1"]
    assert "Installing torch" not in said


@pytest.mark.whole
def test_make_run_says_that_its_torch_cannot_use_the_cards():
    """The check that ends it, with the torch of these tests."""
    command = [sys.executable, "-m", "tui_train.actions.environments.makefile_helper", "check"]
    root = str(Path(__file__).parents[2])
    for on, part in (("two-3090", ": .venv/bin/tui-train env create hf"), ("no-cards", "")):
        environment = {**os.environ, "PYTHONPATH": root, **driver_environment(on)}
        said = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=True).stdout
        assert bool(said) == bool(part)
        assert part in said


@pytest.mark.whole
async def test_the_wizard_goes_on_only_with_consent(monkeypatch):
    where = facts(gpus=(gpu(0), gpu(1)), **CPU)
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(live_samples, "yield_changed_samples", lambda _cancelled: iter(()))
    monkeypatch.setattr(probe, "probe_machine", lambda *_, **__: where.machine)
    monkeypatch.setattr(probe, "probe_toolchains", lambda *_, **__: where.toolchains)
    async with make_wizard().run_test(size=(80, 24)) as pilot:
        await press_keys(PRETRAIN_KEY)(pilot)
        text = " ".join(screen_text(pilot).split())
        assert "2 RTX 3090 are idle: this Python's torch cannot use GPUs. F2 installs torch 2.13 for CUDA" in text
        assert text.count("PyTorch") == 1, "the cause is told once, not for each card"
        await press_keys("enter")(pilot)
        assert "● 1 Hardware" in screen_text(pilot), "it does not go on"
        await go_to_fields(pilot, "hardware.device")
        await press_keys("right")(pilot)
        assert pilot.app.profile.hardware.device == "cpu"
        await press_keys("enter")(pilot)
        assert "● 2 Backend" in screen_text(pilot)


STUB_UV = """\
#!/bin/sh
# As the real one, for an index that cannot be reached here: it is slow, and has a torch for CUDA.
for last; do :; done
case "$*" in
  venv*) exec {python} -m venv --without-pip "$last" ;;
  *torch==*)
    site=$(echo {envs}/*/lib/python3*/site-packages)
    echo "Downloading torch (500.0MiB)"
    while [ ! -e {folder}/go ]; do sleep 0.05; done
    mkdir "$site/torch"
    printf "from . import version\\n__version__ = '2.13.0+cu129'\\n" > "$site/torch/__init__.py"
    printf "__version__ = '2.13.0+cu129'\\ncuda = '12.9'\\n" > "$site/torch/version.py"
    echo " Downloaded torch"
    ;;
  *)
    site=$(echo {envs}/*/lib/python3*/site-packages)
    for name in accelerate transformers; do
      mkdir "$site/$name" "$site/$name-9.9.dist-info"
      touch "$site/$name/__init__.py"
      printf "Metadata-Version: 2.1\\nName: $name\\nVersion: 9.9\\n" > "$site/$name-9.9.dist-info/METADATA"
    done
    ;;
esac
"""


@pytest.fixture
def slow_uv(tmp_path, monkeypatch):
    """Two idle cards, and a uv that waits for the file `go`."""
    set_variables(monkeypatch, driver_environment("two-3090"))
    names = {"python": shlex.quote(sys.executable), "envs": environments_folder(), "folder": tmp_path}
    uv = make_executable(tmp_path / "bin" / "uv", STUB_UV.format(**names))
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TEXTUAL_ANIMATIONS", "none")
    monkeypatch.setattr(live_samples, "yield_changed_samples", lambda _cancelled: iter(()))
    return tmp_path


async def shown(pilot, words):
    for _ in range(300):
        if words in " ".join(screen_text(pilot).split()):
            return
        await pilot.pause(0.1)
    raise AssertionError(f"{words} is not shown:\n{screen_text(pilot)}")


async def begin_installation(pilot):
    """Go to Hardware, and press the key that installs what the idle cards need."""
    await press_keys(PRETRAIN_KEY)(pilot)
    await shown(pilot, "2 RTX 3090 are idle")
    await pilot.press("f2")


@pytest.mark.whole
async def test_one_key_makes_the_environment_that_idle_cards_need(slow_uv):
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin_installation(pilot)
        await shown(pilot, "Downloading torch (500 MiB)")
        assert "downloaded" not in screen_text(pilot)
        await pilot.press("escape")
        await shown(pilot, "F2 shows it.")
        assert "● 1 Hardware" in screen_text(pilot)
        await pilot.press("q")
        await shown(pilot, "Packages are still being installed.")
        await pilot.press("escape", "f2")
        (slow_uv / "go").touch()
        await shown(pilot, "✓ Done: ")
        await shown(pilot, "Your settings use this Python now. Enter goes on.")
        await pilot.press("enter")
        await shown(pilot, "✓ use")
        await press_keys()(pilot)
        python = environments_folder() / "hf" / "bin" / "python"
        assert app.profile.trainer.python == str(python)
        assert "idle" not in screen_text(pilot)
        await pilot.press("enter")
        await shown(pilot, "torch 2.13.0+cu129")
        assert [path.name for path in python.parents[2].iterdir()] == ["hf"]
        assert not (python.parents[1] / UNFINISHED_MARKER_NAME).exists()


@pytest.mark.whole
@pytest.mark.parametrize("how", ["x", "quit"])
async def test_an_installation_that_does_not_end_well_leaves_nothing(slow_uv, how):
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin_installation(pilot)
        await shown(pilot, "Downloading torch")
        if how == "quit":
            await pilot.press("q", "down", "down", "enter")
        else:
            await pilot.press("x")
            await shown(pilot, "✗ The installation was cancelled")
            assert app.profile.trainer.python == ""
            assert "Nothing of the environment is left" in screen_text(pilot)
    wait_until(lambda: not list(environments_folder().iterdir()), what="something is left")


@pytest.mark.whole
@pytest.mark.parametrize("how", ["at once", "quit", "hangup"])
async def test_an_installation_goes_on_without_the_wizard_and_is_followed_again(slow_uv, how):
    (environments_folder() / "hf").mkdir(parents=True)
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin_installation(pilot)
        if how != "at once":
            await shown(pilot, "Downloading torch")
        if how != "hangup":
            await pilot.press("q", "down", "enter")
        else:
            app.save_draft_and_exit(128 + signal.SIGHUP)
    wait_until((environments_folder() / "hf-2").exists, what="it has not begun")
    app = make_wizard()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin_installation(pilot)
        await shown(pilot, "Downloading torch")
        (slow_uv / "go").touch()
        await shown(pilot, "✓ Done: ")
        assert app.profile.trainer.python == str(environments_folder() / "hf-2/bin/python")
    assert sorted(path.name for path in environments_folder().iterdir()) == ["hf", "hf-2"]
