"""The end of a log: keeps a bounded number of lines, draws only those in sight, follows until it is scrolled."""

from collections import deque
from collections.abc import Iterable
from typing import ClassVar

from rich.segment import Segment
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

_KEPT = 5000


class LogView(ScrollView, can_focus=True):
    """Lines of text; while it stands at the end it stays there."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("end", "end", "To the end", show=False)]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        """Begin empty."""
        super().__init__(id=id)
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self._unfinished = ""
        self._follow = True

    def add(self, lines: Iterable[str], unfinished: str = "") -> None:
        """Add lines and show `unfinished` after them."""
        added = tuple(lines)
        dropped = max(0, len(self._lines) + len(added) - _KEPT)
        self._lines.extend(added)
        self._unfinished = unfinished
        follow = self._follow or self.scroll_offset.y >= self.max_scroll_y
        self.virtual_size = Size(self.size.width, len(self._lines) + bool(unfinished))
        if follow:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)
        elif dropped:
            self.scroll_to(y=max(0, self.scroll_offset.y - dropped), animate=False, force=True, immediate=True)
        self.refresh()

    def clear(self) -> None:
        """Forget all lines."""
        self._lines.clear()
        self.add(())

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow again when the end is reached by hand."""
        super().watch_scroll_y(old_value, new_value)
        self._follow = new_value >= self.max_scroll_y

    def on_resize(self) -> None:
        """Stay at the end when the height changes."""
        if self._follow:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)

    def action_end(self) -> None:
        """Go to the end and follow."""
        self._follow = True
        self.scroll_end(animate=False)

    def render_line(self, y: int) -> Strip:
        """Draw the line at a height."""
        position = self.scroll_offset.y + y
        text = self._lines[position] if position < len(self._lines) else ""
        if position == len(self._lines):
            text = self._unfinished
        strip = Strip([Segment(text, self.rich_style)])
        return strip.crop_extend(0, self.size.width, self.rich_style)
