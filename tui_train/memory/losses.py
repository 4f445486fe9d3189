"""The memory of logits and loss, in bytes, by how the loss is computed."""

import math

from msgspec import Struct

from tui_train.facts.models.dimensions import ModelDimensions
from tui_train.memory.types import BYTES_BY_DTYPE, MemorySettings

# TRL's losses since 1.15 and 1.7: never all logits at once, with a copy of the input of the head.
TRL_CHUNKED_LOSSES = frozenset({"tiled", "checkpointed"})
# Tokens and words of a tile of TRL's logits, and tokens of one chunk.
_TOKENS_AND_WORDS_PER_TILE = (4096, 32768)
_TOKENS_PER_CHUNK = 256


class LogitsMemory(Struct, frozen=True):
    """The peak of logits and their gradients: forward, at the start of backward, and in evaluation."""

    forward: float
    backward: float
    evaluation: float


def logits_memory(model: ModelDimensions, settings: MemorySettings) -> LogitsMemory:
    """Return the peak memory of the loss."""
    if settings.loss == "none":
        return LogitsMemory(0, 0, 0)
    functions = {
        "fused": _fused_logits_memory,
        "tiled": _tiled_logits_memory,
        "checkpointed": _checkpointed_logits_memory,
    }
    return functions.get(settings.loss, _unchunked_logits_memory)(model, settings)


def _unchunked_logits_memory(model: ModelDimensions, settings: MemorySettings) -> LogitsMemory:
    value_bytes = settings.compute_value_bytes
    # The logits, their fp32 cast if needed, and the log softmax.
    cast = value_bytes if value_bytes < 4 else 0
    forward: dict[str, float] = {
        "upcast": 4 + 4 + cast,
        "copied": 12 + cast,
        "plain": 4 * value_bytes,
        "fast": 8,
        "fast-copied": 8 + cast,
        # One of torchtune's eight chunks at a time; only logits are kept.
        "chunked": 2 * value_bytes,
        "compiled": value_bytes * 9 / 8,
    }
    # The log softmax, its gradient, and the gradient of the logits.
    backward: dict[str, float] = {"upcast": 12, "copied": 12}
    if model.type == "gemma2":
        # Its logits go through tanh, which keeps its output.
        forward, backward = ({name: size + value_bytes for name, size in each.items()} for each in (forward, backward))
    forward_bytes = forward[settings.loss]
    backward_bytes = backward.get(settings.loss, forward_bytes)
    each = model.vocab * min(value_bytes + 4, forward_bytes)
    return LogitsMemory(
        settings.micro_batch_tokens * model.vocab * forward_bytes,
        settings.micro_batch_tokens * model.vocab * backward_bytes,
        settings.eval_batch_tokens * each,
    )


def _fused_logits_memory(model: ModelDimensions, settings: MemorySettings) -> LogitsMemory:
    """Liger: one chunk per multiple of the hidden size in the vocabulary, gradients computed at once."""
    parts = _next_power_of_two(model.vocab / model.hidden)
    line = model.vocab * settings.compute_value_bytes
    trained = model.embedding_parameters * settings.compute_value_bytes if settings.trained == "full" else 0
    gradients = settings.micro_batch_tokens * model.hidden * settings.compute_value_bytes + trained
    first, evaluated = (
        min(tokens, _next_power_of_two(tokens / parts))
        for tokens in (settings.micro_batch_tokens, settings.eval_batch_tokens)
    )
    return LogitsMemory(first * line + gradients, gradients, evaluated * line)


def _tiled_logits_memory(model: ModelDimensions, settings: MemorySettings) -> LogitsMemory:
    """TRL since 1.15: one tile at a time, recomputed for gradients that are summed in fp32."""
    value_bytes, width = settings.compute_value_bytes, BYTES_BY_DTYPE[settings.weight_dtype]
    cast_weights = (
        min(_TOKENS_AND_WORDS_PER_TILE[1], model.vocab) * model.hidden * value_bytes if width != value_bytes else 0
    )
    several = settings.micro_batch_tokens > _TOKENS_AND_WORDS_PER_TILE[0] or model.vocab > _TOKENS_AND_WORDS_PER_TILE[1]

    def tile(tokens: int) -> int:
        rows = model.hidden * value_bytes if settings.residual_value_bytes != value_bytes else 0
        return (
            min(_TOKENS_AND_WORDS_PER_TILE[0], tokens) * (_TOKENS_AND_WORDS_PER_TILE[1] * value_bytes + rows)
            + cast_weights
        )

    # In fp32, and cast.
    gradients = settings.micro_batch_tokens * model.hidden * (4 + settings.residual_value_bytes % 4)
    gradients += model.embedding_parameters * (4 + width % 4) if settings.trained == "full" else 0
    # The head weights of one tile are still alive when those of the next are cast.
    backward = tile(settings.micro_batch_tokens) + (cast_weights if several else 0) + gradients
    return LogitsMemory(tile(settings.micro_batch_tokens), backward, tile(settings.eval_batch_tokens))


def _checkpointed_logits_memory(model: ModelDimensions, settings: MemorySettings) -> LogitsMemory:
    """TRL since 1.7: chunks that are recomputed, with the head in fp32 and then in the type of autocast."""
    width = BYTES_BY_DTYPE[settings.weight_dtype]
    value_bytes = settings.compute_value_bytes if settings.autocast else 4
    # The head in fp32, and its cast, which is kept for the gradients.
    head_copy = model.embedding_parameters * value_bytes if value_bytes != width or settings.autocast else 0
    casts = head_copy + (model.embedding_parameters * 4 if width < 4 and settings.autocast else 0)

    def chunk_peak(tokens: int, head_copy: float) -> float:
        """Return the peak of a chunk: at the product, or at the softmax and its gradient."""
        each = min(_TOKENS_PER_CHUNK, tokens) * model.vocab
        return max(casts + each * value_bytes, head_copy + each * (value_bytes + 12))

    # The head's gradients of two chunks and their sum; or of one in fp32 and cast, with its inputs.
    head_gradient = (
        head_copy
        + model.embedding_parameters * (4 + width)
        + min(_TOKENS_PER_CHUNK, settings.micro_batch_tokens) * model.vocab * value_bytes
    )
    head_peak, sums = (
        (model.embedding_parameters * 12 if width == 4 else head_gradient, model.embedding_parameters * width)
        if settings.trained == "full"
        else (0, 0)
    )
    backward = max(sums + chunk_peak(settings.micro_batch_tokens, head_copy), head_peak)
    return LogitsMemory(chunk_peak(settings.micro_batch_tokens, 0), backward, chunk_peak(settings.eval_batch_tokens, 0))


def _next_power_of_two(number: float) -> int:
    return 1 << max(0, math.ceil(number) - 1).bit_length()
