"""The plot of a run: its losses or its learning rate, all of it or the last part, and which key shows what."""

from typing import NamedTuple

from tui_train.runner.logs.progress import Progress

from ..widgets.plot import SHARE_AND_LABEL_OF_ZOOM_STEPS, Plot, PlotAxisOptions, PlotSeries, drawable_points
from ..widgets.text_layout import Piece

_MAX_CURVE_POINTS = 4000
MIN_PLOT_ROWS = 5  # rows of a plot: its title, a curve and the steps


class PlotOptions(NamedTuple):
    """Options of a run's curves: `part` counts from all of it to the smallest last part.

    `room` are the rows that are left for a plot, None where there are always enough.
    """

    hidden: bool = False
    part: int = 0
    log: bool = False
    rate: bool = False
    room: int | None = None

    def after_key(self, key: str) -> "PlotOptions":
        """Return the options after a key: p hides and shows, z takes the next smaller part, then all of it again."""
        if key == "p":
            return self._replace(hidden=not self.hidden)
        shown = self._replace(hidden=False)
        if key == "z":
            return shown._replace(part=(self.part + 1) % len(SHARE_AND_LABEL_OF_ZOOM_STEPS))
        return shown._replace(log=not self.log) if key == "l" else shown._replace(rate=not self.rate)


def draw_or_hide_plot(plot: Plot, progress: Progress, options: PlotOptions) -> None:
    """Draw a run's curves; where there is nothing to draw, the plot is not there."""
    series = _learning_rate_series(progress) if options.rate else _loss_series(progress)
    narrow = options.room is not None and options.room < MIN_PLOT_ROWS
    plot.display = not (options.hidden or narrow) and any(
        drawable_points(each.points, log=options.log) for each in series
    )
    if not plot.display:
        return
    share, part = SHARE_AND_LABEL_OF_ZOOM_STEPS[options.part]
    note: list[Piece] = []
    if not options.rate and len(series) > 1:
        note += [("━", "$live"), " train  ", ("◆", "$warning"), " eval"]
    words = ", ".join(filter(None, (part, "log scale" if options.log else "")))
    note += [f"{'  ' if note else ''}{words}"] if words else []
    axes = PlotAxisOptions(progress.steps, share, options.log, x_name=progress.position_word)
    plot.show("Learning rate" if options.rate else "Loss", note, series, axes)


def _loss_series(progress: Progress) -> list[PlotSeries]:
    train = PlotSeries([(point.step, point.loss) for point in progress.curve.thinned_points(_MAX_CURVE_POINTS)])
    evaluated = [(point.step, point.loss) for point in progress.evaluations.thinned_points(_MAX_CURVE_POINTS)]
    return [train, PlotSeries(evaluated, "$warning", "◆")] if evaluated else [train]


def _learning_rate_series(progress: Progress) -> list[PlotSeries]:
    points = progress.curve.thinned_points(_MAX_CURVE_POINTS)
    return [PlotSeries([(point.step, point.learning_rate) for point in points if point.learning_rate is not None])]
