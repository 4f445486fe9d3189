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

from .form_lines import VALUE_START, Group, cursor_stops, entry_width, form_lines
from .form_text import FormText, path_suggester


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
        self.rebuild_lines()
        row = next((row for row in self.rows if row.key == self._cursor), None)
        if row and self.takes_typing(row):
            self._show_new_value(row)
        elif row and row.reason and self.entry.display:
            self.place_entry()

    @property
    def holds_focus(self) -> bool:
        """True while the focus is in the form; a widget itself learns that only later."""
        return self.is_attached and self.screen.focused in {self, self.entry}

    @property
    def hint(self) -> str:
        """Hint for the row of the cursor."""
        line = next((line for line in self._lines if line.key == self._cursor), None)
        if line is None:
            return ""
        row = self._row_as_typed(line.row) if line.row else None
        if row and self._open_row and 0 <= self._marked_option < len(row.options):
            option = row.options[self._marked_option]
            return ": ".join(filter(None, (option.label, option.reason or option.note)))
        if row and (self.has_refused_typing or (row.reason and not row.error)):
            return self.why_refused(row) if self.has_refused_typing else f"{self.why_refused(row)} {row.hint}"
        return row.hint if row else line.group.hint

    def rebuild_lines(self) -> None:
        """Find the lines, keep the cursor on its row or the nearest, and draw what has changed."""
        before = [self._lines[stop].key for stop in cursor_stops(self._lines)]
        self._lines = tuple(
            line._replace(row=self._row_as_typed(line.row)) if line.row else line
            for line in form_lines(self._groups, self.unfolded, self._open_row)
        )
        keys = [self._lines[stop].key for stop in cursor_stops(self._lines)]
        if self._cursor not in keys and keys:
            at = before.index(self._cursor) if self._cursor in before else 0
            self._cursor = next((key for key in (*before[at::-1], *before[at:]) if key in keys), keys[0])
            self._draw()
            self.place_entry()
        else:
            self._draw()
            self._align_entry()

    def on_resize(self) -> None:
        """Draw for the new width."""
        super().on_resize()
        self._align_entry()

    # Where one is

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row, opening the group in which it is."""
        for group in self._groups:
            if group.folds and group.key not in self.unfolded and any(row.key == key for row in group.rows):
                self._toggle_fold(group.key)
        if self.entry.display:
            self._read_entry()
        self._open_row = ""
        self._cursor = key
        self.rebuild_lines()
        self.focus(scroll_visible=False)
        self.place_entry()
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Go to the next row, or out of the form."""
        self._refused_key = ""
        if self._open_row:
            self._mark_option(by)
            return
        keys = [self._lines[stop].key for stop in cursor_stops(self._lines)]
        at = keys.index(self._cursor) + by if self._cursor in keys else 0
        if 0 <= at < len(keys):
            if self.entry.display:
                self._read_entry()
            self._cursor = keys[at]
            self._draw()
            self.place_entry()
            self.post_message(self.Moved())
            return
        chain = [widget for widget in self.screen.focus_chain if widget not in {self, self.entry}]
        if not chain:
            return
        after = [widget for widget in chain if (widget.region.y - self.region.y) * by > 0]
        beyond = after or chain
        (beyond[0] if by > 0 else beyond[-1]).focus()

    def place_entry(self) -> None:
        """Put the input where the cursor is, when something is typed there."""
        row = self.row
        mine = self.holds_focus
        if row and self.takes_typing(row):
            self._posted_values.clear()
            self._parsed_value = self._profile_value = self._value_at_entry = self.committed_row(row).value
            text = self._unread_texts[row.key].text if row.key in self._unread_texts else row.text
            entry = self.entry
            entry.placeholder = visible(row.default_text) or row.field.empty
            entry.suggester = path_suggester(row, self.names_in)
            entry.is_number = row.is_number
            with entry.prevent(Input.Changed):
                entry.value = text
                entry.cursor_position = len(text)
            entry.display = True
            self._align_entry()
            if mine:
                entry.focus(scroll_visible=False)
                if row.is_number:
                    entry.select_all()
        else:
            if mine:
                self.focus(scroll_visible=False)
            self.entry.display = False
        self.scroll_to_cursor()

    def _align_entry(self) -> None:
        row, at = self.row, self._cursor_line()
        if row and at >= 0 and self.takes_typing(row):
            self.entry.styles.offset = (VALUE_START, at)
            self.entry.styles.width = entry_width(row, self.content_size.width)
            self.entry.set_class(bool(self._row_as_typed(row).error), "wrong")

    def scroll_to_cursor(self) -> None:
        """Scroll to the cursor; on the first row to the top, on an open group to its rows."""
        if isinstance(self.parent, VerticalScroll) and (at := self._cursor_line()) >= 0:
            numbers = cursor_stops(self._lines)
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
        if row and self.takes_typing(row):
            self.place_entry()

    def on_descendant_focus(self) -> None:
        """Show where one is."""
        self._draw()

    def on_blur(self) -> None:
        """Show that one is elsewhere."""
        self.call_later(self._hide_entry_if_left)

    def on_descendant_blur(self) -> None:
        """Show that one is elsewhere."""
        self.call_later(self._hide_entry_if_left)

    def _hide_entry_if_left(self) -> None:
        if self.is_attached and not self.holds_focus:
            self.entry.display = False
            self._draw()

    # What one chooses

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer what the row can do."""
        del parameters
        row = self.row
        options = bool(row and not row.is_typed and row.options and not row.reason)
        if action == "cycle":
            return options or self._is_on_fold()
        if action == "open":
            return self._is_on_fold() or (options and bool(row and not row.stands_open))
        return bool(self._open_row) if action in {"take", "close"} else True

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
                self._choose_value(line.row, option.value)
        elif line.kind == "fold":
            self._cursor = line.key
            self.focus(scroll_visible=False)
            self._toggle_fold(line.key)
        elif line.row:
            again = line.key == self._cursor
            self.go_to_row(line.key)
            if again and line.row.options:
                self.action_open()
