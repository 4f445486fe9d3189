"""The metrics of a run as lists show them: which come first, which belong together, and what is said of each."""

import math
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from msgspec import Struct

from tui_train.runner.logs.losses import loss_kind
from tui_train.runner.logs.metric_series import EVALUATION_PREFIX_PATTERN, Metrics, MetricSeries, is_evaluation_name

_TAIL_SHARE = 0.1  # of the values, whose mean is the newest state without noise
# What says how fast it goes and what it takes, or counts on: it is looked at last.
_SPEED_NAME_PATTERN = re.compile(
    r"(?:.*[_/])?(?:runtime|time|time_per_iteration|(?:samples|steps|tokens)_per_second|num_tokens|consumed_samples"
    r"|mem|memory|wall|wps|dt|data|timing)|.*/s(?:ec)?"
)
# What says how well a training on rewards goes: TRL reports it behind a dozen numbers of clipping and lengths.
_REWARD_NAMES = ("reward", "reward_std", "frac_reward_zero_std", "completions/mean_length")
_TRAIN_PREFIX_PATTERN = re.compile(r"^(?:reduced_)?train(?:ing)?[_/.]")


class MetricSummary(Struct, frozen=True, kw_only=True):
    """Summary of a metric: its last value and step, the mean of its last tenth, its extremes.

    All but `last` and `non_finite_count` are of finite values only; None if there are none.
    """

    name: str
    last: float | None
    last_step: int
    mean_last_tenth: float | None
    minimum: float | None
    maximum: float | None
    value_count: int
    first_step: int
    non_finite_count: int

    @property
    def steps_text(self) -> str:
        """The steps from which and to which there are values."""
        return str(self.last_step) if self.first_step == self.last_step else f"{self.first_step}-{self.last_step}"


class MetricPair(Struct, frozen=True):
    """A metric of the training, and the same one of evaluations; at least one of them is there."""

    name: str
    train: MetricSeries | None
    evaluation: MetricSeries | None

    @property
    def main_series(self) -> MetricSeries:
        """The series of the training, else that of the evaluations."""
        series = self.train or self.evaluation
        assert series is not None  # noqa: S101 - for the type
        return series


def ordered_metrics(metrics: Metrics) -> list[MetricSeries]:
    """Return metrics with the losses and rewards first, and speed and counts last; else as they were reported first."""
    known = [each for each in metrics.series if each.buckets or each.newest]
    return sorted(known, key=lambda each: _metric_rank(each.name))


def metric_pairs(metrics: Metrics) -> list[MetricPair]:
    """Return the same in pairs: what evaluations report of what the training reports as well."""
    ordered = ordered_metrics(metrics)
    pairs = {each.name: MetricPair(each.name, each, None) for each in ordered if not is_evaluation_name(each.name)}
    name_by_base = {_base_name(name): name for name in reversed(pairs)}
    for each in ordered:
        if is_evaluation_name(each.name):
            partner = pairs.get(name_by_base.get(_base_name(each.name), ""))
            joined = partner is not None and partner.evaluation is None
            name = partner.name if partner and joined else each.name
            pairs[name] = MetricPair(name, partner.train if partner and joined else None, each)
    return sorted(pairs.values(), key=lambda pair: _metric_rank(pair.name))


def summarize_metric(series: MetricSeries) -> MetricSummary:
    """Return the summary of a metric."""
    buckets, (step, last) = series.all_buckets(), series.last
    count = sum(bucket.value_count for bucket in buckets)
    wanted, total, taken = max(1, math.ceil(count * _TAIL_SHARE)), 0.0, 0
    for bucket in reversed(buckets):
        total, taken = total + bucket.total, taken + bucket.value_count
        if taken >= wanted:
            break
    newest_is_number = math.isfinite(last)
    return MetricSummary(
        name=series.name,
        last=last if newest_is_number else None,
        last_step=step,
        mean_last_tenth=total / taken if taken else None,
        minimum=min((bucket.low for bucket in buckets), default=None),
        maximum=max((bucket.high for bucket in buckets), default=None),
        value_count=count,
        first_step=buckets[0].first if buckets else step,
        non_finite_count=series.left_out + (not newest_is_number),
    )


def metric_value_text(value: float | None) -> str:
    """Return a value in at most nine characters: `0.4213`, `1.4e-5`, `123 456`, `not finite`."""
    if value is None:
        return "not finite"
    if value == int(value) and abs(value) < 1e7:
        return f"{int(value):,}".replace(",", " ")
    if 1e-3 <= abs(value) < 1e5:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return re.sub(r"e([+-])0*(\d)", lambda match: f"e{match[1].strip('+')}{match[2]}", f"{value:.3g}")


def metrics_matching(metrics: Metrics, patterns: Iterable[str]) -> list[MetricSeries]:
    """Return the metrics whose names match one of some patterns, such as `rewards/*`."""
    wanted = [pattern.lower() for pattern in patterns]
    return [each for each in ordered_metrics(metrics) if any(fnmatchcase(each.name, pattern) for pattern in wanted)]


def _metric_rank(name: str) -> int:
    if loss_kind(name):
        return 0
    if name in _REWARD_NAMES:
        return 1 + _REWARD_NAMES.index(name)
    return 10 if _SPEED_NAME_PATTERN.fullmatch(name) else 9


def _base_name(name: str) -> str:
    return EVALUATION_PREFIX_PATTERN.sub("", _TRAIN_PREFIX_PATTERN.sub("", name))
