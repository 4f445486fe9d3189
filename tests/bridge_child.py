"""Runs in a Python with Megatron-Bridge, on the CPU: starts generated files unmodified, with `pretrain` replaced.

usage: bridge_child.py WHAT SCRIPT [ARGUMENT...], or bridge_child.py jobs FILE with several of these as JSON.
WHAT is build (print the fields, after Megatron-Bridge has found them valid) or steps=N (it trains to step N, tiny);
recipes alone prints the recipes.
"""

import contextlib
import dataclasses
import functools
import importlib
import importlib.abc
import importlib.machinery
import json
import multiprocessing
import re
import runpy
import sys
import types
from pathlib import Path

import no_cuda
import torch

if sys.argv[1].startswith("steps="):
    no_cuda.patch_out_cuda()


class DummyType(type):
    """Stand-in for any type that Megatron-Bridge takes from Transformer Engine as it is imported."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return DummyType(name, (), {})


class DummyModule(types.ModuleType):
    """A module that has any name."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return DummyType(name, (), {})


class TransformerEngineStub(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands for Transformer Engine, which needs CUDA, but only for Megatron-Bridge: Megatron does without it."""

    def find_spec(self, name, path=None, target=None):
        caller = sys._getframe(1)
        while "importlib" in caller.f_code.co_filename:
            caller = caller.f_back
        wanted = name.split(".")[0] in {"transformer_engine", "transformer_engine_torch"}
        if wanted and "megatron/bridge" in caller.f_code.co_filename:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return DummyModule(spec.name)

    def exec_module(self, module):
        module.__path__ = []


# What is imported before finds no Transformer Engine, and does without it.
for name in ("models.gpt.gpt_layer_specs", "transformer.attention"):
    importlib.import_module(f"megatron.core.{name}")
sys.meta_path.insert(0, TransformerEngineStub())

from megatron.bridge import recipes  # noqa: E402
from megatron.bridge.training import config as configs  # noqa: E402
from megatron.bridge.training import finetune, pretrain  # noqa: E402

REAL_PRETRAIN = pretrain.pretrain


def print_line(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def fields_by_path(value, path=""):
    """The fields of a configuration by their dotted path, as text."""
    if path:
        yield path, type(value).__name__ if dataclasses.is_dataclass(value) else str(value)
    if dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from fields_by_path(getattr(value, field.name, None), f"{path}.{field.name}" if path else field.name)


def forbid_unknown_fields(config):
    """Let nothing be set in a configuration that is no field of it: a name that is wrong would go unseen."""
    for part in (config, *(getattr(config, field.name) for field in dataclasses.fields(config))):
        if dataclasses.is_dataclass(part):
            part.__class__ = type(part.__class__.__name__, (part.__class__,), {"__setattr__": set_known_field})
    return config


def set_known_field(self, name, value):
    if not hasattr(self, name):
        raise AttributeError(f"{type(self).__name__} has no field {name}")
    object.__setattr__(self, name, value)


def allow_unknown_fields(config):
    for part in (config, *(getattr(config, field.name) for field in dataclasses.fields(config))):
        if type(part).__dict__.get("__setattr__") is set_known_field:
            part.__class__ = type(part).__bases__[0]


def start_file(what, script, *rest):
    """Start one file, with what trains replaced, and recipes that take no unknown name."""
    found = {}

    def instead(config, forward_step, task):
        assert callable(forward_step)
        allow_unknown_fields(config)
        if what == "build":
            # Whatever is only known once it is valid is left out: the file's own values are asked for.
            found.update({"task": task, "fields": dict(fields_by_path(config))})
            configs.runtime_config_update(config)
            found["valid"] = dict(fields_by_path(config))
        else:
            shrink_config(config, int(what.removeprefix("steps=")))
            patch_out_gpu()
            REAL_PRETRAIN(config, forward_step)

    pretrain.pretrain = lambda config, forward_step: instead(config, forward_step, "pretrain")
    finetune.finetune = lambda config, forward_step: instead(config, forward_step, "finetune")
    for name in filter(re.compile("_(pretrain|sft|peft)_config$").search, dir(recipes)):
        setattr(recipes, name, with_strict_config(getattr(recipes, name)))
    sys.argv = [str(script), *rest]
    try:
        runpy.run_path(str(script), run_name="__main__")
    finally:
        print_line("\nTOLD " + json.dumps(found))


def with_strict_config(made):
    made = getattr(made, "made", made)

    def recipe():
        return forbid_unknown_fields(made())

    recipe.made = made
    return recipe


def shrink_config(config, steps):
    """Small enough for seconds on a CPU; what is not set here is as the file has it."""
    from megatron.bridge.models.gpt_provider import local_layer_spec
    from megatron.bridge.training.mixed_precision import MixedPrecisionConfig

    config.train.train_iters = steps
    model = config.model
    model.num_layers, model.hidden_size, model.ffn_hidden_size = 2, 96, 128
    model.num_attention_heads, model.num_query_groups, model.kv_channels = 12, 2, 8
    model.vocab_size = 512
    if config.tokenizer.tokenizer_type == "NullTokenizer":
        config.tokenizer.vocab_size = 511
    model.transformer_layer_spec, model.transformer_impl = local_layer_spec, "local"
    model.use_cpu_initialization, model.gradient_accumulation_fusion = True, False
    model.bias_dropout_fusion = model.masked_softmax_fusion = model.cross_entropy_loss_fusion = False
    config.mixed_precision = MixedPrecisionConfig(fp32=True, params_dtype=torch.float32, grad_reduce_in_fp32=False)
    config.dist.distributed_backend = "gloo"
    config.checkpoint.save_rng = config.checkpoint.load_rng = False
    config.ddp.use_distributed_optimizer = config.optimizer.use_distributed_optimizer = False
    config.optimizer.clip_grad, config.dataset.num_workers = 0.0, 0


def patch_out_gpu():
    """Let what Megatron and Megatron-Bridge do only with a GPU be left out."""
    from megatron.bridge.peft import utils as lora
    from megatron.bridge.training import initialize, setup
    from megatron.core.datasets import utils
    from megatron.core.dist_checkpointing.strategies import filesystem_async
    from megatron.core.tensor_parallel import random

    lora.HAVE_TE = False
    random.CudaRNGStatesTracker.fork = lambda *_, **__: contextlib.nullcontext()

    # A process that is started for it would import the file again, without what stands in here.
    filesystem_async._results_queue = multiprocessing.get_context("fork").Manager().Queue()
    # It is compiled already: only a checkout of Megatron's sources has what to make it from.
    utils.compile_helpers = lambda: None
    initialize.compile_helpers = utils.compile_helpers
    setup.initialize_megatron = functools.partial(setup.initialize_megatron, allow_no_cuda=True)


def print_recipes():
    """Run the program that is asked which recipes there are."""
    sys.argv = ["nemo_recipes.py", "bridge"]
    runpy.run_path(str(Path(__file__).parents[1] / "tui_train" / "programs" / "nemo_recipes.py"), run_name="__main__")


def main():
    if sys.argv[1] == "recipes":
        print_recipes()
        return
    if sys.argv[1] != "jobs":
        start_file(*sys.argv[1:])
        return
    for job in json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")):
        try:
            start_file(*job)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - it is what the test asks for
            print_line("\nFAILED " + json.dumps(f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
