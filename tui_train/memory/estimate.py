"""The peak memory of each phase of a training step on one GPU, in closed form; no constant is fitted."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui_train.facts.models.dimensions import Dimensions
from tui_train.memory import activations, losses
from tui_train.memory.types import DTYPE_BYTES, Estimate, MemorySettings, Phase

# Bytes per weight: 4 bits and one fp32 scale per 64, 8-bit scales, or fp16 scales and zeros per 128.
QUANTIZED_BYTES = {
    "nf4": 0.5 + 4 / 64,
    "nf4-dq": 0.5 + 1 / 64 + 4 / 64 / 256,
    "gptq": 0.5 + 2.5 / 128,
    "int8": 1 + 4 / 4096,
}
# Bytes of both 8-bit states: one each, with an fp32 scale per 256.
_EIGHT_BIT_STATES = 2 * (1 + 4 / 256)


def estimate(model: Dimensions, how: MemorySettings) -> Estimate:
    """Return the memory of each phase: load, forward with loss, backward, optimizer step, evaluation."""
    # LayerNorm and fp32 embeddings return fp32 under autocast; bitsandbytes returns the type of its input.
    if how.autocast and how.packed.startswith("nf4") and (model.norm == "layer" or how.weights == "fp32"):
        how = replace(how, widened=True)
    if model.type == "gemma2" and how.attention == "sdpa":
        # Soft-capped attention is not possible with sdpa, so transformers uses eager.
        how = replace(how, attention="eager")
    sums = _MemoryParts(model, how)
    persistent = (
        ("weights", sums.weights),
        ("reference model", sums.reference),
        ("optimizer states", sums.states),
        ("buckets", sums.buckets),
    )
    activations_kept = sums.between_layers
    loaded = _phase("load", (("weights", sums.weights), ("temporaries", sums.loading if how.loads_whole else 0)))
    forward = _phase(
        "forward and loss",
        (
            *persistent,
            ("gradients", sums.gradients if how.gather else 0),
            ("activations", activations_kept + sums.after_layers),
            ("logits", sums.logits.forward),
            ("temporaries", sums.casts_forward + sums.gathered),
        ),
    )
    backward = [_phase("backward", (*persistent, *parts)) for parts in sums.backward()]
    step = _phase(
        "optimizer step", (*persistent, ("gradients", sums.gradients), ("temporaries", sums.step_temporaries))
    )
    evaluation = _phase(
        "eval",
        (
            *persistent,
            ("activations", sums.layer_forward),
            ("logits", sums.logits.evaluation),
            ("temporaries", sums.gathered),
        ),
    )
    phases = (loaded, forward, max(backward, key=lambda phase: phase.total), step, evaluation)
    return Estimate(tuple(phases), model.parameters, sums.trained, (*how.caveats, *_caveats(model, how)))


def checkpoint_sizes(model: Dimensions, how: MemorySettings) -> tuple[int, int]:
    """Return the bytes of the trained weights and of the optimizer's states, as a checkpoint has them, of all GPUs."""
    sums = _MemoryParts(model, replace(how, shards=1, offload=False))
    width = 2 if how.sharding.startswith("zero") else DTYPE_BYTES[how.adapters] if how.method == "lora" else sums.width
    return int(sums.trained * width), int(sums.states)


def _caveats(model: Dimensions, how: MemorySettings) -> tuple[str, ...]:
    conditions = {
        "experts: the distribution of tokens is unknown": model.experts,
        "LoRA with FSDP2: not compared with a GPU": _is_uncompared(how),
    }
    return tuple(words for words, holds in conditions.items() if holds)


def _is_uncompared(how: MemorySettings) -> bool:
    """Return whether no measurement is known for this kind of sharding."""
    return how.method == "lora" and how.sharding == "fsdp" and not (how.holds_layers or how.loads_whole)


def _phase(name: str, parts: Iterable[tuple[str, float]]) -> Phase:
    return Phase(name, tuple((part, int(size)) for part, size in parts if size))


class _MemoryParts:
    """The amounts that make up the phases, in bytes."""

    def __init__(self, model: Dimensions, how: MemorySettings) -> None:
        self.model, self.how = model, how
        self.width = DTYPE_BYTES[how.weights]
        self.adapters = (
            sum(
                b if how.scales else how.rank * (a + b)
                for name, (a, b) in model.linear_shapes.items()
                if how.method == "lora" and name in how.targets
            )
            * model.layers
        )
        self.trained = model.parameters if how.method == "full" else self.adapters
        self._set_persistent()
        self.layer = activations.layer_bytes(model, how)
        tokens = how.tokens
        # The input of the head, or a copy without the last token of each sample.
        head = (
            how.stream_bytes if how.loss in losses.CHUNKED_LOSSES else how.compute_bytes if how.method == "full" else 0
        )
        self.after_layers = tokens * (activations.norm_bytes(model, how) + (head + how.stream_bytes) * model.hidden)
        kept = tokens * model.hidden * how.stream_bytes
        self.checkpoint = kept if how.checkpointing and how.whole_layers else self._kept_per_layer()
        # With offloading, one is loaded while the previous one is used.
        self.between_layers = min(model.layers, 2 if how.offloads else model.layers) * self.checkpoint
        self.logits = losses.logits_memory(model, how)

    def _set_persistent(self) -> None:
        """Set the amounts that persist between steps."""
        model, how = self.model, self.how
        packed = model.layers * model.linear_parameters if how.packed else 0
        frozen = model.parameters if how.method != "full" else 0
        self.packed = packed * QUANTIZED_BYTES.get(how.packed, 0)
        base = (frozen - packed) * self.width + self.packed
        trained_width = DTYPE_BYTES[how.adapters] if how.method == "lora" else self.width
        self.loading = base + self.trained * trained_width
        weights, gradients, states, per_state = self._sharded_sizes(base, self.trained * trained_width)
        self.weights, self.gradients = weights, gradients
        split = max(1, how.shards) if how.sharding in {"fsdp", "zero3"} else 1
        self.reference = model.parameters * self.width / split if how.reference else 0
        self.states = states
        if how.steps_at_once:
            self.gradients = min(gradients, max(model.layer_parameters, model.embedding_parameters) * trained_width)
            per_state = min(per_state, self.gradients)
        # Adafactor, per weight: squared gradient and update, and fp32 copies unless it is fp32.
        widest = (
            max(model.embedding_parameters, model.hidden * model.ffn) if how.method == "full" else how.rank * model.ffn
        )
        largest_update = (
            widest * 4 * (2 if trained_width == 4 else 4) * gradients / max(1, self.trained * trained_width)
        )
        self.step_temporaries = {"adamw_foreach": per_state, "adafactor": largest_update}.get(how.optimizer, 0)
        # DistributedDataParallel copies gradients into buckets.
        self.buckets = self.trained * trained_width if how.sharding == "ddp" and how.shards > 1 else 0
        # Casts of autocast live until the backward pass; of trainable fp32 weights at least until the end of forward.
        cast = how.compute_bytes if how.autocast not in {"", how.weights} and how.sharding in {"", "ddp"} else 0
        self.cast_head = 0 if how.loss in losses.CHUNKED_LOSSES else model.embedding_parameters * cast
        self.cast_layers = 0 if how.packed else model.layers * model.linear_parameters * cast
        self.cast_layer = self.cast_layers / model.layers
        self.casts = self.cast_head + (self.cast_layer if how.checkpointing else self.cast_layers)
        until_forward_end = how.method == "full" and self.width == 4
        self.casts_forward = self.cast_head + self.cast_layers if until_forward_end else self.casts
        self.gathered = self._gathered_bytes()

    def _sharded_sizes(self, base: float, trained: float) -> tuple[float, float, float, float]:
        """Return weights, gradients, states and one state per GPU, as sharded by the strategy."""
        how, count = self.how, max(1, self.how.shards)
        one_state = trained
        state_bytes = {"adamw_8bit": _EIGHT_BIT_STATES / 2, "adafactor": 8 / self.model.hidden, "sgd": 0}
        states = self.trained * 2 * state_bytes[how.optimizer] if how.optimizer in state_bytes else 2 * one_state
        if how.sharding == "fsdp":
            share = 0 if how.offload else 1 / count
            unsharded = self.packed if how.keeps_packed else 0
            return (base - unsharded + trained) * share + unsharded, trained * share, states * share, one_state * share
        if how.sharding.startswith("zero"):
            # DeepSpeed has 16-bit weights and gradients, and sharded fp32 weights beside the states.
            half, share = 2 * self.trained, 0 if how.offload else 1 / count
            unsharded = 1 / count if how.sharding == "zero3" else 1
            gradients = half * (1 if how.sharding == "zero1" else share)
            return base * unsharded + half * unsharded, gradients, 12 * self.trained * share, 4 * self.trained * share
        return base + trained, trained, states, one_state

    def _gathered_bytes(self) -> float:
        """Return the unsharded part at a time: two layers, and the weights outside of layers."""
        model, how = self.model, self.how
        if how.sharding not in {"fsdp", "zero3"} or how.shards < 2:
            return 0
        width = QUANTIZED_BYTES[how.packed] * (not how.keeps_packed) if how.packed else how.compute_bytes
        layer = model.linear_parameters * width + (model.layer_parameters - model.linear_parameters) * how.compute_bytes
        rest = (model.parameters - model.layers * model.layer_parameters) * how.compute_bytes
        gradients = 2 * model.layer_parameters * how.compute_bytes if how.method == "full" else 0
        return 2 * layer + rest + gradients

    def _kept_per_layer(self) -> int:
        """Return what one layer keeps without checkpointing, or with selective checkpointing."""
        model, how = self.model, self.how
        if not how.checkpointing:
            return self.layer
        products = sum(width for _, width in list(model.linear_shapes.values())[::2])
        kept = how.stream_bytes * model.hidden + how.compute_bytes * (model.query_width + products) + 4 * model.heads
        return how.tokens * kept

    @property
    def layer_forward(self) -> float:
        """The memory of one layer without a backward pass."""
        model, how = self.model, self.how
        return how.eval_tokens * (
            2 * how.stream_bytes * model.hidden + (3 if model.gated else 2) * how.compute_bytes * model.ffn
        )

    def backward(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Return the parts of the backward pass at the loss, in the first layer, in the last, and at its end."""
        model, how = self.model, self.how
        recomputed = self.layer if how.checkpointing else 0
        passing = activations.backward_peak(model, how) + self.gathered
        shared = how.sharding in {"fsdp", "zero3"}
        # An embedding gradient is unsharded before it is accumulated. A tied table has two, which torch adds into
        # a third tensor.
        table = (
            model.embedding_parameters * (how.compute_bytes if shared else self.width) if how.method == "full" else 0
        )
        begun = (self.gradients if how.gather else 0) + table
        tables = table * (3 if model.tied else 1)
        if not (shared or how.gather):
            tables -= table
        kept = self.between_layers
        # The inputs of all layers and their gradients, if they are held until the end.
        held_inputs = 2 * kept if how.holds_layers else self.checkpoint
        logits = (
            ("activations", kept + self.after_layers),
            ("logits", self.logits.backward),
            ("temporaries", self.gathered + self.casts),
        )
        return (
            (("gradients", self.gradients if how.gather else 0), *logits),
            (("gradients", begun), ("activations", kept + recomputed), ("temporaries", passing + self.casts)),
            (
                ("gradients", self.gradients),
                ("activations", held_inputs + recomputed),
                ("temporaries", passing + self.cast_layer),
            ),
            (
                ("gradients", self.gradients),
                ("activations", held_inputs if how.holds_layers else 0),
                ("temporaries", tables + self.gathered),
            ),
        )
