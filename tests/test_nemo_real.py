"""The files that are written for NeMo, unmodified, in the real one: an environment that this program makes, on a CPU.

It is made once, in tests/.built, by the command that users have. TUI_TRAIN_TEST_NEMO names another Python with NeMo,
TUI_TRAIN_TEST_AUTOMODEL one with AutoModel.
"""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import exported, facts, gpu, profile

from tui_train import environments
from tui_train.facts import recipes

TESTS = Path(__file__).parent
BUILT = TESTS / ".built"
SETTINGS = {
    "trainer.kind": "nemo",
    "nemo.recipe": "qwen25_500m",
    "recipe.sequence_length": 64,
    "recipe.micro_batch": 1,
    "recipe.global_batch": 2,
    "recipe.steps": 40,
    "recipe.checkpoint_every": 1,
    "recipe.learning_rate": 0.0004,
    "recipe.precision": "bf16",
    "recipe.seed": 7,
}
MOCK = SETTINGS | {"nemo.mock_data": True}
PACKAGES = {"nemo_toolkit": "2.7.3", "nemo_run": "0.11.1"}

pytestmark = [pytest.mark.nemo, pytest.mark.xdist_group("nemo"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python():
    """A Python with NeMo, made by `tui-train env create nemo` unless it was made before."""
    named = os.environ.get("TUI_TRAIN_TEST_NEMO")
    if named:
        return named
    lock = environments.SETS["nemo"].lock.read_bytes()
    folder = BUILT / f"nemo-{hashlib.sha256(lock).hexdigest()[:12]}"
    if not folder.exists():
        BUILT.mkdir(exist_ok=True)
        # Where wheels lie on this machine, torch's is among them; else it is that of torch's own index.
        pip = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        index = {"TUI_TRAIN_INDEX": "none"} if "find-links" in pip.stdout else {}
        command = [sys.executable, "-m", "tui_train", "env", "create", "nemo", "--yes", "--path", folder]
        done = subprocess.run(
            command,
            env={**index, **os.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if "this failed with exit code" in done.stdout:
            pytest.skip("NOT TESTED with a real NeMo: it could not be installed:\n" + done.stdout[-600:])
        assert done.returncode == 0, done.stdout[-3000:]
        assert "qwen25_500m among them" in done.stdout
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def tokenizer(python, tmp_path_factory):
    """A small tokenizer, made where the libraries for it are."""
    folder = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([python, TESTS / "scripts" / "tokenizer.py", folder], check=True, capture_output=True)
    return str(folder)


def written(folder, values, cards=1, paths=None):
    """A run folder as Export writes it, for a machine with NeMo and cards."""
    found = facts(gpus=[gpu(n, f"GPU-{n}") for n in range(cards)], packages=PACKAGES, paths=paths)
    return exported(folder, profile(values), found)[0].path / "nemo_recipe.py"


def child(python, folder, *words):
    """Start tests/nemo_child.py in the real NeMo; return all that it printed."""
    # Without these it writes to the home folder, asks the network, or takes the tests' own libraries.
    quiet = {"HF_HUB_OFFLINE": "1", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    quiet["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than what is compiled
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEMO", "XDG_"))}
    command = [python, TESTS / "nemo_child.py", *words]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, env=kept | quiet, cwd=folder, stdout=pipe, stderr=both, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


OWN = SETTINGS | {
    "trainer.data": ("/data/a b.bin", "/data/c.bin"),
    "nemo.tokenizer": "/tokenizers/mine",
    "nemo.own_size": False,
    "recipe.layers": 6,
    "recipe.hidden_size": 96,
    "recipe.heads": 12,
    "nemo.tensor_parallel": 2,
    "nemo.pipeline_parallel": 2,
}
FINETUNE = SETTINGS | {
    "nemo.task": "finetune",
    "trainer.data": ("/data/chats",),
    "trainer.model": "/checkpoints/mine",
    "recipe.precision": "fp16",
}
ARGUMENTS = ("--output=/out", "--micro-batch=2", "--sequence-length=32", "--activation-checkpointing", "--layers=3")


@pytest.fixture(scope="module")
def built(python, tokenizer, tmp_path_factory):
    """What NeMo made of each of some files, in one process: its import takes longer than all of them."""
    folder = tmp_path_factory.mktemp("built")
    paths = {"/data/chats": "folder", "/data/chats/validation.jsonl": "missing"}
    mock = MOCK | {"nemo.tokenizer": tokenizer}
    wrong = written(folder / "wrong", MOCK)
    wrong.write_text(wrong.read_text().replace("llm.qwen25_500m.", "llm.qwen25_500."))
    jobs = {
        "own": ["build", tokenizer, written(folder / "own", OWN, 4), *ARGUMENTS],
        "finetune": ["build", tokenizer, written(folder / "finetune", FINETUNE, paths=paths)],
        "wrong": ["build", tokenizer, wrong],
        "fp32": ["dryrun", tokenizer, written(folder / "fp32", mock | {"recipe.precision": "fp32"})],
        "bf16": ["dryrun", tokenizer, written(folder / "bf16", mock)],
    }
    (folder / "jobs.json").write_text(json.dumps(list(jobs.values()), default=str))
    printed = child(python, folder, "jobs", folder / "jobs.json")
    kinds = ("TOLD ", "ENDED")
    lines = [line for line in printed.splitlines() if line.startswith(kinds)]
    found = dict.fromkeys(jobs, None)
    for name in jobs:
        found[name] = json.loads(lines.pop(0)[5:])
        if "error" not in found[name]:
            ended = lines.pop(0)
            found[name]["error"] = "" if ended == "ENDED" else json.loads(ended[5:])["error"]
    assert lines == []
    return found


def test_the_recipes_that_are_known_are_those_of_nemo(python):
    told = recipes.recipes(python)
    assert not told.problem
    assert told.tasks["qwen25_500m"] == ("pretrain", "finetune")
    if "TUI_TRAIN_TEST_NEMO" not in os.environ:
        known = {(name, task) for name, tasks in recipes.known().items() for task in tasks}
        assert known <= {(name, task) for name, tasks in told.tasks.items() for task in tasks}
        assert set(told.tasks) == set(recipes.known())


def test_every_value_reaches_the_recipe(built):
    """Pretraining on data of one's own, a size of one's own, split over four cards."""
    told = built["own"]
    assert told["options"] == {"direct": True}
    assert told["error"] == ""
    expected = {
        ".": "pretrain",
        "model": "Qwen2Model",
        "model.config.num_layers": "3",
        "model.config.hidden_size": "96",
        "model.config.ffn_hidden_size": "384",
        "model.config.num_attention_heads": "12",
        "model.config.num_query_groups": "12",
        "model.config.kv_channels": "8",
        "model.config.seq_length": "32",
        "model.config.recompute_granularity": "full",
        "model.config.recompute_method": "uniform",
        "model.config.recompute_num_layers": "1",
        "data": "PreTrainingDataModule",
        "data.paths": "['/data/a b', '/data/c']",
        "data.seq_length": "32",
        "data.micro_batch_size": "2",
        "data.global_batch_size": "2",
        "data.seed": "7",
        "data.tokenizer": "AutoTokenizer",
        "data.tokenizer.pretrained_model_name": "/tokenizers/mine",
        "trainer.devices": "4",
        "trainer.num_nodes": "1",
        "trainer.max_steps": "40",
        "trainer.val_check_interval": "1",
        "trainer.strategy.tensor_model_parallel_size": "2",
        "trainer.strategy.pipeline_model_parallel_size": "2",
        "trainer.strategy.context_parallel_size": "1",
        "trainer.strategy.sequence_parallel": "True",
        "trainer.strategy.pipeline_dtype": "torch.bfloat16",
        "trainer.plugins.precision": "bf16-mixed",
        "trainer.plugins.params_dtype": "torch.bfloat16",
        "optim.config.lr": "0.0004",
        "optim.config.bf16": "True",
        "optim.config.fp16": "False",
        "optim.lr_scheduler.warmup_steps": "4",
        "log.log_dir": "/out",
        "log.ckpt.every_n_train_steps": "1",
        "log.ckpt.train_time_interval": "None",
        "log.ckpt.save_last": "True",
        "resume.resume_if_exists": "True",
        "resume.resume_ignore_no_checkpoint": "True",
    }
    assert {name: told["fields"].get(name) for name in expected} == expected
    assert float(told["fields"]["optim.lr_scheduler.min_lr"]) == pytest.approx(0.00004)


def test_a_finetune_begins_with_the_named_weights(built):
    told = built["finetune"]
    expected = {
        ".": "finetune",
        "peft": "LoRA",
        "data": "FineTuningDataModule",
        "data.dataset_root": "/data/chats",
        "data.seed": "7",
        "trainer.limit_val_batches": "0",
        "trainer.plugins.precision": "16-mixed",
        "optim.config.fp16": "True",
        "resume.restore_config.path": "/checkpoints/mine",
        "resume.resume_if_exists": "True",
    }
    assert {name: told["fields"].get(name) for name in expected} == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_nemo_makes_every_object_of_the_recipe(built, precision):
    assert built[precision]["error"] == ""
    assert built[precision]["options"] == {"direct": True}


def test_it_trains_and_a_second_start_goes_on_from_the_checkpoint(python, tokenizer, tmp_path):
    script = written(tmp_path / "run", MOCK | {"nemo.tokenizer": tokenizer})
    first = child(python, script.parent, "steps=2", tokenizer, script)
    assert "global_step: 0 " in first
    assert "global_step: 1 " in first
    assert "Training from scratch" in first
    assert list(script.parent.glob("output/qwen25_500m/checkpoints/*-last"))
    second = child(python, script.parent, "steps=3", tokenizer, script)
    assert "Restoring states from the checkpoint path" in second
    assert "global_step: 2 " in second
    assert "global_step: 1 " not in second
    assert not list(tmp_path.glob("run/.nemo_run")), "it wrote to the home folder"


def test_a_recipe_that_is_not_there_ends_at_once(built):
    assert "has no attribute 'qwen25_500'" in built["wrong"]["error"]
    assert "options" not in built["wrong"]


@pytest.mark.skipif(
    "TUI_TRAIN_TEST_AUTOMODEL" not in os.environ, reason="TUI_TRAIN_TEST_AUTOMODEL names no Python with it"
)
@pytest.mark.parametrize("mock", [False, True], ids=["data", "mock"])
def test_automodel_trains_and_goes_on(tmp_path, mock):
    python = os.environ["TUI_TRAIN_TEST_AUTOMODEL"]
    model, data = tmp_path / "model", tmp_path / "data"
    subprocess.run([python, TESTS / "scripts" / "tokenizer.py", model, "--with-model"], check=True, capture_output=True)
    data.mkdir()
    sample = json.dumps({"input": "the quick brown", "output": "fox jumps over"})
    (data / "training.jsonl").write_text(f"{sample}\n" * 64)
    chosen = {"nemo.task": "finetune", "trainer.model": str(model), "recipe.global_batch": 4, "recipe.steps": 3}
    mine = {"nemo.mock_data": True} if mock else {"trainer.data": (str(data),)}
    found = facts(gpus=[gpu(0, "GPU-0"), gpu(1, "GPU-1")], packages={"nemo_automodel": "0.7.0"})
    run, made = exported(tmp_path / "run", profile(SETTINGS | {"recipe.precision": "fp32"} | chosen | mine), found)
    config = run.path / "automodel.yaml"
    config.write_text(config.read_text().replace("backend: nccl", "backend: gloo"))
    for steps in (2, 3):
        output = run.path / "output"
        words = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
        more = [f"--checkpoint.checkpoint_dir={output}", f"--step_scheduler.max_steps={steps}"]
        command = [python, *words, TESTS / "automodel_child.py", config, *more]
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        pipe, both = subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(
            command, env=kept | {"GLOO_SOCKET_IFNAME": "lo"}, stdout=pipe, stderr=both, text=True, check=False
        )
        assert done.returncode == 0, done.stdout[-4000:]
        assert f"step {steps - 1} | epoch" in done.stdout
    assert "Loading checkpoint from" in done.stdout
    assert made.world_size == 2
