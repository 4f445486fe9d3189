"""What a profile says of weights, kernels and the loss: by arguments, and by the ways of each trainer's versions."""

import pytest
from msgspec.structs import replace
from support import GIB, UUIDS, facts, gpu, profile

from tui_train.facts.dimensions import by_name
from tui_train.facts.models import ModelFolder
from tui_train.memory.predict import predict
from tui_train.resolve.resolve import resolve

MISTRAL = by_name("mistralai/Mistral-7B-v0.1")


def told(words, more=(), **values):
    where = facts(gpus=[gpu(index, uuid=UUIDS[index], memory_total=80 * GIB) for index in (0, 1)], **values)
    models = {"/m": ModelFolder(replace(MISTRAL, dtype="bf16")), "/unknown": ModelFolder(replace(MISTRAL, dtype=""))}
    where = replace(where, models=models)
    chosen = {"trainer.kind": "script", "trainer.script": "/t.py", "recipe.precision": "bf16",
              "trainer.arguments": ("--model_name_or_path=mistralai/Mistral-7B-v0.1", *words)}  # fmt: skip
    made = profile(chosen | dict(more))
    return predict(where, resolve(made, where)).asked.how


def test_a_profile_tells_which_fsdp_shares_out_and_how_layers_are_recomputed():
    words = ("--fsdp=full_shard auto_wrap", "--use_peft", "--gradient_checkpointing", "--dtype=bfloat16")
    old = told(words, transformers="4.45.0")
    assert (old.sharding, old.holds_layers, old.weights) == ("fsdp", True, "bf16")
    assert any("full model" in caveat for caveat in old.caveats)
    assert not told(words).holds_layers, "transformers 5 recomputes otherwise"
    other = (*words, "--gradient_checkpointing_kwargs={'use_reentrant': False}")
    assert not told(other, transformers="4.45.0").holds_layers
    full = told((words[0], "--dtype=bfloat16"))
    assert full.weights == "fp32", "accelerate keeps in fp32 what FSDP trains in mixed precision"


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
    assert (how.loss, how.kernels) == (loss, kernels)


MISTRAL_IN = "Mistral-7B-v0.1"
TRL = {"trainer.preset": "trl", "trainer.script": "", "trainer.arguments": (f"--model_name_or_path={MISTRAL_IN}",)}
QUANTIZED = {"trainer.arguments": (*TRL["trainer.arguments"], "--use_peft", "--load_in_4bit")}
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
    assert (how.weights, how.loss) == (weights, loss)


def test_only_weights_that_nobody_knows_are_a_guess():
    unknown = {"trainer.model": "/unknown"}
    guess = "type of the weights: fp32 is assumed, set --dtype otherwise"
    assert guess in told((), unknown, transformers="5.0.0").caveats
    assert guess not in told((), unknown, transformers="4.57.0").caveats
    assert guess not in told((), TRL | unknown, transformers="5.0.0").caveats


def test_packed_weights_are_known_by_the_words_of_their_library():
    assert told(("--auto_gptq=triton_v2", "--peft_method=lora", "--r=4")).packed == "gptq"
    assert told(("--bitsandbytes=nf4", "--r=4")).rank == 4
