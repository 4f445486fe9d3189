"""The lines above the keys: what the focused row is for, or what is wrong."""

from textual.content import Content

from .lines import Lines
from .text_layout import KEY_STYLE, MUTED, fit, styled

_MIN_LINE_COUNT = 2
_SCREEN_HEIGHT_DIVISOR = 3  # a third of it: the row that it is about stays in sight
_MARK_WIDTH = 2  # cells of the mark before the words


class Hint(Lines):
    """The lines above the keys; what they are told changes with the focus, and nothing else is to move with it."""

    def __init__(self) -> None:
        super().__init__(id="hint")

    def show_text(self, text: Content) -> None:
        """Show a text, in more than the usual lines where it needs them."""
        self.show(lambda width: self._hint_lines(text, width))

    def _hint_lines(self, text: Content, width: int) -> list[Content]:
        """Return a text in lines, of which the last one is cut where they would take too much of the screen."""
        room = max(1, width - _MARK_WIDTH)
        lines = text.wrap(room) if text.plain else []
        last = max(_MIN_LINE_COUNT, self.app.size.height // _SCREEN_HEIGHT_DIVISOR) - 1
        if lines[last + 1 :]:
            lines[last:] = [fit(Content(" ").join(lines[last:]), room)]
        marks = (styled(("›", KEY_STYLE), " "), *[Content(" " * _MARK_WIDTH)] * len(lines))
        shown = [
            styled(mark, line if text.spans else (line.plain, MUTED)) for mark, line in zip(marks, lines, strict=False)
        ]
        return [*shown, *[Content(" " * width)] * (_MIN_LINE_COUNT - len(shown))]
