"""The activations that a layer keeps for its backward pass, in bytes, per operator of eager transformers."""

from tui_train.facts.models.dimensions import Dimensions
from tui_train.memory.types import DTYPE_BYTES, MemorySettings

# Types whose activation function consists of single operators, each of which keeps its input.
_UNFUSED_GELU = frozenset({"gpt2", "phi"})
# Types with one linear layer for queries, keys and values (phi3 also has one for gate and up).
_FUSED_PROJECTIONS = frozenset({"gpt_neox", "phi3", "falcon", "gpt2", "gpt_bigcode"})
# Types whose values remain a view of all three.
_VALUES_ARE_VIEWS = frozenset({"gpt_neox", "phi3"})
_WITH_DROPOUT = frozenset({"gpt2", "gpt_bigcode"})
# Types whose norms multiply by the weight before casting back.
_WEIGHT_IN_FP32 = frozenset({"gemma", "gemma2", "gemma3_text", "olmo2"})
# Types whose softmax is not upcast.
_PLAIN_SOFTMAX = frozenset({"gpt2", "falcon"})


def layer_bytes(model: Dimensions, how: MemorySettings) -> int:
    """Return the bytes that one layer keeps for the backward pass of a micro batch."""
    value_bytes = how.compute_bytes
    attention = value_bytes * (model.query_width + 2 * model.key_width) + _attention_bytes(model, how)
    if model.type in _VALUES_ARE_VIEWS and not how.widened and how.attention != "eager":
        # The view keeps unrotated queries and keys alive; in fp32, values are a copy instead.
        attention += value_bytes * (model.query_width + model.key_width)
    if model.qk_norm:
        width = model.query_width + model.key_width
        attention += value_bytes * width if how.kernels else _rms_norm_bytes(model, width, how, value_bytes)
    names = ("q_proj",) if model.type in _FUSED_PROJECTIONS else ("q_proj", "k_proj", "v_proj")
    # Fused attention already keeps its output.
    inputs = _norm_output_bytes(model, names, how) + _input_bytes(
        model.query_width, ("o_proj",), how, copies=how.attention == "eager"
    )
    dropout = 2 * model.hidden if model.type in _WITH_DROPOUT else 0
    # Parallel norms share one input, unless autocast makes a copy for each.
    norms = (model.norms if not model.parallel or (how.autocast and how.stream_bytes < 4) else 1) * norm_bytes(
        model, how
    )
    # The factor of a trained scale is kept.
    scale_inputs = sum(
        value_bytes * width for name, (_, width) in model.linear_shapes.items() if how.scales and name in how.targets
    )
    return how.tokens * (attention + inputs + dropout + norms + scale_inputs + _mlp_bytes(model, how))


def norm_bytes(model: Dimensions, how: MemorySettings) -> int:
    """Return the bytes per token that a norm keeps besides its output."""
    if model.norm == "layer" and how.autocast:
        return 4 * model.hidden  # fp32 under autocast
    if model.norm == "layer" or how.kernels:
        return how.stream_bytes * model.hidden
    return _rms_norm_bytes(model, model.hidden, how, how.stream_bytes)


def _rms_norm_bytes(model: Dimensions, width: int, how: MemorySettings, stream: int) -> int:
    # The input in fp32, and again before the weight if that is trained.
    trained = model.norm != "plain" and (how.method == "full" or how.scales)
    return (4 + ((4 if model.type in _WEIGHT_IN_FP32 else stream) if trained else 0)) * width


def _attention_bytes(model: Dimensions, how: MemorySettings) -> int:
    """Return what attention keeps besides queries, keys and values: its output, or its weights if eager."""
    repeated = 2 * how.compute_bytes * (model.query_width - model.key_width) if _repeats_keys(model, how) else 0
    if how.attention != "eager":
        return repeated + how.compute_bytes * model.query_width + 4 * model.heads
    # The softmax output, mostly in fp32, and its cast or dropout output (with a mask of one byte); for gemma2 also the
    # output of tanh.
    softmax = how.compute_bytes if model.type in _PLAIN_SOFTMAX and not how.autocast else 4
    second_copy = (
        how.compute_bytes + 1
        if model.type in _WITH_DROPOUT
        else how.compute_bytes
        if how.compute_bytes < softmax
        else 0
    )
    weights = softmax + second_copy + (how.compute_bytes if model.type == "gemma2" else 0)
    return repeated + weights * model.heads * how.sequence_length


def _repeats_keys(model: Dimensions, how: MemorySettings) -> bool:
    """Return whether keys and values are repeated for each query head."""
    if model.type == "falcon":
        return model.kv != 1 or how.attention == "eager"
    # transformers repeats them if there is a mask.
    return how.attention in {"sdpa", "eager"}


def _mlp_bytes(model: Dimensions, how: MemorySettings) -> int:
    value_bytes, ffn = how.compute_bytes, model.ffn
    times = max(1, model.experts_used)
    names = ("gate_proj", "up_proj") if model.gated and model.type != "phi3" else ("up_proj",)
    first = _norm_output_bytes(model, names, how, copies=0 if model.parallel and model.norms == 1 else 1)
    last = _input_bytes(ffn, ("down_proj",), how)
    gate = (2 if how.kernels == "liger" else 3) * (4 if how.widened else value_bytes)
    inner = (gate if model.gated else _activation_bytes(model, how)) * ffn
    return first + times * (inner + last)


def _activation_bytes(model: Dimensions, how: MemorySettings) -> int:
    """Return the bytes per input value that the activation function keeps."""
    width = 4 if how.widened else how.compute_bytes
    if model.type not in _UNFUSED_GELU:
        return width
    # Autocast computes powers, and all that follows, in fp32.
    return 4 * width if not how.autocast or how.widened or how.compute_bytes == 4 else 3 * 4 + width


def _norm_output_bytes(model: Dimensions, names: tuple[str, ...], how: MemorySettings, copies: int = 1) -> int:
    """Return what linear layers keep of a norm's output: a copy each if autocast has it in fp32."""
    if how.method == "full" and how.autocast and (how.stream_bytes == 4 or model.norm == "layer"):
        return len(names) * _input_bytes(model.hidden, names, how)
    return _input_bytes(model.hidden, names, how, copies)


def _input_bytes(width: int, names: tuple[str, ...], how: MemorySettings, copies: int = 1) -> int:
    """Return what linear layers keep of their common input; `copies` is 0 if it is kept anyway."""
    value_bytes = how.compute_bytes
    if how.method == "full":
        return copies * value_bytes * width
    adapted = sum(name in how.targets for name in names)
    if how.packed and how.keeps_inputs:
        return (copies + (1 if adapted and not how.scales else 0)) * value_bytes * width
    if not adapted or how.scales or how.method == "frozen":
        return 0
    adapter_width = DTYPE_BYTES[how.adapters]
    if how.dropout:
        return adapted * ((value_bytes if how.autocast else adapter_width) + 1) * width
    if how.autocast:
        return adapted * value_bytes * width
    return adapted * adapter_width * width if adapter_width != value_bytes else copies * value_bytes * width


def backward_peak(model: Dimensions, how: MemorySettings) -> int:
    """Return the peak of a layer's backward pass besides the activations that it kept."""
    value_bytes, times = how.compute_bytes, max(1, model.experts_used)
    # The gradients of both factors, and of the product if the layer before is trained.
    gated = (2 if how.method == "full" else 3) if how.kernels != "liger" else 1
    mlp = (gated if model.gated else 2) * value_bytes * model.ffn * times
    # When attention runs, the activations of the MLP are already freed, and the cast attention weights with them.
    weights = (8 - (value_bytes if value_bytes < 4 else 0)) * model.heads * how.sequence_length
    eager = weights - _mlp_bytes(model, how) if how.attention == "eager" else 0
    # A weight's gradient before it is accumulated, or an unpacked quantized weight.
    matrix = value_bytes * model.hidden * model.ffn
    return how.tokens * max(mlp + how.stream_bytes * model.hidden, eager) + matrix
