"""Settings of a NeMo recipe beyond the profile: those of the user, and those that missing libraries forbid."""

import math
from typing import Any

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import Toolchain
from tui_train.profile.fields import is_dotted_name
from tui_train.runner.system.python_parser import parse_literal

# Settings that the plan writes, each with the profile key that changes it.
_PROFILE_KEY_BY_PLAN_SETTING = {
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
    "optim.lr_scheduler.warmup_steps": "recipe.warmup",
    "optim.config.lr": "recipe.learning_rate",
    "optim.config.bf16": "recipe.precision",
    "optim.config.fp16": "recipe.precision",
    "log.log_dir": "trainer.output",
    "log.ckpt.every_n_train_steps": "recipe.checkpoint_every",
    "log.ckpt.train_time_interval": "recipe.checkpoint_every",
    "resume.restore_config": "trainer.model",
}
# A run needs these to resume from its newest checkpoint.
_SETTINGS_NEEDED_TO_RESUME = (
    "log.ckpt.save_last",
    "log.ckpt.save_optim_on_train_end",
    "resume.resume_if_exists",
    "log.name",
    "log.ckpt",
)
# Written only if the profile sets the model size.
_PROFILE_KEY_BY_SIZE_SETTING = {
    "model.config.num_layers": "recipe.layers",
    "model.config.hidden_size": "recipe.hidden_size",
    "model.config.ffn_hidden_size": "recipe.ffn_hidden_size",
    "model.config.num_attention_heads": "recipe.heads",
    "model.config.num_query_groups": "recipe.heads",
    "model.config.kv_channels": "recipe.heads",
}
_SETTING_ROOTS = ("data", "log", "model", "optim", "peft", "resume", "trainer")
_PYTHON_CONSTANT_BY_WORD = {"true": True, "false": False, "none": None, "null": None}


def parse_setting_value(text: str) -> Any:
    """Return the value of a text written as in Python or TOML; BadInput if it is not one."""
    if text.strip().lower() in _PYTHON_CONSTANT_BY_WORD:
        return _PYTHON_CONSTANT_BY_WORD[text.strip().lower()]
    try:
        parsed = parse_literal(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError, TypeError):
        parsed = ...
    if not _is_plain_data(parsed):
        remedy = "Write a number, true, false, none, a list, or text in quotes: 'RMSNorm'."
        raise BadInput(f"{visible(text)!r} is not a value", remedy)
    return parsed


def _is_plain_data(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return all(map(_is_plain_data, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain_data(inner) for key, inner in value.items())
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, (str, int))


def why_setting_refused_and_remedy(name: str, *, recipe_size_kept: bool) -> tuple[str, str]:
    """Return why a setting cannot be set and what to do instead, empty if it can."""
    if not is_dotted_name(name) or name.partition(".")[0] not in _SETTING_ROOTS:
        return (
            "is not a setting of a recipe",
            f"Start with one of {', '.join(_SETTING_ROOTS)}, with dots between names.",
        )
    written = _PROFILE_KEY_BY_PLAN_SETTING | ({} if recipe_size_kept else _PROFILE_KEY_BY_SIZE_SETTING)
    for setting, key in written.items():
        if _dotted_names_overlap(name, setting):
            return "is set by the plan", f"Set {key} instead."
    if any(name == setting or setting.startswith(f"{name}.") for setting in _SETTINGS_NEEDED_TO_RESUME):
        return "is set by the plan: a run needs it to resume", "Leave it out."
    return "", ""


def _dotted_names_overlap(first: str, second: str) -> bool:
    """Return whether two dotted names are equal, or one contains the other."""
    return first == second or first.startswith(f"{second}.") or second.startswith(f"{first}.")


def model_settings_to_turn_off(toolchain: Toolchain | None) -> tuple[str, ...]:
    """Return the model settings that must be off because a Python lacks their libraries."""
    if toolchain is None or "transformer-engine" in toolchain.packages:
        return ()
    fused = () if "apex" in toolchain.packages else ("masked_softmax_fusion", "persist_layer_norm")
    return (*fused, "apply_rope_fusion")
