"""The lines above the keys: what the focused row is for, or what is wrong."""

from rich.text import Text
from textual.widgets import Static

_LINES = 2


class Hint(Static):
    """The lines above the keys; what they are told changes with the focus, and nothing else is to move with it."""

    def __init__(self) -> None:
        """Begin with nothing to say."""
        super().__init__(id="hint", markup=False)
        self._said = Text()
        self._lines = _LINES

    def say(self, text: Text) -> None:
        """Show a text, in more than the usual lines where it needs them."""
        if text == self._said:
            return
        self._said = text
        width = self.size.width
        lines = len(text.wrap(self.app.console, width)) if width else 0
        if (lines := max(_LINES, lines)) != self._lines:
            self._lines = lines
            self.styles.height = lines
        self.update(text, layout=False)

    def on_resize(self) -> None:
        """Find again how many lines it needs."""
        said, self._said = self._said, Text()
        self.say(said)
