"""The metrics of a run as a grid of small plots, or one of them in full: what is drawn, and where the cursor goes."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import grouped_digits
from tui_train.runner.logs.metric_series import MetricBucket, MetricSeries
from tui_train.views.metric_summaries import MetricPair, metric_value_text, summarize_metric

from ..widgets.plot import SHARE_AND_LABEL_OF_ZOOM_STEPS, PlotAxisOptions, PlotSeries, draw_plot, drawable_points
from ..widgets.text_layout import MUTED, StyledPiece, fit, heading, line_with_cursor, styled

_MIN_CELL_WIDTH, _MIN_CELL_HEIGHT = 38, 7
_MAX_CELL_HEIGHT, _MAX_PLOT_HEIGHT = 16, 29


class MetricGridOptions(NamedTuple):
    """Options of the metric grid: the cursor, pinned metrics, those on a log scale, and the zoom."""

    cursor: str = ""
    pinned: tuple[str, ...] = ()
    log_scaled: frozenset[str] = frozenset()
    is_full: bool = False
    zoom_step: int = 0

    def with_log_scale_toggled(self) -> "MetricGridOptions":
        """Return them with the logarithm of the metric at the cursor, or without it."""
        return self._replace(log_scaled=self.log_scaled ^ {self.cursor})

    def with_pin_toggled(self) -> "MetricGridOptions":
        """Return them with the metric at the cursor among the first, or not."""
        others = tuple(name for name in self.pinned if name != self.cursor)
        return self._replace(pinned=others if len(others) < len(self.pinned) else (*others, self.cursor))

    def with_next_zoom_step(self) -> "MetricGridOptions":
        """Return them with a smaller last part of the steps, then with all of them."""
        return self._replace(zoom_step=(self.zoom_step + 1) % len(SHARE_AND_LABEL_OF_ZOOM_STEPS))


class GridShape(NamedTuple):
    """Columns and rows of the grid, and the height of a cell in lines."""

    columns: int
    rows: int
    cell_height: int

    @property
    def page_size(self) -> int:
        """The number of plots on a page."""
        return self.columns * self.rows


def grid_shape(count: int, width: int, height: int) -> GridShape:
    """Return the grid with the fewest columns in which all plots fit, else with as many as there is room for."""
    most_columns = max(1, width // _MIN_CELL_WIDTH)
    most_rows = max(1, height // _MIN_CELL_HEIGHT)
    count = max(1, count)
    many = next((number for number in range(1, most_columns + 1) if number * most_rows >= count), most_columns)
    rows = min(most_rows, -(-count // many))
    return GridShape(many, rows, min(_MAX_CELL_HEIGHT, max(_MIN_CELL_HEIGHT, height // rows)))


def order_pinned_first(pairs: Sequence[MetricPair], choices: MetricGridOptions) -> list[MetricPair]:
    """Return the metrics with the pinned ones first."""
    place = {name: number for number, name in enumerate(choices.pinned)}
    return sorted(pairs, key=lambda pair: place.get(pair.name, len(place)))


def with_cursor_moved(pairs: Sequence[MetricPair], choices: MetricGridOptions, step: int) -> MetricGridOptions:
    """Return the choices with the cursor so many metrics on, within the first and the last."""
    place = max(0, min(len(pairs) - 1, cursor_index(pairs, choices) + step))
    return choices._replace(cursor=pairs[place].name) if pairs else choices


def cursor_index(pairs: Sequence[MetricPair], choices: MetricGridOptions) -> int:
    """Return the place of the cursor; the first where its metric is not there."""
    return next((at for at, pair in enumerate(pairs) if pair.name == choices.cursor), 0)


def shown_metrics_range_text(pairs: Sequence[MetricPair], choices: MetricGridOptions, shape: GridShape) -> str:
    """Return which metrics are seen of how many; empty where all are."""
    if choices.is_full:
        return f"{cursor_index(pairs, choices) + 1} of {len(pairs)}"
    if len(pairs) <= shape.page_size:
        return ""
    first = _page_start_index(pairs, choices, shape)
    return f"{first + 1}-{min(len(pairs), first + shape.page_size)} of {len(pairs)}"


class MetricDrawer:
    """Draws metrics; a plot is drawn again where its values have changed, not where the cursor has moved."""

    def __init__(self) -> None:
        self._plots: dict[str, tuple[object, tuple[Content, ...]]] = {}

    def grid_lines(
        self, pairs: Sequence[MetricPair], choices: MetricGridOptions, steps: int, size: tuple[int, int]
    ) -> list[Content]:
        """Return the lines of the page with the cursor; `steps` are those of the training, 0 for unknown."""
        width, height = size
        shape = grid_shape(len(pairs), width, height)
        first, at = _page_start_index(pairs, choices, shape), cursor_index(pairs, choices)
        cell_width = width // shape.columns - 1
        cells = []
        for number, pair in enumerate(pairs[first : first + shape.page_size], start=first):
            head = line_with_cursor(_cell_heading(pair, choices, cell_width - 1), cell_width, has_cursor=number == at)
            axes = PlotAxisOptions(steps, 1.0, pair.name in choices.log_scaled)
            plot = self._plot_lines(pair, axes, cell_width - 1, shape.cell_height - 1)
            lines = (head, *(styled(" ", line) for line in plot))
            cells.append([line.pad_right(cell_width + 1 - line.cell_length) for line in lines])
        rows = (cells[row : row + shape.columns] for row in range(0, shape.page_size, shape.columns))
        return [styled(*(cell[line] for cell in row)) for row in rows for line in range(shape.cell_height)]

    def full_metric_lines(
        self, pair: MetricPair, choices: MetricGridOptions, steps: int, size: tuple[int, int]
    ) -> list[Content]:
        """Return the lines of one metric: its plot, with the range of what a point stands for, and its numbers."""
        width, height = size[0] - 2, size[1]
        share, part = SHARE_AND_LABEL_OF_ZOOM_STEPS[choices.zoom_step]
        both = pair.train is not None and pair.evaluation is not None
        note: list[StyledPiece] = [("━", "$live"), " train  ", ("◆", "$warning"), " eval  "] if both else []
        words = (
            part,
            "log scale" if pair.name in choices.log_scaled else "",
            "put first" if pair.name in choices.pinned else "",
        )
        note.append(", ".join(filter(None, words)))
        numbers = [_numbers_line(each, width, is_named=both) for each in (pair.train, pair.evaluation) if each]
        axes = PlotAxisOptions(steps, share, pair.name in choices.log_scaled)
        rows = min(_MAX_PLOT_HEIGHT, height - 1 - len(numbers))
        plot = self._plot_lines(pair, axes, width, rows, with_range=True)
        lines = [styled(" ", line) for line in (heading(pair.name, note, width), *plot, *numbers)]
        return [*lines, *[Content()] * (height - len(lines))]

    def _plot_lines(
        self, pair: MetricPair, axes: PlotAxisOptions, width: int, height: int, *, with_range: bool = False
    ) -> tuple[Content, ...]:
        """Return the lines of a plot, or of why there is none."""
        drawn_of = (pair, axes, width, height)
        if (kept := self._plots.get(pair.name)) and kept[0] == drawn_of:
            return kept[1]
        series = _series_of_pair(pair, with_range=with_range)
        rows = draw_plot(series, axes, width, height)
        if not rows:
            drawable = any(drawable_points(each.points, is_log_scale=axes.is_log_scale) for each in series)
            why = "" if drawable else "no value above 0" if axes.is_log_scale else "no finite value"
            rows = [fit((why, MUTED), width)]
        lines = (*rows, *[Content()] * (height - len(rows)))
        self._plots[pair.name] = (drawn_of, lines)
        return lines


def _page_start_index(pairs: Sequence[MetricPair], choices: MetricGridOptions, shape: GridShape) -> int:
    """Return the first metric of the page with the cursor; whole pages, so that nothing moves within one."""
    return cursor_index(pairs, choices) // shape.page_size * shape.page_size


def _cell_heading(pair: MetricPair, choices: MetricGridOptions, width: int) -> Content:
    note: list[StyledPiece] = [(_last_value_text(pair.main_series), "$foreground")]
    if pair.train and pair.evaluation:
        note += ["  ", ("◆ ", "$warning"), (_last_value_text(pair.evaluation), "$foreground")]
    note += ["  log"] if pair.name in choices.log_scaled else []
    note += ["  put first"] if pair.name in choices.pinned else []
    beside = styled(*note)
    # The name is cut before its value.
    return heading(fit(pair.name, max(8, width - beside.cell_length - 5)), beside, width)


def _last_value_text(series: MetricSeries) -> str:
    _, value = series.last
    return metric_value_text(value if math.isfinite(value) else None)


def _series_of_pair(pair: MetricPair, *, with_range: bool = False) -> list[PlotSeries]:
    drawn = []
    if pair.train:
        buckets = pair.train.all_buckets()
        if with_range and any(bucket.value_count > 1 for bucket in buckets):
            drawn += [
                PlotSeries(_bucket_points(buckets, "low"), MUTED),
                PlotSeries(_bucket_points(buckets, "high"), MUTED),
            ]
        drawn.append(PlotSeries(_bucket_points(buckets, "mean")))
    if pair.evaluation:
        drawn.append(PlotSeries(_bucket_points(pair.evaluation.all_buckets(), "mean"), "$warning", "◆"))
    return drawn


def _bucket_points(buckets: Sequence[MetricBucket], value: str) -> tuple[tuple[float, float], ...]:
    return tuple(((bucket.first + bucket.last) / 2, getattr(bucket, value)) for bucket in buckets)


def _numbers_line(series: MetricSeries, width: int, *, is_named: bool) -> Content:
    found = summarize_metric(series)
    pieces: list[StyledPiece] = [(f"{series.name}  ", MUTED)] if is_named else []
    pieces += [("last ", MUTED), (metric_value_text(found.last), "b")]
    for label, value in (("mean of last 10 %", found.mean_last_tenth), ("min", found.minimum), ("max", found.maximum)):
        pieces += [(f"   {label} ", MUTED), metric_value_text(value)]
    left_out = f", {found.non_finite_count} not finite" if found.non_finite_count else ""
    many = "value" if found.value_count == 1 else "values"
    return fit(styled(*pieces, (f"   {grouped_digits(found.value_count)} {many}{left_out}", MUTED)), width)
