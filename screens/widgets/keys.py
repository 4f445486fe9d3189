"""The line at the bottom: the keys that work now, the screen's main ones first; a click on one presses it."""

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.widget import Widget

_FIRST = ("enter", "escape", "f2", "left", "space")
_LAST = ("f1", "ctrl+p", "q")
_MENU = Binding("ctrl+p", "app.command_palette", "Menu", key_display="^p")


class Keys(Widget):
    """Draws the bindings that are shown, from the focused widget up to the screen."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        super().__init__()
        self._words = Text()
        self._spans: list[tuple[int, int, str]] = []

    def on_mount(self) -> None:
        """Draw anew when what can be done changes."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self._look())
        self._look()

    def _look(self) -> None:
        """Find the keys and words; the signal comes far more often than they change."""
        words = Text(no_wrap=True, overflow="ellipsis")
        self._spans = []
        for binding in self._shown():
            key = self.app.get_key_display(binding)
            start = len(words)
            words.append(f" {key} ", "bold reverse").append(f"{binding.description} ")
            self._spans.append((start, len(words), binding.key))
        if words != self._words:
            self._words = words
            self.refresh()

    def render(self) -> Text:
        """Draw as many of them as fit; F1 has the rest."""
        return self._words

    def on_click(self, event: events.Click) -> None:
        """Press the clicked key."""
        for start, end, key in self._spans:
            if start <= event.x < end:
                self.app.simulate_key(key)

    def _shown(self) -> list[Binding]:
        active = [active.binding for active in self.screen.active_bindings.values() if active.enabled]
        found = {binding.description: binding for binding in reversed(active) if binding.show}
        found["Menu"] = _MENU
        middle = [binding.key for binding in found.values() if binding.key not in {*_FIRST, *_LAST}]
        order = [*_FIRST, *reversed(middle), *_LAST]
        return sorted(found.values(), key=lambda binding: order.index(binding.key))
