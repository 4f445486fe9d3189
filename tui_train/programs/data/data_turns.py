"""Finds the token with which a chat template ends an assistant's turn, and whether a model stops at it by itself."""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import data_bounds as bounds

# In the folder of the data, for the training to read.
TURN_END_FILE_NAME = ".end"
_TEST_ANSWER = "Answer 7341 of the turn."
_TEST_TURNS = [
    {"role": "user", "content": "Question 7340."},
    {"role": "assistant", "content": "Answer 7339 before it."},
    {"role": "user", "content": "Question 7342."},
    {"role": "assistant", "content": _TEST_ANSWER},
]


class TurnEndTokens(NamedTuple):
    """The token that ends a turn, the tokenizer's end, and the one to pass to TRL; empty for none."""

    turn: str = ""
    eos: str = ""
    passed: str = ""


def find_turn_end_tokens(tokenizer: Any, model: str, revision: str = "") -> TurnEndTokens:
    """Return how turns of a model end: by its tokenizer's template, its tokenizer and its generation_config.json."""
    turn, eos = turn_end_token(tokenizer), tokenizer.eos_token or ""
    return TurnEndTokens(turn, eos, end_token_to_pass(turn, eos, _generation_stop_tokens(tokenizer, model, revision)))


def turn_end_sentence(ends: TurnEndTokens) -> str:
    """Return what is passed as the end, and why."""
    own = f"the tokenizer's end is {ends.eos}" if ends.eos else "the tokenizer has no end"
    return f"turns end with {ends.turn}, {own}: it is passed as the end token"


def end_token_to_pass(turn_token: str, eos_token: str, stop_tokens: tuple[str, ...]) -> str:
    """Return the token to train with as the end, empty where the model stops at the end of a turn anyway."""
    return "" if not turn_token or turn_token == eos_token or turn_token in stop_tokens else turn_token


def turn_end_token(tokenizer: Any) -> str:
    """Return the token of its own with which the template ends the last turn, empty where there is none."""
    if not tokenizer.chat_template:
        return ""
    with contextlib.suppress(Exception), bounds.limit_memory_and_time():  # a template is a program of the model's
        text = str(tokenizer.apply_chat_template(_TEST_TURNS, tokenize=False))
        return first_known_token(
            text.rpartition(_TEST_ANSWER)[2] if _TEST_ANSWER in text else "",
            # These are one token each, whatever stands around them.
            {*tokenizer.get_added_vocab(), *tokenizer.all_special_tokens},
        )
    return ""


def first_known_token(text: str, tokens: set[str]) -> str:
    """Return the token that stands first in a text, the longest of several at one place; empty where there is none."""
    places = [(text.index(token), -len(token), token) for token in tokens if token and token in text]
    return min(places)[2] if places else ""


def _generation_stop_tokens(tokenizer: Any, model: str, revision: str) -> tuple[str, ...]:
    """Return the tokens at which `generate` stops by the model's generation_config.json, none where it has none."""
    # A folder may hold a tokenizer alone, and a file what is no number.
    with contextlib.suppress(Exception):
        from transformers import GenerationConfig

        how = {"revision": revision or "main", "local_files_only": True}
        numbers = GenerationConfig.from_pretrained(model, **how).eos_token_id
        listed = numbers if isinstance(numbers, list) else [numbers]
        return tuple(str(tokenizer.convert_ids_to_tokens(number)) for number in listed if number is not None)
    return ()
