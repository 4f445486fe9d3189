"""The lines above the keys: what the focused row is for, or what is wrong."""

from textual.content import Content
from textual.widgets import Static

from .ink import KEY, MUTED, ink

_LINES = 2
_MARK = 2  # cells of the mark before the words


class Hint(Static):
    """The lines above the keys; what they are told changes with the focus, and nothing else is to move with it."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        super().__init__(id="hint", markup=False)
        self._said = Content()
        self._lines = _LINES

    def say(self, text: Content) -> None:
        """Show a text, in more than the usual lines where it needs them."""
        if text.is_same(self._said):
            return
        self._said = text
        width = self.content_size.width - _MARK
        lines = text.wrap(width) if width > 0 else [text]
        if (height := max(_LINES, len(lines))) != self._lines:
            self._lines = height
            self.styles.height = height
        mark = ink(("›", KEY), " ") if text.plain else Content()
        shown = [line.stylize_before(MUTED) if not text.spans else line for line in lines]
        self.update(ink(mark, Content("\n  ").join(shown)), layout=False)

    def on_resize(self) -> None:
        """Find again how many lines it needs."""
        said, self._said = self._said, Content()
        self.say(said)
