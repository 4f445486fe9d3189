"""A form in one widget: it draws every row itself, and one input stands over the value of the row one is on."""

from collections.abc import Sequence
from typing import ClassVar

from msgspec.structs import replace
from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget
from textual.widgets import Input

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.fields import Value

from ..messages import Chosen
from .entry import Entry, PathSuggester
from .form_lines import AT, FormLine, FormRow, Group, draw, entry_width, lines_of, stops

_UNTYPED = "control characters: edit the profile file"


class Form(Widget, can_focus=True):
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
    ]

    class Moved(Message):
        """The cursor is on another row, or what is typed can be read no longer, or again."""

    class Folded(Message):
        """A group was opened or closed, by its key."""

        def __init__(self, form: "Form", key: str, *, unfolded: bool) -> None:
            """Carry the form, the group's key and whether it is open."""
            super().__init__()
            self.form = form
            self.key = key
            self.unfolded = unfolded

    def __init__(self, *, id: str = "form") -> None:  # noqa: A002 - Textual's name
        """Begin without rows."""
        super().__init__(id=id)
        self.entry = Entry()
        self._groups: tuple[Group, ...] = ()
        self._lines: tuple[FormLine, ...] = ()
        self._drawn: list[Content] = []
        self._strips: dict[int, Strip] = {}
        self._cursor = ""
        self._opened = ""
        self._marked = -1
        self.unfolded: frozenset[str] = frozenset()
        self._unread: dict[str, tuple[str, str, str]] = {}
        self._shown: Value = None  # what the input has been understood as
        self._known: Value = None  # what the row has
        self._posted: list[Value] = []

    def compose(self) -> ComposeResult:
        """Put the input above what is drawn."""
        self.entry.display = False
        yield self.entry

    # What it shows

    def show(self, groups: Sequence[Group]) -> None:
        """Show these rows; what is being typed stays."""
        self._groups = tuple(groups)
        self._arrange()
        row = next((row for row in self.rows if row.key == self._cursor), None)
        if row and self._typing(row):
            self._follow(row)

    @property
    def is_in(self) -> bool:
        """Whether the focus is in the form; a widget itself learns that only later."""
        return self.is_attached and self.screen.focused in {self, self.entry}

    @property
    def row(self) -> FormRow | None:
        """The row in which the cursor is."""
        return self._row_of(self._cursor)

    @property
    def cursor(self) -> str:
        """The key of the row or group in which the cursor is."""
        return self._cursor

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
        return row.hint if row else line.group.hint

    @property
    def chooses(self) -> bool:
        """Whether the values of a row are shown to choose from."""
        return bool(self._opened)

    @property
    def wrong(self) -> bool:
        """Whether something is wrong with the row in which the cursor is."""
        row = self.row
        return bool(row and self._as_typed(row).wrong)

    @property
    def unread(self) -> str:
        """The key of a row whose text cannot be read; empty where there is none."""
        keys = {line.key for line in self._lines}
        return next((key for key in self._unread if key in keys), "")

    @property
    def rows(self) -> tuple[FormRow, ...]:
        """All rows, those of closed groups as well."""
        return tuple(row for group in self._groups for row in group.rows)

    def _row_of(self, key: str) -> FormRow | None:
        return next((line.row for line in self._lines if line.key == key), None)

    def _as_typed(self, row: FormRow) -> FormRow:
        if row.key not in self._unread:
            untyped = row.typed and fields.show(row.value) != row.text
            return replace(row, reason=_UNTYPED) if untyped and not row.reason else row
        text, wrong, hint = self._unread[row.key]
        return replace(row, value=text, wrong=wrong, hint=hint, fix="")

    def _typing(self, row: FormRow) -> bool:
        return row.typed and not self._as_typed(row).reason

    def _arrange(self) -> None:
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
            self._place()
        else:
            self._draw()
            self._align()

    def _here(self) -> int:
        """The line of the cursor: of a row that stands open, the one that is chosen."""
        numbers = [number for number, line in enumerate(self._lines) if line.key == self._cursor]
        if not numbers:
            return -1
        row = self._lines[numbers[0]].row
        if row and self._opened == row.key:
            return numbers[0] + 1 + max(0, self._marked)
        if row and row.stands_open and not row.reason:
            values = [option.value for option in row.options]
            chosen = fields.show(row.value)
            return numbers[values.index(chosen)] if chosen in values else numbers[0]
        return numbers[0]

    def _draw(self) -> None:
        width, here = self.content_size.width, self._here()
        focused = self.is_in
        drawn = [
            draw(
                line,
                width,
                here=focused and number == here,
                marked=self._marked if line.key == self._opened else -1,
                unfolded=line.key in self.unfolded,
            )
            for number, line in enumerate(self._lines)
        ]
        before, self._drawn = self._drawn, drawn
        if len(before) != len(drawn):
            self._strips.clear()
            self.refresh(layout=True)
            return
        changed = [at for at, (old, new) in enumerate(zip(before, drawn, strict=True)) if not old.is_same(new)]
        for at in changed:
            self._strips.pop(at, None)
        if changed:
            self.refresh(*(Region(0, at, width, 1) for at in changed))

    def render_line(self, y: int) -> Strip:
        """Return one line, kept until it changes."""
        if y >= len(self._drawn):
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        if y not in self._strips:
            style = self.visual_style
            (self._strips[y],) = Visual.to_strips(self, self._drawn[y], self.size.width, 1, style, pad=True)
        return self._strips[y]

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """As many lines as there are."""
        del container, viewport, width
        return max(1, len(self._lines))

    def notify_style_update(self) -> None:
        """Draw again in other colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._strips.clear()
        self._draw()
        self._align()
        self.refresh()

    # Where one is

    def go(self, key: str) -> None:
        """Put the cursor on a row, opening the group in which it is."""
        for group in self._groups:
            if group.folds and group.key not in self.unfolded and any(row.key == key for row in group.rows):
                self._fold(group.key)
        self._opened = ""
        self._cursor = key
        self._arrange()
        self.focus(scroll_visible=False)
        self._place()

    def action_move(self, by: int) -> None:
        """Go to the next row, or out of the form."""
        if self._opened:
            self._mark(by)
            return
        keys = [self._lines[stop].key for stop in stops(self._lines)]
        at = keys.index(self._cursor) + by if self._cursor in keys else 0
        if 0 <= at < len(keys):
            self._cursor = keys[at]
            self._draw()
            self._place()
            self.post_message(self.Moved())
            return
        chain = [widget for widget in self.screen.focus_chain if widget not in {self, self.entry}]
        if not chain:
            return
        after = [widget for widget in chain if (widget.region.y - self.region.y) * by > 0]
        beyond = after or chain
        (beyond[0] if by > 0 else beyond[-1]).focus()

    def _place(self) -> None:
        """Put the input where the cursor is, when something is typed there."""
        row = self.row
        mine = self.is_in
        if row and self._typing(row):
            self._posted.clear()
            self._shown = self._known = row.value
            text = self._unread[row.key][0] if row.key in self._unread else row.text
            entry = self.entry
            entry.placeholder = visible(row.held) or row.field.empty
            entry.suggester = _suggester(row)
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
        self._reveal()

    def _align(self) -> None:
        row, at = self.row, self._here()
        if row and at >= 0 and self._typing(row):
            self.entry.styles.offset = (AT, at)
            self.entry.styles.width = entry_width(row, self.content_size.width)
            self.entry.set_class(bool(self._as_typed(row).wrong), "wrong")

    def _reveal(self) -> None:
        if isinstance(self.parent, VerticalScroll) and (at := self._here()) >= 0:
            numbers = stops(self._lines)
            top = 0 if numbers and at <= numbers[0] else at
            region = Region(0, self.virtual_region.y + top, 1, at - top + 1)
            self.parent.scroll_to_region(region, animate=False, force=True, immediate=True)

    def on_focus(self) -> None:
        """Go on where the cursor was."""
        self._draw()
        row = self.row
        if row and self._typing(row):
            self._place()

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

    def _on_fold(self) -> bool:
        return any(group.folds and group.key == self._cursor for group in self._groups)

    def action_cycle(self, by: int) -> None:
        """Choose the next value that can work; open or close a group."""
        if self._on_fold():
            if (by > 0) != (self._cursor in self.unfolded):
                self._fold(self._cursor)
            return
        row = self.row
        if self._opened or row is None:
            self._mark(by)
            return
        possible = [option.value for option in row.options if not option.reason]
        value = fields.show(row.value)
        if not possible:
            self.app.bell()
            return
        at = (possible.index(value) + by) % len(possible) if value in possible else 0
        self._choose(row, possible[at])

    def action_open(self) -> None:
        """Show all values below the row; or open or close the group."""
        row = self.row
        if self._on_fold():
            self._fold(self._cursor)
        elif row and self._opened:
            self.action_take()
        elif row:
            values = [option.value for option in row.options]
            value = fields.show(row.value)
            self._marked = values.index(value) if value in values else 0
            self._opened = row.key
            self._changed()

    def action_take(self) -> None:
        """Take the value that is marked, where it can work."""
        row = self.row
        option = row.options[self._marked] if row and 0 <= self._marked < len(row.options) else None
        if row is None or option is None or option.reason:
            self.app.bell()
            return
        self.action_close()
        self._choose(row, option.value)

    def action_close(self) -> None:
        """Leave the value as it is."""
        self._opened, self._marked = "", -1
        self._changed()

    def _mark(self, by: int) -> None:
        row = self.row
        if row and row.options:
            self._marked = (self._marked + by) % len(row.options)
            self._draw()
            self._reveal()
            self.post_message(self.Moved())

    def _fold(self, key: str) -> None:
        self.unfolded ^= {key}
        self._changed()
        self.post_message(self.Folded(self, key, unfolded=key in self.unfolded))

    def _changed(self) -> None:
        self._arrange()
        self.call_after_refresh(self._reveal)
        self.post_message(self.Moved())
        self.screen.refresh_bindings()

    def _choose(self, row: FormRow, value: str) -> None:
        if value != fields.show(row.value):
            self.post_message(Chosen(row.key, fields.parse(row.field, value)))

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

    # What one types

    def _follow(self, row: FormRow) -> None:
        """Show a value that came from elsewhere, unless it is the answer to what was typed."""
        before, self._known = self._known, row.value
        if row.value in self._posted:
            # More may have been typed since, and must not be written over.
            del self._posted[: self._posted.index(row.value) + 1]
        elif row.value not in (before, self._shown):
            self._posted.clear()
            self._shown = row.value
            self._unread.pop(row.key, None)
            with self.entry.prevent(Input.Changed):
                self.entry.value = row.text

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        row = self.row
        if row is None:
            return
        try:
            value = fields.parse(row.field, event.value)
        except BadInput as error:
            self._unread[row.key] = (event.value, error.remedy.rstrip("."), f"{error.message}. {error.remedy}")
            self._arrange()
            self.post_message(self.Moved())
            return
        was_unread = self._unread.pop(row.key, None)
        self._shown = value
        if value == (self._posted[-1] if self._posted else self._known):
            if was_unread:
                self._arrange()
                self.post_message(self.Moved())
            return
        self._posted.append(value)
        self.post_message(Chosen(row.key, value))


def _suggester(row: FormRow) -> PathSuggester | None:
    if row.field.kind not in {"path", "paths"}:
        return None
    return PathSuggester(" " if row.field.kind == "paths" else "")
