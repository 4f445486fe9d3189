"""Plots in braille: what is drawn for a series, its axes and labels, and what cannot be drawn."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui_train.screens.widgets.plot import PlotAxisOptions, PlotSeries, draw_plot
from tui_train.screens.widgets.text_layout import differing_cells, styled

FALLING = tuple((step, 1.2 + 1.8 * math.exp(-step / 90)) for step in range(1, 560))


def lines(*series, width=80, height=10, axes=None):
    return [row.plain for row in draw_plot(series, axes or PlotAxisOptions(), width, height)]


def labels(drawn):
    return [line.split("│")[0].strip() for line in drawn[:-1] if line.split("│")[0].strip()]


def braille(line):
    return [at for at, char in enumerate(line) if "\u2800" < char <= "\u28ff"]


FEW = ((1, 3.0), (2, 2.0))


@pytest.mark.parametrize(
    ("points", "axes", "width", "left", "below"),
    [
        (FALLING, PlotAxisOptions(x_end=900), 80, "3.00 2.10 1.20", "0 225 450 675 900"),
        (FALLING, PlotAxisOptions(x_end=900, last_share=0.25), 80, "1.2175 1.2105 1.2035", "419 454 489 524 559"),
        (FEW[:1], PlotAxisOptions(), 80, "", "0 1"),
        (FEW, PlotAxisOptions(x_end=2), 80, "", "0 1 2"),
        (FEW[:1], PlotAxisOptions(x_name="step"), 80, "", "0 step 1"),
        (FALLING, PlotAxisOptions(x_end=900, x_name="step"), 80, "", "0 225 450 675 step 900"),
        (FALLING, PlotAxisOptions(x_end=900_000_000), 26, "", "0 900 000 000"),
    ],
    ids=[
        "three round ones and five",
        "last part",
        "of one step",
        "of two steps",
        "of one step by name",
        "with a name",
        "those that would touch",
    ],
)
def test_labels(points, axes, width, left, below):
    drawn = lines(PlotSeries(points), width=width, axes=axes)
    assert left in ("", " ".join(labels(drawn)))
    assert drawn[-1].split() == below.split()
    assert {len(line) for line in drawn} == {width}
    assert len(drawn) == 10


def test_a_label_stands_below_its_step():
    drawn = lines(PlotSeries(FEW), axes=PlotAxisOptions(x_end=5))
    places = [drawn[-1].index(label) for label in "0124"]
    assert places == [6 + round(73 * step / 5) for step in (0, 1, 2, 4)]


def test_a_falling_curve_falls_and_ends_where_its_steps_end_in_whatever_order_they_come():
    drawn = lines(PlotSeries(FALLING), axes=PlotAxisOptions(x_end=900))
    first, last = braille(drawn[0]), braille(drawn[-2])
    assert max(first) < min(last)
    # 559 of 900 steps, in the 73 columns behind the axis
    assert abs(max(last) - (7 + 73 * 559 / 900)) < 2
    assert lines(PlotSeries(FALLING[::-1]), axes=PlotAxisOptions(x_end=900)) == drawn


def test_one_point_is_drawn_and_a_few_are_joined():
    assert sum(len(braille(line)) for line in lines(PlotSeries(((7, 3.0),)))) == 1
    drawn = lines(PlotSeries(((0, 1.0), (100, 2.0))))
    assert {at for line in drawn[:-1] for at in braille(line)} == {*range(7, 80)}


def test_points_with_a_marker_are_drawn_over_the_curve():
    drawn = draw_plot(
        (PlotSeries(FALLING), PlotSeries(((100, 1.8), (500, 1.3)), "$warning", "◆")), PlotAxisOptions(), 80, 10
    )
    marked = [(row.plain[at], span.style) for row in drawn for span in row.spans for at in (span.start,)]
    assert [each for each in marked if each[0] == "◆"] == [("◆", "b $warning")] * 2


def test_two_curves_carry_their_letters():
    one = PlotSeries(FALLING, "$live", letter="A")
    two = PlotSeries([(x, y + 1) for x, y in FALLING], "$warning", letter="B")
    text = "".join(lines(one, two, height=20))
    assert (text.count("A"), text.count("B")) == (5, 5)


def test_a_logarithmic_axis_puts_powers_at_equal_distance():
    drawn = lines(
        PlotSeries([(x, 10.0 ** (-x / 10)) for x in range(31)]), height=14, axes=PlotAxisOptions(is_log_scale=True)
    )
    assert labels(drawn) == ["1", "0.0316", "0.001"]
    rows = [min(y for y, line in enumerate(drawn[:-1]) if at in braille(line)) for at in (8, 43, 77)]
    assert rows == [0, 6, 12]


def test_what_is_not_positive_is_left_out_of_a_logarithmic_axis():
    assert lines(PlotSeries(((1, 0.0), (2, -3.0))), axes=PlotAxisOptions(is_log_scale=True)) == []
    assert (
        labels(lines(PlotSeries(((1, 0.0), (2, 1.0), (3, 10.0))), axes=PlotAxisOptions(is_log_scale=True)))[0] == "10"
    )


@pytest.mark.parametrize("broken", [math.nan, -math.inf, 1e308])
def test_what_is_no_number_or_beyond_all_bounds_is_left_out(broken):
    points = [(1, 2.0), (2, broken), (3, 2.5)]
    assert lines(PlotSeries(points)) == lines(PlotSeries([points[0], points[2]]))
    assert lines(PlotSeries([(1, broken)])) == []


@pytest.mark.parametrize("value", [0.0, -5.0, 1e-12, 1e20])
def test_equal_values_are_called_constant_and_no_plot(value):
    drawn = lines(PlotSeries([(step, value) for step in range(50)]))
    assert drawn[0].rstrip() == f"constant {value:g}"
    assert not "".join(drawn[1:]).strip()


@pytest.mark.parametrize(
    ("values", "is_log_scale", "expected"),
    [
        ((0.00089, 0.0011), False, ["0.00110", "0.00099", "0.00088"]),
        ((1e-5, 9e-4), False, ["9.0e-4", "4.5e-4", "0"]),
        ((0.0, 2e5), False, ["2.0e5", "1.0e5", "0"]),
        ((1e-4, 1.0), True, ["1.0e0", "1.0e-2", "1.0e-4"]),
    ],
)
def test_the_numbers_of_an_axis_have_one_format(values, is_log_scale, expected):
    axes = PlotAxisOptions(is_log_scale=is_log_scale)
    assert labels(lines(PlotSeries([*enumerate(values, start=1)]), axes=axes)) == expected


def test_no_room_and_no_points_draw_nothing():
    assert (
        lines(PlotSeries(FALLING), width=10)
        == lines(PlotSeries(FALLING), height=2)
        == lines(PlotSeries(()))
        == lines()
        == []
    )


@pytest.mark.parametrize(
    "axes",
    [PlotAxisOptions(), PlotAxisOptions(last_share=0.1), PlotAxisOptions(is_log_scale=True)],
    ids=["whole", "end", "log"],
)
def test_numbers_between_which_there_is_none(axes):
    drawn = lines(PlotSeries(((5e-324, 5e-324), (5e-324, 1e-323))), axes=axes)
    assert bool(drawn) != axes.is_log_scale


NUMBERS = st.floats(allow_nan=True, allow_infinity=True)


@given(
    st.lists(st.tuples(NUMBERS, NUMBERS), max_size=30),
    st.tuples(st.integers(0, 200), st.integers(0, 40)),
    st.tuples(NUMBERS, st.sampled_from((1.0, 0.25, 0.1)), st.booleans()).map(lambda values: PlotAxisOptions(*values)),
)
def test_any_numbers_are_drawn_within_their_room(points, room, axes):
    width, height = room
    drawn = lines(PlotSeries(points), width=width, height=height, axes=axes)
    assert drawn == [] or (len(drawn) == height and {len(line) for line in drawn} == {width})


def span(old, new):
    return differing_cells(styled(old), styled(new))


def test_only_the_cells_that_differ_are_written_again():
    assert span("loss 1.25 rate", "loss 1.31 rate") == [(7, 9)]
    assert span("same", "same") == []
    assert span("━━──  5", "━━━─  6") == [(2, 7)]
    assert span("9 left", "10 left") == [(0, 7)]
    assert span("中文 5", "中文 6") == [(5, 6)]
    assert span(f"a{' ' * 20}b", f"c{' ' * 20}d") == [(0, 1), (21, 22)]
    assert differing_cells(styled(("a", "bold"), "b"), styled("a", "b")) == [(0, 1)]
