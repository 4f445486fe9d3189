"""The plot of a run's losses, rewards or learning rate, and the options that its keys change."""

from typing import NamedTuple

from tui_train.runner.logs.progress import Progress

from .plot import SHARE_AND_LABEL_OF_ZOOM_STEPS, Plot, PlotAxisOptions, PlotSeries, drawable_points
from .text_layout import StyledPiece

_MAX_CURVE_POINTS = 4000
MIN_PLOT_ROWS = 5  # rows of a plot: its title, a curve and the steps


class PlotOptions(NamedTuple):
    """Options of a run's curves: `zoom_step` counts from all of it to the smallest last part.

    `max_rows` are the rows that are left for a plot, None where there are always enough.
    """

    is_hidden: bool = False
    zoom_step: int = 0
    is_log_scale: bool = False
    shows_learning_rate: bool = False
    max_rows: int | None = None

    def after_key(self, key: str) -> "PlotOptions":
        """Return the options after a key: p hides and shows, z takes the next smaller part, then all of it again."""
        if key == "p":
            return self._replace(is_hidden=not self.is_hidden)
        shown = self._replace(is_hidden=False)
        if key == "z":
            return shown._replace(zoom_step=(self.zoom_step + 1) % len(SHARE_AND_LABEL_OF_ZOOM_STEPS))
        return (
            shown._replace(is_log_scale=not self.is_log_scale)
            if key == "l"
            else shown._replace(shows_learning_rate=not self.shows_learning_rate)
        )


def draw_or_hide_plot(plot: Plot, progress: Progress, options: PlotOptions) -> None:
    """Draw a run's curves; where there is nothing to draw, the plot is not there."""
    if options.shows_learning_rate:
        title, series = "Learning rate", _learning_rate_series(progress)
    else:
        title, series = _reward_or_loss_series(progress)
    narrow = options.max_rows is not None and options.max_rows < MIN_PLOT_ROWS
    plot.display = not (options.is_hidden or narrow) and any(
        drawable_points(each.points, is_log_scale=options.is_log_scale) for each in series
    )
    if not plot.display:
        return
    share, part = SHARE_AND_LABEL_OF_ZOOM_STEPS[options.zoom_step]
    note: list[StyledPiece] = []
    if not options.shows_learning_rate and len(series) > 1:
        note += [("━", "$live"), " train  ", ("◆", "$warning"), " eval"]
    words = ", ".join(filter(None, (part, "log scale" if options.is_log_scale else "")))
    note += [f"{'  ' if note else ''}{words}"] if words else []
    axes = PlotAxisOptions(progress.steps, share, options.is_log_scale, x_name=progress.position_word)
    plot.show_series(title, note, series, axes)


def _reward_or_loss_series(progress: Progress) -> tuple[str, list[PlotSeries]]:
    """Return what says how well it learns, with its name: where rewards are reported, the loss says nothing of that."""
    train, evaluated = (progress.metrics.series_named(name) for name in ("reward", "eval_reward"))
    if train is None:
        return "Loss", _loss_series(progress)
    series = [PlotSeries([(bucket.last, bucket.mean) for bucket in train.all_buckets()])]
    if evaluated:
        points = [(bucket.last, bucket.mean) for bucket in evaluated.all_buckets()]
        series.append(PlotSeries(points, "$warning", "◆"))
    return "Reward", series


def _loss_series(progress: Progress) -> list[PlotSeries]:
    train = PlotSeries([(point.step, point.loss) for point in progress.curve.thinned_points(_MAX_CURVE_POINTS)])
    evaluated = [(point.step, point.loss) for point in progress.evaluations.thinned_points(_MAX_CURVE_POINTS)]
    return [train, PlotSeries(evaluated, "$warning", "◆")] if evaluated else [train]


def _learning_rate_series(progress: Progress) -> list[PlotSeries]:
    points = progress.curve.thinned_points(_MAX_CURVE_POINTS)
    return [PlotSeries([(point.step, point.learning_rate) for point in points if point.learning_rate is not None])]
