"""Communication: what a profile asks for reaches the processes, and what has no effect is said."""

import contextlib
import os

import msgspec
import pytest
from support import (
    SCRIPTS,
    UUIDS,
    export_run,
    facts,
    findings_of,
    gpu,
    plain_environment,
    plan,
    profile,
    run_launch_script,
    sample,
    toolchain,
)

from tui_train.checks.machine.ineffective_variables import (
    REASON_OR_FINDER_BY_VARIABLE,
    VariableReaders,
    why_ineffective,
)
from tui_train.facts.machine.inherited_settings import read_inherited_variables
from tui_train.facts.machine.variable_problems import variable_problem
from tui_train.facts.types import InheritedVariable
from tui_train.launchers import LAUNCHERS
from tui_train.profile.changes import apply_change
from tui_train.profile.types import Profile
from tui_train.runs.ranks import PlannedRanks, differences_from_plan, parse_rank_devices
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_workaround_ignored

TWO = facts(gpus=(gpu(0), gpu(1)), packages={"nvidia-nccl-cu12": "2.27.3"})
CPU = facts()
TORCHRUN = {"hardware.processes": 2, "trainer.launcher": "torchrun"}
GLOO = {"communication.backend": "gloo"}

# A script that insists on NCCL, in the three ways in which scripts make their process group.
PLAIN = """
import torch, torch.distributed as dist
dist.init_process_group("nccl", device_id=torch.device("cuda", 0))
second = dist.new_group(backend="nccl")
total = torch.ones(1)
dist.all_reduce(total)
dist.all_reduce(total, group=second)
dist.barrier(device_ids=[0])
"""
ACCELERATE = """
import torch, torch.distributed as dist
from accelerate import PartialState
state = PartialState()
total = torch.ones(1)
dist.all_reduce(total)
dist.all_reduce(total)
assert state.backend == "gloo", state.backend
assert str(state.distributed_type).endswith("MULTI_GPU"), state.distributed_type
state.wait_for_everyone()
"""
NAMED = ACCELERATE.replace("PartialState()", "PartialState(backend='nccl')")
TRAINER = """
import torch, torch.distributed as dist
from transformers import HfArgumentParser, TrainingArguments
arguments = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(return_remaining_strings=True)[0]
arguments.device
total = torch.ones(1)
dist.all_reduce(total)
dist.all_reduce(total)
"""
SAYS = """
import os, sys
torch.zeros(1, requires_grad=True).sum().backward()
print(f"it is {dist.get_backend()} of {dist.get_world_size()}, {int(total)}", flush=True)
dist.destroy_process_group()
sys.stdout.flush(), sys.stderr.flush()
os._exit(0)
"""


def variables_of(values, where):
    command = plan(profile(values), where).attempts[0].command
    return {setting.name: setting.value for setting in command.env}


def trained(folder, source, where, variables=(), **values):
    """The plan of a script that insists on NCCL, how it ended, and its log."""
    (folder / "train.py").write_text(source + SAYS)
    chosen = {"kind": "script", "preset": "custom", "launcher": "torchrun", "script": str(folder / "train.py")} | values
    chosen = {key if "." in key else f"trainer.{key}": value for key, value in chosen.items()}
    where = msgspec.structs.replace(where, toolchains=(toolchain(python=values["python"]),))
    run, made = export_run(folder / "run", profile(chosen), where)
    done = run_launch_script(run, "--plain", env=plain_environment(**dict(variables)))
    return made, done.returncode, (done.stdout + done.stderr).decode()


@pytest.mark.training
@pytest.mark.parametrize(
    ("source", "launcher", "preset"),
    sample(
        [
            (PLAIN, "torchrun", "custom"),
            (PLAIN, "accelerate", "custom"),
            (ACCELERATE, "torchrun", "custom"),
            (ACCELERATE, "accelerate", "custom"),
            (NAMED, "torchrun", "custom"),
            (TRAINER, "torchrun", "hf-trainer"),
            (TRAINER, "accelerate", "hf-trainer"),
        ],
        3,
        1,
    ),
)
def test_a_script_that_insists_on_nccl_talks_by_gloo(tmp_path, warm_python, source, launcher, preset):
    """What reaches the process group is Gloo, on a machine that says it has CUDA; and the run shows it."""
    fake = {"PYTHONPATH": str(SCRIPTS / "fake_cuda"), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    made, code, log = trained(tmp_path, source, TWO, fake, python=warm_python, launcher=launcher, preset=preset, **GLOO)
    assert (made.backend, code, log.count("it is gloo of 2, 4")) == ("gloo", 0, 2), log
    told = parse_rank_devices(log.splitlines())
    assert {rank.backend for rank in told} == {"gloo"}, log
    assert differences_from_plan(told, PlannedRanks(world_size=2, backend="gloo")) == ()


@pytest.mark.training
@pytest.mark.parametrize(("launcher", "chosen"), [("torchrun", GLOO), ("accelerate", GLOO), ("torchrun", {})])
def test_a_chosen_gloo_on_the_cpu_holds_for_a_script_that_insists_on_nccl(tmp_path, warm_python, launcher, chosen):
    """On a machine without cards; where Gloo is only what auto means there, the script's own word stays, and fails."""
    values = {"python": warm_python, "launcher": launcher, "hardware.processes": 2, **chosen}
    made, code, log = trained(tmp_path, PLAIN, CPU, **values)
    assert made.backend == "gloo"
    assert (code == 0, log.count("it is gloo of 2, 4")) == ((True, 2) if chosen else (False, 0)), log


def test_cures_become_variables_where_something_reads_them():
    all_of_them = {"communication.without": tuple(NCCL_WORKAROUNDS), "communication.debug": "warn", **TORCHRUN}
    found = variables_of(all_of_them, TWO)
    assert {name: found[name] for name in ("NCCL_CUMEM_HOST_ENABLE", "NCCL_P2P_DISABLE", "NCCL_DEBUG")} == {
        "NCCL_CUMEM_HOST_ENABLE": "0", "NCCL_P2P_DISABLE": "1", "NCCL_DEBUG": "WARN",
    }  # fmt: skip
    assert "TORCH_DIST_USE_NCCL2" not in found, "this torch is older"
    old = facts(gpus=(gpu(0), gpu(1)), packages={"nvidia-nccl-cu12": "2.21.5"})
    assert "NCCL_CUMEM_HOST_ENABLE" not in variables_of(all_of_them, old)
    assert any("begins with NCCL 2.23" in finding.message for finding in findings_of(profile(all_of_them), old))
    for by_gloo in variables_of({**all_of_them, **GLOO}, TWO), variables_of(all_of_them, CPU):
        assert not any(name.startswith("NCCL") for name in by_gloo)
    assert why_workaround_ignored(NCCL_WORKAROUNDS["nccl2"], toolchain(torch="2.15.0")) == ""


def test_the_interface_is_named_exactly():
    found = variables_of({"communication.interface": "eth0", **TORCHRUN}, TWO)
    assert found["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert found["GLOO_SOCKET_IFNAME"] == "eth0"
    assert variables_of({**GLOO, **TORCHRUN}, TWO)["GLOO_SOCKET_IFNAME"] == "lo"


def test_no_fallback_leads_to_what_gloo_does_wrong():
    """FSDP2 over Gloo has wrong gradients before torch 2.9: the rung that shards is left out there."""
    wanted = {"trainer.launcher": "accelerate", "ladder.rungs": ("sharding",), **GLOO}
    for torch, titles in (("2.8.0", ["as planned"]), ("2.13.0", ["as planned", "sharding with FSDP2"])):
        found = facts(gpus=(gpu(0), gpu(1)), torch=torch)
        assert [attempt.title for attempt in plan(profile(wanted), found).attempts] == titles


def test_a_sick_card_matters_to_nccl_only():
    lost = facts(gpus=(gpu(0), gpu(1), gpu(2, "GPU-2", problem="lost")))
    told = [
        any("NCCL opens every GPU" in one.message for one in findings_of(profile(values), lost))
        for values in ({}, GLOO)
    ]
    assert told == [True, False]


OLD_NCCL = toolchain(packages={"nvidia-nccl-cu12": "2.20.5"})


@pytest.mark.parametrize(
    ("name", "tool", "launcher", "talks", "words"),
    [
        ("ACCELERATE_USE_GLOO", toolchain(), "accelerate", "nccl", "no version of accelerate"),
        ("ACCELERATE_MIXED_PRECISION", None, "accelerate", "", "recipe.precision"),
        ("ACCELERATE_MIXED_PRECISION", None, "torchrun", "", ""),
        ("MASTER_PORT", toolchain(), "torchrun", "nccl", "does not read it"),
        ("MASTER_PORT", toolchain(), "python", "", ""),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", toolchain(torch="2.13.0"), "python", "nccl", "the default"),
        ("TORCH_NCCL_AVOID_RECORD_STREAMS", toolchain(torch="2.7.1"), "python", "nccl", ""),
        ("WANDB_DISABLED", toolchain(transformers="5.23.0"), "python", "", "WANDB_MODE"),
        ("WANDB_DISABLED", toolchain(transformers="4.57.6"), "python", "", ""),
        ("PYTORCH_ALLOC_CONF", toolchain(torch="2.8.0"), "python", "", "ignores it"),
        ("PYTORCH_ALLOC_CONF", toolchain(torch="2.13.0"), "python", "", ""),
        ("NCCL_P2P_DISABLE", toolchain(), "torchrun", "gloo", "only NCCL reads it"),
        ("NCCL_P2P_DISABLE", toolchain(), "torchrun", "nccl", ""),
        ("NCCL_CUMEM_HOST_ENABLE", OLD_NCCL, "torchrun", "nccl", "begins with NCCL 2.23, this is 2.20.5"),
        ("HF_HOME", None, "torchrun", "", ""),
    ],
)
def test_dead_variables(name, tool, launcher, talks, words):
    told = why_ineffective(name, VariableReaders(tool, launcher, talks))
    assert words in told if words else told == ""


@pytest.mark.parametrize(
    ("argument", "told"),
    [("--lr=1", True), ("--tensor-model-parallel-size", False),
     ("model.tensor_parallel=2", False), ("--tp_size", False), ("--http_size", True)],
)  # fmt: skip
def test_a_variable_of_tensor_parallel_training_is_dead_where_no_argument_names_that(argument, told):
    own = {"trainer.environment": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}, "trainer.arguments": (argument,), **TORCHRUN}
    found = [finding for finding in findings_of(profile(own), CPU) if "CUDA_DEVICE_MAX" in finding.message]
    assert ["slows any other" in finding.message for finding in found] == [True] * told


def test_every_dead_variable_has_its_reason_somewhere():
    tools = (None, toolchain(torch="2.8.0"), toolchain(torch="2.15.0"))
    runs = [VariableReaders(tool, launcher, talks) for tool in tools
            for launcher in LAUNCHERS for talks in ("", "nccl")]  # fmt: skip
    assert all(any(why_ineffective(name, run) for run in runs) for name in REASON_OR_FINDER_BY_VARIABLE)


def test_dead_variables_of_profile_and_environment_are_reported():
    own = {"trainer.environment": {"ACCELERATE_USE_GLOO": "1", "HF_HOME": "/h"}, **TORCHRUN}
    (finding,) = findings_of(profile(own), CPU)
    assert finding.level == "warning"
    assert apply_change(finding.change, profile(own)).trainer.environment == {"HF_HOME": "/h"}
    inherited = (InheritedVariable("MASTER_PORT", "the environment"), InheritedVariable("NCCL_DEBUG", "~/.nccl.conf"))
    (finding,) = findings_of(profile(TORCHRUN), msgspec.structs.replace(CPU, variables=inherited))
    assert finding.level == "note"
    assert finding.message.startswith("MASTER_PORT, set in the environment: torchrun does not read it")
    found = findings_of(Profile(), msgspec.structs.replace(TWO, variables=inherited))
    assert [item.message for item in found if item.key == "communication.backend"] == [
        "~/.nccl.conf sets NCCL_DEBUG for every training with NCCL on this machine"
    ]


@pytest.mark.parametrize(
    ("chosen", "variables", "message"),
    [
        ({"communication.without": ("p2p",)}, {"NCCL_P2P_DISABLE": "0"}, "overrides communication.without (1)"),
        ({"communication.without": ("p2p",)}, {"NCCL_P2P_DISABLE": "1"}, ""),
        ({"communication.without": ("shm",)}, {"NCCL_P2P_DISABLE": "0"}, ""),
        ({"communication.debug": "warn"}, {"NCCL_DEBUG": "INFO"}, "overrides communication.debug (WARN)"),
        ({"communication.debug": "warn"}, {"NCCL_DEBUG": "warn"}, ""),
        ({"communication.interface": "eth0"}, {"NCCL_SOCKET_IFNAME": "ib0"}, "overrides communication.interface"),
        ({"communication.interface": "eth0"}, {"NCCL_SOCKET_IFNAME": "eth0"}, ""),
        ({"recipe.expandable_segments": True}, {"PYTORCH_CUDA_ALLOC_CONF": "a:64"}, "overrides recipe.exp"),
        ({"recipe.expandable_segments": True}, {"PYTORCH_ALLOC_CONF": "a:1,expandable_segments:True"}, ""),
        ({"tracking.wandb": True, "tracking.project": "a"}, {"WANDB_PROJECT": "b"}, "overrides tracking.project (a)"),
        ({"tracking.trackio": True, "tracking.project": "a"}, {"TRACKIO_PROJECT": "b"}, ""),
        # The same checks as of a key's value.
        ({}, {"NCCL_SOCKET_IFNAME": "eth9"}, "no such network interface"),
        ({}, {"NCCL_SOCKET_IFNAME": "=eth"}, "no such network interface"),
        ({}, {"GLOO_SOCKET_IFNAME": "eth"}, "no such network interface"),
        ({}, {"NCCL_SOCKET_IFNAME": "eth"}, ""),
        ({}, {"NCCL_SOCKET_IFNAME": "en,eth0:5000"}, ""),
        ({}, {"NCCL_SOCKET_IFNAME": "^docker,lo"}, ""),
        ({}, {"OMP_NUM_THREADS": "many"}, "not a number of threads"),
        ({}, {"OMP_NUM_THREADS": "4,2"}, ""),
    ],
)
def test_a_variable_is_checked_as_its_key_is(chosen, variables, message):
    other = {"HF_HOME": "/h"}
    values = profile({**TORCHRUN, **chosen, "trainer.environment": {**variables, **other}})
    there = msgspec.structs.replace(TWO.machine, interfaces=("eth0", "ib0", "lo"))
    tools = (toolchain(packages={"wandb": "0.31.0"}),)
    where = msgspec.structs.replace(TWO, machine=there, toolchains=tools)
    found = [item for item in findings_of(values, where) if next(iter(variables)) in item.message]
    assert [item.level for item in found] == (["error"] if message else [])
    if message:
        assert message in found[0].message
        assert apply_change(found[0].change, values).trainer.environment == other


@pytest.mark.parametrize(
    ("name", "value", "correct_name", "correct_value"),
    [
        ("NCCL_P2P_DISABLED", "1", "NCCL_P2P_DISABLE", "1"),
        ("NCCL_SOCKET_IFNAMES", "eth0", "NCCL_SOCKET_IFNAME", "eth0"),
        ("NCCL_DEBGU", "INFO", "NCCL_DEBUG", "INFO"),
        ("PYTORCH_CUDA_ALLOC_CONFIG", "a:1", "PYTORCH_CUDA_ALLOC_CONF", "a:1"),
        ("HF_HUB_OFFINE", "1", "HF_HUB_OFFLINE", "1"),
        ("NCCL_DEBUG", "debug", "", "INFO"),
        ("NCCL_DEBUG", "warn", None, None),
        ("NCCL_IB_DISABLE", "true", "", "1"),
        ("NCCL_IB_DISABLE", "0x1", None, None),
        ("NCCL_IB_DISABLE", "off", None, None),
        ("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", "10m", None, None),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "true", "", ""),
        ("CUDA_LAUNCH_BLOCKING", "1", "", ""),
        ("CUDA_LAUNCH_BLOCKING", "0", None, None),
        # Real ones that differ in a few letters, and somebody's own.
        *((name, "1", None, None) for name in (
            "NCCL_IB_HCA", "NCCL_IB_TC", "NCCL_IB_SL", "NCCL_MAX_CTAS", "NCCL_MIN_CTAS", "NCCL_P2P_LEVEL",
            "NCCL_NVB_DISABLE", "NCCL_DEBUG_TIMESTAMP_FORMAT", "NCCL_MIN_P2P_NCHANNELS", "PYTORCH_HIP_ALLOC_CONF",
            "CUDA_HOME", "HF_HOME", "HF_XET_CACHE", "WANDB_MODE", "WANDB_NOTES", "WANDB_NAME", "MY_NCCL_DEBUG",
        )),
    ],
)  # fmt: skip
def test_a_variable_that_is_not_read_as_meant(name, value, correct_name, correct_value):
    problem = variable_problem(name, value)
    assert (problem and (problem.name, problem.value)) == (
        (correct_name, correct_value) if correct_value is not None else None
    )


ALLOCATOR_OPTIONS = {
    "expandable_segments:True": True,
    " max_split_size_mb : 128 , expandable_segments:True,": True,
    "roundup_power2_divisions:[256:1,512:2,>:8],garbage_collection_threshold:0.8": True,
    "expandable_segments=True": False,
    "expandable_segments:true": False,
    "max_split_size_mb:512;expandable_segments:True": False,
    "max_split_size_mb:10": False,
    "max_split_size_mb:many": False,
    "garbage_collection_threshold:2": False,
}


def test_the_options_of_the_allocator_are_judged_as_torch_does():
    judged = {text: variable_problem("PYTORCH_CUDA_ALLOC_CONF", text) for text in ALLOCATOR_OPTIONS}
    assert {text: problem is None for text, problem in judged.items()} == ALLOCATOR_OPTIONS
    corrected = [problem.value for problem in judged.values() if problem and problem.value]
    assert [variable_problem("PYTORCH_CUDA_ALLOC_CONF", text) for text in corrected] == [None] * 3


@pytest.mark.parametrize("text", ALLOCATOR_OPTIONS)
def test_torch_takes_or_refuses_the_options_of_the_allocator(text):
    torch = pytest.importorskip("torch", reason="NOT TESTED, for want of torch: what its allocator refuses")
    apply = getattr(torch._C, "_accelerator_setAllocatorSettings", None) or pytest.skip("torch before 2.9")
    with contextlib.nullcontext() if ALLOCATOR_OPTIONS[text] else pytest.raises((RuntimeError, ValueError)):
        apply(text)


@pytest.mark.parametrize(
    ("variables", "where", "level", "rest"),
    [
        ({"NCCL_P2P_DISABLED": "1"}, TWO, "warning", {"NCCL_P2P_DISABLE": "1"}),
        ({"NCCL_P2P_DISABLED": "1", "NCCL_P2P_DISABLE": "0"}, TWO, "warning", {"NCCL_P2P_DISABLE": "0"}),
        ({"CUDA_VISIBLE_DEVICE": "1"}, TWO, "warning", {}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments=True"}, TWO, "error",
         {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments=True"}, CPU, "", {}),
        ({"TORCH_DISTRIBUTED_DEBUG": "on"}, TWO, "error", {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}),
        ({"CUDA_LAUNCH_BLOCKING": "1"}, TWO, "warning", {}),
        ({"NCCL_IB_DISABLED": "1"}, facts(gpus=(gpu(0),)), "", {}),
    ],
)  # fmt: skip
def test_a_misread_variable_is_corrected(variables, where, level, rest):
    chosen = profile({"trainer.environment": variables})
    said = [each for each in findings_of(chosen, where) if each.change and "environment" in each.change.edits[0][0]]
    of_misread = [each for each in said if "only NCCL reads" not in each.message]
    assert [each.level for each in of_misread] == [level] * bool(level)
    if level:
        corrected = apply_change(of_misread[0].change, chosen)
        assert corrected.trainer.environment == rest
        assert findings_of(corrected, where) == ()


def test_a_misread_variable_of_the_shell_is_a_note_unless_the_profile_sets_it(monkeypatch, tmp_path):
    (tmp_path / "nccl.conf").write_text("NCCL_IB_DISABLE = 1\nNCCL_DEBUG=WARN\nNCCL_SOCKET_IFNAMES=eth0\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "nccl.conf"))
    monkeypatch.setenv("NCCL_SHM_DISABLED", "1")
    where = msgspec.structs.replace(TWO, variables=read_inherited_variables())
    problems = {each.name: bool(each.problem) for each in where.variables}
    assert problems["NCCL_SHM_DISABLED"]
    assert [problems[name] for name in ("NCCL_IB_DISABLE", "NCCL_DEBUG", "NCCL_SOCKET_IFNAMES")] == [True, False, True]
    said = [each for each in findings_of(Profile(), where) if "NCCL_SHM_DISABLED" in each.message]
    assert [each.level for each in said] == ["note"]
    own = profile({"trainer.environment": {"NCCL_SHM_DISABLED": "1"}})
    assert [each.level for each in findings_of(own, where) if "NCCL_SHM_DISABLED" in each.message] == ["warning"]
    spaced = [each for each in findings_of(Profile(), where) if "NCCL_IB_DISABLE" in each.message]
    assert len(spaced) == 1
    assert "spaces" in spaced[0].message


@pytest.mark.parametrize(
    ("value", "chosen", "change"),
    [
        ("1", {}, {"hardware.gpus": UUIDS[1:]}),
        (UUIDS[0], {}, {"hardware.gpus": UUIDS[:1]}),
        ("", {}, {"hardware.device": "cpu"}),
        ("-1", {}, {"hardware.device": "cpu"}),
        ("7", {}, None),
        ("1,0", {}, ()),
        ("1", {"hardware.gpus": UUIDS}, ()),
        ("1", {"hardware.device": "cpu"}, ()),
    ],
)
def test_cards_that_the_shell_hides_are_not_taken_silently(monkeypatch, value, chosen, change):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    where = msgspec.structs.replace(TWO, variables=read_inherited_variables())
    said = [each for each in findings_of(profile(chosen), where) if "CUDA_VISIBLE_DEVICES" in each.message]
    assert [each.change and dict(each.change.edits) for each in said] == ([] if change == () else [change])


def test_variables_are_found_by_name_without_their_values(monkeypatch, tmp_path):
    for name in list(os.environ):
        if name.startswith(("NCCL", "MASTER", "GLOO", "ACCELERATE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("MY_SECRET", "x")
    (tmp_path / "mine.conf").write_bytes(b"# NCCL_A=1\nNCCL_IB_DISABLE=1 # why\n\xff\nno line\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(tmp_path / "mine.conf"))
    found = {variable.name: variable.source for variable in read_inherited_variables()}
    assert found["NCCL_DEBUG"] == "the environment"
    assert found["NCCL_IB_DISABLE"] == str(tmp_path / "mine.conf")
    assert "NCCL_A" not in found
    assert "MY_SECRET" not in found
