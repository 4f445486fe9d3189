"""What a training does with memory (How), and what it is predicted to take (Estimate)."""

from typing import Literal

from msgspec import Struct

Number = Literal["fp32", "bf16", "fp16"]
BYTES: dict[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2}

Method = Literal["full", "lora", "frozen"]
Packing = Literal["", "nf4", "nf4-dq", "gptq", "int8"]
Optimizer = Literal["adamw_foreach", "adamw_fused", "adamw_8bit", "adafactor", "sgd"]
Attention = Literal["eager", "sdpa", "flash"]
Loss = Literal[
    "upcast", "copied", "plain", "fast", "fast-copied", "chunked", "compiled", "fused", "checkpointed", "tiled"
]
Kernels = Literal["", "norms", "liger"]
Sharding = Literal["", "ddp", "fsdp", "zero1", "zero2", "zero3"]

# By PEFT's names: what LoRA is put beside where nothing else is said.
ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
QUERIES_VALUES = ("q_proj", "v_proj")
EVERY = (*ATTENTION, "gate_proj", "up_proj", "down_proj")
# What they are called in classes that call them otherwise, some of which make several at once.
ALSO = {
    "q_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "k_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "v_proj": ("c_attn", "query_key_value", "qkv_proj"),
    "o_proj": ("dense", "c_proj"),
    "gate_proj": ("gate_up_proj",),
    "up_proj": ("gate_up_proj", "c_fc", "fc1", "dense_h_to_4h"),
    "down_proj": ("c_proj", "fc2", "dense_4h_to_h"),
}


class How(Struct, frozen=True, kw_only=True):
    """How a model is trained, as far as memory is concerned.

    `weights` is what they are kept in, `autocast` what is computed in where that is another. `packed` weights are
    frozen. `adapters` is what LoRA's matrices are kept in. `kernels` are fused ones for norms only,
    or all of Liger's; `loss` is how the logits are treated. `gather` keeps gradients over micro batches.

    `keeps_inputs`: packed layers keep what goes in, as bitsandbytes before 0.43 does. `widened`: layers give on fp32
    though they compute in less. `scales`: in place of LoRA's matrices, trained numbers scale what goes out of the
    targets. `whole_layers` is False where what attention and every second product of matrices return is kept, and the
    rest recomputed. `offloads`: what is kept for the backward pass waits in the host's memory. `steps_at_once`: each
    weight is stepped as soon as it has a gradient. `eval_batch` is how many samples are evaluated at a time, 0 a micro
    batch.

    Shared out: `holds_layers`: FSDP's first version holds the inputs of frozen layers that are recomputed reentrantly,
    and their gradients, until the backward pass ends. `loads_whole`: each card gathers the whole model once to load it,
    as that version does with a whole state dict. `keeps_packed`: each card has all packed weights.
    """

    micro_batch: int
    sequence_length: int
    eval_batch: int = 0
    weights: Number = "fp32"
    autocast: Literal["", "bf16", "fp16"] = ""
    method: Method = "full"
    packed: Packing = ""
    rank: int = 16
    targets: tuple[str, ...] = ATTENTION
    adapters: Number = "fp32"
    dropout: float = 0.0
    optimizer: Optimizer = "adamw_foreach"
    attention: Attention = "sdpa"
    checkpointing: bool = False
    whole_layers: bool = True
    loss: Loss = "upcast"
    kernels: Kernels = ""
    sharding: Sharding = ""
    shards: int = 1
    offload: bool = False
    gather: bool = False
    keeps_inputs: bool = False
    holds_layers: bool = False
    loads_whole: bool = False
    scales: bool = False
    keeps_packed: bool = False
    widened: bool = False
    offloads: bool = False
    steps_at_once: bool = False
    caveats: tuple[str, ...] = ()

    @property
    def tokens(self) -> int:
        """Tokens in a micro batch."""
        return self.micro_batch * self.sequence_length

    @property
    def eval_tokens(self) -> int:
        """Tokens that are evaluated at a time."""
        return (self.eval_batch or self.micro_batch) * self.sequence_length

    @property
    def compute(self) -> int:
        """Bytes of a number that is computed with."""
        return BYTES[self.autocast or self.weights]

    @property
    def stream(self) -> int:
        """Bytes of a number that goes from layer to layer: what autocast leaves as the embedding gives it."""
        if self.widened:
            return 4
        cast_whole = self.sharding in {"fsdp", "zero1", "zero2", "zero3"}
        return self.compute if cast_whole else BYTES[self.weights]


class Phase(Struct, frozen=True):
    """The most that lives in one phase of a step: parts by name, in bytes."""

    name: str
    parts: tuple[tuple[str, int], ...]

    @property
    def total(self) -> int:
        """All parts together, in bytes."""
        return sum(size for _, size in self.parts)


class Estimate(Struct, frozen=True):
    """What one card holds in each phase, in bytes of tensors; `caveats` say what is outside what is modelled."""

    phases: tuple[Phase, ...]
    parameters: int
    trained: int
    caveats: tuple[str, ...] = ()

    @property
    def peak(self) -> Phase:
        """The phase that takes most."""
        return max(self.phases, key=lambda phase: phase.total)

    @property
    def error(self) -> float:
        """Of the predicted amount, how much it may be off by: wider where something is not modelled."""
        return 0.3 if self.caveats else 0.15
