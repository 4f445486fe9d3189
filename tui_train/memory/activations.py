"""What a layer keeps for its backward pass, in bytes, operator by operator as transformers computes eagerly."""

from tui_train.facts.dimensions import Dimensions
from tui_train.memory.types import BYTES, How

# Those whose activation is written out of single operators, each of which keeps its input.
_LONG_GELU = frozenset({"gpt2", "phi"})
# One linear layer makes queries, keys and values; of phi3 another one the gate and what it is multiplied with.
_TOGETHER = frozenset({"gpt_neox", "phi3", "falcon", "gpt2", "gpt_bigcode"})
# Their values stay a view of all three.
_VIEWS = frozenset({"gpt_neox", "phi3"})
_DROPS = frozenset({"gpt2", "gpt_bigcode"})
# Their norms multiply with the weight before they go back to fewer bits.
_WEIGHS_IN_FP32 = frozenset({"gemma", "gemma2", "gemma3_text", "olmo2"})
# Their softmax stays in what is computed with.
_PLAIN_SOFTMAX = frozenset({"gpt2", "falcon"})


def layer(model: Dimensions, how: How) -> int:
    """Return the bytes that one layer keeps for the backward pass of a micro batch."""
    wide = how.compute
    attention = wide * (model.queries + 2 * model.keys) + _mixing(model, how)
    if model.type in _VIEWS and not how.widened and how.attention != "eager":
        # What holds queries and keys as well, from before their rotation; of fp32, values are a copy in less.
        attention += wide * (model.queries + model.keys)
    if model.qk_norm:
        width = model.queries + model.keys
        attention += wide * width if how.kernels else _norm(model, width, how, wide)
    names = ("q_proj",) if model.type in _TOGETHER else ("q_proj", "k_proj", "v_proj")
    # Fused attention keeps what it returns itself.
    inputs = _normed(model, names, how) + _input(model.queries, ("o_proj",), how, own=how.attention == "eager")
    drops = 2 * model.hidden if model.type in _DROPS else 0
    # Norms side by side keep one input, but where autocast makes each its own copy of it.
    norms = (model.norms if not model.parallel or (how.autocast and how.stream < 4) else 1) * norm(model, how)
    # What is multiplied by a trained number is kept.
    scaled = sum(wide * width for name, (_, width) in model.matrices.items() if how.scales and name in how.targets)
    return how.tokens * (attention + inputs + drops + norms + scaled + _mlp(model, how))


def norm(model: Dimensions, how: How) -> int:
    """Return the bytes a token that a norm keeps besides its output."""
    if model.norm == "layer" and how.autocast:
        return 4 * model.hidden  # autocast has it in fp32
    if model.norm == "layer" or how.kernels:
        return how.stream * model.hidden
    return _norm(model, model.hidden, how, how.stream)


def _norm(model: Dimensions, width: int, how: How, stream: int) -> int:
    # In fp32 whatever comes in, and again before the weight, if there is one and it is trained.
    trained = model.norm != "plain" and (how.method == "full" or how.scales)
    return (4 + ((4 if model.type in _WEIGHS_IN_FP32 else stream) if trained else 0)) * width


def _mixing(model: Dimensions, how: How) -> int:
    """Return what attention keeps besides queries, keys and values: its output, or how it was weighted."""
    repeated = 2 * how.compute * (model.queries - model.keys) if _repeats(model, how) else 0
    if how.attention != "eager":
        return repeated + how.compute * model.queries + 4 * model.heads
    # As the softmax gives them, mostly in fp32, and as they are multiplied with: in less, or after dropout, whose
    # mask is a byte; of gemma2 what its tanh returns.
    softmax = how.compute if model.type in _PLAIN_SOFTMAX and not how.autocast else 4
    again = how.compute + 1 if model.type in _DROPS else how.compute if how.compute < softmax else 0
    weights = softmax + again + (how.compute if model.type == "gemma2" else 0)
    return repeated + weights * model.heads * how.sequence_length


def _repeats(model: Dimensions, how: How) -> bool:
    """Return whether keys and values are repeated for each head of the queries."""
    if model.type == "falcon":
        return model.kv != 1 or how.attention == "eager"
    # transformers does where there is a mask, for sdpa would take them as they are.
    return how.attention in {"sdpa", "eager"}


def _mlp(model: Dimensions, how: How) -> int:
    wide, ffn = how.compute, model.ffn
    times = max(1, model.experts_used)
    names = ("gate_proj", "up_proj") if model.gated and model.type != "phi3" else ("up_proj",)
    first = _normed(model, names, how, own=0 if model.parallel and model.norms == 1 else 1)
    last = _input(ffn, ("down_proj",), how)
    gate = (2 if how.kernels == "liger" else 3) * (4 if how.widened else wide)
    inner = (gate if model.gated else _gelu(model, how)) * ffn
    return first + times * (inner + last)


def _gelu(model: Dimensions, how: How) -> int:
    """Return the bytes that the activation keeps of each number that goes in."""
    own = 4 if how.widened else how.compute
    if model.type not in _LONG_GELU:
        return own
    # Autocast takes powers in fp32, and with them all that follows.
    return 4 * own if not how.autocast or how.widened or how.compute == 4 else 3 * 4 + own


def _normed(model: Dimensions, names: tuple[str, ...], how: How, own: int = 1) -> int:
    """Return what linear layers keep of what a norm gives, each its own copy where autocast has that in fp32."""
    if how.method == "full" and how.autocast and (how.stream == 4 or model.norm == "layer"):
        return len(names) * _input(model.hidden, names, how)
    return _input(model.hidden, names, how, own)


def _input(width: int, names: tuple[str, ...], how: How, own: int = 1) -> int:
    """Return what linear layers keep of their common input; `own` is 0 where it is kept anyway."""
    wide = how.compute
    if how.method == "full":
        return own * wide * width
    aimed = sum(name in how.targets for name in names)
    if how.packed and how.keeps_inputs:
        return (own + (1 if aimed and not how.scales else 0)) * wide * width
    if not aimed or how.scales or how.method == "frozen":
        return 0
    kept = BYTES[how.adapters]
    if how.dropout:
        return aimed * ((wide if how.autocast else kept) + 1) * width
    if how.autocast:
        return aimed * wide * width
    return aimed * kept * width if kept != wide else own * wide * width


def backward(model: Dimensions, how: How) -> int:
    """Return the most that the backward pass of a layer holds besides what the layer kept."""
    wide, times = how.compute, max(1, model.experts_used)
    # The gradients of what was multiplied, beside that of the product, which is only kept where the next layer learns.
    gated = (2 if how.method == "full" else 3) if how.kernels != "liger" else 1
    mlp = (gated if model.gated else 2) * wide * model.ffn * times
    # Where attention's turn comes, what the MLP kept is gone, and with it the weights as they were multiplied.
    weights = (8 - (wide if wide < 4 else 0)) * model.heads * how.sequence_length
    eager = weights - _mlp(model, how) if how.attention == "eager" else 0
    # A weight's gradient before it is added, or a packed weight unpacked.
    matrix = wide * model.hidden * model.ffn
    return how.tokens * max(mlp + how.stream * model.hidden, eager) + matrix
