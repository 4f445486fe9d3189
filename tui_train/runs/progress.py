"""What lines tell of the built-in trainer, HF Trainer and tqdm: step, loss, learning rate, tokens per second."""

import ast
import math
import re
from collections.abc import Iterable

from msgspec import Struct

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)"
_STEP = re.compile(rf"^step (\d+)/(\d+) \| loss ({_NUMBER})", re.IGNORECASE)
_RATE = re.compile(rf"\| tokens/s ({_NUMBER})")
_LR = re.compile(rf"\| lr ({_NUMBER})")
_START = re.compile(r"^start \| (?:resumed from .* at )?step (\d+) of (\d+)$")
_DICT = re.compile(r"\{'(?:loss|eval_loss|train_runtime|train_loss)'.*?\}")
# Only bars without a caption, or with one for steps: not those of data that is mapped or weights that are loaded.
_TQDM = re.compile(r"^(?:(?:epoch|train|step|iter)[^|]*:)?\s*\d+%\|.*?\b(\d+)/(\d+) \[(?:\d+:)?\d+:\d+<", re.IGNORECASE)


class Point(Struct, frozen=True):
    """The loss at a step."""

    step: int
    loss: float


class Progress(Struct, frozen=True, kw_only=True):
    """How far a training is; 0 and None are "not told yet". `points` are in the order of the steps."""

    step: int = 0
    steps: int = 0
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    points: tuple[Point, ...] = ()

    @property
    def first(self) -> Point | None:
        """The first loss that was told."""
        return self.points[0] if self.points else None

    @property
    def last(self) -> Point | None:
        """The newest loss that was told."""
        return self.points[-1] if self.points else None


def advance(progress: Progress, lines: Iterable[str]) -> Progress:
    """Return the progress after more lines; a step that is told again (after a resume) replaces what came after it."""
    step, steps, rate, lr = progress.step, progress.steps, progress.tokens_per_second, progress.learning_rate
    points = list(progress.points)
    for line in lines:
        if line.startswith("step ") and (found := _STEP.match(line)):
            step, steps = int(found[1]), int(found[2])
            _add(points, step, _float(found[3]))
            rate = _search(_RATE, line, rate)
            lr = _search(_LR, line, lr)
        elif line.startswith("start ") and (found := _START.match(line)):
            step, steps = int(found[1]), int(found[2])
        elif "'" in line and (found := _DICT.search(line)):
            told = _hf(found[0])
            lr = told.get("learning_rate", lr)
            if "loss" in told:
                _add(points, step, told["loss"])
        elif "[" in line and (found := _TQDM.search(line)):
            step, steps = int(found[1]), int(found[2])
    return Progress(step=step, steps=steps, tokens_per_second=rate, learning_rate=lr, points=tuple(points))


def _add(points: list[Point], step: int, loss: float) -> None:
    while points and points[-1].step >= step > 0:
        points.pop()
    points.append(Point(step, loss))


def _search(pattern: re.Pattern[str], line: str, otherwise: float | None) -> float | None:
    found = pattern.search(line)
    return _float(found[1]) if found else otherwise


def _hf(text: str) -> dict[str, float]:
    """Read the dictionary that HF Trainer prints; transformers 5 quotes its numbers."""
    try:
        told = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    values = {}
    for name, value in told.items():
        try:
            values[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return values


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
