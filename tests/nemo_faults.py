"""Profiles of NeMo recipes, what is wrong with each, and the machines on which it is found."""

import msgspec
from faults import error, note, warning
from support import FULL_RECIPE, facts, gpu

from tui_train.facts.types import NemoCheckpoint, NemoTokenizer

MODEL_SIZES = {"recipe.layers": 4, "recipe.hidden_size": 128, "recipe.heads": 4}
# More steps than the recipes here warm up for.
RECIPE_NUMBERS = {key: value for key, value in FULL_RECIPE.items() if key not in MODEL_SIZES} | {"recipe.steps": 3000}
NEMO_WITHOUT_NUMBERS = {
    "trainer.kind": "nemo",
    "nemo.recipe": "qwen25_500m",
    "trainer.data": ("/a.bin",),
    "nemo.tokenizer": "/tok",
}
NEMO = NEMO_WITHOUT_NUMBERS | RECIPE_NUMBERS
MOCK = NEMO | {"trainer.data": (), "nemo.mock_data": True}
RECIPES = {"nemo_toolkit": "2.7.3", "nemo_run": "0.11.1", "transformer-engine": "2.8.0"}
BARE = {"nemo_toolkit": "2.7.3", "nemo_run": "0.11.1"}
WITH_NEMO = facts(gpus=(gpu(0), gpu(1)), packages=RECIPES, python="/p")
FINETUNE = NEMO | {
    "nemo.task": "finetune",
    "trainer.data": ("/d",),
    "trainer.model": "/checkpoint",
    "nemo.tokenizer": "",
}
FOUR = facts(gpus=[gpu(number, f"GPU-{number}") for number in range(4)], packages=RECIPES, python="/p")
OWN = NEMO | MODEL_SIZES | {"recipe.global_batch": 32}
AUTOMODEL = facts(gpus=(gpu(0),), packages={"nemo_automodel": "0.7.0", "nemo_toolkit": "3.0.0"})
BRIDGED = {"megatron-bridge": "0.3.1", "nemo_toolkit": "3.0.0"}
BRIDGE = facts(gpus=(gpu(0), gpu(1)), packages=BRIDGED, python="/p")


def with_checkpoint(model="Qwen2Model", **numbers):
    """Facts of a machine on which the checkpoint of FINETUNE has this model and these sizes."""
    found = facts(gpus=(gpu(0),), packages=RECIPES, paths={"/checkpoint/context": "folder"})
    known = NemoCheckpoint(model=model, numbers=numbers)
    return msgspec.structs.replace(found, checkpoints={"/checkpoint": known})


def with_tokenizer(**found):
    """Facts of a machine on which the tokenizer of NEMO was read."""
    return msgspec.structs.replace(WITH_NEMO, tokenizers={"/tok": NemoTokenizer(**found)})


# Values, facts, then what is found: level, key, a part of the words, and whether it is the machine that lacks it.
def card(**more):
    """Facts of a machine with one card."""
    return facts(gpus=(gpu(0),), **more)


FAULTS = {
    "no recipe named": error(NEMO | {"nemo.recipe": ""}, WITH_NEMO, "nemo.recipe", "no NeMo recipe", fix=True),
    "recipe that is no name": error(NEMO | {"nemo.recipe": "qwen25; import os"}, WITH_NEMO, "nemo.recipe",
        "is not a recipe"),
    "recipe that NeMo is not known to have": warning(NEMO | {"nemo.recipe": "qwen25_500"}, WITH_NEMO, "nemo.recipe",
        "NeMo 2.7 is known to have", fix=True),
    "recipe that this NeMo does not have": error(NEMO,
        card(packages=RECIPES, python="/p", recipes={"/p": {"qwen2_500m": ("pretrain",)}}), "nemo.recipe",
        "this NeMo has", fix=True),
    "recipes that cannot be told": warning(NEMO,
        card(packages=RECIPES, python="/p", recipes={"/p": "ImportError: no modelopt"}), "nemo.recipe",
        "ImportError: no modelopt"),
    "lora without transformer engine": error(FINETUNE, card(packages=BARE, python="/p"), "nemo.peft",
        "needs Transformer Engine, which /p does not have", fix=True),
    "hugging face folder for a recipe": error(FINETUNE,
        card(packages=RECIPES, paths={"/checkpoint/config.json": "file", "/checkpoint/context": "missing"}),
        "trainer.model", "/checkpoint is a Hugging Face folder"),
    "checkpoint of nemo 1": error(FINETUNE, card(packages=RECIPES, paths={"/checkpoint/context": "missing"}),
        "trainer.model", "is not a NeMo 2 checkpoint"),
    "checkpoint of another size": error(FINETUNE,
        with_checkpoint(num_layers=28, hidden_size=1536, ffn_hidden_size=8960, num_attention_heads=12), "trainer.model",
        "num_layers 28 for 24, hidden_size 1536 for 896"),
    "checkpoint of another model": error(FINETUNE, with_checkpoint("LlamaModel"), "trainer.model",
        "a LlamaModel for a Qwen2Model"),
    "test data alone": error(NEMO | {"trainer.test_data": ("/t.bin",)}, WITH_NEMO, "trainer.test_data",
        "only with validation data", fix=True),
    "test data in a pretraining": note(NEMO | {"trainer.validation_data": ("/v.bin",),
        "trainer.test_data": ("/t.bin",)}, WITH_NEMO, "trainer.test_data", "does not evaluate on the test data"),
    "validation data of a finetune": error(FINETUNE | {"trainer.validation_data": ("/v.jsonl",)}, WITH_NEMO,
        "trainer.validation_data", "in the folder of the training data", fix=True),
    "validation data without its index": error(NEMO | {"trainer.validation_data": ("/v.bin",)},
        card(packages=RECIPES, paths={"/v.idx": "missing"}), "trainer.validation_data", "/v.idx"),
    "setting that the plan writes": error(NEMO | {"nemo.set": {"trainer.max_steps": "5"}}, WITH_NEMO, "nemo.set",
        "trainer.max_steps is set by the plan", fix=True),
    "part of a setting that the plan writes": error(NEMO | {"nemo.set": {"trainer.plugins.precision": "'32'"}},
        WITH_NEMO, "nemo.set", "trainer.plugins.precision is set by the plan", fix=True),
    "setting that is no name": error(NEMO | {"nemo.set": {"model.config.x;import os": "5"}}, WITH_NEMO, "nemo.set",
        "is not a setting of a recipe", fix=True),
    "setting that is no value": error(
        NEMO | {"nemo.set": {"model.config.normalization": "__import__('os').system('true')"}}, WITH_NEMO, "nemo.set",
        "is not a value", fix=True),
    "setting for a bridge": error(NEMO | {"nemo.set": {"model.config.hidden_dropout": "0.1"}}, BRIDGE, "nemo.set",
        "NeMo's own recipes only", fix=True),
    "recipe without lora": error(FINETUNE | {"nemo.recipe": "mamba2_130m"}, WITH_NEMO, "nemo.peft", "LoRA", fix=True),
    "hyena with lora": error(FINETUNE | {"nemo.recipe": "hyena_1b"}, WITH_NEMO, "nemo.peft", "LoRA", fix=True),
    "nemo without data": error(NEMO | {"trainer.data": ()}, WITH_NEMO, "trainer.data", "no data is named", fix=True),
    "nemo with mock data": warning(MOCK, WITH_NEMO, "nemo.mock_data", "MOCK DATA"),
    "mock data and data": error(NEMO | {"nemo.mock_data": True}, WITH_NEMO, "nemo.mock_data",
        "your data would not be read", fix=True),
    "no tokenizer": warning(NEMO | {"nemo.tokenizer": ""}, WITH_NEMO, "nemo.tokenizer", "takes that of GPT-2"),
    "data that is no .bin": error(NEMO | {"trainer.data": ("/a.txt",)}, WITH_NEMO, "trainer.data",
        "/a.txt is not a .bin"),
    "data without its index": error(NEMO | {"trainer.data": ("/a.bin",)},
        card(packages=RECIPES, paths={"/a.bin": "file", "/a.idx": "missing"}), "trainer.data", "/a.idx"),
    "finetune with a file": error(FINETUNE, card(packages=RECIPES, paths={"/d": "file"}), "trainer.data",
        "/d is not a folder"),
    "finetune without training.jsonl": error(FINETUNE,
        card(packages=RECIPES, paths={"/d": "folder", "/d/training.jsonl": "missing"}), "trainer.data",
        "no training.jsonl in /d"),
    "finetune with two folders": error(FINETUNE | {"trainer.data": ("/d", "/e")}, WITH_NEMO, "trainer.data",
        "one folder"),
    "model split unevenly": error(NEMO | {"nemo.tensor_parallel": 3}, WITH_NEMO, "nemo.tensor_parallel",
        "3 × 1 × 1 = 3, which does not divide 2 processes", fix=True),
    "batch over copies of the model": error(NEMO | {"nemo.tensor_parallel": 2, "recipe.global_batch": 4}, WITH_NEMO,
        "recipe.global_batch", "micro batch 8 x 1 copy of the model", fix=True),
    "nemo on the cpu": error(NEMO, facts(packages=RECIPES), "trainer.kind", "NVIDIA GPUs only", fix=True, machine=True),
    "nemo by gloo": error(NEMO | {"communication.backend": "gloo"}, WITH_NEMO, "communication.backend", "needs NCCL",
        fix=True),
    "nemo under accelerate": error(NEMO | {"trainer.launcher": "accelerate"}, WITH_NEMO, "trainer.launcher",
        "accelerate cannot start NeMo", fix=True),
    "nemo with arguments": error(NEMO | {"trainer.arguments": ("--x",)}, WITH_NEMO, "trainer.arguments",
        "takes no arguments", fix=True),
    "nemo 3": error(NEMO, card(packages={"nemo_toolkit": "3.0.0"}), "trainer.python",
        "3.0.0, but its language-model recipes", machine=True),
    "nemo 2.2": error(NEMO, card(packages={"nemo_toolkit": "2.2.1"}), "trainer.python", "but 2.3 or newer",
        machine=True),
    "no nemo": error(NEMO, card(), "trainer.python", "no nemo_toolkit", machine=True),
    "nemo without nemo_run": error(NEMO, card(packages={"nemo_toolkit": "2.7.3"}), "trainer.python", "but no nemo_run",
        machine=True),
    "finetune without a model": warning(FINETUNE | {"trainer.model": ""}, WITH_NEMO, "trainer.model",
        "looks for its weights in $NEMO_HOME/models"),
    "heads split unevenly": error(OWN | {"nemo.tensor_parallel": 4, "recipe.heads": 6, "recipe.hidden_size": 96}, FOUR,
        "recipe.heads", "6 is not a multiple of 4 (tensor parallel 4)", fix=True),
    "layers split unevenly": error(OWN | {"nemo.pipeline_parallel": 4, "recipe.layers": 6}, FOUR, "recipe.layers",
        "6 is not a multiple of 4 (pipeline parallel 4)", fix=True),
    "half the layers split unevenly": error(OWN | {"nemo.pipeline_parallel": 4, "ladder.rungs": ("layers",),
        "ladder.consent": ("layers",)}, FOUR, "ladder.rungs", "layers 2 cannot start", fix=True),
    "half the tokens split unevenly": error(NEMO | {"nemo.context_parallel": 2, "recipe.sequence_length": 132,
        "ladder.rungs": ("sequence_length",), "ladder.consent": ("sequence_length",)}, FOUR, "ladder.rungs",
        "sequence length 66 cannot start", fix=True),
    "tokens split unevenly": error(NEMO | {"nemo.context_parallel": 2, "recipe.sequence_length": 130}, FOUR,
        "recipe.sequence_length", "130 is not a multiple of 4 (2 × context parallel 2)", fix=True),
    "tokens split by tensor unevenly": error(NEMO | {"nemo.tensor_parallel": 4, "recipe.sequence_length": 130}, FOUR,
        "recipe.sequence_length", "130 is not a multiple of 4 (tensor parallel 4)", fix=True),
    "automodel with a pipeline": error(FINETUNE | {"nemo.pipeline_parallel": 2},
        facts(gpus=(gpu(0), gpu(1)), packages={"nemo_automodel": "0.7.0"}), "nemo.pipeline_parallel", "no pipeline",
        fix=True),
    "automodel 0.2": error(FINETUNE, card(packages={"nemo_automodel": "0.2.0"}), "trainer.python",
        "nemo_automodel 0.2.0, but 0.4 or newer", machine=True),
    "automodel in place of recipes": note(FINETUNE | {"trainer.model": "/m"}, AUTOMODEL, "trainer.kind",
        "3.0.0 has no recipes any more"),
    "bridge in place of recipes": note(NEMO, BRIDGE, "trainer.kind", "Megatron-Bridge 0.3.1 trains"),
    "bridge 0.2": error(NEMO, card(packages={"megatron-bridge": "0.2.2"}), "trainer.python",
        "megatron-bridge 0.2.2, but 0.3 or newer", machine=True),
    "recipe that bridges are not known to have": warning(NEMO | {"nemo.recipe": "baichuan2_7b"}, BRIDGE, "nemo.recipe",
        "Megatron-Bridge 0.3 and 0.6 are known to have"),
    "recipe that this bridge does not have": error(NEMO,
        card(packages=BRIDGED, python="/p", recipes={"/p": {"qwen2_500m": ("pretrain",)}}), "nemo.recipe",
        "this Megatron-Bridge has", fix=True),
    "recipe of a bridge without lora": error(FINETUNE,
        card(packages=BRIDGED, python="/p", recipes={"/p": {"qwen25_500m": ("finetune",)}}), "nemo.recipe",
        "not a recipe to finetune"),
    "bridge without a tokenizer": warning(NEMO | {"nemo.tokenizer": ""}, BRIDGE, "nemo.tokenizer",
        "the token ids of the data are used as they are"),
    "bridge without weights": error(FINETUNE | {"trainer.model": ""}, BRIDGE, "trainer.model",
        "starts from a checkpoint"),
    "bridge with weights of Hugging Face": error(FINETUNE,
        card(packages=BRIDGED, paths={"/checkpoint/config.json": "file"}), "trainer.model",
        "/checkpoint is a Hugging Face"),
    "bridge with arguments": error(NEMO | {"trainer.arguments": ("--x",)}, BRIDGE, "trainer.arguments",
        "takes no arguments", fix=True),
    "tokens of a bridge split unevenly": error(NEMO | {"nemo.tensor_parallel": 2, "recipe.sequence_length": 129,
        "recipe.micro_batch": 2}, BRIDGE, "recipe.sequence_length", "129 is not a multiple of 2 (tensor parallel 2)",
        fix=True),
    "warm-up longer than the training": warning(NEMO | {"recipe.steps": 40}, WITH_NEMO, "recipe.warmup",
        "warms up for 500 steps", fix=True),
    "tokenizer of transformers 5": error(NEMO, with_tokenizer(kind="TokenizersBackend"), "nemo.tokenizer",
        "was saved by transformers 5"),
    "automodel that pretrains": error(NEMO | {"trainer.model": "/m"}, AUTOMODEL, "nemo.task", "only for a finetune",
        fix=True),
    "automodel without a model": error(FINETUNE | {"trainer.model": ""}, AUTOMODEL, "trainer.model", "needs a model"),
}  # fmt: skip
