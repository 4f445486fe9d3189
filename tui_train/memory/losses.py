"""The memory of logits and loss, in bytes, by how the loss is computed."""

import math

from msgspec import Struct

from tui_train.facts.dimensions import Dimensions
from tui_train.memory.types import BYTES, How

# TRL's losses since 1.15 and 1.7: never all logits at once, with a copy of the input of the head.
PARTS = frozenset({"tiled", "checkpointed"})
# Tokens and words of a tile of TRL's logits, and tokens of one chunk.
_TILE = (4096, 32768)
_PART = 256


class Logits(Struct, frozen=True):
    """The peak of logits and their gradients: forward, at the start of backward, and in evaluation."""

    forward: float
    backward: float
    evaluation: float


def logits(model: Dimensions, how: How) -> Logits:
    """Return the peak memory of the loss."""
    if how.loss == "none":
        return Logits(0, 0, 0)
    by = {"fused": _fused, "tiled": _tiled, "checkpointed": _checkpointed}
    return by.get(how.loss, _whole)(model, how)


def _whole(model: Dimensions, how: How) -> Logits:
    wide = how.compute
    # The logits, their fp32 cast if needed, and the log softmax.
    cast = wide if wide < 4 else 0
    forward: dict[str, float] = {
        "upcast": 4 + 4 + cast,
        "copied": 12 + cast,
        "plain": 4 * wide,
        "fast": 8,
        "fast-copied": 8 + cast,
        # One of torchtune's eight chunks at a time; only logits are kept.
        "chunked": 2 * wide,
        "compiled": wide * 9 / 8,
    }
    # The log softmax, its gradient, and the gradient of the logits.
    backward: dict[str, float] = {"upcast": 12, "copied": 12}
    if model.type == "gemma2":
        # Its logits go through tanh, which keeps its output.
        forward, backward = ({name: size + wide for name, size in each.items()} for each in (forward, backward))
    ahead = forward[how.loss]
    back = backward.get(how.loss, ahead)
    each = model.vocab * min(wide + 4, ahead)
    return Logits(how.tokens * model.vocab * ahead, how.tokens * model.vocab * back, how.eval_tokens * each)


def _fused(model: Dimensions, how: How) -> Logits:
    """Liger: one chunk per multiple of the hidden size in the vocabulary, gradients computed at once."""
    parts = _power(model.vocab / model.hidden)
    line = model.vocab * how.compute
    trained = model.table * how.compute if how.method == "full" else 0
    gradients = how.tokens * model.hidden * how.compute + trained
    first, evaluated = (min(tokens, _power(tokens / parts)) for tokens in (how.tokens, how.eval_tokens))
    return Logits(first * line + gradients, gradients, evaluated * line)


def _tiled(model: Dimensions, how: How) -> Logits:
    """TRL since 1.15: one tile at a time, recomputed for gradients that are summed in fp32."""
    wide, width = how.compute, BYTES[how.weights]
    words = min(_TILE[1], model.vocab) * model.hidden * wide if width != wide else 0
    several = how.tokens > _TILE[0] or model.vocab > _TILE[1]

    def tile(tokens: int) -> int:
        rows = model.hidden * wide if how.stream != wide else 0
        return min(_TILE[0], tokens) * (_TILE[1] * wide + rows) + words

    # In fp32, and cast.
    gradients = how.tokens * model.hidden * (4 + how.stream % 4)
    gradients += model.table * (4 + width % 4) if how.method == "full" else 0
    # The head weights of one tile are still alive when those of the next are cast.
    backward = tile(how.tokens) + (words if several else 0) + gradients
    return Logits(tile(how.tokens), backward, tile(how.eval_tokens))


def _checkpointed(model: Dimensions, how: How) -> Logits:
    """TRL since 1.7: chunks that are recomputed, with the head in fp32 and then in the type of autocast."""
    width = BYTES[how.weights]
    wide = how.compute if how.autocast else 4
    # The head in fp32, and its cast, which is kept for the gradients.
    head_copy = model.table * wide if wide != width or how.autocast else 0
    casts = head_copy + (model.table * 4 if width < 4 and how.autocast else 0)

    def part(tokens: int, head_copy: float) -> float:
        """Return the peak of a chunk: at the product, or at the softmax and its gradient."""
        each = min(_PART, tokens) * model.vocab
        return max(casts + each * wide, head_copy + each * (wide + 12))

    # The head's gradients of two chunks and their sum; or of one in fp32 and cast, with its inputs.
    head_gradient = head_copy + model.table * (4 + width) + min(_PART, how.tokens) * model.vocab * wide
    adding, sums = (
        (model.table * 12 if width == 4 else head_gradient, model.table * width) if how.method == "full" else (0, 0)
    )
    backward = max(sums + part(how.tokens, head_copy), adding)
    return Logits(part(how.tokens, 0), backward, part(how.eval_tokens, 0))


def _power(number: float) -> int:
    return 1 << max(0, math.ceil(number) - 1).bit_length()
