"""The loss over the steps."""

from textual_plotext import PlotextPlot

from tui_train.supervisor.curve import Curve

_MOST_POINTS = 400
_TICKS = 6
_HIGHEST = 1e30  # what is beyond, or no number, cannot be drawn


class LossPlot(PlotextPlot):
    """Is there from the second point on, unless it is hidden."""

    def draw(self, curve: Curve) -> None:
        """Draw the points that can be drawn, and of very many only some."""
        shown = [point for point in curve.thinned(_MOST_POINTS) if abs(point.loss) < _HIGHEST]
        self.display = len(shown) > 1 and not self.has_class("hidden")
        if len(shown) < 2:
            return
        self.plt.clear_data()
        self.plt.clear_figure()
        self.plt.plot([point.step for point in shown], [point.loss for point in shown], marker="braille")
        first, last = shown[0].step, shown[-1].step
        ticks: list[float] = sorted({first + (last - first) * part // _TICKS for part in range(_TICKS + 1)})
        self.plt.xticks(ticks, [str(tick) for tick in ticks])
        self.plt.title("loss")
        self.refresh()
