"""The activations that a layer keeps for its backward pass, in bytes, per operator of eager transformers."""

from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.memory.types import BYTES_BY_DTYPE, MemorySettings

# Types whose activation function consists of single operators, each of which keeps its input.
_TYPES_WITH_UNFUSED_GELU = frozenset({"gpt2", "phi"})
# Types with one linear layer for queries, keys and values (phi3 also has one for gate and up).
_TYPES_WITH_FUSED_PROJECTIONS = frozenset({"gpt_neox", "phi3", "falcon", "gpt2", "gpt_bigcode"})
# Types whose values remain a view of all three.
_TYPES_KEEPING_VALUES_AS_QKV_VIEW = frozenset({"gpt_neox", "phi3"})
_TYPES_WITH_DROPOUT = frozenset({"gpt2", "gpt_bigcode"})
# Types whose norms multiply by the weight before casting back.
_TYPES_MULTIPLYING_NORM_WEIGHT_IN_FP32 = frozenset({
    "cohere", "cohere2", "gemma", "gemma2", "gemma3_text", "gemma3n_text", "olmo2", "olmo3", "qwen3_next",
    "qwen3_5_text", "qwen3_5_moe_text",
})  # fmt: skip
# Types whose softmax is not upcast.
_TYPES_WITHOUT_SOFTMAX_UPCAST = frozenset({"gpt2", "falcon", "gpt_oss"})


def layer_activation_bytes(model: ModelDimensions, settings: MemorySettings) -> int:
    """Return the bytes that one layer keeps for the backward pass of a micro batch."""
    value_bytes = settings.compute_value_bytes
    attention = value_bytes * (model.query_width + 2 * model.key_width) + _attention_bytes_per_token(model, settings)
    if (
        model.type in _TYPES_KEEPING_VALUES_AS_QKV_VIEW
        and not settings.has_fp32_residuals
        and settings.attention != "eager"
    ):
        # The view keeps unrotated queries and keys alive; in fp32, values are a copy instead.
        attention += value_bytes * (model.query_width + model.key_width)
    if model.key_rank:
        attention += _latent_bytes_per_token(model, settings)
    if model.qk_norm:
        width = model.query_width + model.key_width
        attention += (
            value_bytes * width
            if settings.fused_kernels
            else _rms_norm_bytes_per_token(model, width, settings, value_bytes)
        )
    names = ("q_proj",) if model.type in _TYPES_WITH_FUSED_PROJECTIONS else ("q_proj", "k_proj", "v_proj")
    # Fused attention already keeps its output.
    inputs = _norm_output_bytes_per_token(model, names, settings) + _linear_input_bytes_per_token(
        model.query_width, ("o_proj",), settings, copies=settings.attention == "eager"
    )
    dropout = 2 * model.hidden if model.type in _TYPES_WITH_DROPOUT else 0
    # Parallel norms share one input, unless autocast makes a copy for each.
    norms = (
        model.norms_per_layer
        if not model.has_parallel_attention or (settings.autocast and settings.residual_value_bytes < 4)
        else 1
    ) * norm_bytes_per_token(model, settings)
    # The factor of a trained scale is kept.
    scale_inputs = sum(
        value_bytes * width
        for name, (_, width) in model.linear_shapes_per_layer.items()
        if settings.trains_output_scales and name in settings.lora_targets
    )
    return settings.micro_batch_tokens * (
        attention + inputs + dropout + norms + scale_inputs + _mlp_bytes_per_token(model, settings)
    )


def norm_bytes_per_token(model: ModelDimensions, settings: MemorySettings) -> int:
    """Return the bytes per token that a norm keeps besides its output."""
    if model.norm == "layer" and settings.autocast:
        return 4 * model.hidden  # fp32 under autocast
    if model.norm == "layer" or settings.fused_kernels:
        return settings.residual_value_bytes * model.hidden
    return _rms_norm_bytes_per_token(model, model.hidden, settings, settings.residual_value_bytes)


def _rms_norm_bytes_per_token(
    model: ModelDimensions, width: int, settings: MemorySettings, residual_value_bytes: int
) -> int:
    # The input in fp32, and again before the weight if that is trained.
    trained = model.norm != "plain" and (settings.trained == "full" or settings.trains_output_scales)
    return (
        4 + ((4 if model.type in _TYPES_MULTIPLYING_NORM_WEIGHT_IN_FP32 else residual_value_bytes) if trained else 0)
    ) * width


def _attention_bytes_per_token(model: ModelDimensions, settings: MemorySettings) -> int:
    """Return what attention keeps besides queries, keys and values: its output, or its weights if eager."""
    repeated = (
        2 * settings.compute_value_bytes * (model.query_width - model.key_width)
        if _repeats_keys_and_values(model, settings)
        else 0
    )
    if settings.attention != "eager":
        return repeated + settings.compute_value_bytes * model.query_width + 4 * model.heads
    # The softmax output, mostly in fp32, and its cast or dropout output (with a mask of one byte); for gemma2 also the
    # output of tanh.
    softmax = (
        settings.compute_value_bytes if model.type in _TYPES_WITHOUT_SOFTMAX_UPCAST and not settings.autocast else 4
    )
    second_copy = (
        settings.compute_value_bytes + 1
        if model.type in _TYPES_WITH_DROPOUT
        else settings.compute_value_bytes
        # gpt_oss cuts its sinks off, which makes a copy.
        if settings.compute_value_bytes < softmax or model.type == "gpt_oss"
        else 0
    )
    weights = softmax + second_copy + (settings.compute_value_bytes if model.type == "gemma2" else 0)
    return repeated + weights * model.heads * settings.sequence_length


def _latent_bytes_per_token(model: ModelDimensions, settings: MemorySettings) -> int:
    """Return what compressed attention keeps besides: its latent vectors, and keys in the view that the values are."""
    value_bytes = settings.compute_value_bytes
    latents = sum(
        value_bytes * rank + _rms_norm_bytes_per_token(model, rank, settings, value_bytes)
        for rank in (model.query_rank, model.key_rank)
    )
    return latents + value_bytes * (model.query_width - model.heads * model.rotary_dim)


def _repeats_keys_and_values(model: ModelDimensions, settings: MemorySettings) -> bool:
    """Return whether keys and values are repeated for each query head."""
    if model.type == "falcon":
        return model.kv_heads != 1 or settings.attention == "eager"
    # transformers repeats them if there is a mask.
    return settings.attention in {"sdpa", "eager"}


def _mlp_bytes_per_token(model: ModelDimensions, settings: MemorySettings) -> int:
    value_bytes, ffn = settings.compute_value_bytes, model.ffn_width_per_token
    names = ("gate_proj", "up_proj") if model.has_gated_mlp and model.type != "phi3" else ("up_proj",)
    first = _norm_output_bytes_per_token(
        model, names, settings, copies=0 if model.has_parallel_attention and model.norms_per_layer == 1 else 1
    )
    last = _linear_input_bytes_per_token(ffn, ("down_proj",), settings)
    gate = (2 if settings.fused_kernels == "liger" else 3) * (4 if settings.has_fp32_residuals else value_bytes)
    inner = (gate if model.has_gated_mlp else _activation_function_bytes_per_value(model, settings)) * ffn
    # Each expert has a copy of its tokens, kept where it is trained, and what it returns is weighted.
    routed = value_bytes * model.hidden * model.experts_per_token * (2 if settings.trained == "full" else 1)
    return first + inner + last + routed


def _activation_function_bytes_per_value(model: ModelDimensions, settings: MemorySettings) -> int:
    width = 4 if settings.has_fp32_residuals else settings.compute_value_bytes
    if model.type not in _TYPES_WITH_UNFUSED_GELU:
        return width
    # Autocast computes powers, and all that follows, in fp32.
    return (
        4 * width
        if not settings.autocast or settings.has_fp32_residuals or settings.compute_value_bytes == 4
        else 3 * 4 + width
    )


def _norm_output_bytes_per_token(
    model: ModelDimensions, layer_names: tuple[str, ...], settings: MemorySettings, copies: int = 1
) -> int:
    """Return what linear layers keep of a norm's output: a copy each if autocast has it in fp32."""
    if (
        settings.trained == "full"
        and settings.autocast
        and (settings.residual_value_bytes == 4 or model.norm == "layer")
    ):
        return len(layer_names) * _linear_input_bytes_per_token(model.hidden, layer_names, settings)
    return _linear_input_bytes_per_token(model.hidden, layer_names, settings, copies)


def _linear_input_bytes_per_token(
    width: int, layer_names: tuple[str, ...], settings: MemorySettings, copies: int = 1
) -> int:
    """Return what linear layers keep of their common input; `copies` is 0 if it is kept anyway."""
    value_bytes = settings.compute_value_bytes
    if settings.trained == "full":
        return copies * value_bytes * width
    adapted = sum(name in settings.lora_targets for name in layer_names)
    if settings.quantization and settings.keeps_quantized_layer_inputs:
        return (copies + (1 if adapted and not settings.trains_output_scales else 0)) * value_bytes * width
    if not adapted or settings.trains_output_scales or settings.trained == "frozen":
        return 0
    adapter_width = BYTES_BY_DTYPE[settings.adapter_dtype]
    if settings.lora_dropout:
        return adapted * ((value_bytes if settings.autocast else adapter_width) + 1) * width
    if settings.autocast:
        return adapted * value_bytes * width
    return adapted * adapter_width * width if adapter_width != value_bytes else copies * value_bytes * width


def layer_backward_peak_bytes(model: ModelDimensions, settings: MemorySettings) -> int:
    """Return the peak of a layer's backward pass besides the activations that it kept."""
    value_bytes = settings.compute_value_bytes
    # The gradients of both factors, and of the product if the layer before is trained.
    gated = (2 if settings.trained == "full" else 3) if settings.fused_kernels != "liger" else 1
    mlp = (gated if model.has_gated_mlp else 2) * value_bytes * model.ffn_width_per_token
    # When attention runs, the activations of the MLP are already freed, and the cast attention weights with them.
    weights = (8 - (value_bytes if value_bytes < 4 else 0)) * model.heads * settings.sequence_length
    eager = weights - _mlp_bytes_per_token(model, settings) if settings.attention == "eager" else 0
    # A weight's gradient before it is accumulated, or an unpacked quantized weight.
    matrix = value_bytes * model.hidden * model.ffn
    return settings.micro_batch_tokens * max(mlp + settings.residual_value_bytes * model.hidden, eager) + matrix
