"""Every launcher with every kind of trainer, as real processes on the CPU: they are as many as the plan says.

World size, backend and global batch are read back from what the training prints: accelerate and torchrun end with 0
after training several processes that do not know of each other.
"""

import json
import re
import subprocess
import sys

import pytest
from support import (
    SCRIPTS,
    export_run,
    facts,
    free_port,
    gpu,
    parse_command_lines,
    plain_environment,
    prepare_without_errors,
    profile,
    run_launch_script,
    sample,
    values_taken_by_preset,
)
from tiny_trainings import train_on_machines

from tui_train.base.command import argv
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

pytestmark = pytest.mark.training

OWN = ("--batch={micro_batch}", "--accumulation={accumulation}", "--steps={steps}")
BASE = {
    "trainer.python": sys.executable, "recipe.layers": 1, "recipe.hidden_size": 16, "recipe.heads": 2,
    "recipe.sequence_length": 16, "recipe.micro_batch": 2, "recipe.global_batch": 8, "recipe.steps": 2,
    "recipe.checkpoint_every": 1, "ladder.rungs": (),
}  # fmt: skip
TRAINERS = {
    "builtin": {},
    "hf": {"trainer.preset": "hf-trainer", "trainer.arguments": ("--report_to=none", "--logging_steps=1")},
    "accelerate": {"trainer.preset": "custom", "trainer.arguments": OWN}, "total": {"trainer.preset": "total-batch"},
    "sharded": {"trainer.preset": "custom", "trainer.arguments": OWN},
}  # fmt: skip
PROGRAMS = {"hf": "hf_trainer.py", "accelerate": "plain_accelerate.py", "sharded": "fully_shard.py"}


def chosen(folder, trainer, **more):
    """The profile of a tiny training by one of the TRAINERS."""
    values = {**BASE, **TRAINERS[trainer], **more}
    if trainer in PROGRAMS:
        values |= {"trainer.kind": "script", "trainer.script": str(SCRIPTS / PROGRAMS[trainer])}
    elif trainer == "total":
        (folder / "steps.yaml").write_text("steps: 2\n")
        (folder / "train.py").write_text((SCRIPTS / "total_batch.py").read_text())
        values |= {"trainer.kind": "script", "trainer.script": str(folder / "train.py")}
        values |= {"trainer.arguments": ("--config", "steps.yaml", "--stage", "x")}
    return profile(values_taken_by_preset(values))


def here(**more):
    return facts(python=BASE["trainer.python"], **more)


def log_of(run):
    return "\n".join(LogTail(run.attempt_log(1)).remaining_lines())


def assert_as_planned(plan, logs):
    """Each rank once in all the logs, the same world, the backend of the plan, its global batch in each step."""
    text = "\n".join(logs)
    ranks = [f"{rank}/{plan.world_size}" for rank in range(plan.world_size)]
    # Two ranks that print at once may share a line.
    assert sorted(re.findall(r"rank (\d+/\d+) \| host", text)) == ranks, text
    backend = (plan.backend or "gloo") if plan.world_size > 1 else "none"
    assert set(re.findall(r"backend (\w+)", text)) == {backend}, text
    steps = re.findall(r"samples (\d+)", text) or re.findall(r"^batch \| .* = global (\d+)$", text, re.MULTILINE)
    assert set(steps) == {str(plan.global_batch)}, text


@pytest.fixture(scope="module", autouse=True)
def _python(warm_python):
    """They train with a Python that has imported the libraries."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(BASE, "trainer.python", warm_python)
        yield


CELLS = [
    ("hf", "torchrun"), ("hf", "accelerate"), ("accelerate", "python"), ("accelerate", "torchrun"),
    ("accelerate", "accelerate"), ("total", "python"), ("total", "accelerate"), ("sharded", "torchrun"),
]  # fmt: skip


@pytest.mark.whole
@pytest.mark.parametrize(("trainer", "launcher"), sample(CELLS, 2))
def test_the_training_is_what_was_planned(tmp_path, trainer, launcher):
    """What is missing among the cells, test_ladder_real.py trains."""
    more = {"trainer.launcher": launcher, "hardware.processes": 1 if launcher == "python" else 2}
    run, plan = export_run(tmp_path / "run", chosen(tmp_path, trainer, **more), here())
    done = run_launch_script(run, env=plain_environment(HF_HUB_OFFLINE="1"), timeout=240)
    assert done.returncode == 0, log_of(run)
    assert_as_planned(plan, [log_of(run)])
    if trainer == "sharded":
        held, whole = zip(*re.findall(r"holds (\d+) of (\d+)", log_of(run)), strict=True)
        assert {sum(map(int, held))} == {*map(int, whole)}


@pytest.mark.parametrize(
    ("launcher", "trainer", "processes", "shared"),
    sample(
        [
            ("torchrun", "builtin", 1, True),
            ("torchrun", "total", 2, False),
            ("accelerate", "accelerate", 2, False),
            ("accelerate", "accelerate", 1, True),
        ],
        2,
    ),
)
def test_two_machines_train_together(tmp_path, launcher, trainer, processes, shared):
    """From copies of one exported folder, or in one that they share; each start leaves its files apart."""
    more = {
        "trainer.launcher": launcher, "hardware.processes": processes, "nodes.count": 2, "nodes.address": "127.0.0.1",
        "nodes.port": free_port(),
    }  # fmt: skip
    profiled = chosen(tmp_path, trainer, **more)
    first, plan = export_run(tmp_path / "first", profiled, here())
    second = first if shared else export_run(tmp_path / "second", profiled, here())[0]
    assert (plan.world_size, plan.nodes) == (2 * processes, 2)
    codes, said = train_on_machines([first, second])
    there = RunFolder(second.path / "node-1")
    logs = [log_of(first), log_of(there)]
    assert codes == [0, 0], (said, logs)
    assert_as_planned(plan, logs)
    assert all(len(re.findall(r"rank \d+/\d+ \| host", log)) == processes for log in logs)
    assert [read_status(run).state for run in (first, there)] == ["finished", "finished"]
    if trainer == "builtin":
        # Without the shared disk, one machine would start over while the other goes on.
        alone, _ = export_run(tmp_path / "alone", profiled, here())
        assert run_launch_script(first, "--node-rank=0").returncode == 64
        assert run_launch_script(alone, "--node-rank=1", "--resume").returncode == 69
        # Where each has a disk and a checkpoint of its own, the trainer itself compares them: test_trainer.py.
        codes, said = train_on_machines([first, second], "--resume")
        assert codes == [0, 0], said
        resumed = "\n".join(LogTail(first.attempt_log(2)).remaining_lines())
        assert "{'loss'" not in resumed
        assert "done | model saved in" in resumed


@pytest.mark.whole
def test_the_built_in_trainer_learns_the_same_when_it_is_sharded(tmp_path):
    """With the variables that accelerate launch makes of our configuration, but on the CPU; it resumes too."""
    values = {**BASE, "trainer.launcher": "accelerate", "trainer.strategy": "fsdp2", "recipe.steps": 4}
    values |= {"recipe.layers": 2, "recipe.checkpoint_every": 2}
    prepared = prepare_without_errors(profile(values), here(gpus=(gpu(0), gpu(1))))
    run, _ = export_run(tmp_path / "run", profile(values), here(gpus=(gpu(0), gpu(1))))
    words = argv(prepared.plan.attempts[0].command, str(run.path))
    variables = parse_command_lines("accelerate", [words[3:]])["found"][0]["env"]
    assert variables["ACCELERATE_USE_FSDP"] == "true"
    trainer = [word.replace("--expect=2xcuda", "--expect=2xcpu") for word in words[4:]]
    ours = {"CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "GLOO_SOCKET_IFNAME": "lo"}

    def trained(output, *more, sharded="true"):
        words = [word for word in trainer if not word.startswith("--output_dir=")]
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
        done = subprocess.run(
            [BASE["trainer.python"], *torchrun, SCRIPTS / "fsdp_on_cpu.py", *words, f"--output_dir={output}", *more],
            env=plain_environment(**{**variables, **ours, "ACCELERATE_USE_FSDP": sharded}),
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        history = json.loads((output / "checkpoint-4" / "trainer_state.json").read_text())["log_history"]
        return [{line["step"]: line[name] for line in history if name in line} for name in ("loss", "grad_norm")]

    whole = trained(tmp_path / "whole", sharded="false")
    shared = trained(tmp_path / "shared")
    assert shared[0] == pytest.approx(whole[0], abs=1e-5)
    assert shared[1] == pytest.approx(whole[1], rel=1e-4)
    checkpoint = tmp_path / "shared" / "checkpoint-2"
    assert [*checkpoint.glob("pytorch_model_fsdp_0/__1_*.distcp")], "the second rank saves its share"
    resumed = trained(tmp_path / "again", f"--resume_from_checkpoint={checkpoint}")
    assert resumed[0] == pytest.approx(shared[0], abs=1e-6)
    from safetensors.numpy import load_file

    saved = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "shared", "again")]
    for name, weights in saved[0].items():
        for other in saved[1:]:
            assert other[name] == pytest.approx(weights, abs=1e-4)
