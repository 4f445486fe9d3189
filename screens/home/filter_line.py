"""The line above a list in which one types what the list is to show; its input is made when it is first needed."""

from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input

from tui_train.base.text import visible

from ..widgets.text_layout import KEY_STYLE, MUTED, columns, fit, styled

_FILTER_INPUT_WIDTH = 34
_CELLS_BEFORE_FILTER_INPUT = 2  # cells before the field


class _FilterInput(Input):
    """The input of a filter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "screen.open_typed_path_or_leave_filter", "To the list", key_display="Enter"),
        Binding("down", "screen.leave_filter", show=False),
        Binding("escape", "screen.clear_filter", "Clear", key_display="Esc"),
    ]


class FilterLine(Widget):
    """Shows what is filtered for, and how much of everything that leaves."""

    @dataclass(eq=False, repr=False)
    class Changed(Message):
        """Something else is typed."""

        text: str

    def __init__(self, placeholder: str) -> None:
        """Begin with everything; `placeholder` says what can be typed."""
        super().__init__(id="filter")
        self.text = ""
        self._placeholder = placeholder
        self._count_text = ""

    def show_count(self, count_text: str) -> None:
        """Show how much there is."""
        if count_text != self._count_text:
            self._count_text = count_text
            self.refresh()

    def open_input(self) -> None:
        """Type into it, as long as it is there: keys may come before and after."""
        if not self.is_attached:
            return
        entry = next(iter(self.query(_FilterInput)), None)
        if entry is None:
            entry = _FilterInput(self.text, compact=True, select_on_focus=False)
            entry.styles.offset = (_CELLS_BEFORE_FILTER_INPUT, 0)
            entry.styles.width = _FILTER_INPUT_WIDTH
            self.mount(entry)
        entry.display = True
        # At once, not after the next message: the first letter that is typed is none of the screen's keys.
        self.screen.set_focus(entry)

    def clear(self) -> None:
        """Show everything again."""
        for entry in self.query(_FilterInput):
            entry.value = ""
        self.close_input()

    def close_input(self) -> None:
        """Type no longer; what was typed stays."""
        for entry in self.query(_FilterInput):
            entry.display = False
        self.refresh()

    @on(Input.Changed)
    def _post_typed_text(self, event: Input.Changed) -> None:
        event.stop()
        self.text = event.value
        self.post_message(self.Changed(event.value))

    def render(self) -> Content:
        """Draw the line."""
        width = self.content_size.width
        if not (self.text or self._count_text):
            return Content()  # nothing is listed that could be filtered
        words = fit(visible(self.text) or self._placeholder, _FILTER_INPUT_WIDTH)
        field = words.pad_right(max(0, _FILTER_INPUT_WIDTH - words.cell_length))
        shown = field.stylize_before("b $field" if self.text else f"{MUTED} $field")
        return columns(
            width,
            (styled(("/", KEY_STYLE), " ", shown), _FILTER_INPUT_WIDTH + _CELLS_BEFORE_FILTER_INPUT),
            ("", 1),
            (styled((self._count_text, MUTED)), _FILTER_INPUT_WIDTH + 3 - width),
        )
