"""The files that are written for NeMo, unmodified, in the real one: an environment that this program makes, on a CPU.

TUI_TRAIN_TEST_NEMO=new makes it once, in tests/.built, by the command that users have; any other value names a Python
with NeMo. TUI_TRAIN_TEST_AUTOMODEL names one with AutoModel.
"""

import hashlib
import itertools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import export_run, facts, gpu, profile

from tui_train.actions import environments
from tui_train.facts.models import nemo_models
from tui_train.profile import fields

TESTS = Path(__file__).parents[1]
BUILT = TESTS / ".built"
SETTINGS = {
    "trainer.kind": "nemo", "nemo.recipe": "qwen25_500m", "recipe.sequence_length": 64, "recipe.micro_batch": 1,
    "recipe.global_batch": 2, "recipe.steps": 40, "recipe.checkpoint_every": 1, "recipe.learning_rate": 0.0004,
    "recipe.precision": "bf16", "recipe.seed": 7,
}  # fmt: skip
MOCK = SETTINGS | {"nemo.mock_data": True}
PACKAGES = {"nemo_toolkit": "2.7.3", "nemo_run": "0.11.1"}
WITH_TE = PACKAGES | {"transformer-engine": "2.8.0"}

pytestmark = [pytest.mark.nemo, pytest.mark.xdist_group("nemo"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def python():
    """A Python with NeMo, made by `tui-train env create nemo` unless it was made before."""
    named = os.environ.get("TUI_TRAIN_TEST_NEMO")
    if not named:
        pytest.skip("NOT TESTED with a real NeMo, which takes long to install: make test-all")
    if named != "new":
        return named
    lock = environments.PACKAGE_SETS["nemo"].requirements_file.read_bytes()
    folder = BUILT / f"nemo-{hashlib.sha256(lock).hexdigest()[:12]}"
    # One that was interrupted lacks this; one that was made elsewhere and renamed would have scripts that do not start.
    whole = folder / ".whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        BUILT.mkdir(exist_ok=True)
        # Where wheels lie on this machine, torch's is among them; else it is that of torch's own index.
        pip = subprocess.run(
            [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
        )
        index = {"TUI_TRAIN_INDEX": "none"} if "find-links" in pip.stdout else {}
        command = [sys.executable, "-m", "tui_train", "env", "create", "nemo", "--yes", "--path", folder]
        pipe, both, environment = subprocess.PIPE, subprocess.STDOUT, {**index, **os.environ}
        done = subprocess.run(command, env=environment, stdout=pipe, stderr=both, text=True, check=False)
        if "this failed with exit code" in done.stdout:
            pytest.skip("NOT TESTED with a real NeMo: it could not be installed:\n" + done.stdout[-600:])
        assert done.returncode == 0, done.stdout[-3000:]
        assert "qwen25_500m among them" in done.stdout
        whole.touch()
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def tokenizer(python, tmp_path_factory):
    """A small tokenizer, made where the libraries for it are."""
    folder = tmp_path_factory.mktemp("tokenizer")
    subprocess.run([python, TESTS / "scripts" / "tokenizer.py", folder], check=True, capture_output=True)
    return str(folder)


def written(folder, values, cards=1, paths=None, packages=PACKAGES):
    """A run folder as Export writes it, for a machine with NeMo and cards."""
    found = facts(gpus=[gpu(n, f"GPU-{n}") for n in range(cards)], packages=packages, paths=paths)
    return export_run(folder, profile(values), found)[0].path / "nemo_recipe.py"


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
    "trainer.data": ("/data/a b.bin", "/data/c.bin"), "nemo.tokenizer": "/tokenizers/mine", "recipe.layers": 6,
    "recipe.hidden_size": 96, "recipe.heads": 12, "recipe.ffn_hidden_size": 320, "nemo.tensor_parallel": 2,
    "nemo.pipeline_parallel": 2, "nemo.set": {"model.config.hidden_dropout": "0.125", "data.num_workers": "3"},
}  # fmt: skip
FINETUNE = SETTINGS | {
    "nemo.task": "finetune",
    "trainer.data": ("/data/chats",),
    "trainer.model": "/checkpoints/mine",
    "recipe.precision": "fp16",
}
ARGUMENTS = ("--output=/out", "--micro-batch=2", "--sequence-length=32", "--activation-checkpointing", "--layers=3")


@pytest.fixture(scope="module")
def built(python, tmp_path_factory):
    """What NeMo made of each of some files, in one process: its import takes longer than all of them."""
    folder = tmp_path_factory.mktemp("built")
    paths = {"/data/chats": "folder", "/data/chats/validation.jsonl": "missing"}
    wrong = written(folder / "wrong", MOCK)
    wrong.write_text(wrong.read_text().replace("llm.qwen25_500m.", "llm.qwen25_500."))
    jobs = {
        "own": ["build", written(folder / "own", OWN, 4), *ARGUMENTS],
        "finetune": ["build", written(folder / "finetune", FINETUNE, paths=paths, packages=WITH_TE)],
        "unknown": ["build", written(folder / "unknown", MOCK | {"nemo.set": {"model.config.no_such": "1"}})],
        "wrong": ["build", wrong], "fp32": ["dryrun", written(folder / "fp32", MOCK | {"recipe.precision": "fp32"})],
        "bf16": ["dryrun", written(folder / "bf16", MOCK)],
    }  # fmt: skip
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
    told = nemo_models.probe_recipes(python)
    assert not told.problem
    assert told.tasks["qwen25_500m"] == ("pretrain", "finetune")
    if os.environ["TUI_TRAIN_TEST_NEMO"] == "new":
        known = {(name, task) for name, tasks in nemo_models.known_tasks_by_recipe().items() for task in tasks}
        assert known <= {(name, task) for name, tasks in told.tasks.items() for task in tasks}
        assert set(told.tasks) == set(nemo_models.known_tasks_by_recipe())


def test_every_value_reaches_the_recipe(built):
    """Pretraining on data of one's own, a size of one's own, split over four cards."""
    told = built["own"]
    assert told["options"] == {"direct": True}
    assert told["error"] == ""
    expected = {
        ".": "pretrain", "model": "Qwen2Model", "model.config.num_layers": "3", "model.config.hidden_size": "96",
        "model.config.ffn_hidden_size": "320", "model.config.num_attention_heads": "12",
        "model.config.num_query_groups": "12", "model.config.kv_channels": "8",
        "model.config.hidden_dropout": "0.125", "data.num_workers": "3", "model.config.seq_length": "32",
        "model.config.recompute_granularity": "full", "model.config.recompute_method": "uniform",
        "model.config.recompute_num_layers": "1", "data": "PreTrainingDataModule",
        "data.paths": "['/data/a b', '/data/c']", "data.seq_length": "32", "data.micro_batch_size": "2",
        "data.global_batch_size": "2", "data.seed": "7", "data.tokenizer": "AutoTokenizer",
        "data.tokenizer.pretrained_model_name": "/tokenizers/mine", "trainer.devices": "4", "trainer.num_nodes": "1",
        "trainer.max_steps": "40", "trainer.val_check_interval": "1",
        "trainer.strategy.tensor_model_parallel_size": "2", "trainer.strategy.pipeline_model_parallel_size": "2",
        "trainer.strategy.context_parallel_size": "1", "trainer.strategy.sequence_parallel": "True",
        "trainer.strategy.pipeline_dtype": "torch.bfloat16", "trainer.plugins.precision": "bf16-mixed",
        "trainer.plugins.params_dtype": "torch.bfloat16", "optim.config.lr": "0.0004", "optim.config.bf16": "True",
        "optim.config.fp16": "False", "optim.lr_scheduler.warmup_steps": "500", "log.log_dir": "/out",
        "log.ckpt.every_n_train_steps": "1", "log.ckpt.train_time_interval": "None", "log.ckpt.save_last": "True",
        "resume.resume_if_exists": "True", "resume.resume_ignore_no_checkpoint": "True",
    }  # fmt: skip
    assert {name: told["fields"].get(name) for name in expected} == expected
    assert float(told["fields"]["optim.lr_scheduler.min_lr"]) == pytest.approx(0.00004)


def test_a_finetune_begins_with_the_named_weights(built):
    told = built["finetune"]
    expected = {
        ".": "finetune", "peft": "LoRA", "data": "FineTuningDataModule", "data.dataset_root": "/data/chats",
        "data.seed": "7", "trainer.limit_val_batches": "0", "trainer.plugins.precision": "16-mixed",
        "optim.config.fp16": "True", "resume.restore_config.path": "/checkpoints/mine",
        "resume.resume_if_exists": "True",
    }  # fmt: skip
    assert {name: told["fields"].get(name) for name in expected} == expected


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_nemo_makes_every_object_of_the_recipe(built, precision):
    assert built[precision]["error"] == ""
    assert built[precision]["options"] == {"direct": True}


# Small enough for seconds on a CPU; all of it is what a user may set.
SMALL = {
    "recipe.layers": 2, "recipe.hidden_size": 64, "recipe.heads": 4, "recipe.checkpoint_every": 2,
    "recipe.warmup": 1.0, "nemo.set": {"model.config.vocab_size": "512"},
}  # fmt: skip


def test_mock_data_trains_offline_and_a_second_start_goes_on(python, tmp_path):
    """The first example of docs/nemo.md in a small size: no tokenizer, no network, nothing set for NeMo's sake."""
    script = written(tmp_path / "run", MOCK | SMALL | {"recipe.steps": 2})
    first = child(python, script.parent, "train", script)
    assert "global_step: 0 " in first
    assert "global_step: 1 " in first
    assert "Training from scratch" in first
    assert "val_loss" in first
    assert list(script.parent.glob("output/qwen25_500m/checkpoints/*-last"))
    script.write_text(script.read_text().replace("max_steps = 2", "max_steps = 4"))
    second = child(python, script.parent, "train", script)
    assert "Restoring states from the checkpoint path" in second
    assert "global_step: 3 " in second
    assert "global_step: 1 " not in second
    assert not list(tmp_path.glob("run/.nemo_run")), "it wrote to the home folder"


@pytest.mark.timeout(3000)
def test_the_first_example_of_the_docs_trains_as_it_stands_there(python, tmp_path):
    text = (TESTS.parent / "docs" / "nemo.md").read_text(encoding="utf-8").replace("\\\n", " ")
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("tui-train new ")))
    pairs = [word.split("=", 1) for before, word in itertools.pairwise(words) if before == "--set"]
    assert pairs[0] == ["trainer.kind", "nemo"]
    script = written(tmp_path / "run", {key: fields.parse_value(fields.get_field(key), value) for key, value in pairs})
    printed = child(python, script.parent, "train", script)
    assert "global_step: 4 " in printed
    assert list(script.parent.glob("output/qwen25_500m/checkpoints/*-last"))


@pytest.mark.parametrize(
    ("file", "said"), [("unknown", "No parameter named 'no_such'"), ("wrong", "has no attribute 'qwen25_500'")]
)
def test_a_setting_or_recipe_that_is_not_there_ends_before_the_training(built, file, said):
    assert (said in built[file]["error"], "options" in built[file]) == (True, False)


def command(*words):
    """Run this program; return what it printed."""
    line = [sys.executable, "-m", "tui_train", "nemo", *map(str, words)]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def test_a_bf16_pretraining_on_prepared_chinese_text(python, tokenizer, tmp_path):
    """The file as it is written, in bf16, on what `nemo prepare` made; only the CPU takes the place of the GPU."""
    poem = "春眠不觉晓，处处闻啼鸟。夜来风雨声，花落知多少。"  # noqa: RUF001
    (tmp_path / "诗.txt").write_text("\n\n".join(f"{number} {poem}" for number in range(60)), encoding="utf-8")
    lines = [json.dumps({"text": f"{number} {poem}"}, ensure_ascii=False) for number in range(8)]
    (tmp_path / "held.jsonl").write_text("\n".join(lines), encoding="utf-8")
    asked = [tmp_path / "诗.txt", "--out", tmp_path / "poems", "--tokenizer", tokenizer, "--python", python]
    command("prepare", *asked, "--validation", tmp_path / "held.jsonl")
    mine = {
        "trainer.data": (str(tmp_path / "poems_train.bin"),),
        "trainer.validation_data": (str(tmp_path / "poems_validation.bin"),), "nemo.tokenizer": tokenizer,
        "recipe.steps": 12, "recipe.checkpoint_every": 6, "recipe.learning_rate": 0.005,
    }  # fmt: skip
    script = written(tmp_path / "run", SETTINGS | SMALL | mine)
    printed = child(python, script.parent, "train", script)
    told = json.loads(next(line for line in printed.splitlines() if line.startswith("TOLD "))[5:])["fields"]
    assert told["trainer.plugins.precision"] == "bf16-mixed"
    assert "global_step: 11 " in printed
    assert "val_loss" in printed
    losses = [float(loss) for loss in re.findall(r"reduced_train_loss: ([\d.]+)", printed)]
    assert losses[-1] < losses[0] - 1
    assert list(script.parent.glob("output/qwen25_500m/checkpoints/*-last"))


@pytest.mark.parametrize("kind", ["theta", "llama3"])
def test_a_folder_of_transformers_5_comes_back_with_the_same_logits(python, tmp_path, kind):
    """Its RoPE and its tokenizer have names that NeMo's transformers 4 does not read; the judge is transformers 5."""
    script, model = TESTS / "scripts" / "logits.py", tmp_path / "hf"
    subprocess.run([sys.executable, script, "make", model, kind], check=True, capture_output=True)
    config = (model / "config.json").read_text()
    assert "rope_parameters" in config
    assert '"TokenizersBackend"' in (model / "tokenizer_config.json").read_text()
    assert "Same logits" in command("import", model, tmp_path / "nemo", "--python", python)
    assert "Same logits" in command("export", tmp_path / "nemo", tmp_path / "back", "--python", python)
    assert (model / "config.json").read_text() == config
    words = [sys.executable, script, "compare", model, tmp_path / "back"]
    assert float(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[-1]) < 1e-4


def test_the_quickstarts_own_model_can_be_imported_and_its_tokenizer_prepares(python, tmp_path):
    model = tmp_path / "quick"
    pretrain = Path(environments.__file__).parents[2] / "programs" / "pretrain.py"
    sample = pretrain.with_name("sample.txt")
    words = ["--data", sample, "--max_steps=1", "--per_device_train_batch_size=1", "--use_cpu=True"]
    made = [sys.executable, pretrain, "--output_dir", model, "--save_strategy=no", *words]
    subprocess.run(made, check=True, capture_output=True)
    assert "Same logits" in command("import", model, tmp_path / "nemo", "--python", python)
    asked = [sample, "--out", tmp_path / "d" / "text", "--tokenizer", model, "--python", python]
    assert f"--set nemo.tokenizer={tmp_path}/d/text_tokenizer" in command("prepare", *asked)
    names = "PreTrainedTokenizer"
    assert names in (tmp_path / "d" / "text_tokenizer" / "tokenizer_config.json").read_text()


def test_a_model_that_nemo_computes_otherwise_is_refused_and_nothing_is_left(python, tmp_path):
    script, model = TESTS / "scripts" / "logits.py", tmp_path / "hf"
    # NeMo's converter of Llama drops this kind of scaling, without a word.
    subprocess.run([sys.executable, script, "make", model, "linear"], check=True, capture_output=True)
    line = [sys.executable, "-m", "tui_train", "nemo", "import", model, tmp_path / "nemo", "--python", python]
    done = subprocess.run(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode != 0
    assert "its logits differ by" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_a_model_is_imported_finetuned_and_exported_with_the_same_logits(python, tmp_path):
    """A rate so small that the weights stay as they are: what transformers computes with them stays as well."""
    script, model = TESTS / "scripts" / "logits.py", tmp_path / "hf"
    subprocess.run([python, script, "make", model], check=True, capture_output=True)
    command("import", model, tmp_path / "nemo", "--python", python)
    data = tmp_path / "data"
    data.mkdir()
    for name in ("training", "validation"):
        line = json.dumps({"input": "春眠", "output": "处处闻啼鸟"}, ensure_ascii=False)
        (data / f"{name}.jsonl").write_text(f"{line}\n" * 16, encoding="utf-8")
    sizes = {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 128, "num_attention_heads": 4}
    sizes |= {"num_query_groups": 2, "vocab_size": 512, "share_embeddings_and_output_weights": False}
    mine = {
        "nemo.task": "finetune", "nemo.peft": "none", "trainer.data": (str(data),),
        "trainer.model": str(tmp_path / "nemo"), "recipe.steps": 2, "recipe.checkpoint_every": 2,
        "recipe.learning_rate": 1e-10,
        "nemo.set": {f"model.config.{name}": str(value) for name, value in sizes.items()},
    }  # fmt: skip
    run = written(tmp_path / "run", SETTINGS | mine)
    assert "global_step: 1 " in child(python, run.parent, "train", run)
    (last,) = run.parent.glob("output/qwen25_500m/checkpoints/*-last")
    command("export", last, tmp_path / "back", "--python", python)
    command("export", tmp_path / "nemo", tmp_path / "same", "--python", python)
    words = [python, script, "compare", model, tmp_path / "same", tmp_path / "back"]
    differ = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    same, trained = map(float, differ.stdout.split()[-2:])
    assert same == 0
    # The training computes, and keeps its weights, in bf16.
    assert trained < 0.02


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
    run, made = export_run(tmp_path / "run", profile(SETTINGS | {"recipe.precision": "fp32"} | chosen | mine), found)
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
