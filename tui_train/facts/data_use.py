"""What a training makes of data: whether it suits the method, and what an epoch of it is."""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from tui_train.base.parse import json_as
from tui_train.facts.data import DataLook, Method, Question

FORMATS = {
    "messages": "messages",
    "sharegpt": "ShareGPT",
    "alpaca": "Alpaca",
    "prompt_completion": "prompt + completion",
    "text": "text",
    "preference": "preference pairs",
    "kto": "KTO",
}
_CHATS = frozenset({"messages", "sharegpt"})
# With these TRL's trainers learn what the data means.
TAKES: dict[Method, tuple[str, ...]] = {
    "sft": ("messages", "sharegpt", "alpaca", "prompt_completion", "text"),
    "dpo": ("preference",),
    "kto": ("kto", "preference"),
    "reward": ("preference",),
}


def key(question: Question) -> str:
    """Return the key of a question in Facts."""
    return msgspec.json.encode(question).decode()


def all_learned(look: DataLook, question: Question) -> bool:
    """Return whether chats are learned whole, what the user says too."""
    chats = question.method == "sft" and look.format in _CHATS
    return chats and not (marked(look, question.method) if question.answers_only is None else question.answers_only)


def marked(look: DataLook, method: Method) -> bool:
    """Return whether the chat template marks what the assistant says, and its end, so that it is learned alone."""
    answers = look.answers
    return method == "sft" and look.format in _CHATS and answers.possible and not answers.caution


def format_of(files: tuple[str, ...], looks: Mapping[str, DataLook]) -> str:
    """Return the format of files that were looked at, whatever else was asked; empty where they were not."""
    for asked, look in looks.items():
        if json_as(asked.encode(), Question).files == files:
            return look.format
    return ""


class Epoch(Struct, frozen=True):
    """One pass through the data: its rows (for KTO, answers), tokens and steps, 0 where not known.

    `estimated`: not all was read or counted.
    """

    rows: int
    tokens: int = 0
    steps: int = 0
    estimated: bool = False


def methods(look: DataLook) -> tuple[Method, ...]:
    """Return the methods that can train on data of this format."""
    return tuple(method for method, formats in TAKES.items() if look.format in formats)


def unsuitable(look: DataLook, method: Method) -> str:
    """Return why data cannot be trained on by a method; empty where it can."""
    if look.format in TAKES[method]:
        return ""
    wanted = " or ".join(FORMATS[name] for name in TAKES[method])
    if not look.format:
        return f"the data has none of the known formats; {method} needs {wanted}"
    if look.format == "kto" and method == "sft":
        return "the data is KTO: its rejected answers (label false) would be learned too"
    return f"the data is {FORMATS[look.format]}, and {method} needs {wanted}"


def epoch(look: DataLook, method: Method, batch: int = 0) -> Epoch:
    """Return what one epoch is, with the steps of a global batch where it is given."""
    share = look.done / look.size if look.size and not look.all_read else 1.0
    lost = (look.tokens.unlearned if look.shares else look.tokens.lost) if look.tokens else 0
    answers = 2 if method == "kto" and look.format == "preference" else 1
    rows = round((look.usable - lost) * answers / (share or 1.0))
    tokens = round(look.tokens.epoch / (share or 1.0)) if look.tokens else 0
    estimated = not look.all_read or (look.tokens is not None and look.tokens.counted < look.usable)
    return Epoch(rows, tokens, -(-rows // batch) if batch else 0, estimated)
