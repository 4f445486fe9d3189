"""Settings that determine memory, and the estimate made from them."""

from typing import Literal

from msgspec import Struct

Dtype = Literal["fp32", "bf16", "fp16"]
BYTES_BY_DTYPE: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}

TrainedPart = Literal["full", "lora", "frozen"]
Quantization = Literal["", "nf4", "nf4-dq", "gptq", "int8"]
OptimizerKind = Literal["adamw_foreach", "adamw_fused", "adamw_8bit", "adafactor", "sgd"]
AttentionKind = Literal["eager", "sdpa", "flash"]
LossComputation = Literal[
    "upcast", "copied", "plain", "fast", "fast-copied", "chunked", "compiled", "fused", "checkpointed", "tiled", "none"
]
FusedKernels = Literal["", "norms", "liger"]
ShardingKind = Literal["", "ddp", "fsdp", "zero1", "zero2", "zero3"]

# Place modules of LoRA, by PEFT's names.
ATTENTION_LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj")
QUERY_VALUE_LORA_TARGETS = ("q_proj", "v_proj")
ALL_LORA_TARGETS = (*ATTENTION_LORA_TARGETS, "gate_proj", "up_proj", "down_proj")
# Other names of the same modules; some combine several.
OTHER_NAMES_BY_LORA_TARGET = {
    "q_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "k_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "v_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "o_proj": ("dense", "c_proj"),
    "gate_proj": ("gate_up_proj",),
    "up_proj": ("gate_up_proj", "c_fc", "fc1", "dense_h_to_4h"),
    "down_proj": ("c_proj", "fc2", "dense_4h_to_h"),
}


class MemorySettings(Struct, frozen=True, kw_only=True):
    """The settings of a training that determine its memory."""

    micro_batch: int
    sequence_length: int
    eval_batch: int = 0
    """0: the micro batch."""
    sequences_per_sample: int = 1
    """The sequences of a sample: two where it is a pair."""
    has_reference_model: bool = False
    """A frozen copy of the model is held beside it."""
    weight_dtype: Dtype = "fp32"
    """The type of the weights."""
    autocast: Literal["", "bf16", "fp16"] = ""
    """The type of the computation, if different."""
    trained: TrainedPart = "full"
    quantization: Quantization = ""
    """The weights are quantized and frozen."""
    lora_rank: int = 16
    lora_targets: tuple[str, ...] = ATTENTION_LORA_TARGETS
    adapter_dtype: Dtype = "fp32"
    """The type of LoRA's matrices."""
    lora_dropout: float = 0.0
    optimizer: OptimizerKind = "adamw_foreach"
    attention: AttentionKind = "sdpa"
    checkpoints_activations: bool = False
    checkpoints_whole_layers: bool = True
    """False: selective checkpointing, which keeps the outputs of attention and of every second product."""
    loss: LossComputation = "upcast"
    """"none": one number per sequence."""
    fused_kernels: FusedKernels = ""
    """Fused norms, or all of Liger's."""
    sharding: ShardingKind = ""
    shard_count: int = 1
    offload: bool = False
    accumulates_gradients: bool = False
    """Gradients are accumulated over micro batches."""
    keeps_quantized_layer_inputs: bool = False
    """Quantized layers keep their input, as in bitsandbytes before 0.43."""
    holds_frozen_layers: bool = False
    """FSDP1 with reentrant checkpointing holds frozen layers' inputs and gradients through the backward pass."""
    loads_whole_model: bool = False
    """Each GPU loads the full model once, as FSDP1 does from a full state dict."""
    trains_output_scales: bool = False
    """Trained factors scale the output of the targets, instead of LoRA."""
    fused_experts: bool = False
    """The experts of a layer are one tensor, as in transformers 5, which is neither quantized nor adapted."""
    keeps_quantized_unsharded: bool = False
    """Quantized weights are not sharded."""
    has_fp32_residuals: bool = False
    """Tensors between layers are fp32, though the computation is not."""
    offloads_activations: bool = False
    """Activations are offloaded to host memory."""
    steps_in_backward_pass: bool = False
    """Each weight is updated as soon as it has a gradient."""
    caveats: tuple[str, ...] = ()

    @property
    def micro_batch_tokens(self) -> int:
        """Tokens per micro batch."""
        return self.micro_batch * self.sequences_per_sample * self.sequence_length

    @property
    def eval_batch_tokens(self) -> int:
        """Tokens per evaluation batch."""
        return (self.eval_batch or self.micro_batch) * self.sequences_per_sample * self.sequence_length

    @property
    def compute_value_bytes(self) -> int:
        """Bytes per value of the computation."""
        return BYTES_BY_DTYPE[self.autocast or self.weight_dtype]

    @property
    def residual_value_bytes(self) -> int:
        """Bytes per value between layers, which autocast leaves in the type of the embedding."""
        if self.has_fp32_residuals:
            return 4
        cast_whole = self.sharding in {"fsdp", "zero1", "zero2", "zero3"}
        return self.compute_value_bytes if cast_whole else BYTES_BY_DTYPE[self.weight_dtype]


class PhaseMemory(Struct, frozen=True):
    """The peak of one phase of a step: parts by name, in bytes."""

    name: str
    parts: tuple[tuple[str, int], ...]

    @property
    def total_bytes(self) -> int:
        """The sum of all parts, in bytes."""
        return sum(size for _, size in self.parts)


class MemoryEstimate(Struct, frozen=True):
    """The tensors on one GPU in each phase, in bytes; `caveats` are what is not modelled."""

    phases: tuple[PhaseMemory, ...]
    parameters: int
    trained_count: int
    caveats: tuple[str, ...] = ()

    @property
    def peak_phase(self) -> PhaseMemory:
        """The phase with the highest total."""
        return max(self.phases, key=lambda phase: phase.total_bytes)

    @property
    def relative_error(self) -> float:
        """The relative error of the estimate; larger if something is not modelled."""
        return 0.3 if self.caveats else 0.15
