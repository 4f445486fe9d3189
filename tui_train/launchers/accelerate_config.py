"""The user's accelerate config: what of it is kept, and what it says of things that the plan decides.

Keys as in `ClusterConfig` of accelerate 1.15 (commands/config/config_args.py); older names are read as it reads them.
"""

import re
from collections.abc import Mapping
from typing import Any

from tui_train.base.command import Plain
from tui_train.profile.types import Strategy

_PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
_TYPES = frozenset({"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"})
_KEYS = frozenset(
    {
        "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes",
        "machine_rank", "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend",
        "same_network", "main_training_function", "enable_cpu_affinity", "fp8_config", "deepspeed_config",
        "fsdp_config", "parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name",
        "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env",
        "dynamo_config", "fp16", "dynamo_backend",
    }
)  # fmt: skip
# They change how the model is split or the processes are started, and no key of a profile says the same.
_UNSUPPORTED = ("parallelism_config", "megatron_lm_config", "mpirun_config", "commands", "command_file", "tpu_name")
# Of FSDP2 and DeepSpeed what the plan does not decide by itself: version, stage, offload, batch and machines.
_FSDP = frozenset(
    {
        "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "state_dict_type",
        "cpu_ram_efficient_loading", "activation_checkpointing", "reshard_after_forward", "ignored_modules",
    }
)  # fmt: skip
_DEEPSPEED = frozenset({"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_moe_layer_cls_names"})


def problem(config: Mapping[str, Any]) -> str:
    """Return why nothing of a config can be used, as words that follow its name; empty if it can."""
    if config.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return f"is for {config['compute_environment']}"
    if unknown := next((key for key in config if key not in _KEYS), ""):
        return f"has a key that accelerate does not know: {unknown}"
    kind = str(config.get("distributed_type", ""))
    if config and kind not in _TYPES:
        return f"is for {kind}, which is not supported here" if kind else "has no distributed_type"
    if config and precision(config) is None:
        return f"has a mixed_precision that accelerate does not know: {config.get('mixed_precision')}"
    wrong = (key for key in config if key.endswith("_config") and not isinstance(config[key], dict | None))
    return next((f"has no table under {key}" for key in wrong), "")


def precision(config: Mapping[str, Any]) -> str | None:
    """Return the precision in the recipe's words (fp8 besides), empty where none is named, None for an unknown one."""
    named = config.get("mixed_precision")
    if named is None:
        return "fp16" if config.get("fp16") else ""
    # YAML reads a bare `no` as false.
    return _PRECISIONS.get("no" if named is False else str(named).lower())


def strategy(config: Mapping[str, Any]) -> Strategy:
    """Return how it shards the model."""
    kind = config.get("distributed_type")
    if kind == "FSDP":
        return "fsdp2"
    stage = str((config.get("deepspeed_config") or {}).get("zero_stage", 2))
    stages: dict[str, Strategy] = {"1": "zero1", "2": "zero2", "3": "zero3"}
    return stages.get(stage, "ddp") if kind == "DEEPSPEED" else "ddp"


def offloads(config: Mapping[str, Any]) -> bool:
    """Return whether it keeps sharded state in host memory."""
    of_deepspeed = config.get("deepspeed_config") or {}
    devices = (of_deepspeed.get(f"offload_{part}_device", "none") for part in ("optimizer", "param"))
    return _on(_fsdp(config).get("fsdp_offload_params")) or any(device == "cpu" for device in devices)


def accumulation(config: Mapping[str, Any]) -> int | None:
    """Return the gradient accumulation that it gives DeepSpeed, which alone reads it from there."""
    steps = (config.get("deepspeed_config") or {}).get("gradient_accumulation_steps")
    return steps if isinstance(steps, int) and not isinstance(steps, bool) and steps > 0 else None


def clipping(config: Mapping[str, Any]) -> float | None:
    """Return the gradient norm at which it has DeepSpeed clip."""
    norm = (config.get("deepspeed_config") or {}).get("gradient_clipping")
    return float(norm) if isinstance(norm, (int, float)) and not isinstance(norm, bool) and norm > 0 else None


def checkpoints_activations(config: Mapping[str, Any]) -> bool:
    """Return whether FSDP recomputes activations by it."""
    return _on(_fsdp(config).get("fsdp_activation_checkpointing"))


def gpu_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the GPUs that it names, empty for all."""
    named = str(config.get("gpu_ids") if config.get("gpu_ids") is not None else "all").strip()
    return () if named in {"all", ""} else tuple(filter(None, re.split(r"[\s,]+", named)))


def unsupported(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that would change the training and that the plan cannot follow."""
    keys = [key for key in _UNSUPPORTED if config.get(key)]
    named = (config.get("deepspeed_config") or {}).get("deepspeed_config_file")
    return (*keys, *(["deepspeed_config.deepspeed_config_file"] if named else []))


def kept(config: Mapping[str, Any], chosen: Strategy, *, fp8: bool) -> dict[str, Plain]:
    """Return what the plan's own config takes over unchanged for a strategy."""
    values: dict[str, Plain] = {}
    if config.get("debug"):
        values["debug"] = True
    dynamo = config.get("dynamo_config") or {}
    if not dynamo and (backend := config.get("dynamo_backend")):
        dynamo = {"dynamo_backend": backend}
    if str(dynamo.get("dynamo_backend", "no")).lower() not in {"no", "false"}:
        values["dynamo_config"] = dict(dynamo)
    if fp8 and config.get("fp8_config"):
        values["fp8_config"] = dict(config["fp8_config"])
    if chosen == "fsdp2":
        shards = {key: value for key, value in _fsdp(config).items() if key.removeprefix("fsdp_") in _FSDP}
        name = "fsdp_config"
    else:
        shards = {key: value for key, value in (config.get("deepspeed_config") or {}).items() if key in _DEEPSPEED}
        name = "deepspeed_config"
    return {**values, **({name: shards} if shards and chosen != "ddp" else {})}


def _fsdp(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of FSDP; accelerate reads them with and without its prefix."""
    settings = config.get("fsdp_config") or {}
    return {key if key.startswith("fsdp") else f"fsdp_{key}": value for key, value in settings.items()}


def _on(value: object) -> bool:
    return str(value).lower() in {"true", "yes", "on", "1"}
