"""A plot under its title: curves in braille in the theme's colours, of which only changed cells are written again."""

from collections.abc import Sequence

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from .braille import PlotAxisOptions, PlotRow, PlotSeries, draw_plot
from .text_layout import Styled, heading, merge_cells


class Plot(Widget):
    """Series under a title, as large as there is room; hidden while there is nothing to draw."""

    def __init__(self, *, id: str | None = None, classes: str = "") -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, classes=classes)
        self._title: Styled = ""
        self._note: Styled = ""
        self._series: tuple[PlotSeries, ...] = ()
        self._axes = PlotAxisOptions()
        self._head = Content()
        self._rows: list[PlotRow] = []

    def show(self, title: Styled, note: Styled, series: Sequence[PlotSeries], axis_options: PlotAxisOptions) -> None:
        """Draw these from now on."""
        self._title, self._note, self._series, self._axes = title, note, tuple(series), axis_options
        self._draw_again()

    def _draw_again(self) -> None:
        width, height = self.content_size
        if not width or not height:
            return
        head, rows = (
            heading(self._title, self._note, width),
            draw_plot(self._series, self._axes, width, height - 1),
        )
        before, self._rows = self._rows, rows
        same, self._head = head.is_same(self._head), head
        if len(before) != len(rows) or not same:
            self.refresh()
        elif changed := [*_changed_cell_ranges(before, rows)]:
            left = self.styles.padding.left
            self.refresh(*(Region(left + first, y + 1, last - first, 1) for y, first, last in changed))

    def on_resize(self) -> None:
        """Draw for the new size."""
        self._rows = []
        self._draw_again()

    def render(self) -> Content:
        """Draw it."""
        return Content("\n").join([self._head, *map(merge_cells, self._rows)]) if self._rows else self._head


def _changed_cell_ranges(before: Sequence[PlotRow], after: Sequence[PlotRow]) -> list[tuple[int, int, int]]:
    """Return the rows that differ, each with the first cell that does and the one behind the last."""
    changed = []
    for y, (old, new) in enumerate(zip(before, after, strict=True)):
        cells = [x for x in range(max(len(old), len(new))) if old[x : x + 1] != new[x : x + 1]]
        if cells:
            changed.append((y, cells[0], cells[-1] + 1))
    return changed
