"""What a profile says of weights, kernels and the loss: by arguments, and by the ways of each trainer's versions."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from support import GIB, SCRIPTS, UUIDS, facts, gpu, needs_trl, profile
from support import TRL_PYTHON as PYTHON_TRL

import tui_train
from tui_train.facts.machine import probe
from tui_train.facts.models.dimensions import find_known_dimensions
from tui_train.facts.models.model_folders import ModelFolder, read_model_folder
from tui_train.facts.scripts.script_source import parse_script_source
from tui_train.memory.estimate import estimate_memory
from tui_train.memory.predict import predict_memory
from tui_train.memory.workload import derive_workload
from tui_train.setup.setup import Setup

PROGRAMS = Path(tui_train.__file__).parent / "programs" / "memory"

MISTRAL = find_known_dimensions("mistralai/Mistral-7B-v0.1")


def told(words, more=(), sources=None, **values):
    where = facts(gpus=[gpu(index, uuid=UUIDS[index], memory_total=80 * GIB) for index in (0, 1)], **values)
    models = {"/m": ModelFolder(replace(MISTRAL, dtype="bf16")), "/unknown": ModelFolder(replace(MISTRAL, dtype=""))}
    where = replace(where, models=models, sources=sources or {})
    chosen = {"trainer.kind": "script", "trainer.script": "/t.py", "recipe.precision": "bf16",
              "trainer.arguments": ("--model_name_or_path=mistralai/Mistral-7B-v0.1", *words)}  # fmt: skip
    made = profile(chosen | dict(more))
    return predict_memory(Setup(made, where)).workload.settings


def test_a_profile_tells_which_fsdp_shares_out_and_how_layers_are_recomputed():
    words = ("--fsdp=full_shard auto_wrap", "--use_peft", "--gradient_checkpointing", "--dtype=bfloat16")
    old = told(words, transformers="4.45.0")
    assert (old.sharding, old.holds_frozen_layers, old.weight_dtype) == ("fsdp", True, "bf16")
    assert any("full model" in caveat for caveat in old.caveats)
    assert not told(words).holds_frozen_layers, "transformers 5 recomputes otherwise"
    other = (*words, "--gradient_checkpointing_kwargs={'use_reentrant': False}")
    assert not told(other, transformers="4.45.0").holds_frozen_layers
    full = told((words[0], "--dtype=bfloat16"))
    assert full.weight_dtype == "fp32", "accelerate keeps in fp32 what FSDP trains in mixed precision"


@pytest.mark.parametrize(
    ("words", "version", "loss", "kernels"),
    [
        ((), "4.45.2", "upcast", ""),
        ((), "4.47.0", "copied", ""),
        (("--fast_kernels", "True", "True", "True"), "4.47.0", "fast-copied", "norms"),
        (("--fast_kernels", "fused_ce_liger", "True", "True"), "5.0.0", "fused", "norms"),
    ],
)
def test_versions_and_kernels_tell_how_the_logits_are_treated(words, version, loss, kernels):
    how = told(words, transformers=version)
    assert (how.loss, how.fused_kernels) == (loss, kernels)


MISTRAL_IN = "Mistral-7B-v0.1"
TRL = {"trainer.preset": "trl", "trainer.script": "", "trainer.arguments": (f"--model_name_or_path={MISTRAL_IN}",)}
QUANTIZED = {"trainer.arguments": (*TRL["trainer.arguments"], "--use_peft", "--load_in_4bit")}
BESIDE = {"datasets": "5.2.0", "peft": "0.21.2"}
PAIRS = {
    "trainer.kind": "finetune", "trainer.model": "/m", "trainer.data": ("/d.jsonl",), "trainer.script": "",
    "trainer.arguments": (), "finetune.method": "dpo", "finetune.tuning": "full",
}  # fmt: skip
FACTORY = {"trainer.preset": "llama-factory", "trainer.model": "/m", "trainer.arguments": ()}
AXOLOTL = {"trainer.preset": "axolotl", "trainer.model": "/m"}
FULL = {"trainer.config": "/c.yaml", "trainer.arguments": ("finetuning_type=full",)}


@pytest.mark.parametrize(
    ("values", "packages", "transformers", "weights", "loss"),
    [
        ({}, {}, "5.0.0", "bf16", "upcast"),
        ({}, {}, "4.57.0", "fp32", "upcast"),
        # As each of these versions loads models and computes the loss.
        (TRL, {"trl": "0.25.1"}, "4.57.0", "fp32", "upcast"),
        (TRL, {"trl": "0.26.2"}, "4.57.0", "bf16", "upcast"),
        (TRL, {"trl": "0.27.0"}, "5.0.0", "fp32", "upcast"),
        (TRL, {"trl": "1.7.0"}, "5.0.0", "fp32", "checkpointed"),
        (TRL, {"trl": "1.15.0"}, "5.0.0", "fp32", "tiled"),
        (TRL | QUANTIZED, {"trl": "1.16.0"}, "5.0.0", "fp32", "tiled"),
        (TRL | {"recipe.fused_cross_entropy": True}, {"trl": "1.14.0"}, "5.0.0", "fp32", "fused"),
        (TRL | {"recipe.fused_cross_entropy": True}, {"trl": "1.16.0"}, "5.0.0", "fp32", "tiled"),
        (PAIRS, BESIDE | {"trl": "1.14.0"}, "5.0.0", "fp32", "upcast"),
        (PAIRS | {"finetune.method": "sft"}, BESIDE | {"trl": "1.14.0"}, "5.0.0", "fp32", "checkpointed"),
        (PAIRS, BESIDE | {"trl": "1.16.0"}, "5.0.0", "fp32", "tiled"),
        (FACTORY, {"llamafactory": "0.9.5"}, "4.57.0", "bf16", "upcast"),
        (FACTORY | FULL, {"llamafactory": "0.9.5"}, "5.0.0", "fp32", "upcast"),
        (FACTORY | {"recipe.precision": "fp16"}, {"llamafactory": "0.9.3"}, "4.57.0", "fp16", "upcast"),
        (AXOLOTL, {}, "4.57.0", "bf16", "upcast"),
        # Chosen before, and of no use now.
        ({"trainer.kind": "builtin", "trainer.preset": "trl"}, {"trl": "1.16.0"}, "5.0.0", "fp32", "upcast"),
    ],
)
def test_each_trainer_loads_weights_and_computes_the_loss_in_its_own_way(values, packages, transformers, weights, loss):
    how = told((), values, transformers=transformers, packages=packages)
    assert (how.weight_dtype, how.loss) == (weights, loss)


def test_only_weights_that_nobody_knows_are_a_guess():
    unknown = {"trainer.model": "/unknown"}
    guess = "type of the weights: fp32 is assumed, set --dtype otherwise"
    assert guess in told((), unknown, transformers="5.0.0").caveats
    assert guess not in told((), unknown, transformers="4.57.0").caveats
    assert guess not in told((), TRL | unknown, transformers="5.0.0").caveats


def test_what_is_not_quantized_is_fp32_where_peft_prepares_the_model():
    packed = ("--load_in_4bit=True", "--dtype=bfloat16")
    sources = {"/t.py": parse_script_source(b"import peft\nmodel = peft.prepare_model_for_kbit_training(model)")}
    assert (told(packed).weight_dtype, told(packed, sources=sources).weight_dtype) == ("bf16", "fp32")
    assert told(("--auto_gptq=triton_v2", "--dtype=bfloat16"), sources=sources).weight_dtype == "bf16"
    by_trl = {**TRL, "trainer.arguments": (*TRL["trainer.arguments"], *packed)}
    versions = {version: told((), by_trl, packages={"trl": version}).weight_dtype for version in ("0.23.0", "1.16.0")}
    assert versions == {"0.23.0": "fp32", "1.16.0": "bf16"}


def test_transformers_5_has_the_experts_of_a_layer_as_one_tensor():
    assert [told((), transformers=version).fused_experts for version in ("4.57.0", "5.0.0")] == [False, True]


def test_packed_weights_are_known_by_the_words_of_their_library():
    assert told(("--auto_gptq=triton_v2", "--peft_method=lora", "--r=4")).quantization == "gptq"
    assert told(("--bitsandbytes=nf4", "--r=4")).lora_rank == 4


# A small vocabulary: on the CPU TRL computes its tiles by several operators, on GPUs by one kernel.
SIZES = """
import sys
from transformers import Qwen2Config, Qwen2ForCausalLM
sizes = dict(hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2)
config = Qwen2Config(vocab_size=512, architectures=["Qwen2ForCausalLM"], tie_word_embeddings=False, **sizes)
Qwen2ForCausalLM(config).save_pretrained(sys.argv[1])
"""


@pytest.fixture(scope="module")
def pairs_model(tmp_path_factory):
    """A model in which weights and activations count."""
    made = tmp_path_factory.mktemp("pairs") / "model"
    subprocess.run([PYTHON_TRL, str(SCRIPTS / "tokenizer.py"), str(made)], check=True, capture_output=True)
    subprocess.run([PYTHON_TRL, "-c", SIZES, str(made)], check=True, capture_output=True)
    return made


@needs_trl
@pytest.mark.whole
@pytest.mark.timeout(600)
@pytest.mark.parametrize("checkpointing", [True, False])
@pytest.mark.parametrize("lora", [False, True])
def test_a_step_of_trls_dpo_takes_what_is_estimated(tmp_path, pairs_model, lora, checkpointing):
    """With the reference model beside it where all weights are trained, and two answers in each sample."""
    chosen = {
        "trainer.kind": "finetune", "trainer.model": str(pairs_model), "trainer.data": ("/d.jsonl",),
        "finetune.method": "dpo", "finetune.tuning": "lora" if lora else "full", "recipe.micro_batch": 2,
        "recipe.global_batch": 2, "recipe.sequence_length": 128, "recipe.activation_checkpointing": checkpointing,
        "recipe.precision": "fp32", "hardware.device": "cpu",
    }  # fmt: skip
    where = replace(
        facts(),
        toolchains=(probe.probe_toolchain(PYTHON_TRL),),
        models={str(pairs_model): read_model_folder(str(pairs_model))},
    )
    asked_for = derive_workload(Setup(profile(chosen), where))
    request = {
        "programs": str(PROGRAMS), "folder": str(pairs_model), "micro_batch": 2, "length": 128, "lora": lora,
        "checkpointing": checkpointing, "out": str(tmp_path),
    }  # fmt: skip
    words = [PYTHON_TRL, str(SCRIPTS / "trl_memory.py"), json.dumps(request)]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
    measured = json.loads(done.stdout.splitlines()[-1])
    assert measured["reference"] == asked_for.settings.has_reference_model == (not lora)
    estimated = estimate_memory(asked_for.model, asked_for.settings)
    assert estimated.peak_phase.total_bytes == pytest.approx(measured["peak"], rel=estimated.relative_error)


@pytest.mark.parametrize(
    ("values", "becomes"),
    [
        ({}, "fp32"),
        ({"finetune.tuning": "qlora"}, "bf16"),
        ({"finetune.tuning": "qlora", "recipe.precision": "fp16"}, "bf16"),
        ({"trainer.strategy": "zero3"}, "bf16"),
        ({"trainer.strategy": "zero3", "recipe.precision": "fp16"}, "fp16"),
        ({"trainer.strategy": "zero2"}, "fp32"),
    ],
)
def test_adapters_are_of_the_type_that_trl_gives_them(values, becomes):
    chosen = profile({"trainer.kind": "finetune", "trainer.model": "Qwen/Qwen2.5-7B", **values})
    packages = {"trl": "1.16.0", "peft": "0.21.2", "datasets": "5.2.0", "bitsandbytes": "0.49.0", "deepspeed": "0.19.0"}
    where = facts(gpus=(gpu(0), gpu(1)), packages=packages)
    assert derive_workload(Setup(chosen, where)).settings.adapter_dtype == becomes
