"""Progress read from the lines of most trainers, their progress bars and a preset: step, loss, rate and so on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from . import records
from .curve import LossCurve, LossCurveBuilder, LossPoint
from .line_values import named_values
from .lines import without_rank_prefix
from .losses import ASSIGNMENT_PATTERN, NUMBER_PATTERN, LineLosses, losses_in_line, text_after_evaluation_word
from .metric_series import Metrics, MetricsBuilder, is_evaluation_name, values_with_evaluation_names
from .progress_bars import TrainingBar, parse_training_bar
from .records import LogRecord, LogTable, parse_number
from .step_lines import (
    MAX_COUNT_DIGITS,
    LoggedPosition,
    StepCounting,
    advance_step_count,
    parse_count,
    parse_epoch_header,
    parse_logged_position,
)

_TOKENS_PER_SECOND_PATTERN = re.compile(
    rf"(?<![\w/-])(?:tok(?:ens)?/s(?:ec)?|tps|tokens_per_sec(?:ond)?){ASSIGNMENT_PATTERN}({NUMBER_PATTERN})(?:([km])\b)?",
    re.IGNORECASE,
)
_LEARNING_RATE_PATTERN = re.compile(
    rf"(?<![\w/-])(?:lr|learning[_ ]rate){ASSIGNMENT_PATTERN}({NUMBER_PATTERN})", re.IGNORECASE
)
_GRADIENT_NORM_PATTERN = re.compile(
    rf"(?<![\w/-])(?:(?:grad(?:ient)?|global_grad)[_ ]?norm|gnorm){ASSIGNMENT_PATTERN}({NUMBER_PATTERN})", re.IGNORECASE
)
# All that were seen so far, not those of a step.
_TOKENS_SEEN_PATTERN = re.compile(
    r"(?<![\w/-])(?:num_tokens|num_input_tokens_seen|(?:consumed|total)[_ ]tokens|tokens[_ ]seen)"
    rf"{ASSIGNMENT_PATTERN}({NUMBER_PATTERN})(?:([km])\b)?",
    re.IGNORECASE,
)
_METRIC_NAME_BY_GROUP = {
    "loss": "loss",
    "eval_loss": "eval_loss",
    "lr": "learning_rate",
    "grad_norm": "grad_norm",
    "tokens_per_second": "tokens_per_second",
}
_FACTOR_BY_SUFFIX = {"k": 10**3, "m": 10**6}
_TOKENS_SEEN_KEYS = ("num_tokens", "num_input_tokens_seen", "total_tokens")
_DEEPSPEED_STEP_PATTERN = re.compile(rf"\bstep=(\d+), skipped=\d+, lr=\[({NUMBER_PATTERN})")
# At its end, a training reports again what it reported before.
_SUMMARY_LINE_PATTERN = re.compile(r"finished|done|complete|final|best|average over", re.IGNORECASE)

# An expression of a preset sees no more of a line, and our own no more than this: the longest takes it too long.
_MAX_SEARCHED_LINE_LENGTH = 500
_MAX_PARSED_LINE_LENGTH = 4000


class LogReadingOptions(NamedTuple):
    """Options for reading a run's log: its preset's expressions, and the planned `steps` (0: unknown).

    `nameable`: its profile can name an expression.
    """

    expressions: tuple[re.Pattern[str], ...] = ()
    steps: int = 0
    nameable: bool = False

    @classmethod
    def from_texts(cls, expressions: Iterable[str], steps: int, *, nameable: bool = False) -> LogReadingOptions:
        """Return how lines are read by these expressions; the usual way where they are none."""
        try:
            return cls(tuple(re.compile(text) for text in expressions), steps, nameable)
        except (re.error, RecursionError, OverflowError):
            return cls()


DEFAULT_LOG_READING_OPTIONS = LogReadingOptions()


class Progress(NamedTuple):
    """Progress of a training; 0 and None are "not reported yet"."""

    step: int = 0
    steps: int = 0
    tokens_per_second: float | None = None
    learning_rate: float | None = None
    gradient_norm: float | None = None
    curve: LossCurve = LossCurve()
    unit: Literal["", "epoch", "step"] = ""
    """The unit of its lines, empty where only a bar or a record reported steps."""
    evaluations: LossCurve = LossCurve()
    """The losses of evaluations, by step."""
    tokens: int = 0
    """How many were seen, where the log reports that."""
    may_be_batch: bool = False
    """The step may count within an epoch."""
    counting: StepCounting = StepCounting()
    """What earlier lines say of later ones."""
    table: LogTable = LogTable()
    """What the head of a table says of its rows."""
    validated_step: int = -1
    """The newest step at which a line with another word than `test` reported an evaluation; -1: none."""
    metrics: Metrics = Metrics()
    """Every number that was reported by its name, the losses among them."""
    bar_step: int = -1
    """The step of the newest bar of this attempt; -1: none."""
    record_epoch: float | None = None
    """The epoch of the newest record of a loss, a part of one as well."""

    @property
    def position_word(self) -> Literal["epoch", "step"]:
        """The unit of its steps: epochs where its lines name nothing smaller."""
        return self.unit or "step"

    @property
    def first(self) -> LossPoint | None:
        """The first loss that was told."""
        return self.curve.first

    @property
    def last(self) -> LossPoint | None:
        """The newest loss that was told."""
        return self.curve.last

    @property
    def best_evaluation(self) -> LossPoint | None:
        """The lowest loss of an evaluation."""
        finite = (point for point in self.evaluations.points() if math.isfinite(point.loss))
        return min(finite, key=lambda point: point.loss, default=None)


def advance_progress(
    progress: Progress, lines: Iterable[str], reading: LogReadingOptions = DEFAULT_LOG_READING_OPTIONS
) -> Progress:
    """Return the progress after more lines; a step that is told again (after a resume) replaces what came after it.

    It costs as much as there are new lines, however long the curve is.
    """
    parser = _ProgressParser(progress, reading.steps)
    for line in lines:
        match = _first_matched_groups(reading.expressions, line) if reading.expressions else None
        if match:
            parser.take_expression_values(match)
        else:
            parser.take_line(line)
    return parser.progress()


def progress_for_next_attempt(progress: Progress) -> Progress:
    """Return the progress with which the lines of the next attempt are read: its step is not known yet."""
    return progress._replace(step=0, bar_step=-1)


class _ProgressParser:
    def __init__(self, progress: Progress, steps: int) -> None:
        self.step = progress.step
        self.steps = progress.steps or steps
        self.rate = progress.tokens_per_second
        self.lr = progress.learning_rate
        self.norm = progress.gradient_norm
        self.points = LossCurveBuilder(progress.curve)
        self.unit: Literal["", "epoch", "step"] = progress.unit
        self.evaluations = LossCurveBuilder(progress.evaluations)
        self.tokens = progress.tokens
        self.may_be_batch = progress.may_be_batch
        self.counting = progress.counting
        self.table = progress.table
        self.validated_step = progress.validated_step
        self.metrics = MetricsBuilder(progress.metrics)
        self.bar_step = progress.bar_step
        self.record_epoch = progress.record_epoch

    def take_expression_values(self, values: dict[str, str]) -> None:
        """Take what an expression of the preset found."""
        numbers = {name: parse_number(text) for name, text in values.items()}
        self.step = _count_or_default(numbers.get("step"), self.step)
        self.steps = _count_or_default(numbers.get("steps"), self.steps)
        self.lr = _number_or_default(numbers.get("lr"), self.lr)
        self.norm = _number_or_default(numbers.get("grad_norm"), self.norm)
        self.rate = _number_or_default(numbers.get("tokens_per_second"), self.rate)
        self._add_loss(numbers.get("loss"))
        self._add_evaluation(numbers.get("eval_loss"))
        self._add_metrics(
            {
                metric: number
                for name, metric in _METRIC_NAME_BY_GROUP.items()
                if (number := numbers.get(name)) is not None
            }
        )

    def take_line(self, line: str) -> None:
        """Take what a line of a known form reports."""
        line = without_rank_prefix(line)[:_MAX_PARSED_LINE_LENGTH]
        if self.table.names and self._take_row(line):
            return
        if "oss'" in line and "{'" in line:
            self._take_record(records.parse_dictionary_record(line))
        elif 'oss"' in line and '{"' in line:
            self._take_record(records.parse_json_record(line))
        elif "/" in line and (found := parse_training_bar(line)):
            self._take_bar(found, line[found.end :])
        elif "oss" in line or "LOSS" in line:
            self._take_losses(line)
        elif "skipped=" in line and (match := _DEEPSPEED_STEP_PATTERN.search(line)):
            self.step = _count_or_default(parse_count(match[1]), self.step)
            self.lr = _number_or_default(parse_number(match[2]), self.lr)
        elif "{" in line and ("eval_" in line or "reward" in line):
            self._take_record(
                records.parse_dictionary_record(line) if "{'" in line else records.parse_json_record(line)
            )
        elif "poch" in line and (at := parse_epoch_header(line)):
            self.counting, _, _ = advance_step_count(self.counting, at)

    def _take_row(self, line: str) -> bool:
        """Take a line if it is a row of the present table; its header was none where something else follows."""
        record = records.parse_table_row(line, self.table)
        if record.values:
            self.table = (
                self.table._replace(is_header_uncertain=False) if self.table.is_header_uncertain else self.table
            )
            self._take_record(record)
        elif self.table.is_header_uncertain and any(map(str.isalnum, line)):
            self.table = LogTable()
        return bool(record.values)

    def _take_bar(self, bar: TrainingBar, text: str) -> None:
        losses = losses_in_line(text) if "oss" in text else LineLosses()
        if not bar.position:
            evaluated = parse_number(losses.evaluation or losses.train)
            self._add_evaluation(evaluated)
            self._add_metrics({} if evaluated is None else {"eval_loss": evaluated})
            return
        # A bar may be of something else, where the training reports its steps in lines.
        if not self.unit:
            self._take_position(bar.position)
            self.bar_step = self.step
        self._take_values(text, losses)

    def _take_losses(self, line: str) -> None:
        """Take the training's loss, an evaluation's, or both from a line."""
        found, at = losses_in_line(line), parse_logged_position(line)
        if not found.reports_a_loss:
            table = records.parse_table_header(line)
            if table and not (table.is_header_uncertain and self.table.names):
                self.table = table
        elif found.evaluation and not found.train:
            self._take_evaluation(found, at, line)
        elif at and at.step is not None:
            # The number of a process begins a line as that of a step does, but does not grow.
            if not at.is_step_unnamed or at.step > self.counting.step or self.counting.has_epoch_begun or not self.step:
                self._take_position(at)
                self.unit = "step"
                self._take_values(line, found)
        elif (at or (found.is_train_loss_named and not _SUMMARY_LINE_PATTERN.search(line))) and self._take_epoch(
            at or LoggedPosition()
        ):
            self._take_values(line, found)
        elif at or found.is_train_loss_named:
            self._add_evaluation(parse_number(found.evaluation))

    def _take_evaluation(self, losses: LineLosses, position: LoggedPosition | None, line: str) -> None:
        """Take the loss of an evaluation from a line that reports no other; one of its batches is left out."""
        step = losses.step
        if position and position.step is not None:
            if position.may_be_batch:
                return
            step = step or (0 if self._is_step_of_evaluation(position, line) else position.step)
        elif position:
            self._take_epoch(position)
        # At the end many scripts test as well: that is no other validation of its step.
        is_test = "test" in line.lower()
        if position or not is_test or self.validated_step != self.step:
            before = self.validated_step
            evaluated = parse_number(losses.evaluation)
            self._add_evaluation(evaluated, step)
            self._add_metrics(
                values_with_evaluation_names(_values_with_losses(named_values(line), None, evaluated)), step
            )
            self.validated_step = before if is_test else self.validated_step

    def _is_step_of_evaluation(self, position: LoggedPosition, line: str) -> bool:
        """Return whether a step is one of the evaluation: of fewer than the training's, and named behind its word."""
        named = parse_logged_position(text_after_evaluation_word(line) or "")
        if not named or named.step != position.step or position.counts_across_epochs:
            return False
        return (position.step or 0) < self.step or 0 < position.steps < self.steps

    def _take_position(self, position: LoggedPosition) -> None:
        self.counting, self.step, steps = advance_step_count(self.counting, position)
        self.steps = max(self.steps, steps) if position.is_total_preliminary else steps or self.steps
        self.may_be_batch = position.may_be_batch

    def _take_epoch(self, position: LoggedPosition) -> bool:
        """Count epochs as steps, unless steps are counted; the epoch of an earlier line where this one has none."""
        if self.unit == "step" or (not self.unit and self.points.last):
            return False
        if position.epoch is not None or self.counting.epoch is not None:
            self._take_position(position._replace(may_be_batch=True))
        self.unit = "epoch"
        return True

    def _take_values(self, text: str, losses: LineLosses) -> None:
        """Take the losses and the other numbers of the present step."""
        values = named_values(text) if losses.reports_a_loss or "=" in text else {}
        lower = text.lower()
        if "lr" in lower or "rate" in lower:
            self.lr = _search_named_number(values, "learning_rate", _LEARNING_RATE_PATTERN, text, self.lr)
        if "norm" in lower:
            self.norm = _search_named_number(values, "grad_norm", _GRADIENT_NORM_PATTERN, text, self.norm)
        if "tok" in lower or "tps" in lower:
            self.rate = _search_named_number(values, "tokens_per_second", _TOKENS_PER_SECOND_PATTERN, text, self.rate)
            self.tokens = _count_or_default(
                _search_named_number(values, "num_tokens", _TOKENS_SEEN_PATTERN, text, None), self.tokens
            )
        loss, evaluated = parse_number(losses.train), parse_number(losses.evaluation)
        self._add_loss(loss)
        last = self.evaluations.last
        values = _values_with_losses(values, loss, evaluated)
        # A line of a step repeats what the newest evaluation found.
        if evaluated is not None and last and evaluated == last.loss:
            values = {name: value for name, value in values.items() if not is_evaluation_name(name)}
        elif evaluated is not None:
            self._add_evaluation(evaluated)
        self._add_metrics(values)

    def _take_record(self, record: LogRecord) -> None:
        """Take what HF Trainer prints, or a script as JSON or in a table; the step only where it is in it."""
        values = record.values
        loss, evaluation = records.losses_of_record(record)
        if "train_runtime" in values:
            return
        if loss is None and evaluation is None:
            self._take_record_without_loss(record)
            return
        at = records.position_of_record(record)
        if at.step is not None:
            self._take_position(at)
        elif (
            not (at.epoch is not None and (self.unit or not self.step) and self._take_epoch(at))
            and "loss" not in values
        ):
            # Of the whole training, at its end.
            loss = None
        if loss is not None and at.step is None:
            self._count_step_if_bar_is_late(loss, values.get("epoch"))
        self.lr = values.get("learning_rate", self.lr)
        self.norm = values.get("grad_norm", self.norm)
        self.rate = values.get("tokens_per_second", self.rate)
        self.tokens = _count_or_default(
            next((values[name] for name in _TOKENS_SEEN_KEYS if name in values), None), self.tokens
        )
        self._add_loss(loss)
        self._add_evaluation(evaluation)
        if loss is not None or evaluation is not None:
            self._add_metrics(values_with_evaluation_names(values) if record.evaluation else values)

    def _count_step_if_bar_is_late(self, loss: float, epoch: float | None) -> None:
        """Count a step for a record with a loss where the bar before it is still that of the record before.

        tqdm draws no bar again within 0.1 s. The same record may be printed twice, and rounded once.
        """
        last, before = self.points.last, self.record_epoch
        self.record_epoch = epoch
        if epoch is None or self.bar_step != self.step or self.step != (last.step if last else 0):
            return
        if not last or before is None or _rounded_texts(loss, epoch) != _rounded_texts(last.loss, before):
            self.step += 1

    def _take_record_without_loss(self, record: LogRecord) -> None:
        """Take the metrics of a record that names its step, or of an evaluation; it does not count as progress."""
        values, step = record.values, records.position_of_record(record).step
        if step is not None or any(map(is_evaluation_name, values)):
            self._add_metrics(values_with_evaluation_names(values) if record.evaluation else values, step or 0)

    def _add_loss(self, loss: float | None) -> None:
        """Add a loss of the training; where its step goes back, later evaluations are undone."""
        if loss is None:
            return
        last = self.points.last
        if last and 0 < self.step < last.step:
            self.evaluations.drop_points_from(self.step)
            self.metrics.drop_values_from(self.step)
        self.points.add(LossPoint(self.step, loss, self.lr, self.tokens))

    def _add_evaluation(self, loss: float | None, step: int = 0) -> None:
        """Add a loss of an evaluation, of this step or of the present one."""
        if loss is not None:
            self.validated_step = self.step
            self.evaluations.add(LossPoint(step or self._present_step, loss, self.lr, self.tokens))

    def _add_metrics(self, values: Mapping[str, float], step: int = 0) -> None:
        """Add numbers of this step or of the present one, by their names."""
        if values:
            self.metrics.add(step or self._present_step, values)

    @property
    def _present_step(self) -> int:
        """The step, also where no line names it: that of the newest loss."""
        if self.step or not self.points.last:
            return self.step
        return self.points.last.step

    def progress(self) -> Progress:
        """Return it."""
        return Progress(
            step=self.step,
            steps=self.steps,
            tokens_per_second=self.rate,
            learning_rate=self.lr,
            gradient_norm=self.norm,
            curve=self.points.curve(),
            unit=self.unit,
            evaluations=self.evaluations.curve(),
            tokens=self.tokens,
            may_be_batch=self.may_be_batch,
            counting=self.counting,
            table=self.table,
            validated_step=self.validated_step,
            metrics=self.metrics.metrics(),
            bar_step=self.bar_step,
            record_epoch=self.record_epoch,
        )


def _first_matched_groups(expressions: Iterable[re.Pattern[str]], line: str) -> dict[str, str]:
    """Return the named groups that took part in the first match; none where no expression matches the line."""
    for expression in expressions:
        match = expression.search(line[:_MAX_SEARCHED_LINE_LENGTH])
        if match and (groups := {name: text for name, text in match.groupdict().items() if text}):
            return groups
    return {}


def _search_number(pattern: re.Pattern[str], line: str) -> float | None:
    match = pattern.search(line)
    number = parse_number(match[1]) if match else None
    if match and number is not None and pattern.groups > 1 and match[2]:
        number *= _FACTOR_BY_SUFFIX[match[2].lower()]
    return number


def _search_named_number(
    values: dict[str, float], name: str, pattern: re.Pattern[str], line: str, default: float | None
) -> float | None:
    """Return a number of a line, which is kept under its name; it may be there already."""
    if name not in values and (number := _search_number(pattern, line)) is not None:
        values[name] = number
    return values.get(name, default)


def _values_with_losses(values: dict[str, float], loss: float | None, evaluated: float | None) -> dict[str, float]:
    """Return the numbers of a line with its losses by their usual names, whatever the line calls them."""
    for name in [name for name in values if "loss" in name and values[name] in (loss, evaluated)]:
        del values[name]
    if loss is not None:
        values["loss"] = loss
    if evaluated is not None:
        values["eval_loss"] = evaluated
    return values


def _count_or_default(value: float | None, default: int) -> int:
    """Return a number of steps, `default` for what cannot be one."""
    return int(value) if value is not None and abs(value) < 10**MAX_COUNT_DIGITS else default


def _rounded_texts(*numbers: float) -> list[str]:
    """Return numbers as transformers prints them."""
    return [f"{number:.4g}" for number in numbers]


def _number_or_default(value: float | None, default: float | None) -> float | None:
    return default if value is None else value
