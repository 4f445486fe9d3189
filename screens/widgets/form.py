"""A form in one widget: it draws every row itself, and one input stands over the value of the row one is on."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.widgets import Input

from tui_train.base.text import visible

from .form_lines import AT, Group, entry_width, lines_of, stops
from .form_text import FormText, suggester


class Form(FormText, can_focus=True):
    """Rows in groups: up and down move, left and right change a choice, Space opens it, typing replaces a number."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("shift+tab", "move(-1)", show=False),
        Binding("tab", "move(1)", show=False),
        Binding("left", "cycle(-1)", "Change", key_display="←→"),
        Binding("right", "cycle(1)", show=False),
        Binding("space", "open", "Open"),
        Binding("enter", "take", "Take", key_display="Enter"),
        Binding("escape", "close", "Close", key_display="Esc"),
        Binding("ctrl+z", "undo", show=False),
    ]

    def __init__(self, *, id: str = "form") -> None:  # noqa: A002 - Textual's name
        """Begin without rows."""
        super().__init__(id=id)

    def compose(self) -> ComposeResult:
        """Put the input above what is drawn."""
        self.entry.display = False
        yield self.entry

    # What it shows

    def show(self, groups: Sequence[Group]) -> None:
        """Show these rows; what is being typed stays."""
        self._groups = tuple(groups)
        self.rearrange()
        row = next((row for row in self.rows if row.key == self._cursor), None)
        if row and self.typing(row):
            self._follow(row)
        elif row and row.reason and self.entry.display:
            self.place()

    @property
    def is_in(self) -> bool:
        """Whether the focus is in the form; a widget itself learns that only later."""
        return self.is_attached and self.screen.focused in {self, self.entry}

    @property
    def hint(self) -> str:
        """What is to be said of it."""
        line = next((line for line in self._lines if line.key == self._cursor), None)
        if line is None:
            return ""
        row = self._as_typed(line.row) if line.row else None
        if row and self._opened and 0 <= self._marked < len(row.options):
            option = row.options[self._marked]
            return ": ".join(filter(None, (option.label, option.reason or option.note)))
        if row and (self.refuses or (row.reason and not row.wrong)):
            return self.why_refused(row) if self.refuses else f"{self.why_refused(row)} {row.hint}"
        return row.hint if row else line.group.hint

    def rearrange(self) -> None:
        """Find the lines, keep the cursor on its row or the nearest, and draw what has changed."""
        before = [self._lines[stop].key for stop in stops(self._lines)]
        self._lines = tuple(
            line._replace(row=self._as_typed(line.row)) if line.row else line
            for line in lines_of(self._groups, self.unfolded, self._opened)
        )
        keys = [self._lines[stop].key for stop in stops(self._lines)]
        if self._cursor not in keys and keys:
            at = before.index(self._cursor) if self._cursor in before else 0
            self._cursor = next((key for key in (*before[at::-1], *before[at:]) if key in keys), keys[0])
            self._draw()
            self.place()
        else:
            self._draw()
            self._align()

    def on_resize(self) -> None:
        """Draw for the new width."""
        super().on_resize()
        self._align()

    # Where one is

    def go(self, key: str) -> None:
        """Put the cursor on a row, opening the group in which it is."""
        for group in self._groups:
            if group.folds and group.key not in self.unfolded and any(row.key == key for row in group.rows):
                self._fold(group.key)
        if self.entry.display:
            self._read()
        self._opened = ""
        self._cursor = key
        self.rearrange()
        self.focus(scroll_visible=False)
        self.place()
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Go to the next row, or out of the form."""
        self._refusing = ""
        if self._opened:
            self._mark(by)
            return
        keys = [self._lines[stop].key for stop in stops(self._lines)]
        at = keys.index(self._cursor) + by if self._cursor in keys else 0
        if 0 <= at < len(keys):
            if self.entry.display:
                self._read()
            self._cursor = keys[at]
            self._draw()
            self.place()
            self.post_message(self.Moved())
            return
        chain = [widget for widget in self.screen.focus_chain if widget not in {self, self.entry}]
        if not chain:
            return
        after = [widget for widget in chain if (widget.region.y - self.region.y) * by > 0]
        beyond = after or chain
        (beyond[0] if by > 0 else beyond[-1]).focus()

    def place(self) -> None:
        """Put the input where the cursor is, when something is typed there."""
        row = self.row
        mine = self.is_in
        if row and self.typing(row):
            self._posted.clear()
            self._shown = self._known = self._began = self.sound(row).value
            text = self._unread[row.key].text if row.key in self._unread else row.text
            entry = self.entry
            entry.placeholder = visible(row.held) or row.field.empty
            entry.suggester = suggester(row, self.names_in)
            entry.number = row.short
            with entry.prevent(Input.Changed):
                entry.value = text
                entry.cursor_position = len(text)
            entry.display = True
            self._align()
            if mine:
                entry.focus(scroll_visible=False)
                if row.short:
                    entry.select_all()
        else:
            if mine:
                self.focus(scroll_visible=False)
            self.entry.display = False
        self.reveal()

    def _align(self) -> None:
        row, at = self.row, self._here()
        if row and at >= 0 and self.typing(row):
            self.entry.styles.offset = (AT, at)
            self.entry.styles.width = entry_width(row, self.content_size.width)
            self.entry.set_class(bool(self._as_typed(row).wrong), "wrong")

    def reveal(self) -> None:
        """Scroll to the cursor; on the first row to the top, on an open group to its rows."""
        if isinstance(self.parent, VerticalScroll) and (at := self._here()) >= 0:
            numbers = stops(self._lines)
            top = 0 if numbers and at <= numbers[0] else at
            opened = self._cursor if self._cursor in self.unfolded else None
            below = sum(line.group.key == opened for line in self._lines[at + 1 :]) if opened else 0
            below = min(below, max(0, self.parent.size.height - 1))
            region = Region(0, self.virtual_region.y + top, 1, at - top + 1 + below)
            self.parent.scroll_to_region(region, animate=False, force=True, immediate=True)

    def on_focus(self) -> None:
        """Go on where the cursor was."""
        self._draw()
        row = self.row
        if row and self.typing(row):
            self.place()

    def on_descendant_focus(self) -> None:
        """Show where one is."""
        self._draw()

    def on_blur(self) -> None:
        """Show that one is elsewhere."""
        self.call_later(self._left)

    def on_descendant_blur(self) -> None:
        """Show that one is elsewhere."""
        self.call_later(self._left)

    def _left(self) -> None:
        if self.is_attached and not self.is_in:
            self.entry.display = False
            self._draw()

    # What one chooses

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        del parameters
        row = self.row
        options = bool(row and not row.typed and row.options and not row.reason)
        if action == "cycle":
            return options or self._on_fold()
        if action == "open":
            return self._on_fold() or (options and bool(row and not row.stands_open))
        return bool(self._opened) if action in {"take", "close"} else True

    def on_click(self, event: events.Click) -> None:
        """Go to what is clicked: a value is chosen, a group opened, an arrow turned."""
        number = event.get_content_offset(self)
        if number is None or not 0 <= number.y < len(self._lines):
            return
        line = self._lines[number.y]
        if line.kind == "option" and line.row:
            option = line.row.options[line.option]
            self._cursor = line.key
            self.action_close()
            if not option.reason:
                self._choose(line.row, option.value)
        elif line.kind == "fold":
            self._cursor = line.key
            self.focus(scroll_visible=False)
            self._fold(line.key)
        elif line.row:
            again = line.key == self._cursor
            self.go(line.key)
            if again and line.row.options:
                self.action_open()
