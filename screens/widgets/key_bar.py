"""The line at the bottom: the keys that work now, the screen's main ones first; a click on one presses it.

Those that a text of the screen names come before the others, and the long words of F2 make room for them.

Not Textual's Footer, a widget for each key: a screen with it takes 2.6 times as long to open, and it 12 times as long
where the keys are looked at again (8.2.8, 80x24, 9 keys).
"""

from collections.abc import Mapping

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.widget import Widget

from tui_train.base.text import quantity

from .text_layout import KEY_STYLE, fit, styled

_HELP_KEY = "f1"
_FIX_KEY = "f2"
_KEYS_SHOWN_FIRST = ("enter", "escape", "tab", _FIX_KEY, "left", "space")
_KEYS_SHOWN_LAST = (_HELP_KEY, "ctrl+p", "q")
_GAP_TEXT, _SMALL_GAP_TEXT = "   ", "  "
_MAX_TEXT_WIDTH = 26  # cells of what a key does
_MIN_FIX_TEXT_WIDTH = 14  # of what F2 does, in less it has the words of its binding
_MAX_SHORT_TEXT_CHARACTERS = 12  # characters that are never more cells than that
_WIDEST_HIDDEN_KEYS_TEXT = ", +10 keys"
_MENU_BINDING = Binding("ctrl+p", "app.command_palette", "Menu")


class KeyBar(Widget):
    """Draws the bindings that are shown, from the focused widget up to the screen."""

    def __init__(self) -> None:
        super().__init__()
        self._line = Content()
        self._drawn_width = -1
        self._screen_texts: Mapping[str, str] = {}
        self._named_keys: tuple[str, ...] = ()
        self._gap_text, self._fix_text_width = _GAP_TEXT, _MAX_TEXT_WIDTH
        self._spans: list[tuple[int, int, str]] = []
        self._update_is_due = False

    def on_mount(self) -> None:
        """Draw again when what can be done changes."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _screen: self._update_keys_soon(), immediate=True)

    def _update_keys_soon(self) -> None:
        if not self._update_is_due:
            self._update_is_due = True
            self.call_next(self._update_keys)

    def _update_keys(self) -> None:
        """Draw again what has changed, once it was drawn and while it is seen: the signal comes far more often."""
        self._update_is_due = False
        if self._drawn_width < 0 or not self.screen.is_current:
            return
        if not (words := self._keys_line()).is_same(self._line):
            self._line = words
            self.refresh()

    def _keys_line(self) -> Content:
        """Return the keys with their words."""
        words = Content()
        self._screen_texts = getattr(self.screen, "footer_text_by_key", {})
        self._named_keys = getattr(self.screen, "keys_named_in_texts", ())
        self._spans = []
        self._gap_text, self._fix_text_width = _GAP_TEXT, _MAX_TEXT_WIDTH
        shown = self._shown_bindings()
        fitting = self._bindings_that_fit(shown)
        if len(fitting) < len(shown):
            self._make_room_for_named_keys(shown)
            fitting = self._bindings_that_fit(shown)
        left_out = len(shown) - len(fitting)
        for binding in fitting:
            words += self._gap_text if words.plain else ""
            start = words.cell_length
            words += styled((self.app.get_key_display(binding), KEY_STYLE), f" {self._key_action_text(binding)}")
            if binding.key == _HELP_KEY and left_out:
                words += f", +{quantity(left_out, 'key')}"
            self._spans.append((start, words.cell_length, binding.key))
        return words

    def render(self) -> Content:
        """Draw those that fit."""
        if self._drawn_width != self.content_size.width:
            self._drawn_width, self._line = self.content_size.width, self._keys_line()
        return self._line

    def on_click(self, event: events.Click) -> None:
        """Press the clicked key."""
        at = event.x - self.styles.padding.left
        for start, end, key in self._spans:
            if start <= at < end:
                self.app.simulate_key(key)

    def _make_room_for_named_keys(self, bindings: list[Binding]) -> None:
        """Shorten the words of F2, and at last the gaps, until the keys that texts name fit, or as many as can."""
        named = {binding.key for binding in bindings} & {*self._named_keys}
        best = (-1, _GAP_TEXT, _MAX_TEXT_WIDTH)
        for self._gap_text in (_GAP_TEXT, _SMALL_GAP_TEXT):
            for self._fix_text_width in range(_MAX_TEXT_WIDTH, _MIN_FIX_TEXT_WIDTH - 2, -1):
                fitting = len(named & {binding.key for binding in self._bindings_that_fit(bindings)})
                if fitting == len(named):
                    return
                if fitting > best[0]:
                    best = (fitting, self._gap_text, self._fix_text_width)
        _, self._gap_text, self._fix_text_width = best

    def _bindings_that_fit(self, bindings: list[Binding]) -> list[Binding]:
        """Return what fits whole: where not all do, the last are left out, and F1 stays, which says how many."""
        gap = self._gap_text
        room = (self.content_size.width or self.app.size.width - 2) + len(gap)
        widths = {
            binding.key: cell_len(f"{self.app.get_key_display(binding)} {self._key_action_text(binding)}{gap}")
            for binding in bindings
        }
        if sum(widths.values()) > room and _HELP_KEY in widths:
            widths[_HELP_KEY] += cell_len(_WIDEST_HIDDEN_KEYS_TEXT)
        order = sorted(bindings, key=lambda binding: binding.key != _HELP_KEY)
        kept: set[str] = set()
        for binding in order:
            room -= widths[binding.key]
            if room < 0:
                break
            kept.add(binding.key)
        return [binding for binding in bindings if binding.key in kept]

    def _key_action_text(self, binding: Binding) -> str:
        """Return what a key does, in the screen's own words where it has some."""
        words = self._screen_texts.get(binding.key, binding.description)
        if binding.key == _FIX_KEY and self._fix_text_width < _MAX_TEXT_WIDTH:
            short = binding.description if self._fix_text_width < _MIN_FIX_TEXT_WIDTH else words
            return fit(short, self._fix_text_width).plain
        return words if len(words) <= _MAX_SHORT_TEXT_CHARACTERS else fit(words, _MAX_TEXT_WIDTH).plain

    def _shown_bindings(self) -> list[Binding]:
        active = [active.binding for active in self.screen.active_bindings.values() if active.enabled]
        found = {
            binding.description: binding
            for binding in reversed(active)
            if binding.show and self._key_action_text(binding)
        }
        found["Menu"] = _MENU_BINDING
        middle = [
            binding.key for binding in found.values() if binding.key not in {*_KEYS_SHOWN_FIRST, *_KEYS_SHOWN_LAST}
        ]
        middle.sort(key=lambda key: key in self._named_keys)
        order = [*_KEYS_SHOWN_FIRST, *reversed(middle), *_KEYS_SHOWN_LAST]
        return sorted(found.values(), key=lambda binding: order.index(binding.key))
