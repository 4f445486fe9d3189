"""Lengths of rows in tokens, and how many rows each sequence length that may be chosen truncates."""

from __future__ import annotations

from typing import Any, NamedTuple

from data_formats import METHODS_OF_PROMPTS

# Steps of sequence lengths: 64 tokens up to 1,024, then eight from one power of two to the next (2,048, 2,304 …).
_LENGTH_STEP, _MAX_STEPPED_LENGTH = 64, 1024
_INDEX_WITHOUT_LEARNED_TOKEN = 1 << 40
# Bytes of a token where none can be counted: English has 4, code and other scripts fewer. And tokens around a turn.
_ASSUMED_BYTES_PER_TOKEN, _ASSUMED_TOKENS_PER_TURN = 3, 6


class RowTokenLengths(NamedTuple):
    """The lengths of a row's sequences in tokens, and the places of the first token that each learns."""

    lengths: tuple[int, ...]
    first_learned_indexes: tuple[int, ...]

    @property
    def length(self) -> int:
        """Of a pair the longer one."""
        return max(self.lengths)

    def has_learned_token_within(self, max_tokens: int, method: str) -> bool:
        """Return whether something is left to learn of what is cut after `max_tokens` tokens."""
        if method in METHODS_OF_PROMPTS:
            return True
        return (
            self.length <= max_tokens
            if method == "reward"
            else all(first < max_tokens for first in self.first_learned_indexes)
        )


def row_token_lengths(sequences: list[Any]) -> RowTokenLengths:
    """Return the lengths of a row of which each sequence has `ids` and what is `learned`."""
    firsts = (each.learned.index(True) if any(each.learned) else _INDEX_WITHOUT_LEARNED_TOKEN for each in sequences)
    return RowTokenLengths(tuple(len(each.ids) for each in sequences), tuple(firsts))


def length_statistics_and_truncation(
    rows: list[RowTokenLengths], method: str, limit: int, scale: float
) -> dict[str, Any]:
    """Return the lengths that 99 % of the rows have at most, and the longest, and what each sequence length cuts.

    For each length: rows that are longer, rows of which nothing is left to learn, tokens of an epoch. `limit` is the
    model's, which is one of them.
    """
    lengths = sorted(row.length for row in rows)
    at = []
    for most in candidate_lengths(lengths[-1], limit):
        left = [row for row in rows if row.has_learned_token_within(most, method)]
        epoch = sum(min(length, most) for row in left for length in row.lengths)
        cut = sum(length > most for length in lengths)
        at.append([most, _scaled_count(cut, scale), _scaled_count(len(rows) - len(left), scale), round(epoch * scale)])
    p99 = lengths[min(len(lengths) - 1, len(lengths) * 99 // 100)]
    return {"counted": len(rows), "p99": p99, "longest": lengths[-1], "at": at}


def candidate_lengths(longest: int, limit: int = 0) -> list[int]:
    """Return the sequence lengths that may be chosen, up to one that the longest row fits."""
    lengths: list[int] = []
    step, top = _LENGTH_STEP, _MAX_STEPPED_LENGTH
    while not lengths or lengths[-1] < longest:
        if lengths and lengths[-1] >= top:
            top, step = top * 2, step * 2
        lengths.append((lengths[-1] if lengths else 0) + step)
    return sorted({*lengths, limit} - {0})


def _scaled_count(count: int, scale: float) -> int:
    return max(1, round(count * scale)) if count else 0


def estimate_row_lengths_by_bytes(value: dict[str, Any]) -> RowTokenLengths:
    """Return a row's lengths by the bytes of its texts."""
    shared = sum(_estimate_tokens(value.get(name)) for name in ("messages", "prompt", "text"))
    answers = [_estimate_tokens(value[name]) for name in ("completion", "chosen", "rejected") if name in value]
    asked = shared if answers else 0
    return RowTokenLengths(tuple(shared + answer for answer in answers or [0]), tuple(asked for _ in answers or [0]))


def _estimate_tokens(text_or_turns: Any) -> int:
    if isinstance(text_or_turns, str):
        return len(text_or_turns.encode("utf-8", "replace")) // _ASSUMED_BYTES_PER_TOKEN + 1
    turns = text_or_turns if isinstance(text_or_turns, list) else []
    return sum(
        _estimate_tokens(turn.get("content")) + _ASSUMED_TOKENS_PER_TURN for turn in turns if isinstance(turn, dict)
    )
