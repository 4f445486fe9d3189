"""A form row whose value is typed: the row draws label and remark itself, and holds nothing but the input."""

from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.widgets import Input

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.fields import Value
from tui_train.profile.rows import Field
from tui_train.resolve.in_force import InForce
from tui_train.workflow.choices import Option

from ..messages import Chosen
from .cut import at_word
from .rows import LABEL_WIDTH, Row

_UNTYPED = "control characters: edit the profile file"
_LEFT = LABEL_WIDTH + 2  # cells before the input
_SHORT = 16  # cells of an input for a number
_MOST = 42  # cells of a remark beside an input that takes the rest
_AIR = 2


class Unread(Message):
    """What was typed into a row cannot be read, or is again what it was."""


class Entry(Input):
    """An input in which Enter goes to the next step, like everywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "screen.next", "Next", key_display="⏎")]


class TextRow(Row):
    """A value that is typed; it counts as soon as it can be read."""

    def __init__(self, field: Field) -> None:
        """Make the row of a field."""
        super().__init__(field)
        self.entry = Entry(placeholder=field.empty, select_on_focus=False, validate_on=())
        # As `compact=True` does, which finds all styles of the input before it is anywhere.
        self.entry.set_reactive(Input.compact, True)  # pyright: ignore[reportArgumentType] - what a class has
        self.entry.add_class("-textual-compact", update=False)
        if short := field.kind in {"integer", "number"}:
            self.entry.styles.width = _SHORT
        self._short = short
        self._remark = ""
        self._note = ""
        self._shown: Value | None = None
        self._known: Value | None = None
        self._posted: list[Value] = []
        self.unread = False
        self._fit()

    def compose(self) -> ComposeResult:
        """Put the input between what the row draws."""
        yield self.entry

    def render(self) -> Text:
        """Draw label and remark."""
        words = self.head(focused=self.entry.has_focus)
        at = _LEFT + _SHORT + _AIR if self._short else self.size.width - min(_MOST, cell_len(self._remark))
        words.append(" " * (at - words.cell_len)).append(self._remark, "dim")
        return at_word(words, self.size.width)

    def show(self, value: Value, options: tuple[Option, ...], reason: str) -> None:
        """Show a value, unless it is what is being typed."""
        del options
        self.reason = reason or (_UNTYPED if fields.show(value) != visible_value(value) else "")
        entry = self.entry
        entry.disabled = bool(self.reason)
        entry.placeholder = "" if self.reason else self.field.empty
        before, self._known = self._known, value
        if value in self._posted:
            # The answer to something typed; more may have been typed since, and must not be written over.
            del self._posted[: self._posted.index(value) + 1]
        elif value not in (before, self._shown):
            self._posted.clear()
            self._shown = value
            with entry.prevent(Input.Changed):
                entry.value = visible_value(value)
            self.unread = False
        self._draw()

    def in_force(self, held: InForce) -> None:
        """Show it in place of the value, and its source behind it."""
        if held.source and not self.reason:
            value = visible(held.words or fields.show(held.value))
            self.entry.placeholder = value or "not set"
        self.note(visible(held.source))

    def note(self, text: str) -> None:
        """Show a remark behind the value."""
        self._note = text
        self._draw()

    def on_descendant_focus(self) -> None:
        """Mark the row."""
        self._draw()

    def on_descendant_blur(self) -> None:
        """Unmark the row, and show the value as it was understood."""
        if self._shown is not None and not self.unread:
            with self.entry.prevent(Input.Changed):
                self.entry.value = visible_value(self._shown)
        self._draw()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        try:
            value = fields.parse(self.field, event.value)
        except BadInput as error:
            self.unread = True
            self.wrong = f"{error.message}. {error.remedy}"
            self.post_message(Unread())
            return
        self.unread = False
        self._shown = value
        if value == (self._posted[-1] if self._posted else self._known):
            self.post_message(Unread())
            return
        self._posted.append(value)
        self.post_message(Chosen(self.field.key, value))

    def _draw(self) -> None:
        remark = self.reason or self._note
        if remark != self._remark:
            self._remark = remark
            self._fit()
            self.refresh()
        else:
            self.refresh(Region(0, 0, _LEFT, 1))

    def _fit(self) -> None:
        """Leave room for the remark."""
        room = min(_MOST, cell_len(self._remark)) + _AIR if self._remark and not self._short else 0
        self.entry.styles.margin = (0, room, 0, _LEFT)


def visible_value(value: Value) -> str:
    """Return a value as it would be typed, safe to show."""
    return visible(fields.show(value))
