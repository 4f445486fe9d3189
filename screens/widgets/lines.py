"""A widget of lines, each drawn for the width there is, and drawn again only where its text changes.

Not Textual's Static: where one of 20 lines has changed, that takes 1.4 times as long, and writes all of them (8.2.8,
80x24).
"""

from collections.abc import Callable, Sequence

from textual.content import Content
from textual.geometry import Region
from textual.widget import Widget

from .text_layout import differing_cells, fit, heading_title

DrawLines = Callable[[int], Sequence[Content]]


class Lines(Widget):
    """Some lines of text; what draws them is given the width and returns them, and one that is longer is cut."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._draw: DrawLines = lambda _width: ()
        self._drawn: tuple[Content, ...] = ()
        self._width = -1

    def show(self, draw: DrawLines) -> None:
        """Draw these from now on; a line that stays the same is not written again."""
        self._draw = draw
        if self.is_attached:
            self.redraw()

    @property
    def line_count(self) -> int:
        """The number of lines at the present width."""
        return len(self._drawn) if self._width > 0 else 0

    @property
    def panels(self) -> tuple[tuple[int, str], ...]:
        """The panels that begin here: each the number of its first line, and its title."""
        titles = enumerate(map(heading_title, self._drawn))
        return tuple((number, title) for number, title in titles if title)

    def show_lines_of_any_width(self, *lines: Content) -> None:
        """Show lines that do not depend on the width."""
        self.show(lambda _width: lines)

    def _lines_for_width(self, width: int) -> tuple[Content, ...]:
        """Return the lines for a width; Textual would fold a longer one over the next."""
        return tuple(fit(line, width) for line in self._draw(width))

    def redraw(self) -> None:
        """Draw for the present size; a line that stays the same is not written again."""
        width = self.content_size.width
        if not width:
            return
        had_width, before = self._width, self._drawn
        self._drawn, self._width = self._lines_for_width(width), width
        if had_width != width or len(before) != len(self._drawn):
            self.refresh(layout=len(before) != len(self._drawn) and self.styles.is_auto_height)
            return
        left = self.styles.padding.left
        changed = [
            Region(left + span[0], number, max(1, span[1] - span[0]), 1)
            for number, (old, new) in enumerate(zip(before, self._drawn, strict=True))
            for span in differing_cells(old, new)
        ]
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        """Draw for the new width."""
        if self.content_size.width != self._width:
            self.redraw()

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many as there are lines."""
        self._drawn, self._width = self._lines_for_width(width), width
        return len(self._drawn)

    def render(self) -> Content:
        """Draw them."""
        return Content("\n").join(self._drawn)
