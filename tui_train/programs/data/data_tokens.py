"""Counts the tokens of rows, and shows samples with the part that is learned."""

from __future__ import annotations

import json
import time
from typing import Any

import data_images as images
import data_lengths as lengths
import data_template as template
from data_bounds import BoundError
from data_tally import KeptRow, ProblemTally, truncated_path

# A template that takes too much time takes it for each row.
MAX_ROWS_OVER_BOUNDS = 2
_MAX_SHOWN_CHARACTERS = 3000
_MAX_HISTOGRAM_BINS = 48
_LONGEST_ROW_COUNT = 4
_STATE_BY_COLUMN = dict.fromkeys(("messages", "text", "completion", "chosen"), "learned") | {"rejected": "rejected"}
_TextAndState = list[str]


class TokenLengthTally:
    """Lengths of rows in tokens, as they are counted; of a pair, the longer of the two is its length."""

    def __init__(self, max_tokens: int, method: str) -> None:
        self.max_tokens, self.method = max_tokens, method
        self.longest: list[tuple[int, str, int]] = []
        self.tokens = self.learned = self.cut = self.lost = self.epoch = 0
        # Of each file: rows that were counted, those lost, tokens of an epoch, and rows that were refused.
        self.files: dict[str, list[int]] = {}
        self.rows: list[lengths.RowTokenLengths] = []
        self.refused_count, self.first_refusal = 0, ""

    def add(self, row: KeptRow, sequences: list[template.EncodedSequence]) -> None:
        """Count a row."""
        counted = lengths.row_token_lengths(sequences)
        self.rows.append(counted)
        self.tokens += sum(counted.lengths)
        self.learned += sum(map(sum, (sequence.learned for sequence in sequences)))
        self.longest = sorted([*self.longest, (counted.length, truncated_path(row.file), row.line)], reverse=True)[
            :_LONGEST_ROW_COUNT
        ]
        most = self.max_tokens or counted.length
        self.cut += counted.length > most
        left = counted.has_learned_token_within(most, self.method)
        epoch = sum(min(length, most) for length in counted.lengths) if left else 0
        self.lost += not left
        self.epoch += epoch
        self._add_file_counts(row, 1, int(not left), epoch, 0)

    def add_refused(self, row: KeptRow, why: str) -> None:
        """Count a row that the template refuses, and keep what it says of the first one."""
        self.refused_count += 1
        self.first_refusal = self.first_refusal or why
        self._add_file_counts(row, 0, 0, 0, 1)

    def _add_file_counts(self, row: KeptRow, *counts: int) -> None:
        before = self.files.get(row.file, [0] * len(counts))
        self.files[row.file] = [total + more for total, more in zip(before, counts, strict=True)]

    def summary(self, usable_rows: int) -> dict[str, Any]:
        """Return the numbers for all `usable_rows`, of which those that were counted are a fair sample."""
        ordered, scale = sorted(row.length for row in self.rows), usable_rows / len(self.rows)
        return {
            "counted": len(ordered),
            "total": round(self.tokens * scale),
            "learned": round(self.learned * scale),
            "epoch": round(self.epoch * scale),
            "shortest": ordered[0],
            "median": ordered[len(ordered) // 2],
            "p95": ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)],
            "longest": ordered[-1],
            "longest_rows": [{"file": file, "line": line, "tokens": count} for count, file, line in self.longest],
            "cut": round(self.cut * scale),
            "lost": round(self.lost * scale),
            "histogram": _length_histogram(ordered),
        }


def _length_histogram(ordered: list[int]) -> list[int]:
    """Return how many lie in each of equal steps from 0 to the longest."""
    longest = max(ordered)
    counts = [0] * min(_MAX_HISTOGRAM_BINS, longest)
    for length in ordered if longest else ():
        counts[max(0, length - 1) * len(counts) // longest] += 1
    return counts


def tally_token_lengths(
    encoder: template.RowEncoder, rows: list[KeptRow], problems: ProblemTally, question: dict[str, Any]
) -> TokenLengthTally:
    """Return the lengths of rows, and which of them the template refused."""
    counted, bound_met = TokenLengthTally(question["length"], question["method"]), 0
    ends = time.monotonic() + question["seconds"]
    for row in rows:
        if time.monotonic() > ends and (counted.rows or counted.refused_count):
            break
        try:
            sequences = encoder.encode(row.value)
        except Exception as error:  # noqa: BLE001 - a template is a program of the model's
            why = template.first_line_of_error(error)
            counted.add_refused(row, why)
            problems.add("refused", row.file, row.line, f"is refused by the template: {why}")
            bound_met += isinstance(error, BoundError)
            if bound_met >= MAX_ROWS_OVER_BOUNDS or (counted.refused_count >= 200 and not counted.rows):
                break
            continue
        counted.add(row, sequences)
    return counted


def sample_as_model_reads_it(
    encoder: template.RowEncoder, row: KeptRow, question: dict[str, Any]
) -> dict[str, Any] | None:
    """Return a sample in pieces as the model reads it: [text, state]; None where it is refused.

    A state is "read", "learned", "rejected" or "cut".
    """
    try:
        sequences = encoder.encode(row.value)
    except Exception:  # noqa: BLE001 - it was counted and named before
        return None
    pieces: list[_TextAndState] = []
    for number, (ids, learned) in enumerate(sequences):
        # Of a pair the second one is shown from where it differs.
        mark, first = ("rejected", learned.index(True) if any(learned) else len(ids)) if number else ("learned", 0)
        states = [mark if learns else "read" for learns in learned]
        if question["length"]:
            states[question["length"] :] = ["cut"] * max(0, len(ids) - question["length"])
        shown_ids, states = _without_repeated_image_tokens(encoder, ids, states)
        if number:
            pieces.append(["\n\n", "read"])
        pieces += _split_by_state(encoder.tokenizer, shown_ids, states, first)
    tokens = max(len(sequence.ids) for sequence in sequences)
    return _shortened_sample(row, pieces, tokens, sum(sequences[0].learned))


def _shortened_sample(row: KeptRow, pieces: list[_TextAndState], tokens: int = 0, learned: int = 0) -> dict[str, Any]:
    """Return a sample whose pieces are cut where they are too long to be shown."""
    left, shown = _MAX_SHOWN_CHARACTERS, []
    for text, state in pieces:
        if left > 0 and text:
            shown.append([text[:left], state])
        left -= len(text)
    return {
        "file": truncated_path(row.file),
        "line": row.line,
        "pieces": shown,
        "tokens": tokens,
        "learned": learned,
        "shortened": left < 0,
        "images": images.described_images(row.value),
    }


def _without_repeated_image_tokens(
    encoder: template.RowEncoder, ids: list[int], states: list[str]
) -> tuple[list[int], list[str]]:
    """Return tokens and their states with one token for each image, which is all that is shown of it."""
    if encoder.image_tokens is None:
        return ids, states
    kept = [at for at in range(len(ids)) if not encoder.image_tokens.is_repeated_image_token(ids, at)]
    return [ids[at] for at in kept], [states[at] for at in kept]


def _split_by_state(tokenizer: Any, ids: list[int], states: list[str], start: int) -> list[_TextAndState]:
    """Return the text of tokens from a first one on, split where their state changes."""
    pieces, before = [], tokenizer.decode(ids[:start], clean_up_tokenization_spaces=False)
    for at in range(start + 1, len(ids) + 1):
        if at == len(ids) or states[at] != states[start]:
            # A token's text may depend on those before it.
            decoded = tokenizer.decode(ids[:at], clean_up_tokenization_spaces=False)
            pieces.append([decoded[len(before) :], states[start]])
            start, before = at, decoded
        if sum(len(text) for text, _ in pieces) > _MAX_SHOWN_CHARACTERS:
            break
    return pieces


def _content_as_text(content: Any) -> Any:
    """Return parts as one text, each image as its mark; what is no list of parts as it is."""
    if not isinstance(content, list):
        return content
    return "".join(
        str(part.get("text") or (images.IMAGE_MARK if part.get("type") == "image" else "")) for part in content
    )


def sample_without_tokenizer(row: KeptRow, *, answers_only: bool | None) -> dict[str, Any]:
    """Return a sample without a tokenizer: each text with its role, and which part would be learned.

    Of a chat with `answers_only` None that is none: the model's template decides.
    """
    value, pieces = row.value, []
    for name in ("messages", "prompt", "text", "completion", "chosen", "rejected"):
        field_value = value.get(name)
        if field_value is None:
            continue
        for turn in field_value if isinstance(field_value, list) else [{"role": name, "content": field_value}]:
            content = _content_as_text(turn.get("content"))
            text = content if isinstance(content, str) else json.dumps(content or turn.get("tool_calls"), default=str)
            state = _STATE_BY_COLUMN.get(name, "read")
            if name == "messages" and (answers_only is None or (answers_only and turn["role"] != "assistant")):
                state = "read"
            pieces.append([f"{turn['role']}: {text}\n", state])
    return _shortened_sample(row, pieces)
