"""The peak memory of each phase of a training step on one GPU, in closed form; no constant is fitted."""

from collections.abc import Iterable

from msgspec.structs import replace

from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.memory import activations, losses
from tui_train.memory.types import ALL_LORA_TARGETS, BYTES_BY_DTYPE, MemoryEstimate, MemorySettings, PhaseMemory

# Bytes per weight: 4 bits and one fp32 scale per 64, 8-bit scales, or fp16 scales and zeros per 128.
BYTES_PER_QUANTIZED_WEIGHT = {
    "nf4": 0.5 + 4 / 64,
    "nf4-dq": 0.5 + 1 / 64 + 4 / 64 / 256,
    "gptq": 0.5 + 2.5 / 128,
    "int8": 1 + 4 / 4096,
}
# Bytes of both 8-bit states: one each, with an fp32 scale per 256.
_EIGHT_BIT_STATE_BYTES_PER_WEIGHT = 2 * (1 + 4 / 256)


def estimate_memory(model: ModelDimensions, settings: MemorySettings) -> MemoryEstimate:
    """Return the memory of each phase: load, forward with loss, backward, optimizer step, evaluation."""
    # LayerNorm and fp32 embeddings return fp32 under autocast; bitsandbytes returns the type of its input.
    if (
        settings.autocast
        and settings.quantization.startswith("nf4")
        and (model.norm == "layer" or settings.weight_dtype == "fp32")
    ):
        settings = replace(settings, has_fp32_residuals=True)
    if model.type in {"gemma2", "gpt_oss"} and settings.attention == "sdpa":
        # Soft-capped attention and sinks are not possible with sdpa, so transformers uses eager.
        settings = replace(settings, attention="eager")
    sums = _PhaseMemoryParts(model, settings)
    persistent = (
        ("weights", sums.weights),
        ("reference model", sums.reference),
        ("optimizer states", sums.states),
        ("buckets", sums.buckets),
    )
    loaded = _make_phase(
        "load", (("weights", sums.weights), ("temporaries", sums.loading if settings.loads_whole_model else 0))
    )
    forward = _make_phase(
        "forward and loss",
        (
            *persistent,
            ("gradients", sums.gradients if settings.accumulates_gradients else 0),
            ("activations", sums.between_layers + sums.after_layers),
            ("logits", sums.logits.forward),
            ("temporaries", sums.casts_forward + sums.gathered),
        ),
    )
    backward = [_make_phase("backward", (*persistent, *parts)) for parts in sums.parts_at_backward_moments()]
    step = _make_phase(
        "optimizer step", (*persistent, ("gradients", sums.gradients), ("temporaries", sums.step_temporaries))
    )
    evaluation = _make_phase(
        "eval",
        (
            *persistent,
            ("activations", sums.layer_eval_bytes),
            ("logits", sums.logits.evaluation),
            ("temporaries", sums.gathered),
        ),
    )
    phases = (loaded, forward, max(backward, key=lambda phase: phase.total_bytes), step, evaluation)
    caveats = (*settings.caveats, *model.caveats, *_estimate_caveats(model, settings))
    return MemoryEstimate(phases, model.parameters, sums.trained, caveats)


def checkpoint_weight_and_state_bytes(model: ModelDimensions, settings: MemorySettings) -> tuple[int, int]:
    """Return the bytes of the trained weights and of the optimizer's states, as a checkpoint has them, of all GPUs."""
    sums = _PhaseMemoryParts(model, replace(settings, shard_count=1, offload=False))
    width = (
        2
        if settings.sharding.startswith("zero")
        else BYTES_BY_DTYPE[settings.adapter_dtype]
        if settings.trained == "lora"
        else sums.width
    )
    return int(sums.trained * width), int(sums.states)


def _estimate_caveats(model: ModelDimensions, settings: MemorySettings) -> tuple[str, ...]:
    is_fsdp1 = settings.holds_frozen_layers or settings.loads_whole_model
    conditions = {
        "experts: the distribution of tokens is unknown": model.experts,
        "LoRA with FSDP2: not compared with a GPU": settings.trained == "lora"
        and settings.sharding == "fsdp"
        and not is_fsdp1,
    }
    return tuple(words for words, holds in conditions.items() if holds)


def _make_phase(name: str, parts: Iterable[tuple[str, float]]) -> PhaseMemory:
    return PhaseMemory(name, tuple((part, int(size)) for part, size in parts if size))


class _PhaseMemoryParts:
    """The amounts that make up the phases, in bytes."""

    def __init__(self, model: ModelDimensions, settings: MemorySettings) -> None:
        self.model, self.settings = model, settings
        self.width = BYTES_BY_DTYPE[settings.weight_dtype]
        self.adapters = self._adapter_parameter_count() if settings.trained == "lora" else 0
        self.trained = model.parameters if settings.trained == "full" else self.adapters
        self._set_persistent_bytes()
        sparse = activations.layer_activation_bytes(model, settings)
        plain = (
            activations.layer_activation_bytes(replace(model, experts=0), settings) if model.dense_layers else sparse
        )
        self.layer = max(sparse, plain)
        self.mean_layer = sparse + (plain - sparse) * model.dense_layers // model.layers if model.experts else sparse
        tokens = settings.micro_batch_tokens
        # The input of the head, or a copy without the last token of each sample.
        head = (
            settings.residual_value_bytes
            if settings.loss in losses.TRL_CHUNKED_LOSSES
            else settings.compute_value_bytes
            if settings.trained == "full"
            else 0
        )
        self.after_layers = tokens * (
            activations.norm_bytes_per_token(model, settings) + (head + settings.residual_value_bytes) * model.hidden
        )
        kept = tokens * model.hidden * settings.residual_value_bytes
        self.checkpoint = (
            kept
            if settings.checkpoints_activations and settings.checkpoints_whole_layers
            else self._kept_bytes_per_layer()
        )
        # With offloading, one is loaded while the previous one is used.
        self.between_layers = min(model.layers, 2 if settings.offloads_activations else model.layers) * self.checkpoint
        self.logits = losses.logits_memory(model, settings)

    def _adapter_parameter_count(self) -> int:
        """Return the parameters that are trained besides the model's own."""
        model, settings = self.model, self.settings

        def adapter(shapes: dict[str, tuple[int, int]]) -> int:
            return sum(
                b if settings.trains_output_scales else settings.lora_rank * (a + b)
                for name, (a, b) in shapes.items()
                if name in settings.lora_targets or settings.lora_targets == ALL_LORA_TARGETS
            )

        experts = 0 if settings.fused_experts else model.experts * adapter(model.mlp_shapes(model.expert_ffn))
        shared = adapter(model.mlp_shapes(model.shared_ffn)) if model.shared_ffn else 0
        plain = adapter(model.mlp_shapes(model.ffn)) * (model.layers - model.expert_layers)
        return adapter(model.attention_shapes) * model.layers + plain + (experts + shared) * model.expert_layers

    def _set_persistent_bytes(self) -> None:
        model, settings = self.model, self.settings
        whole = model.expert_parameters_per_layer * model.expert_layers if settings.fused_experts else 0
        packed = model.layers * model.linear_parameters_per_layer - whole if settings.quantization else 0
        frozen = model.parameters if settings.trained != "full" else 0
        self.packed = packed * BYTES_PER_QUANTIZED_WEIGHT.get(settings.quantization, 0)
        base = (frozen - packed) * self.width + self.packed
        trained_width = BYTES_BY_DTYPE[settings.adapter_dtype] if settings.trained == "lora" else self.width
        self.loading = base + self.trained * trained_width
        weights, gradients, states, per_state = self._sharded_bytes(base, self.trained * trained_width)
        self.weights, self.gradients = weights, gradients
        split = max(1, settings.shard_count) if settings.sharding in {"fsdp", "zero3"} else 1
        self.reference = model.parameters * self.width / split if settings.has_reference_model else 0
        self.states = states
        if settings.steps_in_backward_pass:
            self.gradients = min(gradients, max(model.parameters_per_layer, model.embedding_parameters) * trained_width)
            per_state = min(per_state, self.gradients)
        # Adafactor, per weight: squared gradient and update, and fp32 copies unless it is fp32.
        widest = (
            max(model.embedding_parameters, model.hidden * model.ffn)
            if settings.trained == "full"
            else settings.lora_rank * model.ffn
        )
        largest_update = (
            widest * 4 * (2 if trained_width == 4 else 4) * gradients / max(1, self.trained * trained_width)
        )
        self.step_temporaries = {"adamw_foreach": per_state, "adafactor": largest_update}.get(settings.optimizer, 0)
        # DistributedDataParallel copies gradients into buckets.
        self.buckets = self.trained * trained_width if settings.sharding == "ddp" and settings.shard_count > 1 else 0
        # Casts of autocast live until the backward pass; of trainable fp32 weights at least until the end of forward.
        cast = (
            settings.compute_value_bytes
            if settings.autocast not in {"", settings.weight_dtype} and settings.sharding in {"", "ddp"}
            else 0
        )
        self.cast_head = 0 if settings.loss in losses.TRL_CHUNKED_LOSSES else model.embedding_parameters * cast
        self.cast_layers = 0 if settings.quantization else model.layers * model.linear_parameters_per_layer * cast
        self.cast_layer = self.cast_layers / model.layers
        self.casts = self.cast_head + (self.cast_layer if settings.checkpoints_activations else self.cast_layers)
        until_forward_end = settings.trained == "full" and self.width == 4
        self.casts_forward = self.cast_head + self.cast_layers if until_forward_end else self.casts
        self.gathered = self._unsharded_bytes_at_a_time()

    def _sharded_bytes(self, base: float, trained: float) -> tuple[float, float, float, float]:
        """Return weights, gradients, states and one state per GPU, as sharded by the strategy."""
        settings, count = self.settings, max(1, self.settings.shard_count)
        one_state = trained
        state_bytes = {
            "adamw_8bit": _EIGHT_BIT_STATE_BYTES_PER_WEIGHT / 2,
            "adafactor": 8 / self.model.hidden,
            "sgd": 0,
        }
        states = (
            self.trained * 2 * state_bytes[settings.optimizer] if settings.optimizer in state_bytes else 2 * one_state
        )
        if settings.sharding == "fsdp":
            share = 0 if settings.offload else 1 / count
            unsharded = self.packed if settings.keeps_quantized_unsharded else 0
            return (base - unsharded + trained) * share + unsharded, trained * share, states * share, one_state * share
        if settings.sharding.startswith("zero"):
            # DeepSpeed has 16-bit weights and gradients, and sharded fp32 weights beside the states.
            half, share = 2 * self.trained, 0 if settings.offload else 1 / count
            unsharded = 1 / count if settings.sharding == "zero3" else 1
            gradients = half * (1 if settings.sharding == "zero1" else share)
            return base * unsharded + half * unsharded, gradients, 12 * self.trained * share, 4 * self.trained * share
        return base + trained, trained, states, one_state

    def _unsharded_bytes_at_a_time(self) -> float:
        """Return the unsharded part at a time: two layers, and the weights outside of layers."""
        model, settings = self.model, self.settings
        if settings.sharding not in {"fsdp", "zero3"} or settings.shard_count < 2:
            return 0
        width = (
            BYTES_PER_QUANTIZED_WEIGHT[settings.quantization] * (not settings.keeps_quantized_unsharded)
            if settings.quantization
            else settings.compute_value_bytes
        )
        layer = (
            model.linear_parameters_per_layer * width
            + (model.parameters_per_layer - model.linear_parameters_per_layer) * settings.compute_value_bytes
        )
        rest = (model.parameters - model.layers * model.parameters_per_layer) * settings.compute_value_bytes
        gradients = 2 * model.parameters_per_layer * settings.compute_value_bytes if settings.trained == "full" else 0
        return 2 * layer + rest + gradients

    def _kept_bytes_per_layer(self) -> int:
        """Return what one layer keeps without checkpointing, or with selective checkpointing."""
        model, settings = self.model, self.settings
        if not settings.checkpoints_activations:
            return self.mean_layer
        products = sum(width for _, width in list(model.linear_shapes_per_layer.values())[::2])
        kept = (
            settings.residual_value_bytes * model.hidden
            + settings.compute_value_bytes * (model.query_width + products)
            + 4 * model.heads
        )
        return settings.micro_batch_tokens * kept

    @property
    def layer_eval_bytes(self) -> float:
        """The memory of one layer without a backward pass."""
        model, settings = self.model, self.settings
        return settings.eval_batch_tokens * (
            2 * settings.residual_value_bytes * model.hidden
            + (3 if model.has_gated_mlp else 2) * settings.compute_value_bytes * model.ffn_width_per_token
        )

    def parts_at_backward_moments(self) -> tuple[tuple[tuple[str, float], ...], ...]:
        """Return the parts of the backward pass at the loss, in the first layer, in the last, and at its end."""
        model, settings = self.model, self.settings
        recomputed = self.layer if settings.checkpoints_activations else 0
        passing = activations.layer_backward_peak_bytes(model, settings) + self.gathered
        shared = settings.sharding in {"fsdp", "zero3"}
        # An embedding gradient is unsharded before it is accumulated. A tied table has two, which torch adds into
        # a third tensor.
        table = (
            model.embedding_parameters * (settings.compute_value_bytes if shared else self.width)
            if settings.trained == "full"
            else 0
        )
        begun = (self.gradients if settings.accumulates_gradients else 0) + table
        tables = table * (3 if model.ties_embeddings else 1)
        if not (shared or settings.accumulates_gradients):
            tables -= table
        kept = self.between_layers
        # The inputs of all layers and their gradients, if they are held until the end.
        held_inputs = 2 * kept if settings.holds_frozen_layers else self.checkpoint
        logits = (
            ("activations", kept + self.after_layers),
            ("logits", self.logits.backward),
            ("temporaries", self.gathered + self.casts),
        )
        return (
            (("gradients", self.gradients if settings.accumulates_gradients else 0), *logits),
            (("gradients", begun), ("activations", kept + recomputed), ("temporaries", passing + self.casts)),
            (
                ("gradients", self.gradients),
                ("activations", held_inputs + recomputed),
                ("temporaries", passing + self.cast_layer),
            ),
            (
                ("gradients", self.gradients),
                ("activations", held_inputs if settings.holds_frozen_layers else 0),
                ("temporaries", tables + self.gathered),
            ),
        )
