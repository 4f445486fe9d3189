"""The activations that a layer keeps for its backward pass, in bytes, per operator of eager transformers."""

from tui_train.facts.dimensions import Dimensions
from tui_train.memory.types import BYTES, How

# Types whose activation function consists of single operators, each of which keeps its input.
_LONG_GELU = frozenset({"gpt2", "phi"})
# Types with one linear layer for queries, keys and values (phi3 also has one for gate and up).
_TOGETHER = frozenset({"gpt_neox", "phi3", "falcon", "gpt2", "gpt_bigcode"})
# Types whose values remain a view of all three.
_VIEWS = frozenset({"gpt_neox", "phi3"})
_DROPS = frozenset({"gpt2", "gpt_bigcode"})
# Types whose norms multiply by the weight before casting back.
_WEIGHS_IN_FP32 = frozenset({"gemma", "gemma2", "gemma3_text", "olmo2"})
# Types whose softmax is not upcast.
_PLAIN_SOFTMAX = frozenset({"gpt2", "falcon"})


def layer(model: Dimensions, how: How) -> int:
    """Return the bytes that one layer keeps for the backward pass of a micro batch."""
    wide = how.compute
    attention = wide * (model.queries + 2 * model.keys) + _mixing(model, how)
    if model.type in _VIEWS and not how.widened and how.attention != "eager":
        # The view keeps unrotated queries and keys alive; in fp32, values are a copy instead.
        attention += wide * (model.queries + model.keys)
    if model.qk_norm:
        width = model.queries + model.keys
        attention += wide * width if how.kernels else _norm(model, width, how, wide)
    names = ("q_proj",) if model.type in _TOGETHER else ("q_proj", "k_proj", "v_proj")
    # Fused attention already keeps its output.
    inputs = _normed(model, names, how) + _input(model.queries, ("o_proj",), how, copies=how.attention == "eager")
    drops = 2 * model.hidden if model.type in _DROPS else 0
    # Parallel norms share one input, unless autocast makes a copy for each.
    norms = (model.norms if not model.parallel or (how.autocast and how.stream < 4) else 1) * norm(model, how)
    # The factor of a trained scale is kept.
    scaled = sum(wide * width for name, (_, width) in model.matrices.items() if how.scales and name in how.targets)
    return how.tokens * (attention + inputs + drops + norms + scaled + _mlp(model, how))


def norm(model: Dimensions, how: How) -> int:
    """Return the bytes per token that a norm keeps besides its output."""
    if model.norm == "layer" and how.autocast:
        return 4 * model.hidden  # fp32 under autocast
    if model.norm == "layer" or how.kernels:
        return how.stream * model.hidden
    return _norm(model, model.hidden, how, how.stream)


def _norm(model: Dimensions, width: int, how: How, stream: int) -> int:
    # The input in fp32, and again before the weight if that is trained.
    trained = model.norm != "plain" and (how.method == "full" or how.scales)
    return (4 + ((4 if model.type in _WEIGHS_IN_FP32 else stream) if trained else 0)) * width


def _mixing(model: Dimensions, how: How) -> int:
    """Return what attention keeps besides queries, keys and values: its output, or its weights if eager."""
    repeated = 2 * how.compute * (model.queries - model.keys) if _repeats(model, how) else 0
    if how.attention != "eager":
        return repeated + how.compute * model.queries + 4 * model.heads
    # The softmax output, mostly in fp32, and its cast or dropout output (with a mask of one byte); for gemma2 also the
    # output of tanh.
    softmax = how.compute if model.type in _PLAIN_SOFTMAX and not how.autocast else 4
    again = how.compute + 1 if model.type in _DROPS else how.compute if how.compute < softmax else 0
    weights = softmax + again + (how.compute if model.type == "gemma2" else 0)
    return repeated + weights * model.heads * how.sequence_length


def _repeats(model: Dimensions, how: How) -> bool:
    """Return whether keys and values are repeated for each query head."""
    if model.type == "falcon":
        return model.kv != 1 or how.attention == "eager"
    # transformers repeats them if there is a mask.
    return how.attention in {"sdpa", "eager"}


def _mlp(model: Dimensions, how: How) -> int:
    wide, ffn = how.compute, model.ffn
    times = max(1, model.experts_used)
    names = ("gate_proj", "up_proj") if model.gated and model.type != "phi3" else ("up_proj",)
    first = _normed(model, names, how, copies=0 if model.parallel and model.norms == 1 else 1)
    last = _input(ffn, ("down_proj",), how)
    gate = (2 if how.kernels == "liger" else 3) * (4 if how.widened else wide)
    inner = (gate if model.gated else _gelu(model, how)) * ffn
    return first + times * (inner + last)


def _gelu(model: Dimensions, how: How) -> int:
    """Return the bytes per input value that the activation function keeps."""
    width = 4 if how.widened else how.compute
    if model.type not in _LONG_GELU:
        return width
    # Autocast computes powers, and all that follows, in fp32.
    return 4 * width if not how.autocast or how.widened or how.compute == 4 else 3 * 4 + width


def _normed(model: Dimensions, names: tuple[str, ...], how: How, copies: int = 1) -> int:
    """Return what linear layers keep of a norm's output: a copy each if autocast has it in fp32."""
    if how.method == "full" and how.autocast and (how.stream == 4 or model.norm == "layer"):
        return len(names) * _input(model.hidden, names, how)
    return _input(model.hidden, names, how, copies)


def _input(width: int, names: tuple[str, ...], how: How, copies: int = 1) -> int:
    """Return what linear layers keep of their common input; `copies` is 0 if it is kept anyway."""
    wide = how.compute
    if how.method == "full":
        return copies * wide * width
    aimed = sum(name in how.targets for name in names)
    if how.packed and how.keeps_inputs:
        return (copies + (1 if aimed and not how.scales else 0)) * wide * width
    if not aimed or how.scales or how.method == "frozen":
        return 0
    adapter_width = BYTES[how.adapters]
    if how.dropout:
        return aimed * ((wide if how.autocast else adapter_width) + 1) * width
    if how.autocast:
        return aimed * wide * width
    return aimed * adapter_width * width if adapter_width != wide else copies * wide * width


def backward(model: Dimensions, how: How) -> int:
    """Return the peak of a layer's backward pass besides the activations that it kept."""
    wide, times = how.compute, max(1, model.experts_used)
    # The gradients of both factors, and of the product if the layer before is trained.
    gated = (2 if how.method == "full" else 3) if how.kernels != "liger" else 1
    mlp = (gated if model.gated else 2) * wide * model.ffn * times
    # When attention runs, the activations of the MLP are already freed, and the cast attention weights with them.
    weights = (8 - (wide if wide < 4 else 0)) * model.heads * how.sequence_length
    eager = weights - _mlp(model, how) if how.attention == "eager" else 0
    # A weight's gradient before it is accumulated, or an unpacked quantized weight.
    matrix = wide * model.hidden * model.ffn
    return how.tokens * max(mlp + how.stream * model.hidden, eager) + matrix
