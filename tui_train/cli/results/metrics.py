"""`tui-train metrics`: prints what a run's log reports by name."""

import csv
import sys
from collections.abc import Sequence

import click
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import names_text, size_text, visible
from tui_train.cli.printing import aligned_table_text, print_json, report_waiting
from tui_train.runner.logs.metric_series import Metrics, MetricSeries
from tui_train.runs import run_folders
from tui_train.runs.results.metrics import read_metrics, size_of_all_attempt_logs
from tui_train.views.metric_summaries import (
    MetricSummary,
    metric_value_text,
    metrics_matching,
    ordered_metrics,
    summarize_metric,
)

_MAX_NAMES_IN_REMEDY = 12
_MIN_ANNOUNCED_BYTES = 64 << 20  # of logs, which take some seconds
_TABLE_HEADER = ("metric", "last", "mean of last 10 %", "min", "max", "steps")


class BucketAnswer(Struct, frozen=True):
    """Some values of a metric, of steps in a row; mostly a single one."""

    first_step: int
    last_step: int
    values: int
    min: float | None
    mean: float | None
    max: float | None


class MetricAnswer(Struct, frozen=True, kw_only=True):
    """A metric: its last value, its extremes, and all that is kept of it."""

    metric: str
    last: float | None
    last_step: int
    mean_of_last_tenth: float | None
    min: float | None
    max: float | None
    values: int
    not_finite: int
    buckets: tuple[BucketAnswer, ...]


class MetricsAnswer(Struct, frozen=True):
    """The metrics of a run."""

    run: str
    metrics: tuple[MetricAnswer, ...]


def print_metrics(reference: str, only: Sequence[str], *, as_json: bool, as_csv: bool) -> None:
    """Print the metrics of a run: as a table, or with all that is kept of them as JSON or CSV."""
    run = run_folders.find_run(reference)
    if (size := size_of_all_attempt_logs(run)) > _MIN_ANNOUNCED_BYTES:
        report_waiting(f"reading {size_text(size)} of logs; Ctrl-C ends it …")
    metrics = read_metrics(run)
    chosen = _metrics_to_print(metrics, only) if only else ordered_metrics(metrics)
    if as_json:
        print_json(MetricsAnswer(run.name, tuple(map(_metric_answer, chosen))))
    elif as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows(
            (
                ("metric", *BucketAnswer.__struct_fields__),
                *((each.name, *row) for each in chosen for row in _bucket_rows(each)),
            )
        )
    elif chosen:
        click.echo(aligned_table_text([_TABLE_HEADER, *(_table_row(summarize_metric(each)) for each in chosen)]))
    else:
        click.echo(f"{visible(run.name)}: no metrics in its log")


def _metrics_to_print(metrics: Metrics, only: Sequence[str]) -> list[MetricSeries]:
    chosen = metrics_matching(metrics, only)
    if not chosen:
        names = [each.name for each in ordered_metrics(metrics)]
        known = f"It has {names_text(names, _MAX_NAMES_IN_REMEDY)}." if names else "Its log has none."
        raise BadInput(f"no metric is named {visible(' or '.join(only))}", known)
    return chosen


def _table_row(summary: MetricSummary) -> tuple[str, ...]:
    numbers = (summary.last, summary.mean_last_tenth, summary.minimum, summary.maximum)
    left_out = f", {summary.non_finite_count} not finite" if summary.non_finite_count else ""
    return (summary.name, *map(metric_value_text, numbers), f"{summary.steps_text}{left_out}")


def _bucket_rows(series: MetricSeries) -> list[tuple[int, int, int, float, float, float]]:
    return [
        (bucket.first, bucket.last, bucket.value_count, bucket.low, bucket.mean, bucket.high)
        for bucket in series.all_buckets()
    ]


def _metric_answer(series: MetricSeries) -> MetricAnswer:
    summary = summarize_metric(series)
    return MetricAnswer(
        metric=summary.name,
        last=summary.last,
        last_step=summary.last_step,
        mean_of_last_tenth=summary.mean_last_tenth,
        min=summary.minimum,
        max=summary.maximum,
        values=summary.value_count,
        not_finite=summary.non_finite_count,
        buckets=tuple(BucketAnswer(*row) for row in _bucket_rows(series)),
    )
