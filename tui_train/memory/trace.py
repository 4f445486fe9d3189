"""The trace: a child of the training Python counts memory with fake tensors, without GPU and weights."""

from collections.abc import Callable
from importlib import resources
from typing import Any

import msgspec

from tui_train.facts.machine.child_process import ChildResult, run_child
from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.memory.estimate import BYTES_PER_QUANTIZED_WEIGHT
from tui_train.memory.types import ALL_LORA_TARGETS, BYTES_BY_DTYPE, OTHER_NAMES_BY_LORA_TARGET, MemorySettings

MEASURE_DEADLINE_SECONDS = 120.0
# 70 billion parameters take minutes on a slow machine; the user can cancel.
TRACE_DEADLINE_SECONDS = 600.0
# Relative error of a trace.
TRACE_RELATIVE_ERROR = 0.1
_TORCH_NAME_BY_DTYPE = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_LABEL_BY_PHASE = {"forward": "forward and loss", "step": "optimizer step"}


class CountedMemory(msgspec.Struct, frozen=True):
    """The peak bytes of each phase, or the `problem` why they could not be counted.

    For a measurement on a GPU also its name (`device`), the peak `reserved` by the allocator, and the memory in use.
    """

    phases: dict[str, int] = {}
    parameters: int = 0
    trained: int = 0
    device: str = ""
    reserved: int = 0
    used: int = 0
    problem: str = ""

    @property
    def peak_phase_and_bytes(self) -> tuple[str, int]:
        """The phase with the peak, and its bytes."""
        name, size = max(self.phases.items(), key=lambda item: item[1], default=("load", 0))
        return _LABEL_BY_PHASE.get(name, name), size


def why_not_traceable(model: ModelDimensions, settings: MemorySettings) -> str:
    """Return why a training cannot be traced, empty if it can."""
    reasons = {
        "the trace does not support reward models": settings.loss == "none",
        "the trace does not support experts": bool(model.experts),
        "the trace does not support DeepSpeed": settings.sharding.startswith("zero"),
        "the trace supports gemma2 only without flash attention": model.type == "gemma2"
        and settings.attention == "flash",
        "the trace does not support quantized weights with both bf16 and fp16": bool(settings.quantization)
        and {settings.weight_dtype, settings.autocast} == {"bf16", "fp16"},
        "the trace does not support chunked losses": settings.loss in {"chunked", "compiled"},
        "the trace supports neither activation offloading nor optimizer steps in the backward pass": bool(
            settings.offloads_activations or settings.steps_in_backward_pass
        ),
        "the trace supports only LoRA, full checkpointing, and sharded quantized weights": settings.trains_output_scales
        or settings.keeps_quantized_unsharded
        or not settings.checkpoints_whole_layers,
    }
    return next((words for words, holds in reasons.items() if holds), "")


def memory_child_request(model: ModelDimensions, settings: MemorySettings, folder: str = "") -> dict[str, Any]:
    """Return the request for the child: the model by `folder` or dimensions, and how it is trained."""
    shared = settings.sharding == "fsdp"
    # FSDP casts full layers to the compute type, and keeps its shards in the type of the weights.
    cast = settings.autocast if shared and settings.autocast else settings.weight_dtype
    return {
        "folder": folder,
        "config": transformers_config(model),
        "micro_batch": settings.micro_batch * settings.sequences_per_sample,
        "sequence_length": settings.sequence_length,
        "weights": _TORCH_NAME_BY_DTYPE[cast],
        "autocast": settings.autocast,
        "method": settings.trained,
        "rank": settings.lora_rank,
        # Empty: all linear layers, whatever their names.
        "targets": {}
        if settings.lora_targets == ALL_LORA_TARGETS
        else {name: OTHER_NAMES_BY_LORA_TARGET[name] for name in settings.lora_targets},
        "dropout": settings.lora_dropout,
        "adapters": _TORCH_NAME_BY_DTYPE[settings.adapter_dtype],
        "packed": BYTES_PER_QUANTIZED_WEIGHT.get(settings.quantization, 0),
        "quantization": settings.quantization,
        "optimizer": settings.optimizer,
        "checkpointing": settings.checkpoints_activations,
        "attention": settings.attention,
        "loss": "" if settings.loss == "upcast" else settings.loss,
        "kernels": settings.fused_kernels,
        "reference": settings.has_reference_model,
        "kept": BYTES_BY_DTYPE[settings.adapter_dtype if settings.trained == "lora" else settings.weight_dtype],
        "shards": settings.shard_count * BYTES_BY_DTYPE[cast] / BYTES_BY_DTYPE[settings.weight_dtype] if shared else 1,
        "shared": shared and settings.shard_count > 1,
        "buckets": settings.sharding == "ddp" and settings.shard_count > 1,
        "holds_layers": settings.holds_frozen_layers,
        "gather": settings.accumulates_gradients,
    }


def memory_child_command(python: str, mode: str, request: dict[str, Any]) -> list[str]:
    """Return the command that starts the child; `mode` is "trace" or "measure"."""
    child = str(resources.files("tui_train").joinpath("programs/memory/memory_child.py"))
    return [python, "-B", child, mode, msgspec.json.encode(request).decode()]


def run_memory_trace(
    python: str, request: dict[str, Any], cancelled: Callable[[], bool] = lambda: False
) -> CountedMemory:
    """Return the counts of a trace, which takes seconds to minutes; `problem` if it fails."""
    command, no_card = memory_child_command(python, "trace", request), {"CUDA_VISIBLE_DEVICES": ""}
    return _parse_counted_memory(run_child(command, TRACE_DEADLINE_SECONDS, no_card, is_cancelled=cancelled))


def run_memory_measurement(
    python: str, request: dict[str, Any], gpu_uuid: str = "", cancelled: Callable[[], bool] = lambda: False
) -> CountedMemory:
    """Return the memory of two real steps with random weights on a GPU (by UUID), or on the CPU without one."""
    command = memory_child_command(python, "measure", request)
    environment = {"CUDA_VISIBLE_DEVICES": gpu_uuid, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    # It makes its weights itself, as large as the training's: a bound would refuse what is to be measured.
    result = run_child(command, MEASURE_DEADLINE_SECONDS, environment, is_cancelled=cancelled, memory_limit=0)
    return _parse_counted_memory(result)


def _parse_counted_memory(result: ChildResult) -> CountedMemory:
    return result.last_answer(CountedMemory) or CountedMemory(problem=result.why_unusable())


def transformers_config(model: ModelDimensions) -> dict[str, Any]:
    """Return the config.json values from which transformers builds the model."""
    plain = {
        "model_type": model.type,
        "num_hidden_layers": model.layers,
        "hidden_size": model.hidden,
        "num_attention_heads": model.heads,
        "num_key_value_heads": model.kv_heads or model.heads,
        "intermediate_size": model.ffn,
        "vocab_size": model.vocab,
        "tie_word_embeddings": model.ties_embeddings,
    }
    head = {"head_dim": model.head_dim} if model.head_dim else {}
    if model.type in {"gpt2", "gpt_bigcode"}:
        names = {"num_hidden_layers": "n_layer", "hidden_size": "n_embd", "num_attention_heads": "n_head"}
        renamed = {names.get(key, key): value for key, value in plain.items() if key != "num_key_value_heads"}
        return renamed | {"n_positions": model.learned_positions, "n_inner": model.ffn}
    extra: dict[str, dict[str, Any]] = {
        "falcon": {
            "num_kv_heads": model.kv_heads or model.heads,
            "new_decoder_architecture": model.norms_per_layer == 2,
            "multi_query": model.kv_heads == 1,
            "ffn_hidden_size": model.ffn,
        },
        "stablelm": {"use_qkv_bias": model.qkv_bias},
        "phi3": {"pad_token_id": 0},
        "mistral": {"sliding_window": None},
        "mixtral": {"num_local_experts": model.experts, "num_experts_per_tok": model.experts_per_token},
    }
    return plain | head | extra.get(model.type, {})
