"""Every number that a log reports by its name, over the steps: of each name a bounded number of points or buckets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

# Further names are left out, and so are those that are no name of a number.
MAX_METRICS = 64
_METRIC_NAME_PATTERN = re.compile(r"[^\W\d][\w ./@:+()%\[\]-]{0,63}")
# What counts or identifies, and is no result.
_COUNTER_NAME_PATTERN = re.compile(
    r"(?:trainer/)?(?:global_|train_)?_?(?:steps?|epochs?)|(?:total|max|num)_(?:steps|epochs)|ep|iter|iterations?|it"
    r"|batch(?:es|_idx|_id)?|(?:num_)?updates?|eta|v_num|n_parameters|global_batch_size|world_size|(?:local_)?rank|seed"
    r"|pid|port|gpu|device|train|training|val|valid|validation|test|eval|_?timestamp|ts|date|_runtime"
)
EVALUATION_PREFIX_PATTERN = re.compile(r"^(?:eval|evaluation|val|valid|validation|test|dev)[_/.]")
_MAX_BUCKETS = 400  # even: two become one
_MAX_STEPS_KEPT = 1000
# A larger number cannot be summed up, nor drawn.
_MAX_VALUE = 1e290
_NAN = float("nan")


class MetricBucket(NamedTuple):
    """Some values of a metric, of steps in a row; mostly a single one."""

    first: int
    last: int
    value_count: int
    low: float
    high: float
    total: float

    @property
    def mean(self) -> float:
        """The mean of its values."""
        return self.total / self.value_count


class MetricSeries(NamedTuple):
    """The values of a metric over the steps: `buckets` of `values_per_bucket` each, of the last one up to so many.

    The newest value, and its step, is not in them yet: it may be reported again. `left_out`: how many were no numbers.
    """

    name: str
    buckets: tuple[MetricBucket, ...] = ()
    values_per_bucket: int = 1
    newest: tuple[int, float] | None = None
    left_out: int = 0

    def all_buckets(self) -> tuple[MetricBucket, ...]:
        """Return the buckets with one for the newest value, where that is a number."""
        if self.newest is None or not abs(self.newest[1]) < _MAX_VALUE:
            return self.buckets
        return (*self.buckets, _bucket_of_values(self.newest[:1], self.newest[1:]))

    @property
    def last(self) -> tuple[int, float]:
        """The step and the value that were reported last."""
        if self.newest:
            return self.newest
        return (self.buckets[-1].last, self.buckets[-1].mean) if self.buckets else (0, _NAN)


class Metrics(NamedTuple):
    """The metrics of a log, in the order in which they were reported first."""

    series: tuple[MetricSeries, ...] = ()

    def series_named(self, name: str) -> MetricSeries | None:
        """Return a metric, None where there is none of that name."""
        return next((each for each in self.series if each.name == name), None)


class MetricsBuilder:
    """Metrics to which values are being added."""

    def __init__(self, metrics: Metrics) -> None:
        self._series = {each.name: each for each in metrics.series}
        # What was added since, by step: it costs little until it is sorted by names, of many steps at once.
        self._new_steps: list[int] = []
        self._new_values: list[Mapping[str, float]] = []

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Add values of a step; those that a name has of this step and of later ones are replaced."""
        steps = self._new_steps
        if steps:
            if step == steps[-1]:
                self._new_values[-1] = {**self._new_values[-1], **values}
                return
            if step < steps[-1] or len(steps) >= _MAX_STEPS_KEPT:
                self._add_new_values_to_series()
        self._new_steps.append(step)
        self._new_values.append(values)

    def drop_values_from(self, step: int) -> None:
        """Drop the values of a step and of all later ones."""
        self._add_new_values_to_series()
        self._series = {name: _series_before_step(each, step) for name, each in self._series.items()}

    def metrics(self) -> Metrics:
        """Return the metrics built so far."""
        self._add_new_values_to_series()
        return Metrics(tuple(self._series.values()))

    def _add_new_values_to_series(self) -> None:
        all_steps, rows = self._new_steps, self._new_values
        self._new_steps, self._new_values = [], []
        for name in dict.fromkeys(chain.from_iterable(rows)):
            series = self._series.get(name)
            if series is None and len(self._series) < MAX_METRICS and is_metric_name(name):
                series = MetricSeries(name)
            if series is None:
                continue
            try:
                steps, values = all_steps, [row[name] for row in rows]
            except KeyError:
                steps = [step for step, row in zip(all_steps, rows) if name in row]
                values = [row[name] for row in rows if name in row]
            self._series[name] = _series_with_values(series, steps, values)


def is_metric_name(name: str) -> bool:
    """Return whether a name is that of a metric, and safe to show."""
    return _METRIC_NAME_PATTERN.fullmatch(name) is not None and not is_counter_name(name)


def is_counter_name(name: str) -> bool:
    """Return whether a name is that of a number that counts or identifies, such as a step."""
    return _COUNTER_NAME_PATTERN.fullmatch(name) is not None


def is_evaluation_name(name: str) -> bool:
    """Return whether a name says that it is of an evaluation."""
    return EVALUATION_PREFIX_PATTERN.match(name) is not None


def values_with_evaluation_names(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values of an evaluation by names that say so."""
    return {
        name if is_evaluation_name(name) else f"eval_{name}": value
        for name, value in values.items()
        if not is_counter_name(name)
    }


def build_metrics(rows: Iterable[tuple[int, Mapping[str, float]]]) -> Metrics:
    """Return the metrics of rows, each a step and the values of it."""
    builder = MetricsBuilder(Metrics())
    for step, values in rows:
        builder.add(step, values)
    return builder.metrics()


def joined_metrics(earlier: Metrics, later: Metrics) -> Metrics:
    """Return the metrics of two readings of one training: the later one adds what is of later steps."""
    last = max((each.last[0] for each in earlier.series), default=-1)
    known = {each.name for each in earlier.series}
    added = {each.name: _series_after_step(each, last) if each.name in known else each for each in later.series}
    joined = [_joined_series(each, added.pop(each.name, None)) for each in earlier.series]
    return Metrics((*joined, *(each for each in added.values() if each.buckets or each.newest))[:MAX_METRICS])


def _series_with_values(series: MetricSeries, steps: Sequence[int], values: Sequence[float]) -> MetricSeries:
    """Return a series with more values, whose steps grow."""
    series = _series_before_step(series, steps[0])
    # One NaN is as another: what is reported again is no news.
    newest = (steps[-1], values[-1] if values[-1] == values[-1] else _NAN)
    before = series.newest
    old_steps, old_values = steps[:-1], values[:-1]
    if before:
        old_steps, old_values = [before[0], *old_steps], [before[1], *old_values]
    count = len(old_values)
    if not abs(sum(old_values)) < _MAX_VALUE:
        kept = [at for at, value in enumerate(old_values) if abs(value) < _MAX_VALUE]
        old_steps, old_values = [old_steps[at] for at in kept], [old_values[at] for at in kept]
    buckets, size = _filled_buckets(series, old_steps, old_values) if old_values else series[1:3]
    return MetricSeries(series.name, buckets, size, newest, series.left_out + count - len(old_values))


def _series_before_step(series: MetricSeries, step: int) -> MetricSeries:
    """Return a series with only the values before a step; a bucket that spans it is dropped as well."""
    newest, buckets = series.newest, series.buckets
    if newest and newest[0] >= step:
        newest = None
    if buckets and buckets[-1].last >= step:
        buckets = tuple(bucket for bucket in buckets if bucket.last < step)
    if newest is series.newest and buckets is series.buckets:
        return series
    return series._replace(newest=newest, buckets=buckets)


def _filled_buckets(
    series: MetricSeries, steps: Sequence[int], values: Sequence[float]
) -> tuple[tuple[MetricBucket, ...], int]:
    """Return the buckets with more values, and how many each takes: where there are too many, twice as many."""
    buckets, size, at = [*series.buckets], series.values_per_bucket, 0
    while at < len(steps):
        room = size - buckets[-1].value_count if buckets else 0
        if room <= 0 and len(buckets) >= _MAX_BUCKETS:
            buckets = [_joined_buckets(*pair) for pair in zip(buckets[::2], buckets[1::2])]
            size *= 2
        if size == 1 and room <= 0:
            end = at + _MAX_BUCKETS - len(buckets)
            buckets += _single_value_buckets(steps[at:end], values[at:end])
            at = end
            continue
        end = at + (room if room > 0 else size)
        added = _bucket_of_values(steps[at:end], values[at:end])
        if room > 0:
            buckets[-1] = _joined_buckets(buckets[-1], added)
        else:
            buckets.append(added)
        at = end
    return tuple(buckets), size


def _single_value_buckets(steps: Sequence[int], values: Sequence[float]) -> Iterator[MetricBucket]:
    """Return a bucket for each value; without a call of Python's for each."""
    return map(tuple.__new__, repeat(MetricBucket), zip(steps, steps, repeat(1), values, values, values))


def _bucket_of_values(steps: Sequence[int], values: Sequence[float]) -> MetricBucket:
    return MetricBucket(steps[0], steps[-1], len(values), min(values), max(values), sum(values))


def _joined_buckets(first: MetricBucket, second: MetricBucket) -> MetricBucket:
    return MetricBucket(
        first.first,
        second.last,
        first.value_count + second.value_count,
        min(first.low, second.low),
        max(first.high, second.high),
        first.total + second.total,
    )


def _series_after_step(series: MetricSeries, step: int) -> MetricSeries:
    """Return a series with only the values after a step."""
    newest = series.newest if series.newest and series.newest[0] > step else None
    return series._replace(newest=newest, buckets=tuple(bucket for bucket in series.buckets if bucket.first > step))


def _joined_series(earlier: MetricSeries, later: MetricSeries | None) -> MetricSeries:
    if later is None or not (later.buckets or later.newest):
        return earlier
    return MetricSeries(
        earlier.name,
        (*earlier.all_buckets(), *later.buckets),
        earlier.values_per_bucket,
        later.newest,
        earlier.left_out + later.left_out,
    )
