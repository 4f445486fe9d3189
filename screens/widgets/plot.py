"""A plot under its title: curves in braille with their axes, drawn for a given room."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import grouped_digits

from .lines import Lines
from .text_layout import MUTED, RULE_STYLE, Styled, fit, heading, merge_cells, styled

_PlotCell = tuple[str, str]
CurvePoints = Sequence[tuple[float, float]]

# What is beyond, or no number, cannot be drawn.
_MAX_DRAWABLE_VALUE = 1e30
_BRAILLE_DOT_BITS = ((1, 2, 4, 64), (8, 16, 32, 128))
_TICK_COUNT = 4
_MAX_LETTERS_PER_CURVE = 5
_MIN_GUTTER_WIDTH = 5  # cells of the labels at the left, at least
_MAX_DIGITS_OF_ZERO = 3  # with more it would be read as a small number
_MIN_FIXED_VALUE, _MIN_EXPONENT_VALUE = 1e-3, 1e5  # outside of these labels have an exponent
_MIN_CURVE_WIDTH, _MIN_CURVE_HEIGHT = 8, 3
SHARE_AND_LABEL_OF_ZOOM_STEPS = ((1.0, ""), (0.25, "last quarter"), (0.05, "last twentieth"))


class PlotSeries(NamedTuple):
    """Points in any order, drawn as a curve; with a `marker` as single points, with a `letter` named on the curve."""

    points: CurvePoints
    style: str = "$live"
    marker: str = ""
    letter: str = ""


class PlotAxisOptions(NamedTuple):
    """Drawn part of the curves: x from 0 to `x_end` (at least the last point), or their last `last_share`.

    `is_log_scale` is about the y axis; `x_label` formats a value of x, and `x_name` precedes the last one.
    """

    x_end: float = 0.0
    last_share: float = 1.0
    is_log_scale: bool = False
    x_label: Callable[[float], str] = grouped_digits
    x_name: str = ""


class _ValueFrame(NamedTuple):
    """Values that dots stand for: x from `left` to `right`, y from `low` to `high`, both as they are drawn."""

    left: float
    right: float
    low: float
    high: float
    width: int
    height: int

    def dot_column(self, x: float) -> int:
        """Return the dot column of a value."""
        return round((x - self.left) / ((self.right - self.left) or 1.0) * (self.width * 2 - 1))

    def dot_row(self, y: float) -> int:
        """Return the dot row of a value, counted from the top."""
        return round((self.high - y) / ((self.high - self.low) or 1.0) * (self.height * 4 - 1))


def draw_plot(series: Sequence[PlotSeries], axis_options: PlotAxisOptions, width: int, height: int) -> list[Content]:
    """Return so many rows of a plot, the last its x labels; none where there is too little room or no point to draw."""
    high = height - 1
    shown = _drawable_series(series, axis_options)
    values = [y for each in shown for _, y in each.points]
    if not values or high < _MIN_CURVE_HEIGHT:
        return []
    low, top, labels = _y_bounds_and_labels(min(values), max(values), log=axis_options.is_log_scale)
    gutter = max(_MIN_GUTTER_WIDTH, *map(len, labels)) + 1
    left, right = _x_range(shown, axis_options)
    frame = _ValueFrame(
        left, right, _value_on_axis(low, axis_options), _value_on_axis(top, axis_options), width - gutter - 1, high
    )
    if frame.width < _MIN_CURVE_WIDTH:
        return []
    if len(values) > 1 and _are_all_equal(values):
        words = fit((f"constant {values[0]:.6g}", MUTED), width)
        return [words.pad_right(width - words.cell_length), *[Content(" " * width)] * high]
    cells = _curve_cells(shown, axis_options, frame)
    marks = {0: labels[0], (high - 1) // 2 if high % 2 else high // 2: labels[1], high - 1: labels[2]}
    rows = [
        styled((f"{marks.get(number, ''):>{gutter - 1}} ", MUTED), ("│", RULE_STYLE), merge_cells(row))
        for number, row in enumerate(cells)
    ]
    return [*rows, _x_label_row(axis_options, left, right, gutter, width)]


def _are_all_equal(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= abs(max(values)) * 1e-9


def drawable_points(points: CurvePoints, *, is_log_scale: bool = False) -> list[tuple[float, float]]:
    """Return the points that can be drawn: numbers within bounds, above 0 for a logarithmic axis."""
    kept = (
        (_zero_if_tiny(x), _zero_if_tiny(y))
        for x, y in points
        if abs(x) < _MAX_DRAWABLE_VALUE and abs(y) < _MAX_DRAWABLE_VALUE
    )
    return [(x, y) for x, y in kept if y > 0 or not is_log_scale]


def _zero_if_tiny(value: float) -> float:
    """Return a number; one that is all but 0 as 0, since no axis has a step as small."""
    return value if abs(value) > 1 / _MAX_DRAWABLE_VALUE else 0.0


def _drawable_series(series: Sequence[PlotSeries], axis_options: PlotAxisOptions) -> list[PlotSeries]:
    """Return the series with the points that can be drawn, in the order of x, and of these the last share."""
    kept = [
        each._replace(points=sorted(drawable_points(each.points, is_log_scale=axis_options.is_log_scale)))
        for each in series
    ]
    if axis_options.last_share >= 1:
        return kept
    last = max((each.points[-1][0] for each in kept if each.points), default=0.0)
    begin = last * (1 - axis_options.last_share)
    return [each._replace(points=[point for point in each.points if point[0] >= begin]) for each in kept]


def _x_range(series: Sequence[PlotSeries], axis_options: PlotAxisOptions) -> tuple[float, float]:
    ends = [each.points[at][0] for each in series if each.points for at in (0, -1)]
    first, last = min(ends), max(ends)
    if axis_options.last_share < 1:
        return (last * (1 - axis_options.last_share), last) if last > 0 else (first - 1, last)
    left = min(0.0, first)
    right = max(last, axis_options.x_end if axis_options.x_end < _MAX_DRAWABLE_VALUE else 0.0)
    return left, right if right > left else left + 1


def _value_on_axis(value: float, axis_options: PlotAxisOptions) -> float:
    return math.log10(value) if axis_options.is_log_scale else value


def _y_bounds_and_labels(low: float, high: float, *, log: bool) -> tuple[float, float, tuple[str, str, str]]:
    """Return where the y axis begins and ends, on round numbers, and its labels from the top: a third is between."""
    if log:
        bottom, top = _round_to_two_digits(low, math.floor), _round_to_two_digits(high, math.ceil)
        if bottom >= top:
            bottom, top = _round_to_two_digits(low * 0.9, math.floor), _round_to_two_digits(high * 1.1, math.ceil)
        middle = math.sqrt(bottom) * math.sqrt(top)
        return bottom, top, _axis_texts((top, middle, bottom))
    if _are_all_equal((low, high)):
        reach = abs(high) * 0.1 or 1.0
        low, high = low - reach, high + reach
    unit = _axis_rounding_unit(high - low)
    first, last = math.floor(low / unit), math.ceil(high / unit)
    last += (last - first) % 2
    bottom, middle, top = (number * unit for number in (first, (first + last) // 2, last))
    digits = max(0, -math.floor(math.log10(unit) + 1e-9))
    return bottom, top, _axis_texts((top, middle, bottom), digits)


def _axis_rounding_unit(value_range: float) -> float:
    """Return 1, 2 or 5 times a power of ten, of which a range has 16 to 40."""
    power: float = 10.0 ** math.floor(math.log10(value_range / 16))
    return next((power * factor for factor in (5, 2) if power * factor <= value_range / 16), power)


def _round_to_two_digits(value: float, rounding: Callable[[float], int]) -> float:
    """Return a positive number with two digits, rounded down or up."""
    power = math.floor(math.log10(value)) - 1
    return float(f"{rounding(value / 10.0**power)}e{power}")


def _axis_texts(values: tuple[float, float, float], digits: int | None = None) -> tuple[str, str, str]:
    """Return the labels of an axis in one format: with so many digits, on a logarithmic axis without `digits`."""
    sizes = [abs(value) for value in values if value]
    smallest = min(sizes, default=1.0) if digits is None else max(sizes, default=1.0)
    has_exponent = smallest < _MIN_FIXED_VALUE or max(sizes, default=1.0) >= _MIN_EXPONENT_VALUE
    one, two, three = (_axis_number_text(value or 0.0, digits, has_exponent=has_exponent) for value in values)
    return one, two, three


def _axis_number_text(value: float, digits: int | None, *, has_exponent: bool) -> str:
    if not value and (has_exponent or (digits or 0) > _MAX_DIGITS_OF_ZERO):
        return "0"
    if has_exponent:
        return f"{value:.1e}".replace("e+0", "e").replace("e-0", "e-")
    return f"{value:.3g}" if digits is None else f"{value:.{max(2, digits)}f}"


def _curve_cells(
    series: Sequence[PlotSeries], axis_options: PlotAxisOptions, frame: _ValueFrame
) -> list[list[_PlotCell]]:
    """Return the cells of all series: a later one is drawn over an earlier one, markers and letters over both."""
    dots = [[0] * frame.width for _ in range(frame.height)]
    styles = [[""] * frame.width for _ in range(frame.height)]
    points: dict[tuple[int, int], _PlotCell] = {}
    for number, each in enumerate(series):
        placed = [(frame.dot_column(x), frame.dot_row(_value_on_axis(y, axis_options))) for x, y in each.points]
        if each.marker:
            points |= {(y // 4, x // 2): (each.marker, f"b {each.style}") for x, y in placed}
            continue
        tops: dict[int, int] = {}
        for x, y in _curve_dots(placed):
            dots[y // 4][x // 2] |= _BRAILLE_DOT_BITS[x % 2][y % 4]
            styles[y // 4][x // 2] = each.style
            tops[x // 2] = y // 4
        if each.letter:
            for column in _letter_columns(number, len(series), frame.width):
                if column in tops:
                    points[tops[column], column] = (each.letter, f"b {each.style}")
    return [
        [
            points.get((y, x)) or ((chr(0x2800 + dot), styles[y][x]) if dot else (" ", ""))
            for x, dot in enumerate(row)
        ]
        for y, row in enumerate(dots)
    ]  # fmt: skip


def _curve_dots(points: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the dots of a curve through these, which are in the order of their columns."""
    yield from points[:1]
    for (x, y), (to_x, to_y) in pairwise(points):
        steps = max(to_x - x, abs(to_y - y))
        for step in range(1, steps + 1):
            yield x + round((to_x - x) * step / steps), y + round((to_y - y) * step / steps)


def _letter_columns(curve_number: int, curve_count: int, width: int) -> list[int]:
    share = (curve_number + 1) / (curve_count + 1)
    return [int((at + share) * width / _MAX_LETTERS_PER_CURVE) for at in range(_MAX_LETTERS_PER_CURVE)]


def _x_label_row(axis_options: PlotAxisOptions, left: float, right: float, gutter: int, width: int) -> Content:
    line, written = [" "] * width, set[str]()
    for tick in (
        0,
        _TICK_COUNT,
        *range(1, _TICK_COUNT),
    ):  # both ends first: where there is no room, the middle is left out
        # On a whole number: of few steps a quarter lies between two.
        value = min(right, max(left, round(left + (right - left) * tick / _TICK_COUNT)))
        number = axis_options.x_label(value)
        text = f"{axis_options.x_name} {number}".strip() if tick == _TICK_COUNT else number
        place = gutter + round((width - gutter - 1) * (value - left) / ((right - left) or 1.0)) - len(text) // 2
        place = max(0, min(width - len(text), max(gutter, place)))
        free = not "".join(line[max(0, place - 1) : place + len(text) + 1]).strip()
        if free and number not in written:
            written.add(number)
            line[place : place + len(text)] = text
    return styled(("".join(line[:width]), MUTED))


class Plot(Lines):
    """Series under a title, as large as there is room; hidden while there is nothing to draw."""

    def show_series(
        self, title: Styled, note: Styled, series: Sequence[PlotSeries], axis_options: PlotAxisOptions
    ) -> None:
        """Draw these from now on."""

        def draw(width: int) -> list[Content]:
            rows = draw_plot(series, axis_options, width, self.content_size.height - 1)
            return [heading(title, note, width), *rows]

        self.show(draw)

    def on_resize(self) -> None:
        """Draw for the new size, which may differ in its height alone."""
        self.redraw()
