"""What the plan gives torchrun and accelerate launch, read by their own parsers: the installed ones, and older ones."""

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from support import (
    RUN_WHOLE_MATRICES,
    SCRIPTS,
    UUIDS,
    facts,
    findings_of,
    free_port,
    gpu,
    package_folder,
    parse_command_lines,
    plain_environment,
    prepare_without_errors,
    profile,
)

from tui_train.base.command import ADDRESS_VARIABLE, Command, argv
from tui_train.facts.machine import probe
from tui_train.launchers import LAUNCHERS, choose_launcher, launchers_supporting, torchrun
from tui_train.launchers.launcher import LauncherJob
from tui_train.profile.types import LauncherName, Strategy

HF = {"trainer.kind": "script", "trainer.script": "/t.py", "trainer.preset": "hf-trainer"}
WAYS = [*itertools.product(
    ("ddp", "fsdp2", "zero1", "zero2", "zero3"), (False, True), (0, 1, 2), ("fp32", "bf16", "fp16"), (1, 2),
)]  # fmt: skip

pytestmark = pytest.mark.xdist_group("launchers")


def planned(folder, launcher):
    """All that can be planned for a launcher, each with the words after it and its place among WAYS."""
    port = free_port()
    for number, (strategy, offload, cards, precision, nodes) in enumerate(WAYS):
        values = {
            **HF, "trainer.launcher": launcher, "trainer.strategy": strategy, "trainer.offload": offload,
            "hardware.processes": 0 if cards else 2, "recipe.precision": precision, "recipe.micro_batch": 2,
            "recipe.global_batch": 16, "nodes.count": nodes, "nodes.address": "127.0.0.1", "nodes.port": port,
        }  # fmt: skip
        found = facts(gpus=[gpu(place) for place in range(cards)], packages={"deepspeed": "0.19.8"})
        if any(finding.level == "error" for finding in findings_of(profile(values), found)):
            continue
        prepared = prepare_without_errors(profile(values), found)
        run = folder / str(number)
        run.mkdir()
        for file in prepared.files:
            if file.path.startswith("accelerate"):
                (run / file.path).write_text(file.text)
        for attempt in prepared.plan.attempts:
            rank = nodes - 1
            yield number, prepared.plan, argv(attempt.command, str(run), "", rank, prepared.plan.address)[3:]


@pytest.fixture(scope="module")
def older(tmp_path_factory):
    """Where another version of accelerate lies, installed beside this one's other libraries."""

    def make(version):
        return package_folder(f"accelerate=={version}", f"accelerate {version}", tmp_path_factory.mktemp("pip"))

    return make


@pytest.mark.whole
@pytest.mark.parametrize("version", ["installed", *(["1.6.0", "1.10.0"] if RUN_WHOLE_MATRICES else [])])
def test_accelerate_understands_every_configuration(tmp_path, older, version):
    cases = [*planned(tmp_path, "accelerate")]
    assert {WAYS[number][0] for number, *_ in cases} == {"ddp", "fsdp2", "zero1", "zero2", "zero3"}
    assert len(cases) > 100
    told = parse_command_lines(
        "accelerate", [words for *_, words in cases], "" if version == "installed" else older(version)
    )
    assert version in {"installed", told["version"]}
    for (number, made, words), found in zip(cases, told["found"], strict=True):
        strategy, offload, cards, precision, nodes = WAYS[number]
        assert "refused" not in found, (WAYS[number], found)
        assert found["ignored"] == []
        several = strategy != "ddp" or made.world_size > 1
        how = {"ddp": "multi_gpu" if several else "simple", "fsdp2": "multi_gpu"}.get(strategy, "deepspeed")
        assert found["launcher"] == f"{how}_launcher", WAYS[number]
        env = found["env"]
        assert env["ACCELERATE_MIXED_PRECISION"] == {"fp32": "no"}.get(precision, precision)
        assert env.get("CUDA_VISIBLE_DEVICES") == (",".join(UUIDS[:cards]) if cards and nodes == 1 else None)
        if several:
            assert (found["processes"], found["machines"]) == (str(made.world_size // made.nodes), nodes)
        if nodes > 1:
            assert (found["rank"], found["address"], found["static"]) == (1, "127.0.0.1", "static")
            (config,) = (word.partition("=")[2] for word in words if word.startswith("--config_file="))
            assert f"main_process_port: {found['port']}\n" in Path(config).read_text()
        if strategy == "fsdp2":
            assert env["ACCELERATE_USE_FSDP"] == "true"
            assert env["FSDP_VERSION"] == "2"
            assert env["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
            assert env["FSDP_AUTO_WRAP_POLICY"] == "TRANSFORMER_BASED_WRAP"
            assert env["FSDP_CPU_RAM_EFFICIENT_LOADING"] == "true"
            assert env["FSDP_OFFLOAD_PARAMS"] == str(offload).lower()
        elif how == "deepspeed":
            assert env["ACCELERATE_USE_DEEPSPEED"] == "true"
            assert env["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == strategy[-1]
            assert env["ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE"] == ("cpu" if offload else "none")
            param = "cpu" if offload and strategy == "zero3" else "none"
            assert env["ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE"] == param
            given = next(word for word in words if word.startswith("--gradient_accumulation_steps="))
            assert env["ACCELERATE_GRADIENT_ACCUMULATION_STEPS"] == given.partition("=")[2]
            assert float(env["ACCELERATE_GRADIENT_CLIPPING"]) == 1.0
        else:
            assert "ACCELERATE_USE_FSDP" not in env
            assert "ACCELERATE_USE_DEEPSPEED" not in env


@pytest.mark.whole
def test_torchrun_understands_every_command(tmp_path):
    cases = [*planned(tmp_path, "torchrun")]
    assert len(cases) >= 12
    told = parse_command_lines("torchrun", [words for *_, words in cases])
    for (number, made, _), found in zip(cases, told["found"], strict=True):
        nodes = WAYS[number][-1]
        assert "refused" not in found, (WAYS[number], found)
        assert (found["nodes"], found["processes"]) == ([nodes, nodes], made.world_size // made.nodes)
        assert (found["restarts"], found["script"]) == (0, "/t.py")
        if nodes == 1:
            assert (found["rendezvous"], found["address"]) == ("c10d", "127.0.0.1")
        else:
            assert (found["rendezvous"], found["rank"]) == ("static", 1)
            assert found["endpoint"].startswith("127.0.0.1:")


def test_a_flag_that_is_not_there_is_refused_by_these_parsers():
    """Or the tests above could not fail."""
    assert "refused" in parse_command_lines("torchrun", [["--standaloner", "t.py"]])["found"][0]
    assert "refused" in parse_command_lines("accelerate", [["--config_file=/nowhere.yaml", "t.py"]])["found"][0]


@pytest.fixture(scope="module")
def offered():
    """The flags that the installed torchrun's own parser has."""
    program = (
        "from torch.distributed.run import get_args_parser as parser\n"
        "print(*(flag for action in parser()._actions for flag in action.option_strings if flag[:2] == '--'))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def torchrun_words(torchrun_flags, nodes):
    job = LauncherJob(
        python="/py",
        torchrun_flags=tuple(torchrun_flags),
        processes=2,
        gpus=(),
        precision="fp32",
        nodes=nodes,
        port=1234,
    )
    command = Command(torchrun.Torchrun(job).command_parts(), (), "/")
    return argv(command, "/run", node_rank=2, address="10.0.0.1")[3:]


@pytest.mark.whole
def test_the_probe_reads_the_flags_that_torchrun_has(offered):
    assert set(probe.probe_toolchain(sys.executable).torchrun) == offered - {"--help"}


@pytest.mark.whole
@pytest.mark.parametrize("nodes", [1, 3])
def test_torchrun_is_given_its_flags_as_it_spells_them(nodes, offered):
    newest = torchrun_words(offered, nodes)
    assert torchrun_words((), nodes) == newest, "where nothing is known, it is a new one"
    underscored = {flag for flag in offered if "-" not in flag[2:]}
    older = torchrun_words(underscored, nodes)
    assert any("_" in word for word in older)
    assert not any("-" in word.partition("=")[0][2:] for word in older)
    first, second = parse_command_lines("torchrun", [[*newest, "/t.py"], [*older, "/t.py"]])["found"]
    assert first == second
    assert "refused" not in first


@pytest.mark.parametrize("nodes", [1, 3])
def test_torchrun_is_given_no_flag_that_it_has_not_got(nodes, offered):
    without = {flag for flag in offered if "max" not in flag and "local" not in flag}
    shorter = [word for word in torchrun_words(offered, nodes) if "max" not in word and "local" not in word]
    assert torchrun_words(without, nodes) == shorter
    assert len(shorter) < len(torchrun_words(offered, nodes))


@pytest.mark.training
@pytest.mark.skipif(
    "TUI_TRAIN_TEST_DEEPSPEED" not in os.environ,
    reason="NOT TESTED: DeepSpeed, for which TUI_TRAIN_TEST_DEEPSPEED names a Python",
)
@pytest.mark.parametrize("offload", [False, True], ids=["", "offload"])
@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_deepspeed_trains_as_it_is_told(tmp_path, stage, offload):
    chosen = {
        "trainer.kind": "script", "trainer.script": str(SCRIPTS / "plain_accelerate.py"), "trainer.preset": "custom",
        "trainer.arguments": ("--batch={micro_batch}", "--accumulation={accumulation}", "--steps={steps}"),
        "trainer.launcher": "accelerate", "trainer.strategy": stage, "trainer.offload": offload,
        "recipe.precision": "fp32", "recipe.micro_batch": 2, "recipe.global_batch": 8, "recipe.steps": 4,
    }  # fmt: skip
    prepared = prepare_without_errors(profile(chosen), facts(gpus=[gpu(0), gpu(1)], packages={"deepspeed": "0.19.8"}))
    words = argv(prepared.plan.attempts[0].command, str(tmp_path))
    words[0] = os.environ["TUI_TRAIN_TEST_DEEPSPEED"]
    words.insert(words.index(chosen["trainer.script"]), str(SCRIPTS / "deepspeed_on_cpu.py"))
    config = next(file for file in prepared.files if file.path == "accelerate.yaml")
    # The cards are what is not here.
    kept = [line for line in config.text.splitlines() if not line.startswith("gpu_ids")]
    (tmp_path / config.path).write_text("\n".join(kept))
    environment = plain_environment(CUDA_VISIBLE_DEVICES="", DS_ACCELERATOR="cpu", GLOO_SOCKET_IFNAME="lo")
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(words, env=environment, cwd=tmp_path, stdout=pipe, stderr=both, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "rank 1/2 | backend gloo" in done.stdout
    losses = [float(loss) for loss in re.findall(r"^step \d/4 \| loss (\S+) \| samples 8$", done.stdout, re.MULTILINE)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]


STRATEGIES = get_args(Strategy)


@pytest.mark.parametrize("name", LAUNCHERS)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("nodes", [1, 2])
def test_a_launcher_can_do_what_it_declares(name, strategy, nodes):
    launcher = LAUNCHERS[name]
    able = strategy in {"ddp", *launcher.sharding_strategies}
    assert (name in launchers_supporting(strategy)) == (strategy in launcher.sharding_strategies)
    if not able or (nodes > 1 and not launcher.starts_on_several_machines):
        assert choose_launcher(1, strategy, nodes) != name
        return
    job = LauncherJob(
        python="/py", processes=1, gpus=UUIDS[:1], precision="bf16", strategy=strategy, nodes=nodes, port=29500
    )
    told = " ".join(map(str, (*launcher(job).command_parts(), *launcher(job).config_files())))
    assert job.python in told
    assert (ADDRESS_VARIABLE.variable in told) == (nodes > 1)
    assert (launcher(job).config_files() != launcher(msgspec.structs.replace(job, strategy="ddp")).config_files()) == (
        strategy != "ddp"
    )


def test_the_names_in_a_profile_are_the_launchers():
    assert get_args(LauncherName) == tuple(LAUNCHERS)
    assert [choose_launcher(1, "ddp", machines, reads_ranks=True) for machines in (1, 2)] == ["torchrun", "torchrun"]
    assert choose_launcher(1, "fsdp2", reads_ranks=True) == "accelerate"
    assert all(choose_launcher(processes, strategy) in LAUNCHERS for processes in (1, 2) for strategy in STRATEGIES)
