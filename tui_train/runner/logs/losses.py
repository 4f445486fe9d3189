"""The losses that a line of a log or a record reports: of the training, and of an evaluation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

# `2.31`, `1e-05`, `12,345.6`; nothing of `0,5`, `12_345`, `1.2.3`, which would be another number.
NUMBER_PATTERN = (
    r"[-+]?(?:(?:\d+\.?\d*|\.\d+|[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?)(?:e[-+]?\d+)?|nan|inf)(?![\d_]|[.,]\d|e[-+]?\d)"
)
ASSIGNMENT_PATTERN = r"[ :=\[]{1,12}"
# `train_loss=2.1`, `val loss 2.1`, `loss: tensor(2.1, …)`, `loss train: 2.1`, `loss (batch)=2.1`; not `loss 2.1 -> 1.9`
# and `packet loss: 5%`.
_LOSS_ASSIGNMENT_PATTERN = re.compile(
    r"(?<![\w.-])((?:\w{1,24}[/.])?\w{0,40}loss(?:[/.]?\w{1,40})?)"
    r"(?: (?P<word>train|val|value)| \((?P<bracketed>train|val|valid|eval|batch|mean|avg|total)\))?"
    rf"{ASSIGNMENT_PATTERN}"
    rf"(?:tensor\()?(?P<number>{NUMBER_PATTERN})(?![.e]|\s*(?:->|%))",
    re.IGNORECASE,
)
_LOSS_WORD_PATTERN = re.compile("[lL][oO][sS][sS]")
_MAX_CHARACTERS_BEFORE_LOSS = 24 + 1 + 40  # of a name in the expression above
# What a line is about from this word on; `valid tokens` and a metric's name such as `val_acc` are other things.
_TRAIN_OR_EVALUATION_WORD_PATTERN = re.compile(
    r"(?<![\w./-])(?:(train|training|trn)|(valid|validation|validating|val|eval|evaluation|evaluating|dev|test|testing))"
    r"(?![\w-]|[./]\w| (?:tokens|labels|every|\d))",
    re.IGNORECASE,
)
# A word behind `loss` that says of which data it is; others say how it was counted (`loss (avg)`).
_DATA_SPLIT_WORDS = frozenset({"train", "val", "valid", "eval"})
# The word before `loss`: what is a part of a loss, or that of another time.
_WORD_BEFORE_LOSS_PATTERN = re.compile(r"([a-z]+) $", re.IGNORECASE)
_WORD_FOR_ANOTHER_STEP_PATTERN = re.compile("best|min|minimum|lowest|last|final|initial|first|previous|prev|target")
_WORD_FOR_WHOLE_LOSS_PATTERN = re.compile("train|training|trn|lm|total|avg|average|mean|running|batch|step|")
_MEGATRON_EVALUATION_PATTERN = re.compile(
    rf"\bvalidation loss at iteration (\d{{1,15}})(?: on validation set)? \|.{{0,80}}?loss value: ({NUMBER_PATTERN})",
    re.IGNORECASE,
)
_MEGATRON_EVALUATION_START_PATTERN = re.compile(r"\bvalidation loss at iteration ", re.IGNORECASE)

_TRAIN_WORD_PATTERN = r"(?:reduced_)?(?:train|training|trn|tr)"
_EVALUATION_WORD_PATTERN = r"(?:val|valid|validation|eval|evaluation|dev)"
_SCOPE_WORD_PATTERN = r"(?:epoch_|step_|avg_|mean_|total_|lm_|running_)?"
_TRAIN_LOSS_NAME_PATTERN = re.compile(
    rf"{_TRAIN_WORD_PATTERN}_{_SCOPE_WORD_PATTERN}loss(?:_step)?|{_SCOPE_WORD_PATTERN}loss_{_TRAIN_WORD_PATTERN}"
)
_EVALUATION_LOSS_NAME_PATTERN = re.compile(
    rf"{_EVALUATION_WORD_PATTERN}_{_SCOPE_WORD_PATTERN}loss(?:_epoch)?|{_SCOPE_WORD_PATTERN}loss_{_EVALUATION_WORD_PATTERN}"
)
_EVALUATION_SET_LOSS_NAME_PATTERN = re.compile(r"eval_\w{1,60}_loss")
_PLAIN_LOSS_NAME_PATTERN = re.compile(
    r"(?:step|total|batch|avg|average|mean|running|lm)?_?loss(?:_step|_total|_avg|_mean)?"
)

LossKind = Literal["train", "plain", "eval", "set", ""]


class LineLosses(NamedTuple):
    """The losses that a line reports, as text; empty where it reports none.

    `is_train_loss_named`: as the training's. `reports_a_loss`: even if only a part of one. `step` is what
    only the line of an evaluation says, 0 where it does not.
    """

    train: str = ""
    evaluation: str = ""
    is_train_loss_named: bool = False
    reports_a_loss: bool = False
    step: int = 0


@lru_cache(maxsize=512)
def loss_kind(name: str) -> LossKind:
    """Return of what a name's loss is: the training's, a plain one, an evaluation's, that of one of its sets."""
    name = re.sub(r"[/. -]", "_", name.strip().lower())
    if _TRAIN_LOSS_NAME_PATTERN.fullmatch(name):
        return "train"
    if _PLAIN_LOSS_NAME_PATTERN.fullmatch(name):
        return "plain"
    if _EVALUATION_LOSS_NAME_PATTERN.fullmatch(name):
        return "eval"
    return "set" if _EVALUATION_SET_LOSS_NAME_PATTERN.fullmatch(name) else ""


def losses_in_line(line: str) -> LineLosses:
    """Return the losses that a line reports: of several of the training the one that is named as such, or the whole."""
    if "alidation loss at" in line and _MEGATRON_EVALUATION_START_PATTERN.search(line):
        match = _MEGATRON_EVALUATION_PATTERN.search(line)
        return LineLosses(evaluation=match[2], step=int(match[1]), reports_a_loss=True) if match else LineLosses()
    best, train, evaluation = 0, "", ""
    reports = named = False
    for match in _loss_assignments(line):
        reports = True
        kind_here = _loss_kind_in_line(line, match)
        worth = {"train": 3, "plain": 2, "part": 1}.get(kind_here, 0)
        if kind_here == "eval" and not evaluation:
            evaluation = match["number"]
        elif worth > best:
            best, train, named = worth, match["number"], kind_here == "train"
    return LineLosses(train, evaluation, named, reports)


def text_after_evaluation_word(line: str) -> str | None:
    """Return what stands behind the word by which a line is about an evaluation; None where it is not about one."""
    words = _train_or_eval_word_ends(line)
    return next(line[at:] for at, said in words if said == "eval") if words and words[-1][1] == "eval" else None


def _train_or_eval_word_ends(line: str) -> list[tuple[int, str]]:
    """Return where the words stand that say what a line is about, and what they say."""
    lower = line.lower()
    if "tr" not in lower and "val" not in lower and "test" not in lower and "dev" not in lower:
        return []
    return [
        (match.end(), "train" if match[1] else "eval") for match in _TRAIN_OR_EVALUATION_WORD_PATTERN.finditer(line)
    ]


def _loss_assignments(line: str) -> Iterator[re.Match[str]]:
    """Yield what assigns a loss; only near that word, as the expression is slow where there is none."""
    at = 0
    while word := _LOSS_WORD_PATTERN.search(line, at):
        match = _LOSS_ASSIGNMENT_PATTERN.search(line, max(at, word.start() - _MAX_CHARACTERS_BEFORE_LOSS))
        if match is None:
            return
        yield match
        at = match.end()


def _loss_kind_in_line(line: str, match: re.Match[str]) -> str:
    """Return of what a loss in a line is: `part` where a word that is not usual stands before it."""
    word = (match["word"] or match["bracketed"] or "").lower()
    named = loss_kind(f"{match[1]}_{word}" if word in _DATA_SPLIT_WORDS else match[1])
    if named in {"train", "eval", "set", ""}:
        return "" if named == "set" else named
    before = _WORD_BEFORE_LOSS_PATTERN.search(line, max(0, match.start() - 24), match.start())
    word = before[1].lower() if before else ""
    if _WORD_FOR_ANOTHER_STEP_PATTERN.fullmatch(word):
        return ""
    words = reversed(_train_or_eval_word_ends(line))
    role = next((said for at, said in words if at <= match.start()), "plain")
    return "part" if role == "plain" and not _WORD_FOR_WHOLE_LOSS_PATTERN.fullmatch(word) else role
