"""What the lines of most trainers, their progress bars and a preset tell: step, loss, learning rate and so on."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from .curve import Curve, Growing, Point
from .evaluations import IS as _IS
from .evaluations import NUMBER as _NUMBER
from .evaluations import in_line, in_values
from .lines import without_rank
from .step_lines import MOST_DIGITS, count, step_of

_LOSS = re.compile(
    rf"(?<![\w/-])(?<!val )(?<!eval )(?<!test )(?<!dev )(?<!valid )(?<!validation )(?<!evaluation )"
    rf"(?:(?:reduced_)?train(?:ing)?_|step_)?loss{_IS}({_NUMBER})(?![\d.e]|\s*->)",
    re.IGNORECASE,
)
_RATE = re.compile(rf"(?<![\w/-])(?:tokens/s(?:ec)?|tok/s|tps|tokens_per_sec(?:ond)?){_IS}({_NUMBER})", re.IGNORECASE)
_LR = re.compile(rf"(?<![\w/-])(?:lr|learning[_ ]rate){_IS}({_NUMBER})", re.IGNORECASE)
_NORM = re.compile(rf"(?<![\w/-])(?:grad(?:ient)?|global_grad)[_ ]?norm{_IS}({_NUMBER})", re.IGNORECASE)
# All that were seen so far, not those of a step.
_TOKENS = re.compile(r"(?<![\w/-])(?:num_tokens|num_input_tokens_seen|(?:consumed|total)[_ ]tokens|tokens[_ ]seen)"
                     rf"{_IS}({_NUMBER})", re.IGNORECASE)  # fmt: skip
_TOKEN_NAMES = ("num_tokens", "num_input_tokens_seen", "total_tokens")
_DEEPSPEED = re.compile(rf"\bstep=(\d+), skipped=\d+, lr=\[({_NUMBER})")
# Not a number, as Python prints it.
_BARE = re.compile(r":\s*(-?(?:nan|inf))\b")
_DICT = re.compile(r"\{'(?:loss|eval_(?:\w{1,60}_)?loss|train_runtime|train_loss)'.*?\}")
# Only bars without a caption, or with one for steps: not those of data that is mapped or weights that are loaded.
_TQDM = re.compile(r"^(?:(?:epoch|train|step|iter)[^|]*:)?\s*\d+%\|.*?\b(\d+)/(\d+) \[(?:\d+:)?\d+:\d+<", re.IGNORECASE)


# An expression of a preset sees no more of a line, and our own no more than this: the longest takes it too long.
_MOST = 500
_LONGEST = 4000


class Reading(NamedTuple):
    """How a run's lines are read besides: its preset's expressions, and how many steps its plan has (0: unknown)."""

    expressions: tuple[re.Pattern[str], ...] = ()
    steps: int = 0


USUAL = Reading()


class Progress(NamedTuple):
    """How far a training is; 0 and None are "not told yet". `told` says that its lines tell steps, not a bar alone.

    `evaluations` are the losses of evaluations by step, `tokens` how many were seen, where the log reports that.
    """

    step: int = 0
    steps: int = 0
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    curve: Curve = Curve()
    told: bool = False
    evaluations: Curve = Curve()
    tokens: int = 0

    @property
    def first(self) -> Point | None:
        """The first loss that was told."""
        return self.curve.first

    @property
    def last(self) -> Point | None:
        """The newest loss that was told."""
        return self.curve.last

    @property
    def best(self) -> Point | None:
        """The lowest loss of an evaluation."""
        finite = (point for point in self.evaluations.points() if math.isfinite(point.loss))
        return min(finite, key=lambda point: point.loss, default=None)


def advance(progress: Progress, lines: Iterable[str], reading: Reading = USUAL) -> Progress:
    """Return the progress after more lines; a step that is told again (after a resume) replaces what came after it.

    It costs as much as there are new lines, however long the curve is.
    """
    parser = _Parser(progress, reading.steps)
    for line in lines:
        match = next(filter(None, (_found_in(expression, line) for expression in reading.expressions)), None)
        if match:
            parser.own(match)
        else:
            parser.known(line)
    return parser.progress()


class _Parser:
    """The progress while lines are read."""

    def __init__(self, progress: Progress, steps: int) -> None:
        self.step = progress.step
        self.steps = progress.steps or steps
        self.rate = progress.tokens_per_second
        self.lr = progress.learning_rate
        self.norm = progress.gradient_norm
        self.points = Growing(progress.curve)
        self.told = progress.told
        self.evaluations = Growing(progress.evaluations)
        self.tokens = progress.tokens

    def own(self, values: dict[str, str]) -> None:
        """Take what an expression of the preset found."""
        numbers = {name: _float(text) for name, text in values.items()}
        self.step = _whole(numbers.get("step"), self.step)
        self.steps = _whole(numbers.get("steps"), self.steps)
        self.lr = _or(numbers.get("lr"), self.lr)
        self.norm = _or(numbers.get("grad_norm"), self.norm)
        self.rate = _or(numbers.get("tokens_per_second"), self.rate)
        self._add(numbers.get("loss"))
        self._evaluated(numbers.get("eval_loss"))

    def known(self, line: str) -> None:
        """Take what a line of a known form tells."""
        line = without_rank(line)[:_LONGEST]
        if "'" in line and (match := _DICT.search(line)):
            self._dictionary(_hf(match[0]))
        elif "[" in line and (match := _TQDM.search(line)):
            # A bar may be of something else, where the training tells its steps in lines.
            if not self.told:
                self._counts(match)
            self._values(line[match.end() :])
        elif "oss" in line:
            self._losses(line)
        elif "skipped=" in line and (match := _DEEPSPEED.search(line)):
            self.step = _whole(count(match[1]), self.step)
            self.lr = _or(_float(match[2]), self.lr)

    def _losses(self, line: str) -> None:
        """Take the training's loss, an evaluation's, or both from a line."""
        found = in_line(line)
        if not (found and found.alone) and _LOSS.search(line) and self._stepped(line):
            self._values(line)
        elif found:
            step, _, _ = step_of(line) or (found.step, 0, False)
            self._evaluated(_float(found.loss), found.step or step)

    def _counts(self, match: re.Match[str]) -> None:
        """Take a step and the number of steps; neither where one is too long for a count."""
        step, steps = count(match[1]), count(match[2])
        if step is not None and steps is not None:
            self.step, self.steps = step, steps

    def _stepped(self, line: str) -> bool:
        """Take the step that a line tells; false where it tells none."""
        values = step_of(line)
        if values is None:
            return False
        step, steps, nemo = values
        self.step, self.steps = step, max(self.steps, steps) if nemo else steps or self.steps
        self.told = True
        return True

    def _values(self, text: str) -> None:
        """Take the loss and the other numbers of the present step."""
        self.lr = _search(_LR, text, self.lr)
        self.norm = _search(_NORM, text, self.norm)
        self.rate = _search(_RATE, text, self.rate)
        if "oken" in text:
            self.tokens = _whole(_search(_TOKENS, text, None), self.tokens)
        match = _LOSS.search(text)
        self._add(_float(match[1]) if match else None)
        found = in_line(text)
        last = self.evaluations.last
        # A line of a step repeats what the newest evaluation found.
        if found and not (last and _float(found.loss) == last.loss):
            self._evaluated(_float(found.loss))

    def _dictionary(self, values: dict[str, float]) -> None:
        """Take what HF Trainer prints; the step only where the script adds it."""
        self.step = _whole(values.get("step"), self.step)
        self.lr = values.get("learning_rate", self.lr)
        self.norm = values.get("grad_norm", self.norm)
        self.rate = values.get("tokens_per_second", self.rate)
        self.tokens = _whole(next((values[name] for name in _TOKEN_NAMES if name in values), None), self.tokens)
        self._add(values.get("loss"))
        self._evaluated(in_values(values))

    def _add(self, loss: float | None) -> None:
        """Add a loss of the training; where its step goes back, later evaluations are undone."""
        if loss is None:
            return
        last = self.points.last
        if last and 0 < self.step < last.step:
            self.evaluations.drop_from(self.step)
        self.points.add(Point(self.step, loss, self.lr, self.tokens))

    def _evaluated(self, loss: float | None, step: int = 0) -> None:
        """Add a loss of an evaluation, of this step or of the present one."""
        last = self.points.last
        if loss is not None:
            self.evaluations.add(Point(step or self.step or (last.step if last else 0), loss, self.lr, self.tokens))

    def progress(self) -> Progress:
        """Return it."""
        return Progress(
            step=self.step,
            steps=self.steps,
            tokens_per_second=self.rate,
            learning_rate=self.lr,
            gradient_norm=self.norm,
            curve=self.points.curve(),
            told=self.told,
            evaluations=self.evaluations.curve(),
            tokens=self.tokens,
        )


def _found_in(expression: re.Pattern[str], line: str) -> dict[str, str]:
    """Return the named groups that took part in a match; none where the line does not match."""
    match = expression.search(line[:_MOST])
    return {name: text for name, text in match.groupdict().items() if text} if match else {}


def _search(pattern: re.Pattern[str], line: str, otherwise: float | None) -> float | None:
    match = pattern.search(line)
    return _or(_float(match[1]), otherwise) if match else otherwise


def _hf(text: str) -> dict[str, float]:
    """Read the dictionary that HF Trainer prints; transformers 5 quotes its numbers."""
    try:
        told = ast.literal_eval(_BARE.sub(r": '\1'", text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {}
    values = {str(name): _float(value if isinstance(value, str) else repr(value)) for name, value in told.items()}
    return {name: value for name, value in values.items() if value is not None}


def _float(text: str) -> float | None:
    """Return the number in a text; None for what is none, or too long for one, but not for `inf` itself."""
    try:
        value = float(text)
    except ValueError:
        return None
    return None if math.isinf(value) and "inf" not in text.lower() else value


def _whole(value: float | None, otherwise: int) -> int:
    """Return a number of steps, `otherwise` for what cannot be one."""
    return int(value) if value is not None and abs(value) < 10**MOST_DIGITS else otherwise


def _or(value: float | None, otherwise: float | None) -> float | None:
    return otherwise if value is None else value
