"""Runs in a Python with NeMo, on the CPU: starts generated files unmodified, with nemo_run's `run` replaced.

usage: nemo_child.py WHAT TOKENIZER SCRIPT [ARGUMENT...], or nemo_child.py jobs FILE with several of these as JSON.
WHAT is build (print the recipe's fields), dryrun (all its objects are made) , steps=N (it trains to step N, tiny) or
train (it trains with all settings as the file has them, but for the CPU).
"""

import contextlib
import json
import runpy
import sys
from pathlib import Path

import no_cuda  # before NeMo, which takes some of it when it is imported

if sys.argv[1].startswith("steps=") or sys.argv[1] == "train":
    no_cuda.pretend()

import fiddle
import nemo_run
import torch
from nemo.collections import llm
from nemo.collections.common.tokenizers.huggingface.auto_tokenizer import AutoTokenizer
from torch.distributed.checkpoint import filesystem

NEMO_RUN = nemo_run.run
# NeMo 2.3 comes with a torch before 2.8, whose own function had no such argument.
filesystem._write_item.__defaults__ = (filesystem.SerializationFormat.TORCH_SAVE,)


def say(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fields(value, path=""):
    """The fields of a recipe by their dotted path, as text."""
    if isinstance(value, fiddle.Buildable):
        yield path or ".", value.__fn_or_cls__.__name__
        for name, inner in value.__arguments__.items():
            yield from fields(inner, f"{path}.{name}" if path else name)
    else:
        yield path, str(value)


def on_the_cpu(recipe, tokenizer):
    recipe.trainer.accelerator = "cpu"
    if recipe.data.__fn_or_cls__ is llm.MockDataModule:
        recipe.data.tokenizer = nemo_run.Config(AutoTokenizer, pretrained_model_name=tokenizer)


def tiny(recipe, steps):
    """Small enough for seconds on a CPU; what is not set here is as the file has it."""
    trainer, config, optim = recipe.trainer, recipe.model.config, recipe.optim.config
    trainer.max_steps, trainer.log_every_n_steps, trainer.num_sanity_val_steps = steps, 1, 0
    trainer.val_check_interval, trainer.limit_val_batches = steps, 0
    trainer.plugins, trainer.precision = None, "32"
    trainer.strategy.ckpt_async_save = False
    config.num_layers, config.hidden_size, config.ffn_hidden_size = 2, 96, 128
    config.num_attention_heads, config.num_query_groups, config.vocab_size = 12, 2, 512
    config.use_cpu_initialization, config.gradient_accumulation_fusion = True, False
    config.bias_dropout_fusion = config.bf16 = False
    config.params_dtype = config.pipeline_dtype = config.autocast_dtype = torch.float32
    recipe.data.num_workers = 0
    optim.bf16 = optim.use_distributed_optimizer = False
    optim.clip_grad = 0.0


def without_a_gpu():
    """Let what Megatron and NeMo do only with a GPU, or with Transformer Engine, be left out."""
    from megatron.core.tensor_parallel import random
    from nemo.collections.llm.gpt.data import mock
    from nemo.lightning.io import pl

    pl._fix_tensors_device = lambda checkpoint: checkpoint
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()
    # Without Transformer Engine, NeMo passes create_attention_mask where the seed is expected.
    made = mock._MockGPTDataset.__init__
    mock._MockGPTDataset.__init__ = lambda self, tokenizer, name, count, length, *_, **__: made(
        self, tokenizer, name, count, length, seed=42, create_attention_mask=True
    )


def start(what, tokenizer, script, *rest):
    """Start one file, with nemo_run's `run` replaced."""

    def instead(recipe, **options):
        say("\nTOLD " + json.dumps({"options": options, "fields": dict(fields(recipe))}))
        if what == "build":
            return
        on_the_cpu(recipe, tokenizer)
        if what == "dryrun":
            NEMO_RUN(recipe, dryrun=True)
        elif what == "train":
            NEMO_RUN(recipe, **options)
        else:
            tiny(recipe, int(what.removeprefix("steps=")))
            NEMO_RUN(recipe, **options)

    nemo_run.run = instead
    if what.startswith("steps=") or what == "train":
        without_a_gpu()
    sys.argv = [script, *rest]
    runpy.run_path(script, run_name="__main__")
    say("\nENDED")


def main():
    if sys.argv[1] != "jobs":
        start(*sys.argv[1:])
        return
    for job in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        try:
            start(*job)
        except Exception as error:  # noqa: BLE001 - it is what the test asks for
            say("\nTOLD " + json.dumps({"error": str(error)}))


if __name__ == "__main__":
    main()
