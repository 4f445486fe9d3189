"""The peak memory of each phase of a training step on one GPU, in closed form; no constant is fitted."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui_train.facts.dimensions import Dimensions
from tui_train.memory import activations, losses
from tui_train.memory.types import BYTES, Estimate, How, Phase

# Bytes per weight: 4 bits and one fp32 scale per 64, 8-bit scales, or fp16 scales and zeros per 128.
PACKED = {"nf4": 0.5 + 4 / 64, "nf4-dq": 0.5 + 1 / 64 + 4 / 64 / 256, "gptq": 0.5 + 2.5 / 128, "int8": 1 + 4 / 4096}
# Bytes of both 8-bit states: one each, with an fp32 scale per 256.
_EIGHT_BIT = 2 * (1 + 4 / 256)


def estimate(model: Dimensions, how: How) -> Estimate:
    """Return the memory of each phase: load, forward with loss, backward, optimizer step, evaluation."""
    # LayerNorm and fp32 embeddings return fp32 under autocast; bitsandbytes returns the type of its input.
    if how.autocast and how.packed.startswith("nf4") and (model.norm == "layer" or how.weights == "fp32"):
        how = replace(how, widened=True)
    if model.type == "gemma2" and how.attention == "sdpa":
        # Soft-capped attention is not possible with sdpa, so transformers uses eager.
        how = replace(how, attention="eager")
    sums = _Sums(model, how)
    persistent = (
        ("weights", sums.weights),
        ("reference model", sums.reference),
        ("optimizer states", sums.states),
        ("buckets", sums.buckets),
    )
    activations_kept = sums.between_layers
    loaded = _phase("load", (("weights", sums.weights), ("temporaries", sums.loaded if how.loads_whole else 0)))
    forward = _phase(
        "forward and loss",
        (
            *persistent,
            ("gradients", sums.gradients if how.gather else 0),
            ("activations", activations_kept + sums.end),
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
            ("activations", sums.passing),
            ("logits", sums.logits.evaluation),
            ("temporaries", sums.gathered),
        ),
    )
    phases = (loaded, forward, max(backward, key=lambda phase: phase.total), step, evaluation)
    return Estimate(tuple(phases), model.parameters, sums.trained, (*how.caveats, *_caveats(model, how)))


def saved(model: Dimensions, how: How) -> tuple[int, int]:
    """Return the bytes of the trained weights and of the optimizer's states, as a checkpoint has them, of all GPUs."""
    sums = _Sums(model, replace(how, shards=1, offload=False))
    width = 2 if how.sharding.startswith("zero") else BYTES[how.adapters] if how.method == "lora" else sums.width
    return int(sums.trained * width), int(sums.states)


def _caveats(model: Dimensions, how: How) -> tuple[str, ...]:
    conditions = {
        "experts: the distribution of tokens is unknown": model.experts,
        "LoRA with FSDP2: not compared with a GPU": _uncompared(how),
    }
    return tuple(words for words, holds in conditions.items() if holds)


def _uncompared(how: How) -> bool:
    """Return whether no measurement is known for this kind of sharding."""
    return how.method == "lora" and how.sharding == "fsdp" and not (how.holds_layers or how.loads_whole)


def _phase(name: str, parts: Iterable[tuple[str, float]]) -> Phase:
    return Phase(name, tuple((part, int(size)) for part, size in parts if size))


class _Sums:
    """The amounts that make up the phases, in bytes."""

    def __init__(self, model: Dimensions, how: How) -> None:
        self.model, self.how = model, how
        self.width = BYTES[how.weights]
        self.adapters = (
            sum(
                b if how.scales else how.rank * (a + b)
                for name, (a, b) in model.matrices.items()
                if how.method == "lora" and name in how.targets
            )
            * model.layers
        )
        self.trained = model.parameters if how.method == "full" else self.adapters
        self._hold()
        self.layer = activations.layer(model, how)
        tokens = how.tokens
        # The input of the head, or a copy without the last token of each sample.
        head = how.stream if how.loss in losses.PARTS else how.compute if how.method == "full" else 0
        self.end = tokens * (activations.norm(model, how) + (head + how.stream) * model.hidden)
        kept = tokens * model.hidden * how.stream
        self.checkpoint = kept if how.checkpointing and how.whole_layers else self._selective()
        # With offloading, one is loaded while the previous one is used.
        self.between_layers = min(model.layers, 2 if how.offloads else model.layers) * self.checkpoint
        self.logits = losses.logits(model, how)

    def _hold(self) -> None:
        """Set the amounts that persist between steps."""
        model, how = self.model, self.how
        packed = model.layers * model.linear if how.packed else 0
        frozen = model.parameters if how.method != "full" else 0
        self.packed = packed * PACKED.get(how.packed, 0)
        base = (frozen - packed) * self.width + self.packed
        trained_width = BYTES[how.adapters] if how.method == "lora" else self.width
        self.loaded = base + self.trained * trained_width
        weights, gradients, states, per_state = self._shares(base, self.trained * trained_width)
        self.weights, self.gradients = weights, gradients
        split = max(1, how.shards) if how.sharding in {"fsdp", "zero3"} else 1
        self.reference = model.parameters * self.width / split if how.reference else 0
        self.states = states
        if how.steps_at_once:
            self.gradients = min(gradients, max(model.layer, model.table) * trained_width)
            per_state = min(per_state, self.gradients)
        # Adafactor, per weight: squared gradient and update, and fp32 copies unless it is fp32.
        widest = max(model.table, model.hidden * model.ffn) if how.method == "full" else how.rank * model.ffn
        one = widest * 4 * (2 if trained_width == 4 else 4) * gradients / max(1, self.trained * trained_width)
        self.step_temporaries = {"adamw_foreach": per_state, "adafactor": one}.get(how.optimizer, 0)
        # DistributedDataParallel copies gradients into buckets.
        self.buckets = self.trained * trained_width if how.sharding == "ddp" and how.shards > 1 else 0
        # Casts of autocast live until the backward pass; of trainable fp32 weights at least until the end of forward.
        cast = how.compute if how.autocast not in {"", how.weights} and how.sharding in {"", "ddp"} else 0
        self.cast_head = 0 if how.loss in losses.PARTS else model.table * cast
        self.cast_layers = 0 if how.packed else model.layers * model.linear * cast
        self.cast_layer = self.cast_layers / model.layers
        self.casts = self.cast_head + (self.cast_layer if how.checkpointing else self.cast_layers)
        until = how.method == "full" and self.width == 4
        self.casts_forward = self.cast_head + self.cast_layers if until else self.casts
        self.gathered = self._gathered()

    def _shares(self, base: float, trained: float) -> tuple[float, float, float, float]:
        """Return weights, gradients, states and one state per GPU, as sharded by the strategy."""
        how, count = self.how, max(1, self.how.shards)
        each = trained
        per = {"adamw_8bit": _EIGHT_BIT / 2, "adafactor": 8 / self.model.hidden, "sgd": 0}
        states = self.trained * 2 * per[how.optimizer] if how.optimizer in per else 2 * each
        if how.sharding == "fsdp":
            out = 0 if how.offload else 1 / count
            whole = self.packed if how.keeps_packed else 0
            return (base - whole + trained) * out + whole, trained * out, states * out, each * out
        if how.sharding.startswith("zero"):
            # DeepSpeed has 16-bit weights and gradients, and sharded fp32 weights beside the states.
            half, out = 2 * self.trained, 0 if how.offload else 1 / count
            whole = 1 / count if how.sharding == "zero3" else 1
            gradients = half * (1 if how.sharding == "zero1" else out)
            return base * whole + half * whole, gradients, 12 * self.trained * out, 4 * self.trained * out
        return base + trained, trained, states, each

    def _gathered(self) -> float:
        """Return the unsharded part at a time: two layers, and the weights outside of layers."""
        model, how = self.model, self.how
        if how.sharding not in {"fsdp", "zero3"} or how.shards < 2:
            return 0
        width = PACKED[how.packed] * (not how.keeps_packed) if how.packed else how.compute
        layer = model.linear * width + (model.layer - model.linear) * how.compute
        rest = (model.parameters - model.layers * model.layer) * how.compute
        gradients = 2 * model.layer * how.compute if how.method == "full" else 0
        return 2 * layer + rest + gradients

    def _selective(self) -> int:
        """Return what one layer keeps without checkpointing, or with selective checkpointing."""
        model, how = self.model, self.how
        if not how.checkpointing:
            return self.layer
        products = sum(width for _, width in list(model.matrices.values())[::2])
        kept = how.stream * model.hidden + how.compute * (model.queries + products) + 4 * model.heads
        return how.tokens * kept

    @property
    def passing(self) -> float:
        """The memory of one layer without a backward pass."""
        model, how = self.model, self.how
        return how.eval_tokens * (2 * how.stream * model.hidden + (3 if model.gated else 2) * how.compute * model.ffn)

    def backward(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Return the parts of the backward pass at the loss, in the first layer, in the last, and at its end."""
        model, how = self.model, self.how
        again = self.layer if how.checkpointing else 0
        passing = activations.backward(model, how) + self.gathered
        shared = how.sharding in {"fsdp", "zero3"}
        # An embedding gradient is unsharded before it is accumulated. A tied table has two, which torch adds into
        # a third tensor.
        table = model.table * (how.compute if shared else self.width) if how.method == "full" else 0
        begun = (self.gradients if how.gather else 0) + table
        tables = table * (3 if model.tied else 1)
        if not (shared or how.gather):
            tables -= table
        kept = self.between_layers
        # The inputs of all layers and their gradients, if they are held until the end.
        left = 2 * kept if how.holds_layers else self.checkpoint
        logits = (
            ("activations", kept + self.end),
            ("logits", self.logits.backward),
            ("temporaries", self.gathered + self.casts),
        )
        return (
            (("gradients", self.gradients if how.gather else 0), *logits),
            (("gradients", begun), ("activations", kept + again), ("temporaries", passing + self.casts)),
            (
                ("gradients", self.gradients),
                ("activations", left + again),
                ("temporaries", passing + self.cast_layer),
            ),
            (
                ("gradients", self.gradients),
                ("activations", left if how.holds_layers else 0),
                ("temporaries", tables + self.gathered),
            ),
        )
