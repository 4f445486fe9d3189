"""Runs side by side: their losses over steps, tokens or time, what came of them, and the settings that differ."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import duration_text, grouped_digits, loss_text, percent, quantity, size_text, visible
from tui_train.facts import yaml_documents
from tui_train.profile import fields
from tui_train.profile.types import Profile
from tui_train.runner.logs.losses import loss_kind
from tui_train.runner.logs.progress import Progress
from tui_train.runner.run_folder.state import AttemptStatus, RunStatus
from tui_train.runs.follow import read_progress
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.run_code import RunCode, read_run_code, state_text_by_changed_file
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status, training_seconds
from tui_train.views import plain_text
from tui_train.views.metric_summaries import metric_value_text, ordered_metrics, summarize_metric
from tui_train.views.run_settings import EffectiveSetting, effective_settings

RUN_LETTERS = "ABCDEF"
XQuantity = Literal["step", "tokens", "time"]
_X_QUANTITIES: tuple[XQuantity, ...] = ("step", "tokens", "time")

_LOG_TAIL_BYTES = 4 << 20
# Two numbers that differ by less are called the same; a loss is compared closer than a speed.
_NEARLY_EQUAL_SHARE, _NEARLY_EQUAL_LOSS_SHARE = 0.03, 0.001
_MAX_CODE_ROWS = 20
_LOSSES_PER_MEAN = 10  # points of which the mean is compared
# What trainers print of the memory of their GPU, in GiB and in MB.
_GIB_MEMORY_PATTERN = re.compile(r"\bmem(?:ory)?[ :=]{1,3}(\d{1,6}(?:\.\d+)?) GiB")
_MEGATRON_MEMORY_PATTERN = re.compile(r"max allocated: (\d{1,9}(?:\.\d+)?)")
_METHOD_KEY = "finetune.method"
_UNKNOWN_SETTING = EffectiveSetting("?")


class AttemptSpan(Struct, frozen=True):
    """The steps of an attempt, and the seconds of the run's own time in which they were made."""

    first_step: int
    last_step: int
    begin_second: float
    end_second: float


class ComparedRun(Struct, frozen=True, kw_only=True):
    """A run in a comparison; `peak_memory` is the most GPU memory in bytes that its log reports, 0 for none.

    `tokens_per_step` are those of a step as planned, 0 where that is not known; `settings` are those in effect by their
    keys, none where its profile cannot be read.
    """

    run: RunFolder
    status: RunStatus
    progress: Progress
    settings: dict[str, EffectiveSetting] = {}
    tokens_per_step: int = 0
    peak_memory: int = 0
    attempt_spans: tuple[AttemptSpan, ...] = ()
    note: str = ""
    code: RunCode | None = None

    def losses_over(self, x_quantity: XQuantity) -> list[tuple[float, float]]:
        """Return the losses over steps, tokens or seconds; none where these are not known."""
        points = self.progress.curve.points()
        return self._points_over(x_quantity, [(point.step, point.loss) for point in points])

    def metric_over(self, name: str, x_quantity: XQuantity) -> list[tuple[float, float]]:
        """Return the values of a metric in the same way, of very many steps their means; none where it has none."""
        series = self.progress.metrics.series_named(name)
        buckets = series.all_buckets() if series else ()
        return self._points_over(x_quantity, [(bucket.last, bucket.mean) for bucket in buckets])

    def _points_over(self, x_quantity: XQuantity, values: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
        if x_quantity == "step":
            return [*values]
        if x_quantity == "tokens":
            tokens_by_step = {point.step: point.tokens for point in self.progress.curve.points()}
            counted_values = (
                (tokens_by_step.get(step) or step * self.tokens_per_step, value) for step, value in values
            )
            return [(tokens, value) for tokens, value in counted_values if tokens]
        placed = ((self._second_of_step(step), value) for step, value in values)
        return [(second, value) for second, value in placed if second is not None]

    def _second_of_step(self, step: int) -> float | None:
        """Return when a step was made, by an even pace within its attempt."""
        for part in reversed(self.attempt_spans):
            if part.first_step <= step <= part.last_step:
                share = (step - part.first_step + 1) / (part.last_step - part.first_step + 1)
                return part.begin_second + (part.end_second - part.begin_second) * share
        return None


class ComparisonRow(Struct, frozen=True, kw_only=True):
    """A row of a comparison: its label, a cell for each run, and a note.

    `best_index` is the index of the best cell, None if none is better; `key` is that of a setting.
    """

    label: str
    key: str = ""
    cells: tuple[str, ...]
    note: str = ""
    best_index: int | None = None

    @property
    def differs(self) -> bool:
        """True where the runs differ in it."""
        return len(set(self.cells)) > 1


def read_compared_runs(runs: Sequence[RunFolder]) -> tuple[ComparedRun, ...]:
    """Return runs as they are compared; BadInput where there are fewer than two, or too many."""
    if not 2 <= len(runs) <= len(RUN_LETTERS):
        raise BadInput(f"{quantity(len(runs), 'run')} cannot be compared", f"Name 2 to {len(RUN_LETTERS)} runs.")
    return tuple(_read_compared_run(run) for run in runs)


def curve_difference(
    first: Sequence[tuple[float, float]], second: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Return by how much a curve lies above the first one at each of its points between the ends of that.

    The points are numbers; between two of the first curve it is a line.
    """
    first = sorted(first)
    found, at = [], 0
    for x, y in sorted(second):
        if not first or not first[0][0] <= x <= first[-1][0]:
            continue
        while first[at][0] < x:
            at += 1
        (left, low), (right, high) = first[max(0, at - 1)], first[at]
        found.append((x, y - (high if right == left else low + (high - low) * (x - left) / (right - left))))
    return found


def common_x_quantities(compared: Sequence[ComparedRun]) -> tuple[XQuantity, ...]:
    """Return over what the losses of all runs can be drawn; steps are always known."""
    return tuple(axis for axis in _X_QUANTITIES if axis == "step" or all(each.losses_over(axis) for each in compared))


def compared_metric_names(compared: Sequence[ComparedRun]) -> tuple[str, ...]:
    """Return the metrics that any of the runs reports, but for the loss of the training."""
    ordered = (each.name for run in compared for each in ordered_metrics(run.progress.metrics))
    return tuple(name for name in dict.fromkeys(ordered) if loss_kind(name) not in {"train", "plain"})


def result_rows(compared: Sequence[ComparedRun], metric_names: Sequence[str] = ()) -> tuple[ComparisonRow, ...]:
    """Return what came of the runs, without what is known of none; also of some metrics."""
    progress = [each.progress for each in compared]
    rewards = [each.metrics.series_named("reward") for each in progress]
    lower_loss_is_better = True if _are_losses_of_one_kind(compared) else None
    best = [found.loss if (found := each.best_evaluation) else None for each in progress]
    newest = [each.evaluations.last.loss if each.evaluations.last else None for each in progress]
    numbers: tuple[tuple[str, Sequence[float | None], str, bool | None], ...] = (
        ("Reward, last", [series.last[1] if series else None for series in rewards], "metric", False),
        ("Eval loss, best", best, "loss", lower_loss_is_better),
        ("Eval loss, last", newest, "loss", lower_loss_is_better),
        ("Loss, last", [each.last.loss if each.last else None for each in progress], "loss", lower_loss_is_better),
        ("Tokens/s, last", [each.tokens_per_second for each in progress], "rate", None),
        ("Memory, peak", [each.peak_memory or None for each in compared], "size", True),
        ("Time", [training_seconds(each.status) for each in compared], "time", None),
    )
    rows = [
        *(_number_comparison_row(label, values, unit, lower_is_better=lower) for label, values, unit, lower in numbers),
        *(row for name in metric_names for row in _metric_rows(compared, name)),
        ComparisonRow(label="Steps", cells=tuple(_steps_text(each.progress) for each in compared)),
        ComparisonRow(label="State", cells=tuple(plain_text.run_state_text(each.status) for each in compared)),
        ComparisonRow(label="Attempts", cells=tuple(str(len(each.status.attempts)) for each in compared)),
    ]
    return tuple(row for row in rows if any(cell not in {"", "-"} for cell in row.cells))


def _metric_rows(compared: Sequence[ComparedRun], name: str) -> Iterator[ComparisonRow]:
    series = [each.progress.metrics.series_named(name) for each in compared]
    summaries = [summarize_metric(each) if each else None for each in series]
    last = [summary.last if summary else None for summary in summaries]
    means = [summary.mean_last_tenth if summary else None for summary in summaries]
    yield _number_comparison_row(f"{name}, last", last, "metric", lower_is_better=None)
    yield _number_comparison_row(f"{name}, last 10 %", means, "metric", lower_is_better=None)


def differing_setting_rows(compared: Sequence[ComparedRun]) -> tuple[ComparisonRow, ...]:
    """Return the settings in which the runs differ in effect, by their labels, in the order of the form."""
    return _differing_setting_rows([each.settings for each in compared])


def settings_changed_between(before: RunFolder, run: RunFolder) -> tuple[ComparisonRow, ...]:
    """Return the settings in which a run differs from an earlier one; none where a profile cannot be read."""
    settings = [_read_settings(each)[1] for each in (before, run)]
    return _differing_setting_rows(settings) if all(settings) else ()


def _differing_setting_rows(settings_of_runs: Sequence[Mapping[str, EffectiveSetting]]) -> tuple[ComparisonRow, ...]:
    rows = []
    for field in fields.FIELDS.values():
        if field.key == "name":
            continue
        values = [settings.get(field.key, _UNKNOWN_SETTING) for settings in settings_of_runs]
        if any(value.value != values[0].value for value in values):
            cells = tuple(value.text for value in values)
            rows.append(ComparisonRow(label=field.label, key=field.key, cells=cells))
    return tuple(rows)


def differing_code_rows(compared: Sequence[ComparedRun]) -> tuple[ComparisonRow, ...]:
    """Return in what the code of the runs differs: their commit, and files that were changed since."""
    codes = [each.code for each in compared]
    commits = tuple((code.short_commit or "unknown") if code else "-" for code in codes)
    states = [state_text_by_changed_file(code) if code else {} for code in codes]
    names = sorted({name for each in states for name in each})
    rows = [ComparisonRow(label="Commit", cells=commits)]
    for name in names:
        cells = tuple(
            each.get(name, "as committed" if code and code.commit else "-")
            for each, code in zip(states, codes, strict=True)
        )
        rows.append(ComparisonRow(label=visible(name), cells=cells))
    differing = [row for row in rows if row.differs]
    more = len(differing) - _MAX_CODE_ROWS
    if more > 0:
        label = f"and {quantity(more, 'more file')}"
        differing[_MAX_CODE_ROWS:] = [ComparisonRow(label=label, cells=("",) * len(codes))]
    return tuple(differing)


def faster_run_sentence(compared: Sequence[ComparedRun]) -> str:
    """Return in words how the second of two runs does beside the first; empty where that is not known."""
    # Of one that goes on it would change with each step.
    if len(compared) != 2 or not _are_losses_of_one_kind(compared) or any(each.status.is_live for each in compared):
        return ""
    first, second = (_smoothed_losses(each.progress) for each in compared)
    if not first or not second:
        return ""
    for slow, fast, names in ((first, second, "BA"), (second, first, "AB")):
        reached = next((step for step, value in fast if value <= slow[-1][1]), None)
        if reached is not None and fast[-1][1] < slow[-1][1] and reached < slow[-1][0]:
            return f"{names[0]} reaches the last loss of {names[1]} {slow[-1][0] - reached} steps earlier."
    return ""


def _are_losses_of_one_kind(compared: Sequence[ComparedRun]) -> bool:
    """Tell whether a lower loss is better: not between methods, and not where the model learns from rewards."""
    methods = {each.settings[_METHOD_KEY].value for each in compared if each.settings}
    return len(methods) < 2 and not any(each.progress.metrics.series_named("reward") for each in compared)


def _read_compared_run(run: RunFolder) -> ComparedRun:
    status, (profile, settings) = read_status(run), _read_settings(run)
    plan = run.plan()
    global_batch = plan.get("global_batch")
    batch = global_batch if isinstance(global_batch, int) else 0
    return ComparedRun(
        run=run,
        status=status,
        progress=read_progress(run, status.attempts),
        settings=settings,
        tokens_per_step=batch * ((profile.recipe.sequence_length if profile else None) or 0),
        peak_memory=max((_attempt_memory_peak(run, attempt) for attempt in status.attempts), default=0),
        attempt_spans=_attempt_spans(run, status),
        note=run.note(),
        code=read_run_code(run.path),
    )


def _read_settings(run: RunFolder) -> tuple[Profile | None, dict[str, EffectiveSetting]]:
    """Return the profile of a run and its settings in effect; None and none where it cannot be read."""
    if (profile := run.read_profile()) is None:
        return None, {}
    document = yaml_documents.read_document(profile.trainer.config)
    return profile, effective_settings(profile, run.plan(), document)


def _attempt_spans(run: RunFolder, status: RunStatus) -> tuple[AttemptSpan, ...]:
    spans, begin = [], 0.0
    for attempt in status.attempts:
        seconds = (
            attempt.seconds if attempt.seconds is not None else max(0.0, (training_seconds(status) or 0.0) - begin)
        )
        points = read_progress(run, (attempt,)).curve
        if points.first and points.last:
            spans.append(AttemptSpan(points.first.step, points.last.step, begin, begin + seconds))
        begin += seconds
    return tuple(spans)


def _attempt_memory_peak(run: RunFolder, attempt: AttemptStatus) -> int:
    peak = 0.0
    for line in LogTail(run.attempt_log(attempt.number), last_bytes=_LOG_TAIL_BYTES).remaining_lines():
        if "mem" in line or "max allocated" in line:
            peak = max([peak, *(float(text) * 2**30 for text in _GIB_MEMORY_PATTERN.findall(line))])
            peak = max([peak, *(float(text) * 1e6 for text in _MEGATRON_MEMORY_PATTERN.findall(line))])
    return int(peak)


def _smoothed_losses(progress: Progress) -> list[tuple[int, float]]:
    """Return the means of some losses in a row, by the step of the last one."""
    points = progress.curve.points()
    window = min(_LOSSES_PER_MEAN, max(1, len(points) // 4))
    return [
        (points[at - 1].step, sum(point.loss for point in points[at - window : at]) / window)
        for at in range(window, len(points) + 1)
    ]


def _steps_text(progress: Progress) -> str:
    if not progress.step:
        return "-"
    return (
        f"{grouped_digits(progress.step)} of {grouped_digits(progress.steps)}"
        if progress.steps
        else grouped_digits(progress.step)
    )


def _number_comparison_row(
    label: str, values: Sequence[float | None], unit: str, *, lower_is_better: bool | None
) -> ComparisonRow:
    """Return a row of numbers; `lower_is_better` tells that less is better, None that neither is.

    Losses of which neither is better are of different kinds: their difference means nothing.
    """
    known = [value for value in values if value is not None]
    best = None
    comparable = len(known) == len(values) and all(map(math.isfinite, known))
    if lower_is_better is not None and comparable and not _are_nearly_equal(min(known), max(known), unit):
        best = values.index(min(known) if lower_is_better else max(known))
    note = ""
    one_kind = unit != "loss" or lower_is_better is not None
    if comparable and one_kind and len(values) == 2 and known[0] != known[1]:
        note = _difference_text(known[0], known[1], unit, nearly_equal=lower_is_better is None or best is None)
    return ComparisonRow(
        label=label, cells=tuple(_number_text(value, unit) for value in values), note=note, best_index=best
    )


def _are_nearly_equal(low: float, high: float, unit: str) -> bool:
    return abs(high - low) <= abs(high) * (_NEARLY_EQUAL_LOSS_SHARE if unit == "loss" else _NEARLY_EQUAL_SHARE)


def _difference_text(first: float, second: float, unit: str, *, nearly_equal: bool) -> str:
    sign = "+" if second >= first else "-"
    if unit == "time":
        # Of what is shown: 18 s and 20 s are 2 s apart.
        apart = abs(round(second) - round(first))
        return f"{sign}{_number_text(apart, unit)}" if apart else ""
    if unit == "size":
        return f"{sign}{_number_text(abs(second - first), unit)}"
    if unit == "metric":
        return f"{sign}{metric_value_text(abs(second - first))}"
    if unit == "rate" or nearly_equal:
        return f"{sign}{percent(abs(second - first) / first)}" if first else ""
    return f"{sign}{abs(second - first):.3g}"


def _number_text(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "size":
        return size_text(int(value))
    if unit == "loss":
        return loss_text(value)
    if unit == "metric":
        return metric_value_text(value)
    return duration_text(value) if unit == "time" else grouped_digits(value)
