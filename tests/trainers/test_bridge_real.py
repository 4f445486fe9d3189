"""The file that is written for Megatron-Bridge, unmodified, in the real one: a Python that TUI_TRAIN_TEST_BRIDGE names.

It needs no GPU. It is made by hand, on Python 3.11, for want of Transformer Engine, which needs CUDA to be installed:

    pip install torch==2.13.0 megatron-core==0.16.1 "transformers<5" "datasets>=3" "pyarrow<22" accelerate peft \
        omegaconf hydra-core==1.3.2 rich tensorboard sentencepiece einops wandb timm open-clip-torch qwen-vl-utils \
        megatron-energon "nvidia-resiliency-ext~=0.4.1" nvidia-modelopt triton==3.7.1
    pip install --no-deps megatron-bridge==0.3.1
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from support import export_run, facts, gpu, profile

from tui_train.facts.machine.child_process import ChildResult
from tui_train.facts.models import nemo_models
from tui_train.runner.logs.progress import LogReadingOptions, Progress, advance_progress

TESTS = Path(__file__).parents[1]
SETTINGS = {
    "trainer.kind": "nemo", "nemo.recipe": "qwen25_500m", "recipe.sequence_length": 64, "recipe.micro_batch": 1,
    "recipe.global_batch": 4, "recipe.steps": 40, "recipe.checkpoint_every": 1, "recipe.learning_rate": 0.0004,
    "recipe.precision": "bf16", "recipe.seed": 7,
}  # fmt: skip
MOCK = SETTINGS | {"nemo.mock_data": True}
OWN = SETTINGS | {
    "trainer.data": ("/data/a b.bin", "/data/c.bin"), "nemo.tokenizer": "/tokenizers/mine", "recipe.layers": 6,
    "recipe.hidden_size": 96, "recipe.heads": 12, "nemo.tensor_parallel": 2, "nemo.pipeline_parallel": 2,
}  # fmt: skip
FINETUNE = SETTINGS | {"nemo.task": "finetune"}
ARGUMENTS = ("--output=/out", "--micro-batch=2", "--sequence-length=32", "--activation-checkpointing")
# What Qwen2.5-0.5B's own says; the recipe reads it from Hugging Face, or from a folder of that name.
MODEL = {
    "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2, "vocab_size": 151936,
    "tie_word_embeddings": True, "torch_dtype": "bfloat16", "max_position_embeddings": 32768,
}  # fmt: skip

pytestmark = [
    pytest.mark.skipif(
        "TUI_TRAIN_TEST_BRIDGE" not in os.environ,
        reason="NOT TESTED with a real Megatron-Bridge: TUI_TRAIN_TEST_BRIDGE names no Python with it",
    ),
    pytest.mark.xdist_group("bridge"),
    pytest.mark.timeout(900),
]


def written(folder, values, cards=1, paths=None):
    """A run folder as Export writes it, and how its lines are read, for a machine with Megatron-Bridge and cards."""
    found = facts(gpus=[gpu(n, f"GPU-{n}") for n in range(cards)], packages={"megatron-bridge": "0.3.1"}, paths=paths)
    run, made = export_run(folder, profile(values), found)
    return run.path / "megatron_bridge.py", made


def child(folder, *words, processes=1, code=0):
    """Start tests/bridge_child.py in the real Megatron-Bridge; return all that it printed."""
    quiet = {"HF_HUB_OFFLINE": "1", "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore"}
    quiet["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than what is compiled
    quiet |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(processes)}
    quiet |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "GLOO_SOCKET_IFNAME": "lo"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEMO", "XDG_", "HF_"))}
    model = Path(folder, "Qwen", "Qwen2.5-0.5B")
    model.mkdir(parents=True, exist_ok=True)
    (model / "config.json").write_text(json.dumps(MODEL))
    command = [os.environ["TUI_TRAIN_TEST_BRIDGE"], TESTS / "bridge_child.py", *words]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, env=kept | quiet, cwd=folder, stdout=pipe, stderr=both, text=True, check=False)
    assert done.returncode == code, done.stdout[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """What Megatron-Bridge made of each of some files, in one process that says it is one of four."""
    folder = tmp_path_factory.mktemp("built")
    weights = folder / "weights"
    weights.mkdir()
    (weights / "latest_checkpointed_iteration.txt").write_text("1")
    paths = {"/data/chats": "folder", "/data/chats/validation.jsonl": "missing"}
    chats = FINETUNE | {"trainer.data": ("/data/chats",), "trainer.model": str(weights)}
    alone = FINETUNE | {"nemo.mock_data": True, "nemo.peft": "none", "trainer.model": str(weights)}
    wrong = written(folder / "wrong", MOCK)[0]
    wrong.write_text(wrong.read_text().replace("config.train.train_iters", "config.train.train_iter"))
    unknown = written(folder / "unknown", MOCK)[0]
    unknown.write_text(unknown.read_text().replace("qwen25_500m_pre", "qwen25_500_pre"))
    empty = written(folder / "empty", alone | {"trainer.model": str(folder)})[0]
    half = {"recipe.precision": "fp16"}
    split = {"recipe.precision": "fp32", "nemo.context_parallel": 2}
    jobs = {
        "own": ["build", written(folder / "own", OWN, 4)[0], *ARGUMENTS, "--layers=4"],
        "lora": [
            "build",
            written(folder / "lora", chats | half, 4, paths)[0],
            "--micro-batch=1",
        ],
        "sft": ["build", written(folder / "sft", alone | split, 4)[0]],
        "mock": ["build", written(folder / "mock", MOCK, 4)[0]],
        "wrong": ["build", wrong],
        "unknown": ["build", unknown],
        "empty": ["build", empty],
    }
    (folder / "jobs.json").write_text(json.dumps(list(jobs.values()), default=str))
    printed = child(folder, "jobs", folder / "jobs.json", processes=4)
    lines = [line for line in printed.splitlines() if line.startswith(("TOLD ", "FAILED "))]
    found = {}
    for name in jobs:
        found[name] = json.loads(lines.pop(0)[5:])
        if lines and lines[0].startswith("FAILED "):
            found[name]["failed"] = json.loads(lines.pop(0)[7:])
    assert lines == []
    return found


def test_every_value_reaches_the_configuration(built):
    """Pretraining on data of one's own, a size of one's own, split over four cards."""
    told = built["own"]
    assert "failed" not in told
    assert told["task"] == "pretrain"
    expected = {
        "train.train_iters": "40", "train.global_batch_size": "4", "train.micro_batch_size": "2",
        "train.rampup_batch_size": "None", "train.eval_interval": "1", "train.eval_iters": "0", "rng.seed": "7",
        "logger.log_interval": "1", "logger.tensorboard_dir": "/out/tensorboard", "model.num_layers": "4",
        "model.hidden_size": "96", "model.ffn_hidden_size": "384", "model.num_attention_heads": "12",
        "model.num_query_groups": "12", "model.kv_channels": "8", "model.seq_length": "32",
        "model.tensor_model_parallel_size": "2", "model.pipeline_model_parallel_size": "2",
        "model.context_parallel_size": "1", "model.sequence_parallel": "True",
        "model.virtual_pipeline_model_parallel_size": "None", "model.expert_model_parallel_size": "1",
        "model.recompute_granularity": "full", "model.recompute_method": "uniform", "model.recompute_num_layers": "1",
        "dataset": "GPTDatasetConfig", "dataset.blend": "(['/data/a b', '/data/c'], None)", "dataset.split": "1,0,0",
        "dataset.sequence_length": "32", "dataset.random_seed": "7",
        "tokenizer.tokenizer_type": "HuggingFaceTokenizer", "tokenizer.tokenizer_model": "/tokenizers/mine",
        "optimizer.lr": "0.0004", "scheduler.lr_warmup_iters": "4", "scheduler.lr_decay_iters": "40",
        "scheduler.override_opt_param_scheduler": "True", "mixed_precision": "bf16_mixed", "checkpoint.save": "/out",
        "checkpoint.load": "/out", "checkpoint.save_interval": "1", "checkpoint.pretrained_checkpoint": "None",
    }  # fmt: skip
    assert {name: told["fields"].get(name) for name in expected} == expected
    assert told["fields"]["dataset.path_to_cache"].endswith("/own/samples")
    assert float(told["fields"]["optimizer.min_lr"]) == pytest.approx(0.00004)
    valid = {"model.bf16": "True", "model.pipeline_dtype": "torch.bfloat16", "optimizer.bf16": "True"}
    assert {name: told["valid"].get(name) for name in valid} == valid
    assert told["valid"]["scheduler.lr_warmup_steps"] == "16"


def test_a_finetune_begins_with_the_named_weights(built):
    told = built["lora"]
    assert "failed" not in told
    assert told["task"] == "finetune"
    expected = {
        "peft": "LoRA", "dataset": "FinetuningDatasetConfig", "dataset.dataset_root": "/data/chats",
        "dataset.seq_length": "64", "dataset.seed": "7", "dataset.do_validation": "False", "dataset.do_test": "False",
        "train.eval_iters": "0", "mixed_precision": "fp16_mixed",
    }  # fmt: skip
    assert {name: told["fields"].get(name) for name in expected} == expected
    assert told["fields"]["checkpoint.pretrained_checkpoint"].endswith("/weights")
    assert told["valid"]["optimizer.fp16"] == "True"


def test_a_finetune_of_all_weights_on_mock_data_may_split_the_tokens(built):
    told = built["sft"]
    assert "failed" not in told
    expected = {
        "peft": "None", "dataset": "GPTDatasetConfig", "dataset.blend": "None", "model.context_parallel_size": "2",
        "model.calculate_per_token_loss": "True", "ddp.average_in_collective": "False",
    }  # fmt: skip
    assert {name: told["fields"].get(name) for name in expected} == expected
    valid = {"model.bf16": "False", "model.params_dtype": "torch.float32", "optimizer.bf16": "False"}
    assert {name: told["valid"].get(name) for name in valid} == valid


def test_mock_data_is_megatrons_own(built):
    assert built["mock"]["fields"]["dataset.blend"] == "None"
    assert built["mock"]["valid"]["dataset.mock"] == "True"


def test_a_name_that_is_wrong_is_seen(built):
    assert "TrainingConfig has no field train_iter" in built["wrong"]["failed"]
    assert "qwen25_500_pretrain_config" in built["unknown"]["failed"]


def test_the_recipes_that_are_known_are_there(tmp_path):
    """Megatron-Bridge cannot be asked without Transformer Engine: the child asks it with what stands in for it."""
    told = nemo_models.parse_recipes(ChildResult(child(tmp_path, "recipes").encode()))
    assert told.tasks["qwen25_500m"] == ("pretrain", "finetune", "lora")
    missing = {
        name: tasks
        for name, tasks in nemo_models.known_tasks_by_recipe("bridge").items()
        if not {*tasks} <= {*told.tasks.get(name, ())}
    }
    assert not missing
    assert not [name for name in told.tasks if "_vl" in name]


def test_a_folder_without_weights_is_refused(built):
    assert "holds no weights" in built["empty"]["failed"]
    assert "task" not in built["empty"]


def progress(made, printed):
    """What a viewer of the run would show."""
    expressions = tuple(map(re.compile, made.log.expressions))
    return advance_progress(Progress(), printed.splitlines(), LogReadingOptions(expressions, made.log.steps))


def test_it_trains_goes_on_and_is_finetuned(tmp_path):
    """Two steps, one more from the checkpoint, then a finetune with LoRA of what was trained."""
    script, made = written(tmp_path / "run", MOCK)
    first = progress(made, child(script.parent, "steps=2", script))
    assert [point.step for point in first.points] == [1, 2]
    assert first.learning_rate > 0
    second = child(script.parent, "steps=3", script)
    assert "successfully loaded checkpoint" in second
    assert [point.step for point in progress(made, second).curve.points()] == [3]

    tokenizer, data = tmp_path / "tokenizer", tmp_path / "data"
    python = os.environ["TUI_TRAIN_TEST_BRIDGE"]
    subprocess.run([python, TESTS / "scripts" / "tokenizer.py", tokenizer], check=True, capture_output=True)
    data.mkdir()
    sample = json.dumps({"input": "the quick brown", "output": "fox jumps over"})
    (data / "training.jsonl").write_text(f"{sample}\n" * 64)
    (data / "validation.jsonl").write_text(f"{sample}\n" * 8)
    data.chmod(0o555)
    chosen = {
        "trainer.data": (str(data),),
        "nemo.tokenizer": str(tokenizer),
        "trainer.model": f"{script.parent}/output",
    }
    paths = {str(data): "folder", f"{data}/validation.jsonl": "file"}
    tuned, made = written(tmp_path / "tuned", FINETUNE | chosen, paths=paths)
    printed = child(tuned.parent, "steps=3", tuned)
    assert f"Loading base model weights from: {script.parent}/output" in printed
    assert "validation loss at iteration 3" in printed
    losses = [point.loss for point in progress(made, printed).curve.points()]
    assert losses[2] < losses[1] == losses[0]  # the first step is one of a learning rate of 0
    assert {path.name for path in data.iterdir()} == {"training.jsonl", "validation.jsonl"}
