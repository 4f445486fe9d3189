"""What lines tell, in the words of the built-in trainer, HF Trainer, tqdm and a preset: step, loss, rate and so on."""

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


# An expression of a preset sees no more of a line: the longest takes it too long otherwise.
_MOST = 500


class Reading(Struct, frozen=True):
    """How a run's lines are read besides: its preset's expressions, and how many steps its plan has (0: unknown)."""

    expressions: tuple[re.Pattern[str], ...] = ()
    steps: int = 0


USUAL = Reading()


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


def advance(progress: Progress, lines: Iterable[str], reading: Reading = USUAL) -> Progress:
    """Return the progress after more lines; a step that is told again (after a resume) replaces what came after it."""
    told = _Told(progress, reading.steps)
    for line in lines:
        found = next(filter(None, (_found_in(expression, line) for expression in reading.expressions)), None)
        if found:
            told.own(found)
        else:
            told.known(line)
    return told.progress()


class _Told:
    """The progress while lines are read."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self.step = progress.step
        self.steps = progress.steps or steps
        self.rate = progress.tokens_per_second
        self.lr = progress.learning_rate
        self.points = list(progress.points)

    def own(self, told: dict[str, str]) -> None:
        """Take what an expression of the preset found."""
        numbers = {name: _float(text) for name, text in told.items()}
        for name in ("step", "steps"):
            if math.isfinite(numbers.get(name, math.nan)):
                setattr(self, name, int(numbers[name]))
        if "loss" in numbers:
            _add(self.points, self.step, numbers["loss"])
        self.lr = numbers.get("lr", self.lr)
        self.rate = numbers.get("tokens_per_second", self.rate)

    def known(self, line: str) -> None:
        """Take what a line of a known form tells."""
        if line.startswith("step ") and (found := _STEP.match(line)):
            self.step, self.steps = int(found[1]), int(found[2])
            _add(self.points, self.step, _float(found[3]))
            self.rate = _search(_RATE, line, self.rate)
            self.lr = _search(_LR, line, self.lr)
        elif line.startswith("start ") and (found := _START.match(line)):
            self.step, self.steps = int(found[1]), int(found[2])
        elif "'" in line and (found := _DICT.search(line)):
            told = _hf(found[0])
            self.lr = told.get("learning_rate", self.lr)
            if "loss" in told:
                _add(self.points, self.step, told["loss"])
        elif "[" in line and (found := _TQDM.search(line)):
            self.step, self.steps = int(found[1]), int(found[2])

    def progress(self) -> Progress:
        """Return it."""
        return Progress(
            step=self.step,
            steps=self.steps,
            tokens_per_second=self.rate,
            learning_rate=self.lr,
            points=tuple(self.points),
        )


def _found_in(expression: re.Pattern[str], line: str) -> dict[str, str]:
    """Return the named groups that took part in a match; none where the line does not match."""
    found = expression.search(line[:_MOST])
    return {name: text for name, text in found.groupdict().items() if text} if found else {}


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
