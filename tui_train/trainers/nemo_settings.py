"""Settings of a NeMo recipe beyond the profile's own: those that the user named, and those that a library forbids."""

import ast
import math
from typing import Any

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import Toolchain
from tui_train.profile.fields import dotted

# What the plan itself writes, and the key of the profile that changes it.
WRITTEN = {
    "data.seq_length": "recipe.sequence_length",
    "data.micro_batch_size": "recipe.micro_batch",
    "data.global_batch_size": "recipe.global_batch",
    "data.seed": "recipe.seed",
    "data.tokenizer": "nemo.tokenizer",
    "data.paths": "trainer.data",
    "data.dataset_root": "trainer.data",
    "tokenizer": "nemo.tokenizer",
    "peft": "nemo.peft",
    "model.config.seq_length": "recipe.sequence_length",
    "model.config.recompute_granularity": "recipe.activation_checkpointing",
    "model.config.recompute_method": "recipe.activation_checkpointing",
    "model.config.recompute_num_layers": "recipe.activation_checkpointing",
    "trainer.max_steps": "recipe.steps",
    "trainer.val_check_interval": "recipe.checkpoint_every",
    "trainer.devices": "hardware.gpus",
    "trainer.num_nodes": "nodes.count",
    "trainer.plugins": "recipe.precision",
    "trainer.strategy.tensor_model_parallel_size": "nemo.tensor_parallel",
    "trainer.strategy.sequence_parallel": "nemo.tensor_parallel",
    "trainer.strategy.pipeline_model_parallel_size": "nemo.pipeline_parallel",
    "trainer.strategy.context_parallel_size": "nemo.context_parallel",
    "optim.config.lr": "recipe.learning_rate",
    "optim.config.bf16": "recipe.precision",
    "optim.config.fp16": "recipe.precision",
    "log.log_dir": "trainer.output",
    "log.ckpt.every_n_train_steps": "recipe.checkpoint_every",
    "log.ckpt.train_time_interval": "recipe.checkpoint_every",
    "resume.restore_config": "trainer.model",
}
# By these a run resumes from its newest checkpoint.
_KEPT = ("log.ckpt.save_last", "log.ckpt.save_optim_on_train_end", "resume.resume_if_exists", "log.name", "log.ckpt")
# Written where the sizes of the Recipe screen replace the recipe's own.
_SIZES = {
    "model.config.num_layers": "recipe.layers",
    "model.config.hidden_size": "recipe.hidden_size",
    "model.config.ffn_hidden_size": "recipe.hidden_size",
    "model.config.num_attention_heads": "recipe.heads",
    "model.config.num_query_groups": "recipe.heads",
    "model.config.kv_channels": "recipe.heads",
}
ROOTS = ("data", "log", "model", "optim", "peft", "resume", "trainer")
_WORDS = {"true": True, "false": False, "none": None, "null": None}


def value(text: str) -> Any:
    """Return what a text stands for, as in Python or TOML; BadInput where it is no such value."""
    if text.strip().lower() in _WORDS:
        return _WORDS[text.strip().lower()]
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        found = ...
    if not _plain(found):
        remedy = "Write a number, true, false, none, a list, or text in quotes: 'RMSNorm'."
        raise BadInput(f"{visible(text)!r} is no value", remedy)
    return found


def _plain(found: Any) -> bool:
    if isinstance(found, (list, tuple)):
        return all(map(_plain, found))
    if isinstance(found, dict):
        return all(isinstance(key, str) and _plain(inner) for key, inner in found.items())
    if isinstance(found, float):
        return math.isfinite(found)
    return found is None or isinstance(found, (str, int))


def why_not(name: str, *, own_size: bool) -> tuple[str, str]:
    """Return why a setting cannot be named and what to do instead, empty where it can."""
    if not dotted(name) or name.partition(".")[0] not in ROOTS:
        return "is no setting of a recipe", f"Begin with one of: {', '.join(ROOTS)}; with dots between names."
    written = WRITTEN | ({} if own_size else _SIZES)
    for one, key in written.items():
        if _same(name, one):
            return "is written by the plan", f"Set {key} instead."
    if any(name == one or one.startswith(f"{name}.") for one in _KEPT):
        return "is written by the plan: a run resumes by it", "Leave it out."
    return "", ""


def _same(one: str, other: str) -> bool:
    """Tell whether two dotted names are equal, or one is a part of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def unfused(toolchain: Toolchain | None) -> tuple[str, ...]:
    """Return the settings of a model that must be off: those that call libraries which a Python does not have."""
    if toolchain is None or "transformer-engine" in toolchain.packages:
        return ()
    fused = () if "apex" in toolchain.packages else ("masked_softmax_fusion", "persist_layer_norm")
    return (*fused, "apply_rope_fusion")
