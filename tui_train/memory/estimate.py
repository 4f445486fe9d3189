"""The most memory that each phase of a training step takes on one card, in closed form: exact sums, nothing fitted."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui_train.facts.dimensions import Dimensions
from tui_train.memory import activations, losses
from tui_train.memory.types import BYTES, Estimate, How, Phase

# Bytes a weight: 4 bits and an fp32 scale for 64, the scales again in 8 bits, or fp16 scales and zeros for 128.
PACKED = {"nf4": 0.5 + 4 / 64, "nf4-dq": 0.5 + 1 / 64 + 4 / 64 / 256, "gptq": 0.5 + 2.5 / 128, "int8": 1 + 4 / 4096}
# Of 8-bit states: two bytes, and an fp32 scale for each 256.
_EIGHT_BIT = 2 * (1 + 4 / 256)


def estimate(model: Dimensions, how: How) -> Estimate:
    """Return what each phase takes: load, forward with the loss, backward, the optimizer's step, evaluation."""
    # LayerNorm gives fp32 under autocast, as do tables that are kept in it, and bitsandbytes what it is given.
    if how.autocast and how.packed.startswith("nf4") and (model.norm == "layer" or how.weights == "fp32"):
        how = replace(how, widened=True)
    if model.type == "gemma2" and how.attention == "sdpa":
        # It caps what attention weighs, which sdpa cannot: transformers computes it eagerly.
        how = replace(how, attention="eager")
    sums = _Sums(model, how)
    held = (("weights", sums.weights), ("optimizer states", sums.states), ("buckets", sums.buckets))
    kept = sums.between_layers
    loaded = _phase("load", (("weights", sums.weights), ("temporaries", sums.loaded if how.loads_whole else 0)))
    forward = _phase(
        "forward and loss",
        (
            *held,
            ("gradients", sums.gradients if how.gather else 0),
            ("activations", kept + sums.end),
            ("logits", sums.logits.forward),
            ("temporaries", sums.casts_forward + sums.gathered),
        ),
    )
    backward = [_phase("backward", (*held, *parts)) for parts in sums.backward()]
    step = _phase("optimizer step", (*held, ("gradients", sums.gradients), ("temporaries", sums.step_temporaries)))
    evaluation = _phase(
        "eval",
        (*held, ("activations", sums.passing), ("logits", sums.logits.evaluation), ("temporaries", sums.gathered)),
    )
    phases = (loaded, forward, max(backward, key=lambda phase: phase.total), step, evaluation)
    return Estimate(tuple(phases), model.parameters, sums.trained, (*how.caveats, *_caveats(model, how)))


def _caveats(model: Dimensions, how: How) -> tuple[str, ...]:
    found = {
        "experts: which tokens go where is not known before": model.experts,
        "LoRA under FSDP 2: no card was compared": _uncompared(how),
    }
    return tuple(words for words, holds in found.items() if holds)


def _uncompared(how: How) -> bool:
    """Tell whether no measurement is known of what is done with a shared-out model."""
    return how.method == "lora" and how.sharding == "fsdp" and not (how.holds_layers or how.loads_whole)


def _phase(name: str, parts: Iterable[tuple[str, float]]) -> Phase:
    return Phase(name, tuple((part, int(size)) for part, size in parts if size))


class _Sums:
    """The amounts of which the phases are made, in bytes."""

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
        # What goes into the head, or a copy of it without the last of each sample.
        head = how.stream if how.loss in losses.PARTS else how.compute if how.method == "full" else 0
        self.end = tokens * (activations.norm(model, how) + (head + how.stream) * model.hidden)
        kept = tokens * model.hidden * how.stream
        self.checkpoint = kept if how.checkpointing and how.whole_layers else self._selective()
        # One comes back while the one before it is used.
        self.between_layers = min(model.layers, 2 if how.offloads else model.layers) * self.checkpoint
        self.logits = losses.logits(model, how)

    def _hold(self) -> None:
        """Set what lives from step to step."""
        model, how = self.model, self.how
        packed = model.layers * model.linear if how.packed else 0
        frozen = model.parameters if how.method != "full" else 0
        self.packed = packed * PACKED.get(how.packed, 0)
        base = (frozen - packed) * self.width + self.packed
        trained_width = BYTES[how.adapters] if how.method == "lora" else self.width
        self.loaded = base + self.trained * trained_width
        weights, gradients, states, per_state = self._shares(base, self.trained * trained_width)
        self.weights, self.gradients = weights, gradients
        self.states = states
        if how.steps_at_once:
            self.gradients = min(gradients, max(model.layer, model.table) * trained_width)
            per_state = min(per_state, self.gradients)
        # Adafactor takes a weight at a time: its gradient squared and its update, and copies of what is not fp32.
        widest = max(model.table, model.hidden * model.ffn) if how.method == "full" else how.rank * model.ffn
        one = widest * 4 * (2 if trained_width == 4 else 4) * gradients / max(1, self.trained * trained_width)
        self.step_temporaries = {"adamw_foreach": per_state, "adafactor": one}.get(how.optimizer, 0)
        # DistributedDataParallel copies gradients into buckets of its own.
        self.buckets = self.trained * trained_width if how.sharding == "ddp" and how.shards > 1 else 0
        # What autocast casts stays for the backward pass, and of fp32 that learns until the forward pass ends at least.
        cast = how.compute if how.autocast not in {"", how.weights} and how.sharding in {"", "ddp"} else 0
        self.cast_head = 0 if how.loss in losses.PARTS else model.table * cast
        self.cast_layers = 0 if how.packed else model.layers * model.linear * cast
        self.cast_layer = self.cast_layers / model.layers
        self.casts = self.cast_head + (self.cast_layer if how.checkpointing else self.cast_layers)
        until = how.method == "full" and self.width == 4
        self.casts_forward = self.cast_head + self.cast_layers if until else self.casts
        self.gathered = self._gathered()

    def _shares(self, base: float, trained: float) -> tuple[float, float, float, float]:
        """Return weights, gradients, states and one of them, each as its strategy shares it out."""
        how, count = self.how, max(1, self.how.shards)
        each = trained
        per = {"adamw_8bit": _EIGHT_BIT / 2, "adafactor": 8 / self.model.hidden, "sgd": 0}
        states = self.trained * 2 * per[how.optimizer] if how.optimizer in per else 2 * each
        if how.sharding == "fsdp":
            out = 0 if how.offload else 1 / count
            whole = self.packed if how.keeps_packed else 0
            return (base - whole + trained) * out + whole, trained * out, states * out, each * out
        if how.sharding.startswith("zero"):
            # DeepSpeed keeps 16-bit weights and gradients, and fp32 ones beside the states, which it shares out.
            half, out = 2 * self.trained, 0 if how.offload else 1 / count
            whole = 1 / count if how.sharding == "zero3" else 1
            gradients = half * (1 if how.sharding == "zero1" else out)
            return base * whole + half * whole, gradients, 12 * self.trained * out, 4 * self.trained * out
        return base + trained, trained, states, each

    def _gathered(self) -> float:
        """Return what is whole for a while though it is shared out: two layers and what belongs to none."""
        model, how = self.model, self.how
        if how.sharding not in {"fsdp", "zero3"} or how.shards < 2:
            return 0
        width = PACKED[how.packed] * (not how.keeps_packed) if how.packed else how.compute
        layer = model.linear * width + (model.layer - model.linear) * how.compute
        rest = (model.parameters - model.layers * model.layer) * how.compute
        gradients = 2 * model.layer * how.compute if how.method == "full" else 0
        return 2 * layer + rest + gradients

    def _selective(self) -> int:
        """Return what one layer keeps where it is not recomputed, or all but attention and every second product is."""
        model, how = self.model, self.how
        if not how.checkpointing:
            return self.layer
        products = sum(width for _, width in list(model.matrices.values())[::2])
        kept = how.stream * model.hidden + how.compute * (model.queries + products) + 4 * model.heads
        return how.tokens * kept

    @property
    def passing(self) -> float:
        """What one layer holds at a time where nothing is kept for a backward pass."""
        model, how = self.model, self.how
        return how.eval_tokens * (2 * how.stream * model.hidden + (3 if model.gated else 2) * how.compute * model.ffn)

    def backward(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Return the parts of the backward pass in the loss, in its first layer, and where it ends."""
        model, how = self.model, self.how
        again = self.layer if how.checkpointing else 0
        passing = activations.backward(model, how) + self.gathered
        shared = how.sharding in {"fsdp", "zero3"}
        # The gradient of a table is whole before it is added or shared out. A tied table has two, of which the head's
        # waits for the embedding's, and torch adds them in a third place.
        table = model.table * (how.compute if shared else self.width) if how.method == "full" else 0
        begun = (self.gradients if how.gather else 0) + table
        tables = table * (3 if model.tied else 1)
        if not (shared or how.gather):
            tables -= table
        kept = self.between_layers
        # The inputs of all layers and their gradients, where they are held until the end.
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
