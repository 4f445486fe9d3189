"""The lines above the keys: what the focused row is for, or what is wrong."""

from textual.content import Content
from textual.widgets import Static

from .text_layout import KEY_STYLE, MUTED, fit, styled

_MIN_LINE_COUNT = 2
_MAX_SHARE_OF_SCREEN = 3  # a third of it: the row that it is about stays in sight
_MARK_WIDTH = 2  # cells of the mark before the words


class Hint(Static):
    """The lines above the keys; what they are told changes with the focus, and nothing else is to move with it."""

    def __init__(self) -> None:
        super().__init__(id="hint", markup=False)
        self._shown_text = Content()
        self._lines = _MIN_LINE_COUNT

    def show_text(self, text: Content) -> None:
        """Show a text, in more than the usual lines where it needs them."""
        if text.is_same(self._shown_text):
            return
        self._shown_text = text
        width = self.content_size.width - _MARK_WIDTH
        lines = self._fitting_lines(text, width)
        if (height := max(_MIN_LINE_COUNT, len(lines))) != self._lines:
            self._lines = height
            self.styles.height = height
        mark = styled(("›", KEY_STYLE), " ") if text.plain else Content()
        shown = [line.stylize_before(MUTED) if not text.spans else line for line in lines]
        self.update(styled(mark, Content("\n  ").join(shown)), layout=False)

    def _fitting_lines(self, text: Content, width: int) -> list[Content]:
        """Return a text in lines, of which the last one is cut where they would take too much of the screen."""
        lines, room = text.wrap(width) if width > 0 else [text], self.app.size.height // _MAX_SHARE_OF_SCREEN
        if len(lines) <= max(_MIN_LINE_COUNT, room):
            return lines
        last = max(_MIN_LINE_COUNT, room) - 1
        return [*lines[:last], fit(Content(" ").join(lines[last:]), width)]

    def on_resize(self) -> None:
        """Find again how many lines it needs."""
        said, self._shown_text = self._shown_text, Content()
        self.show_text(said)
