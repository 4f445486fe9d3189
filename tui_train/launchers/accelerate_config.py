"""The user's accelerate config: the settings that are kept, and those that the plan decides.

Keys as in `ClusterConfig` of accelerate 1.6 to 1.15 (commands/config/config_args.py); older names are read as it reads
them.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

from tui_train.base.command import PlainData
from tui_train.profile.types import Strategy

_PRECISION_BY_ACCELERATE_NAME = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
_SUPPORTED_DISTRIBUTED_TYPES = frozenset({"NO", "MULTI_GPU", "MULTI_CPU", "FSDP", "DEEPSPEED"})
_ACCELERATE_CONFIG_KEYS = frozenset(
    {
        "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes",
        "machine_rank", "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend",
        "same_network", "main_training_function", "enable_cpu_affinity", "fp8_config", "deepspeed_config",
        "fsdp_config", "parallelism_config", "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name",
        "tpu_zone", "tpu_use_cluster", "tpu_use_sudo", "command_file", "commands", "tpu_vm", "tpu_env",
        "dynamo_config", "fp16", "dynamo_backend", "tp_config", "ipex_config",
    }
)  # fmt: skip
# They change how the model is split or the processes are started, and no key of a profile says the same.
_UNSUPPORTED_KEYS = (
    "parallelism_config", "tp_config", "megatron_lm_config", "mpirun_config", "commands", "command_file", "tpu_name",
)  # fmt: skip
# Of FSDP2 and DeepSpeed what the plan does not decide by itself: version, stage, offload, batch and machines.
_KEPT_FSDP_KEYS = frozenset(
    {
        "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "cpu_ram_efficient_loading",
        "activation_checkpointing", "activation_checkpointing_offload", "ignored_modules",
    }
)  # fmt: skip
# FSDP1 says by a strategy what FSDP2 says by a bool, and accelerate reads numbers (from 1) for the names of both.
_FSDP1_STRATEGIES_BY_NUMBER = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_RESHARD_BY_STRATEGY = {"FULL_SHARD": True, "HYBRID_SHARD": True, "SHARD_GRAD_OP": False, "HYBRID_SHARD_ZERO2": False}
_STATE_DICT_TYPES_BY_NUMBER = ("FULL_STATE_DICT", "LOCAL_STATE_DICT", "SHARDED_STATE_DICT")
_FSDP1_ONLY_STATE_DICT_TYPE = "LOCAL_STATE_DICT"
_KEPT_DEEPSPEED_KEYS = frozenset({"zero3_init_flag", "zero3_save_16bit_model", "deepspeed_moe_layer_cls_names"})


def why_config_unusable(config: Mapping[str, Any]) -> str:
    """Return why nothing of a config can be used, as words that follow its name; empty if it can."""
    if config.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return f"is for {config['compute_environment']}"
    kind = str(config.get("distributed_type", ""))
    if config and kind not in _SUPPORTED_DISTRIBUTED_TYPES:
        return f"is for {kind}, which is not supported here" if kind else "has no distributed_type"
    if config and read_precision(config) is None:
        return f"has a mixed_precision that accelerate does not know: {config.get('mixed_precision')}"
    not_tables = (
        key
        for key in sorted(_ACCELERATE_CONFIG_KEYS & config.keys())
        if key.endswith("_config") and not isinstance(config[key], dict | None)
    )
    return next((f"has no table under {key}" for key in not_tables), "")


def read_precision(config: Mapping[str, Any]) -> str | None:
    """Return the precision in the recipe's words (fp8 besides), empty where none is named, None for an unknown one."""
    named = config.get("mixed_precision")
    if named is None:
        return "fp16" if config.get("fp16") else ""
    # YAML reads a bare `no` as false.
    return _PRECISION_BY_ACCELERATE_NAME.get("no" if named is False else str(named).lower())


def read_strategy(config: Mapping[str, Any]) -> Strategy:
    """Return how it shards the model."""
    kind = config.get("distributed_type")
    if kind == "FSDP":
        return "ddp" if _sharding_key_and_strategy(config)[1] == "NO_SHARD" else "fsdp2"
    stage = str(_deepspeed_settings(config).get("zero_stage", 2))
    stages: dict[str, Strategy] = {"1": "zero1", "2": "zero2", "3": "zero3"}
    return stages.get(stage, "ddp") if kind == "DEEPSPEED" else "ddp"


def offloads_shards(config: Mapping[str, Any]) -> bool:
    """Return whether it keeps sharded state in host memory."""
    devices = (_deepspeed_settings(config).get(f"offload_{part}_device", "none") for part in ("optimizer", "param"))
    return _is_switched_on(_fsdp_settings(config).get("fsdp_offload_params")) or any(
        device == "cpu" for device in devices
    )


def deepspeed_accumulation(config: Mapping[str, Any]) -> int | None:
    """Return the gradient accumulation that it gives DeepSpeed, which alone reads it from there."""
    return parse_positive_integer(_deepspeed_settings(config).get("gradient_accumulation_steps"))


def deepspeed_clipping_norm(config: Mapping[str, Any]) -> float | None:
    """Return the gradient norm at which it has DeepSpeed clip."""
    norm = _deepspeed_settings(config).get("gradient_clipping")
    try:
        # `accelerate config` writes the answer as text.
        number = float(norm) if isinstance(norm, int | float | str) and not isinstance(norm, bool) else 0.0
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def parse_positive_integer(value: object) -> int | None:
    """Return a positive whole number, as text too, as accelerate takes it; None for anything else."""
    number = value if isinstance(value, int) and not isinstance(value, bool) else 0
    if isinstance(value, str) and re.fullmatch(r"\s*[0-9]{1,9}\s*", value, re.ASCII):
        number = int(value)
    return number if number > 0 else None


def is_config_for_cpu(config: Mapping[str, Any]) -> bool:
    """Return whether a config is for training on the CPU."""
    return _is_switched_on(config.get("use_cpu")) or config.get("distributed_type") == "MULTI_CPU"


def config_without_gpu_only_precision(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a plan on the CPU uses of it: of one for GPUs no precision that only GPUs have."""
    if is_config_for_cpu(config) or read_precision(config) not in {"fp16", "fp8"}:
        return config
    return {key: value for key, value in config.items() if key not in {"mixed_precision", "fp16", "fp8_config"}}


def checkpoints_activations(config: Mapping[str, Any]) -> bool:
    """Return whether FSDP recomputes activations by it."""
    return _is_switched_on(_fsdp_settings(config).get("fsdp_activation_checkpointing"))


def asks_to_bind_cpus(config: Mapping[str, Any]) -> bool:
    """Return whether it asks to bind each process to the CPUs near its GPU."""
    return _is_switched_on(config.get("enable_cpu_affinity"))


def read_gpu_ids(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the GPUs that it names, empty for all."""
    named = str(config.get("gpu_ids") if config.get("gpu_ids") is not None else "all").strip()
    return () if named in {"all", ""} else tuple(filter(None, re.split(r"[\s,]+", named)))


def unsupported_keys(config: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys that would change the training and that the plan cannot follow."""
    keys = [key for key in _UNSUPPORTED_KEYS if config.get(key)]
    named = _deepspeed_settings(config).get("deepspeed_config_file")
    return (*keys, *(["deepspeed_config.deepspeed_config_file"] if named else []))


def reason_by_dropped_setting(config: Mapping[str, Any], chosen_strategy: Strategy) -> dict[str, str]:
    """Return what of it cannot be kept for a strategy, each with why, as words that follow."""
    reasons = {key: "is not a key of accelerate's" for key in config if key not in _ACCELERATE_CONFIG_KEYS}
    if _is_switched_on((config.get("ipex_config") or {}).get("ipex")):
        reasons["ipex_config"] = "is for Intel's extension, which is not supported here"
    for key in ("num_processes", "num_machines"):
        value = config.get(key)
        # -1: to be named at each start.
        if value not in (None, -1) and parse_positive_integer(value) is None:
            reasons[f"{key}: {value}"] = "is not a positive whole number"
    if chosen_strategy == "fsdp2":
        key, sharding = _sharding_key_and_strategy(config)
        if sharding.startswith("HYBRID"):
            reasons[f"{key}: {sharding}"] = "has no counterpart in FSDP2, which shards over all GPUs"
        elif sharding not in {"", "NO_SHARD", *_RESHARD_BY_STRATEGY}:
            reasons[f"{key}: {sharding}"] = "is not known to accelerate"
        if (kind := _state_dict_type(config)) not in {"", *_STATE_DICT_TYPES_BY_NUMBER} - {_FSDP1_ONLY_STATE_DICT_TYPE}:
            reasons[f"fsdp_state_dict_type: {kind}"] = "is not possible with FSDP2"
    return reasons


def settings_kept_from_config(
    config: Mapping[str, Any], chosen_strategy: Strategy, *, fp8: bool
) -> dict[str, PlainData]:
    """Return what the plan's own config takes over for a strategy."""
    values: dict[str, PlainData] = {}
    if config.get("debug"):
        values["debug"] = True
    if dynamo := _dynamo_settings(config):
        values["dynamo_config"] = dynamo
    if fp8 and config.get("fp8_config"):
        values["fp8_config"] = dict(config["fp8_config"])
    if chosen_strategy == "fsdp2":
        sharding = _fsdp2_settings(config)
        name = "fsdp_config"
    else:
        deepspeed = _deepspeed_settings(config).items()
        sharding = {key: value for key, value in deepspeed if value is not None and key in _KEPT_DEEPSPEED_KEYS}
        name = "deepspeed_config"
    return {**values, **({name: sharding} if sharding and chosen_strategy != "ddp" else {})}


def _dynamo_settings(config: Mapping[str, Any]) -> dict[str, PlainData]:
    """Return its settings of torch.compile, empty where it does not compile."""
    settings = config.get("dynamo_config") or {"dynamo_backend": config.get("dynamo_backend")}
    settings = _given_settings_by_full_name(settings, "dynamo_")
    return {} if str(settings.get("dynamo_backend", "no")).lower() in {"no", "false", ""} else settings


def _fsdp2_settings(config: Mapping[str, Any]) -> dict[str, PlainData]:
    """Return its settings of FSDP, in the words of FSDP2."""
    settings: dict[str, PlainData] = {
        key: value for key, value in _fsdp_settings(config).items() if key.removeprefix("fsdp_") in _KEPT_FSDP_KEYS
    }
    if (reshards := _RESHARD_BY_STRATEGY.get(_sharding_key_and_strategy(config)[1])) is not None:
        settings["fsdp_reshard_after_forward"] = reshards
    if (kind := _state_dict_type(config)) in _STATE_DICT_TYPES_BY_NUMBER and kind != _FSDP1_ONLY_STATE_DICT_TYPE:
        settings["fsdp_state_dict_type"] = kind
    return settings


def _sharding_key_and_strategy(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key that says how FSDP shards, and the strategy of FSDP1 that it means; empty where none is named."""
    settings = _fsdp_settings(config)
    is_fsdp1 = "fsdp_sharding_strategy" in settings and str(settings.get("fsdp_version", 1)) != "2"
    key = "fsdp_sharding_strategy" if is_fsdp1 else "fsdp_reshard_after_forward"
    named = str(settings.get(key, "")).strip().upper()
    if named in {"TRUE", "YES", "ON"}:
        return key, "FULL_SHARD"
    if named in {"FALSE", "NO", "OFF", "0"}:
        return key, "SHARD_GRAD_OP"
    return key, _name_of_number(named, _FSDP1_STRATEGIES_BY_NUMBER)


def _state_dict_type(config: Mapping[str, Any]) -> str:
    named = str(_fsdp_settings(config).get("fsdp_state_dict_type", "")).strip().upper()
    return _name_of_number(named, _STATE_DICT_TYPES_BY_NUMBER)


def _name_of_number(name_or_number: str, names: tuple[str, ...]) -> str:
    """Return the name that a number stands for, from 1."""
    return next((name for number, name in enumerate(names, 1) if name_or_number == str(number)), name_or_number)


def _fsdp_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return _given_settings_by_full_name(config.get("fsdp_config") or {}, "fsdp_")


def _deepspeed_settings(config: Mapping[str, Any]) -> Mapping[str, Any]:
    return config.get("deepspeed_config") or {}


def _given_settings_by_full_name(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Return the settings that have a value, under their full names; accelerate reads both."""
    return {
        key if key.startswith(prefix) else prefix + key: value for key, value in settings.items() if value is not None
    }


def _is_switched_on(value: object) -> bool:
    return str(value).lower() in {"true", "yes", "on", "1"}
