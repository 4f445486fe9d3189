"""Imported commands: each word is a key, an argument, replaced or named as not understood, and plans start the same."""

import contextlib
import itertools
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from support import HOSTILE_VALUES, example_count, facts, gpu, plan, profile

from tui_train.actions.command_import.imports import import_file, import_text, import_words, looks_like_command
from tui_train.actions.command_import.shell import MAX_TEXT_CHARACTERS, read_shell_text
from tui_train.base.command import argv
from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.cli import app, group
from tui_train.facts.scripts.script_source import read_script_source
from tui_train.facts.yaml_documents import read_documents
from tui_train.plan.render.quoting import quoted_word
from tui_train.plan.render.script.plain_command import command_to_paste, make_plain_command
from tui_train.profile import fields, store
from tui_train.profile.presets import KEY_BY_PLACEHOLDER

HERE = Path("/project")
PUBLISHED = msgspec.toml.decode((Path(__file__).parents[1] / "commands.toml").read_bytes())["command"]
HF_SCRIPT = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n"


def imported(text, folder=HERE):
    """The chosen values but for kind and script, the arguments, and what is replaced and not understood."""
    made = import_text(text, folder)
    assert not [name for name in KEY_BY_PLACEHOLDER if f"{{{name}}}" in " ".join(made.profile.trainer.arguments)]
    values = {key: fields.get_value(made.profile, key) for key in fields.chosen_keys(made.profile)}
    assert values.pop("trainer.kind") == "script"
    words = {outcome: [row.words for row in made.rows if row.outcome == outcome] for outcome in
             ("replaced", "not understood")}  # fmt: skip
    values = {key: value for key, value in values.items() if key not in {"trainer.script", "trainer.arguments"}}
    return values, made.profile.trainer.arguments, words["replaced"], words["not understood"]


# Words


@pytest.mark.parametrize(
    "line",
    [
        "a 'b c' \"d e\" f\\ g", "a --x='1 2' --y=\"$HOME/z\"", "a d#e # comment", "a \\\n  b", "a '' \"\" x''y",
        "a \"a\\\"b\\\\c\\$d\" 'x\\y'", "a ~ ~/x --y=~/x",
        "A=1 B='2 3'; a $A $B \"$B\" \"${A}b\" ${A}c", "a ${NONE_OF_IT:-8}",
        'a "$(pwd)"/x $(pwd):/w', "a {} {x} [a,b] a=[1,2] x@y +z", 'a --k={"x":1}', "a $ x$ '$A'", "a\tb   c",
        "cd /tmp && a $PWD; :", "a 1>/dev/null 2>&1 b",
        r"a $'b c\td' x$'\n'\"y\"$'\'' $'\a\b\e\E\f\r\v\\\"\?'", r"a $'\141\7\x41\x4\u00e9\U1F600\xe4\xb8\xad' $''",
        r"""a $'\z$A`b`' "$'x'" '$\'""", 'B="2 3"; a $"b $B" x$"\\$"', "a $'b\nc'",
    ],
)  # fmt: skip
def test_words_are_those_of_bash(line, tmp_path):
    script = 'a() { printf "%s\\0" "$@" >> "$OUT"; }\n' + line + "\n"
    out = tmp_path / "out"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        env={"HOME": str(Path.home()), "OUT": str(out), "LC_ALL": "C.UTF-8"},
        check=False,
    )
    assert done.returncode == 0
    command = next(each for each in read_shell_text(line, tmp_path).commands if each.words[0].text == "a")
    assert not [word for word in command.words if word.problem]
    # What goes to another place is no word.
    expected = [
        word for word in out.read_bytes().decode().split("\0")[:-1] if not (word == "b" and command.redirections)
    ]
    assert [word.text for word in command.words[1:]] == expected


@pytest.mark.parametrize(
    ("word", "why"),
    [(r"$'\xff'", "no text"), (r"$'\ud800'", "no text"), (r"$'\UFFFFFFFF'", "no text"), (r"$'\cA'", "no text"),
     (r"$'a\0b'", "zero byte"), (r"$'\x00'", "zero byte")],
)  # fmt: skip
def test_an_escape_that_is_no_text_is_named(word, why):
    made = import_text(f"torchrun train.py --lr 1 --x {word}", HERE)
    assert made.profile.trainer.arguments == ("--lr", "1")
    assert [(row.words, why in row.text) for row in made.rows if row.outcome == "not understood"] == [
        (f"--x {word}", True)
    ]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["$a", "$name", "$", "$$", "$(a", "${a", "`", "\\\\"])
def test_a_quote_that_is_not_closed_is_soon_refused(piece):
    with pytest.raises(BadInput, match="not closed"):
        read_shell_text(f'torchrun train.py "{piece * 1001}', HERE)


WORDS = st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12), min_size=1)


def ansi_c_quoted(word, forms):
    """A word between $' and ', each letter in a form of its own."""

    def escaped(letter, form):
        octal = "".join(f"\\{byte:03o}" for byte in letter.encode())
        hexadecimal = "".join(f"\\x{byte:02x}" for byte in letter.encode())
        plain = f"\\{letter}" if letter in "'\\" else letter
        return (plain, octal, hexadecimal, f"\\U{ord(letter):08x}")[form]

    return "$'" + "".join(map(escaped, word, itertools.cycle(forms))) + "'"


@settings(max_examples=example_count(300))
@given(WORDS, st.lists(st.integers(0, 3), min_size=1, max_size=5))
def test_quoted_words_are_read_back(words, forms):
    for text in (
        shlex.join(words),
        " ".join(map(quoted_word, words)),
        " ".join(ansi_c_quoted(word, forms) for word in words),
    ):
        commands = read_shell_text(f"x {text}", HERE).commands
        assert [word.text for word in commands[0].words] == ["x", *words]


def test_the_time_grows_with_the_options_not_faster():
    def seconds(count):
        line = f"torchrun train.py {' '.join(f'-{number} 1' for number in range(count))}"
        start = time.process_time()
        assert len(import_text(line, HERE).profile.trainer.arguments) == 2 * count
        return time.process_time() - start

    assert seconds(4000) < 16 * seconds(500) + 0.3


@settings(max_examples=example_count(300))
@given(st.text(max_size=60))
def test_no_text_is_too_odd(text):
    with contextlib.suppress(BadInput):
        made = import_text(f"torchrun train.py {text}", HERE)
        assert made.profile.trainer.script == "/project/train.py"
    looks_like_command(text)


@pytest.mark.parametrize("value", HOSTILE_VALUES)
def test_no_argument_is_lost(value):
    made = import_text(shlex.join(["python", "train.py", "--x", value, "y"]).replace("\r", " "), HERE)
    kept = made.profile.trainer.arguments
    assert kept == ("--x", value.replace("\r", " "), "y") or any(row.outcome == "not understood" for row in made.rows)


# Commands as they are published


GPUS_0_2 = {"hardware.gpus": ("0", "2")}
TORCHRUN = {"trainer.launcher": "torchrun"}
ACCELERATE = {"trainer.launcher": "accelerate"}
PYTHON = {"trainer.launcher": "python", "hardware.processes": 1}
DOCKER = "docker run --rm --gpus all --ipc=host --ulimit memlock=-1 -v $(pwd):/workspace -w /workspace"


@pytest.mark.parametrize(
    ("text", "values", "arguments", "missed"),
    [
        (
            f"{DOCKER} \\\n  nvcr.io/nvidia/nemo:25.04 python scripts/train.py",
            {**PYTHON, "container.engine": "docker", "container.image": "nvcr.io/nvidia/nemo:25.04",
             "container.mounts": ("/project:/workspace",), "trainer.working_directory": "/project"}, (), [],
        ),
        (
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2\ntorchrun --nproc_per_node=2 train.py",
            {**TORCHRUN, **GPUS_0_2, "hardware.processes": 2}, (), [],
        ),
        (
            ("export NCCL_P2P_DISABLE=1\nexport NCCL_IB_DISABLE=1\nexport NCCL_SOCKET_IFNAME=eth0  # the real one\n"
            "#export NCCL_BLOCKING_WAIT=1\nexport NCCL_DEBUG=INFO TOKENIZERS_PARALLELISM=false\npython train.py"),
            {**PYTHON, "communication.without": ("p2p", "ib"), "communication.interface": "eth0",
             "communication.debug": "info", "trainer.environment": {"TOKENIZERS_PARALLELISM": "false"}}, (), [],
        ),
        (
            ('accelerate launch --main_process_ip "MASTER_IP" --main_process_port 29501 --num_processes 8 '
            "--num_machines 2 --machine_rank 1 train.py"),
            {**ACCELERATE, "hardware.processes": 4, "nodes.count": 2, "nodes.address": "MASTER_IP",
             "nodes.port": 29501}, (), [],
        ),
        (
            ("cd /data3/chat\nexport ACCELERATE_USE_GLOO=1\naccelerate launch --multi_gpu --num_processes 2 \\\n"
            "    ./train_low_mem.py train \\\n    --is_finetune=True"),
            {**ACCELERATE, "hardware.processes": 2}, ("train", "--is_finetune=True"), [],
        ),
        (
            ("export CUDA_VISIBLE_DEVICES=0,2\nexport MASTER_ADDR=localhost MASTER_PORT=29500\n"
            "python -m torch.distributed.launch --nproc_per_node=2 --master_addr=$MASTER_ADDR "
            "--master_port=$MASTER_PORT train.py --stage pretrain --lr 1.6e-3  # scaled"),
            {**TORCHRUN, **GPUS_0_2, "hardware.processes": 2}, ("--stage", "pretrain", "--lr", "1.6e-3"), [],
        ),
        (
            "torchrun --nproc_per_node=4 train.py --config configs\\vlm.yaml --stage pretrain",
            {**TORCHRUN, "hardware.processes": 4}, ("--stage", "pretrain"), ["--config configs\\vlm.yaml"],
        ),
        (
            ("#!/bin/bash\n#SBATCH -p gpu -N 2\n#SBATCH --gres=gpu:a100:4 --time=1:00:00 # one hour\n#SBATCH -J sft\n"
            "module load cuda\nsrun torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 --rdzv_id 7 "
            "--rdzv_endpoint $(hostname):29500 train.py > log 2>&1 &"),
            {**TORCHRUN, "hardware.scheduler": "slurm", "hardware.processes": 4, "nodes.count": 2,
             "slurm.partition": "gpu", "slurm.time": "1:00:00", "slurm.options": ("--gres=gpu:a100:4",)},
            (), ["module load cuda"],
        ),
        (
            ("podman run --gpus '\"device=GPU-ac,GPU-ff\"' -e A=1 -e HF_TOKEN --shm-size=16g -v /data:/d:ro -w /d "
            "image torchrun --nproc_per_node 2 train.py --data=/d/x"),
            {**TORCHRUN, "hardware.gpus": ("GPU-ac", "GPU-ff"), "hardware.processes": 2, "container.engine": "podman",
             "container.image": "image", "container.mounts": ("/data:/d:ro",), "container.shared_memory": "16g",
             "trainer.environment": {"A": "1"}, "trainer.secrets": ("HF_TOKEN",)}, ("--data=/d/x",), [],
        ),
        (
            ("accelerate launch --use_deepspeed --zero_stage 3 --offload_param_device cpu --mixed_precision bf16 "
            "--num_processes 2 --dynamo_backend inductor train.py"),
            {**ACCELERATE, "hardware.processes": 2, "trainer.strategy": "zero3", "trainer.offload": True,
             "recipe.precision": "bf16"}, (), ["--dynamo_backend inductor"],
        ),
        (
            ("WANDB_API_KEY=0123456789012345678901234567890123456789 nohup uv run --extra gpu torchrun train.py "
            "--data $DATA --out x &"),
            {**TORCHRUN, "hardware.processes": 1, "trainer.secrets": ("WANDB_API_KEY",)}, ("--out", "x"),
            ["uv run --extra gpu", "--data $DATA"],
        ),
    ],
)  # fmt: skip
def test_each_word_has_its_place(text, values, arguments, missed):
    values_made, arguments_made, _, missed_made = imported(text)
    assert (values_made, arguments_made, missed_made) == (values, arguments, missed)


def test_what_only_the_shell_would_do_is_named():
    text = "export A\nX=1\nsrun --container-image=x python train.py < in | sort\npip install y\nfalse || echo z"
    assert imported(text)[3] == [
        "pip install y", "false", "export A", "echo z", "X=…", "--container-image=x", "< in | sort",
    ]  # fmt: skip


def test_what_the_plan_does_itself_is_replaced():
    _, _, replaced, _ = imported(
        "export ACCELERATE_USE_GLOO=1 CUDA_DEVICE_ORDER=PCI_BUS_ID\n"
        "torchrun --standalone --max_restarts=3 --tee 3 train.py | tee log"
    )
    assert replaced == [
        "ACCELERATE_USE_GLOO=1", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "--standalone", "--max_restarts=3", "--tee 3",
        "| tee log",
    ]  # fmt: skip


@pytest.mark.parametrize("command", PUBLISHED, ids=[command["source"] for command in PUBLISHED])
def test_published_commands(command):
    values, arguments, _, missed = imported(command["text"])
    counts = values.get("hardware.processes", 0), len(arguments), len(missed)
    assert counts == (command["processes"], command["arguments"], command["missed"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("no command",)),
        ("pip install torch", ("no command", "torchrun")),
        ("'torchrun x.py", ("not closed",)),
        ("torchrun", ("no script",)),
        ("torchrun --nproc_per_node", ("no value",)),
        ("torchrun --bad x.py", ("no option --bad",)),
        ("torchrun -m torchtitan.train --x 1", ("the module torchtitan.train", "PATH.py")),
        ("torchrun $SCRIPT", ("$SCRIPT",)),
        ("torchrun train", ("no Python file",)),
        ("python a.py; python b.py", ("2 trainings", "python a.py", "python b.py")),
        ("bash scripts/run.sh x", ("shell script scripts/run.sh", "tui-train import scripts/run.sh")),
        ("if true; then torchrun a.py; fi", ("no command",)),
        ("cat <<EOF\ntorchrun a.py\nEOF\n", ("no command",)),
        ("false || torchrun a.py", ("no command",)),
        ("docker run image", ("no command",)),
        ("axolotl train", ("no YAML",)),
        ("x" * (MAX_TEXT_CHARACTERS + 1), ("too long",)),
        ("A=x\n" + "A=$A$A\n" * 60 + "python $A.py", ("too long",)),
        ("${" * 30_000, ("no command",)),
    ],
)
def test_what_is_no_training_is_refused_with_what_to_do(text, words):
    with pytest.raises(BadInput) as raised:
        import_text(text, HERE)
    said = f"{raised.value.message} {raised.value.remedy}"
    assert all(word in said for word in words), said


@pytest.mark.whole
@pytest.mark.parametrize(
    ("make_parser", "command"),
    [
        ("from torch.distributed.run import get_args_parser as make", "torchrun"),
        ("from accelerate.commands.launch import launch_command_parser as make", "accelerate launch"),
    ],
)
def test_every_option_of_the_real_launchers_is_known(make_parser, command):
    show = "import json; print(json.dumps([[a.option_strings, a.nargs == 0] for a in make()._actions]))"
    done = subprocess.run([sys.executable, "-c", f"{make_parser}\n{show}"], capture_output=True, text=True, check=True)
    for spellings, is_switch in json.loads(done.stdout):
        for spelling in {*spellings} - {"-h", "--help", "-m", "--module"}:
            value = "" if is_switch else " 1"
            # None of it is taken for the script, or for an argument of it.
            made = import_text(f"{command} {spelling}{value} train.py --x", HERE)
            assert made.profile.trainer.arguments == ("--x",), spelling
            assert any(row.words.startswith(spelling) for row in made.rows)


# YAML


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            ("distributed_type: FSDP\nnum_processes: 4\nnum_machines: 2\nmixed_precision: bf16\ngpu_ids: 0,1\n"
            "fsdp_config: {fsdp_version: 2, fsdp_offload_params: true, fsdp_auto_wrap_policy: SIZE_BASED_WRAP}\n"),
            {**ACCELERATE, "trainer.accelerate_config": "{}", "trainer.strategy": "fsdp2", "trainer.offload": True,
             "hardware.processes": 2, "nodes.count": 2, "hardware.gpus": ("0", "1")},
        ),
        ("base_model: a/b\ndatasets: []\n", {"trainer.preset": "axolotl", "trainer.config": "{}"}),
        ("model_name_or_path: a/b\nstage: sft\n", {"trainer.preset": "llama-factory", "trainer.config": "{}"}),
    ],
)  # fmt: skip
def test_yaml_is_used_as_it_is(tmp_path, text, values):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    made = import_file(path, tmp_path)
    chosen = {key: fields.get_value(made.profile, key) for key in fields.chosen_keys(made.profile)}
    expected = {key: str(path) if value == "{}" else value for key, value in values.items()}
    assert chosen == {"trainer.kind": "script", **expected}
    assert not [row for row in made.rows if row.outcome == "not understood"]


@pytest.mark.parametrize(
    "text", ["a: 1\n", "- 1\n", "distributed_type: TPU\n", "distributed_type: FSDP\nfsdp_config: 1\n"]
)
def test_other_yaml_is_refused(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(BadInput):
        import_file(tmp_path / "config.yaml", tmp_path)


# TRL's programs


def tuned(text, folder):
    """The chosen values of a fine-tuning, its arguments, and what is not understood."""
    made = import_text(text, folder)
    values = {key: fields.get_value(made.profile, key) for key in fields.chosen_keys(made.profile)}
    assert values.pop("trainer.kind") == "finetune"
    arguments = values.pop("trainer.arguments", ())
    return values, arguments, [row.words for row in made.rows if row.outcome == "not understood"]


@pytest.mark.parametrize("program", ["trl grpo", "accelerate launch -m trl.scripts.grpo"])
def test_a_program_of_trl_becomes_a_fine_tuning_with_its_rewards(tmp_path, program):
    (tmp_path / "mine.py").write_text("def score(**_): ...\n")
    (tmp_path / "rows.jsonl").touch()
    options = (
        "--model_name_or_path=a/b --dataset_name rows.jsonl --reward_funcs mine.score lib.sub.fn accuracy_reward "
        "--use_peft --lora_r 8 --lora_target_modules q_proj v_proj --load_in_4bit --beta 0.04 --num_generations 4 "
        "--max_completion_length 64 --learning_rate 2e-5 --per_device_train_batch_size 4 --use_vllm True"
    )
    expected = {
        "trainer.launcher": "accelerate", "trainer.model": "a/b", "trainer.data": (f"{tmp_path}/rows.jsonl",),
        "finetune.method": "grpo", "finetune.tuning": "qlora", "finetune.rank": 8, "finetune.beta": 0.04,
        "finetune.targets": ("q_proj", "v_proj"), "finetune.generations": 4, "finetune.completion_length": 64,
        "finetune.rewards": (f"{tmp_path}/mine.py:score", "lib.sub.fn", "accuracy_reward"),
        "recipe.learning_rate": 2e-5, "recipe.micro_batch": 4,
    }  # fmt: skip
    values, arguments, missed = tuned(f"{program} {options}", tmp_path)
    values.pop("hardware.processes", None)
    assert values == expected
    assert (arguments, missed) == (("--use_vllm", "True"), [])


def test_a_configuration_file_of_trl_is_taken_value_by_value(tmp_path):
    (tmp_path / "c.yaml").write_text(
        "model_name_or_path: a/b\nlearning_rate: 1.0e-6\nreward_funcs: [lib.sub.fn]\nuse_peft: true\n"
        "datasets: [{path: x}]\nbeta: 0.1\n"
    )
    values, arguments, missed = tuned("trl rloo --config c.yaml --beta 0.2 --dataset_name org/rows", tmp_path)
    assert values == {
        "trainer.launcher": "accelerate", "trainer.model": "a/b", "finetune.method": "rloo", "finetune.beta": 0.2,
        "finetune.rewards": ("lib.sub.fn",), "recipe.learning_rate": 1e-6,
    }  # fmt: skip
    assert (arguments, missed) == ((), ["datasets:", "--dataset_name org/rows"])


@pytest.mark.parametrize("method", ["dpo", "kto", "reward", "rloo"])
def test_without_an_adapter_all_weights_are_trained(method):
    values, _, _ = tuned(f"python -m trl.scripts.{method} --model_name_or_path a/b", HERE)
    assert (values["finetune.method"], values["finetune.tuning"]) == (method, "full")
    _, _, missed = tuned(f"trl {method} --load_in_4bit True --config none.yaml", HERE)
    assert missed == ["--config none.yaml", "--load_in_4bit True"]


# There and back


VALUES = st.fixed_dictionaries(
    {"hardware.processes": st.sampled_from([1, 2]), "trainer.launcher": st.sampled_from(["torchrun", "accelerate"])},
    optional={
        "recipe.micro_batch": st.sampled_from([1, 4]),
        "recipe.learning_rate": st.sampled_from([1e-5, 3e-4]),
        "recipe.epochs": st.sampled_from([1.0, 2.5]),
        "recipe.steps": st.integers(1, 9),
        "recipe.schedule": st.sampled_from(["linear", "cosine"]),
        "recipe.weight_decay": st.sampled_from([0.0, 0.1]),
        "recipe.warmup": st.sampled_from([5.0, 100.0]),
        "recipe.checkpoint_every": st.integers(1, 9),
        "recipe.evaluate_every": st.integers(1, 9),
        "recipe.precision": st.sampled_from(["bf16"]),
        "recipe.activation_checkpointing": st.booleans(),
        "recipe.seed": st.integers(0, 9),
        "trainer.output": st.just("/out"),
        "communication.without": st.sampled_from([("p2p",), ("shm", "ib")]),
        "communication.debug": st.sampled_from(["warn", "info"]),
        "trainer.environment": st.just({"WANDB_MODE": "offline"}),
        "trainer.arguments": st.sampled_from([("--x", "a b"), ("train", "--y=$z"), ("--x", "a\n'b\t中\x01")]),
    },
)


@settings(max_examples=example_count(60))
@given(VALUES)
def test_a_rendered_command_is_the_profile_again(tmp_path_factory, values):
    folder = tmp_path_factory.mktemp("project")
    script = str(folder / "train.py")
    Path(script).write_text(HF_SCRIPT)
    cards = [gpu(0), gpu(1)][: values["hardware.processes"]]
    values["hardware.gpus"] = tuple(card.uuid for card in cards)
    if "recipe.micro_batch" in values:
        values["recipe.global_batch"] = values["recipe.micro_batch"] * len(cards) * 2
    if len(cards) == 1:
        values = {key: value for key, value in values.items() if not key.startswith("communication.")}
    machine = msgspec.structs.replace(
        facts(gpus=cards, paths={script: "file"}), sources={script: read_script_source(script)}
    )
    before = profile({"trainer.kind": "script", "trainer.preset": "auto", "trainer.script": script, **values})
    first = plan(before, machine)
    for config in first.configs:
        (folder / config.path).write_text(yaml.safe_dump(config.values))
    after = import_text(command_to_paste(make_plain_command(first)), folder).profile
    for key, value in values.items():
        got = fields.get_value(after, key)
        assert got == value or (isinstance(value, dict) and value.items() <= got.items()), key
    documents = read_documents(filter(None, (after.trainer.accelerate_config,)))
    second = plan(after, msgspec.structs.replace(machine, documents=documents))
    assert sorted(words_of(first)) == sorted(words_of(second))


def words_of(made):
    """The words of the first attempt, without the folder of the run, which the second has as its output folder."""
    return [word for word in argv(made.attempts[0].command, "RUN") if not word.startswith(("--output_dir", "--config"))]


# The command


def test_the_command_saves_a_profile_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "import",
        "--name",
        "mine",
        "--set",
        "recipe.steps=5",
        "torchrun",
        "--nproc_per_node=2",
        "train.py",
        "--x",
        "--name",
    ]
    done = CliRunner().invoke(app.cli, words, catch_exceptions=False)
    assert done.exit_code == 0
    saved = store.load_profile_file("mine")
    assert (saved.recipe.steps, saved.trainer.arguments) == (5, ("--x", "--name"))
    assert saved.trainer.script == str(tmp_path / "train.py")
    assert "hardware.processes=2" in done.stdout


def test_a_dry_run_saves_nothing_and_no_secret_is_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    secret = "hf_" + "abcdefgh" * 5
    line = f"HF_TOKEN={secret} torchrun train.py --hub_token {secret}"
    for option in ("--json", "--dry-run"):
        done = CliRunner().invoke(app.cli, ["import", "--dry-run", option, line], catch_exceptions=False)
        assert done.exit_code == 0
        assert secret not in done.output
        assert "HF_TOKEN" in done.output
    assert store.saved_profile_names() == ()


def test_an_option_after_the_command_is_said_to_be_the_scripts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("print(1)\n")
    words = ["import", "--dry-run", "python", "trian.py", "--lr", "1", "--dry-run", "--name=x"]
    said = CliRunner().invoke(app.cli, words, catch_exceptions=False).output
    rows = {line.split()[0]: line for line in said.splitlines() if line.startswith(("--", "trian"))}
    for own in ("--dry-run", "--name=x"):
        assert rows[own].endswith("to the script; an option of `tui-train import` goes before the command")
    assert rows["--lr"].endswith("passed on as it is")
    assert rows["trian.py"].endswith("(no such file; there is train.py)")


def test_what_a_secret_variable_holds_is_no_argument(tmp_path):
    for line in (
        "export MY_TOKEN=plainwords; torchrun train.py --lr 1 --token $MY_TOKEN",
        'API_KEY=plainwords\ntorchrun train.py --lr 1 --key="${API_KEY}"',
        'torchrun train.py --lr 1 --token "${HF_TOKEN:-plainwords}"',
    ):
        made = import_text(line, tmp_path)
        assert made.profile.trainer.arguments == ("--lr", "1")
        assert "plainwords" not in str(fields.chosen_keys(made.profile)) + str(made.profile)
        assert any("a secret" in row.text for row in made.rows)
    assert imported("torchrun train.py --n ${NUM_TOKEN:-5}")[1] == ("--n", "5")


@pytest.mark.parametrize(
    "text",
    [
        "$ torchrun \\\n> train.py --lr 1\n", "(base) $ torchrun train.py --lr 1",
        "me@box:~/x$ torchrun train.py --lr 1\r\n", "(env) root@box:/x# torchrun train.py --lr 1",
        "[me@box x]$ echo a\r[me@box x]$ torchrun train.py --lr 1",
    ],
)  # fmt: skip
def test_prompts_of_a_terminal_are_no_words(text):
    values, arguments, _, missed = imported(text)
    assert (values, arguments) == ({"trainer.launcher": "torchrun", "hardware.processes": 1}, ("--lr", "1"))
    assert set(missed) <= {"echo a"}


def test_torchrun_starts_one_process_unless_it_is_told():
    for options, processes in (("", 1), ("--nproc_per_node=gpu", None), ("--nproc-per-node 3", 3), ("--nnodes 2", 1)):
        assert imported(f"torchrun {options} train.py")[0].get("hardware.processes") == processes
    sbatch = "#!/bin/bash\n#SBATCH --gpus-per-node=4\n"
    assert imported(f"{sbatch}torchrun --nproc_per_node=$SLURM_GPUS train.py")[0]["hardware.processes"] == 4
    assert imported(f"{sbatch}torchrun train.py")[0]["hardware.processes"] == 1


def test_options_of_python_are_not_those_of_its_script():
    values, arguments, replaced, missed = imported("python -u -W ignore -X dev train.py -m gpt2 --x y.py")
    assert (values["trainer.launcher"], arguments) == ("python", ("-m", "gpt2", "--x", "y.py"))
    assert (replaced, missed) == (["-u"], ["-W", "ignore", "-X", "dev"])
    for text in ("python -W", "python -m", "python -c 'train.py'", "python"):
        with pytest.raises(BadInput, match="no command that trains"):
            import_text(text, HERE)


def test_what_starts_a_command_in_a_container_or_an_environment_is_read():
    values, arguments, _, missed = imported(
        "sudo docker run -v /code:/w -w /w -e A=1 img:1 bash -c 'pip install x; cd sub && B=2 torchrun train.py -l 1'"
    )
    assert (values["container.image"], arguments, missed) == ("img:1", ("-l", "1"), ["pip install x"])
    assert values["trainer.environment"] == {"A": "1", "B": "2"}
    assert (
        import_text("docker run -v /code:/w -w /w i bash -c 'torchrun a.py'", HERE).profile.trainer.script
        == "/code/a.py"
    )
    with pytest.raises(BadInput, match="another container"):
        import_text(f"{'docker run a ' * 2000}python train.py", HERE)
    assert imported("env A=1 B=2 torchrun train.py")[0]["trainer.environment"] == {"A": "1", "B": "2"}


def test_a_secret_is_said_once_to_be_left_out():
    secret = "hf_" + "abcdefgh" * 5
    made = import_text(f"X={secret} torchrun train.py --hub {secret} --u https://a:b9c8d7e6@c/d --lr 1", HERE)
    assert made.profile.trainer.arguments == ("--lr", "1")
    assert [row.outcome for row in made.rows if row.words.startswith(("X=", "--hub", "--u"))] == ["not understood"] * 3


def test_options_of_sbatch_are_read_from_pasted_lines():
    assert imported("#!/bin/bash\r#SBATCH --nodes=2\rtorchrun train.py\r")[0]["nodes.count"] == 2


def test_a_word_is_a_file_or_a_command(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe.sh")
    for word, why in (("folder", "a folder"), ("pipe.sh", "a pipe"), ("none.sh", "does not exist")):
        with pytest.raises(NotFound, match=why):
            import_words((word,), tmp_path)
    long_line = f"torchrun train.py {' '.join(f'--name{number} 1' for number in range(400))}"
    assert len(import_words((long_line,), tmp_path).profile.trainer.arguments) == 800


def test_a_name_that_is_taken_is_refused_before_the_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["import", "--name", "mine", "python", "train.py"]
    assert "IN THE COMMAND" in CliRunner().invoke(app.cli, words, catch_exceptions=False).output
    again = CliRunner().invoke(app.cli, words)
    assert isinstance(again.exception, AlreadyExists)
    assert "IN THE COMMAND" not in again.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("torchrun --nproc_per_node 2", "(of each process; if it is the batch of all of them: "),
        ("python", ""),
    ],
)
def test_a_batch_that_may_be_of_all_processes_is_said_to_be_of_each(tmp_path, command, said):
    options = "p.add_argument('--batch_size', type=int)\np.add_argument('--epochs', type=int)\n"
    (tmp_path / "t.py").write_text(f"import argparse\np = argparse.ArgumentParser()\n{options}p.parse_args()\n")
    rows = import_text(f"{command} t.py --batch_size 128 --epochs 3", tmp_path).rows
    (row,) = (row for row in rows if row.words == "--batch_size 128")
    change = "trainer.preset=total-batch recipe.micro_batch=64)" if said else ""
    assert row.text == f"recipe.micro_batch=128 {said}{change}".rstrip()


def test_wrong_input_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, code in ((["import"], 64), (["import", "--bad", "x"], 64)):
        assert group.run_command_line(words) == code
    with pytest.raises(BadInput):
        group.run_command_line(["import", "pip", "install"])
    assert store.saved_profile_names() == ()
