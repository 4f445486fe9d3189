"""What the lines of most trainers, their progress bars and a preset tell: step, loss, learning rate and so on."""

import ast
import math
import re
from collections.abc import Iterable

from msgspec import Struct

from tui_train.runs.lines import without_rank

_NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)"
_IS = r"[ :=\[]{1,4}"
# The words of most trainers: `step 1/60 | loss 5.5`, `iteration 10/ 100 | … | lm loss: 1.2E+01`, `steps: 10 loss: 2.3`.
_STEP = re.compile(
    r"(?<![\w/-])(?:global[_ ])?(?:step|iter|iteration)s?[ :=\[]{1,12}(\d+)\b(?:\s*(?:/|of)\s*(\d+))?", re.IGNORECASE
)
_LOSS = re.compile(
    rf"(?<![\w/-])(?<!val )(?<!eval )(?<!test )(?<!validation )"
    rf"(?:(?:reduced_)?train(?:ing)?_|step_)?loss{_IS}({_NUMBER})(?![\d.e]|\s*->)",
    re.IGNORECASE,
)
_RATE = re.compile(rf"(?<![\w/-])(?:tokens/s(?:ec)?|tok/s|tps|tokens_per_sec(?:ond)?){_IS}({_NUMBER})", re.IGNORECASE)
_LR = re.compile(rf"(?<![\w/-])(?:lr|learning[_ ]rate){_IS}({_NUMBER})", re.IGNORECASE)
_NORM = re.compile(rf"(?<![\w/-])(?:grad(?:ient)?|global_grad)[_ ]?norm{_IS}({_NUMBER})", re.IGNORECASE)
# NeMo counts from 0, and its second number is that of an epoch's last step; AutoModel counts from 0 as well.
_NEMO = re.compile(r"epoch \d+, iteration (\d+)/(\d+) \|.*?\bglobal_step: (\d+)")
_AUTOMODEL = re.compile(r"\bstep (\d+) \| epoch \d+ \|")
_DEEPSPEED = re.compile(rf"\bstep=(\d+), skipped=\d+, lr=\[({_NUMBER})")
_START = re.compile(r"^start \| (?:resumed from .* at )?step (\d+) of (\d+)$")
# Not a number, as Python prints it.
_BARE = re.compile(r":\s*(-?(?:nan|inf))\b")
_DICT = re.compile(r"\{'(?:loss|eval_loss|train_runtime|train_loss)'.*?\}")
# Only bars without a caption, or with one for steps: not those of data that is mapped or weights that are loaded.
_TQDM = re.compile(r"^(?:(?:epoch|train|step|iter)[^|]*:)?\s*\d+%\|.*?\b(\d+)/(\d+) \[(?:\d+:)?\d+:\d+<", re.IGNORECASE)


# An expression of a preset sees no more of a line, and our own no more than this: the longest takes it too long.
_MOST = 500
_LONGEST = 4000


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
    gradient_norm: float | None = None
    points: tuple[Point, ...] = ()
    told: bool = False

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
        self.norm = progress.gradient_norm
        self.points = list(progress.points)
        self.told = progress.told

    def own(self, told: dict[str, str]) -> None:
        """Take what an expression of the preset found."""
        numbers = {name: _float(text) for name, text in told.items()}
        for name in ("step", "steps"):
            if math.isfinite(numbers.get(name, math.nan)):
                setattr(self, name, int(numbers[name]))
        if "loss" in numbers:
            _add(self.points, self.step, numbers["loss"])
        self.lr = numbers.get("lr", self.lr)
        self.norm = numbers.get("grad_norm", self.norm)
        self.rate = numbers.get("tokens_per_second", self.rate)

    def known(self, line: str) -> None:
        """Take what a line of a known form tells."""
        line = without_rank(line)[:_LONGEST]
        if line.startswith("start ") and (found := _START.match(line)):
            self.step, self.steps = int(found[1]), int(found[2])
        elif "'" in line and (found := _DICT.search(line)):
            self._dictionary(_hf(found[0]))
        elif "[" in line and (found := _TQDM.search(line)):
            # A bar may be of something else, where the training tells its steps in lines.
            if not self.told:
                self.step, self.steps = int(found[1]), int(found[2])
            self._values(line[found.end() :])
        elif "oss" in line and _LOSS.search(line) and self._stepped(line):
            self._values(line)
        elif "skipped=" in line and (found := _DEEPSPEED.search(line)):
            self.step, self.lr = int(found[1]), _float(found[2])

    def _stepped(self, line: str) -> bool:
        """Take the step that a line tells; false where it tells none."""
        if found := _NEMO.search(line):
            iteration, last, step = (int(number) for number in found.groups())
            self.step, self.steps = step + 1, max(self.steps, step - iteration + last + 1)
        elif found := _AUTOMODEL.search(line):
            self.step = int(found[1]) + 1
        elif found := _STEP.search(line):
            self.step, self.steps = int(found[1]), int(found[2] or self.steps)
        self.told |= bool(found)
        return bool(found)

    def _values(self, text: str) -> None:
        """Take the loss and what else is told of the present step."""
        if found := _LOSS.search(text):
            _add(self.points, self.step, _float(found[1]))
        self.lr = _search(_LR, text, self.lr)
        self.norm = _search(_NORM, text, self.norm)
        self.rate = _search(_RATE, text, self.rate)

    def _dictionary(self, told: dict[str, float]) -> None:
        """Take what HF Trainer prints."""
        self.lr = told.get("learning_rate", self.lr)
        self.norm = told.get("grad_norm", self.norm)
        self.rate = told.get("tokens_per_second", self.rate)
        if "loss" in told:
            _add(self.points, self.step, told["loss"])

    def progress(self) -> Progress:
        """Return it."""
        return Progress(
            step=self.step,
            steps=self.steps,
            tokens_per_second=self.rate,
            learning_rate=self.lr,
            gradient_norm=self.norm,
            points=tuple(self.points),
            told=self.told,
        )


def _found_in(expression: re.Pattern[str], line: str) -> dict[str, str]:
    """Return the named groups that took part in a match; none where the line does not match."""
    found = expression.search(line[:_MOST])
    return {name: text for name, text in found.groupdict().items() if text} if found else {}


def _add(points: list[Point], step: int, loss: float) -> None:
    if not step and points:
        step = points[-1].step + 1  # nobody tells them: counted
    while points and points[-1].step >= step > 0:
        points.pop()
    points.append(Point(step, loss))


def _search(pattern: re.Pattern[str], line: str, otherwise: float | None) -> float | None:
    found = pattern.search(line)
    return _float(found[1]) if found else otherwise


def _hf(text: str) -> dict[str, float]:
    """Read the dictionary that HF Trainer prints; transformers 5 quotes its numbers."""
    try:
        told = ast.literal_eval(_BARE.sub(r": '\1'", text))
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
