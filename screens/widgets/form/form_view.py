"""Drawing of a form: its lines, each kept until it changes, and which of them the cursor is on."""

from typing import NamedTuple

from msgspec.structs import replace
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

from tui_train.profile import fields
from tui_train.profile.fields import Value

from .form_lines import FormLine, FormRow, Group, draw_line


class UnreadText(NamedTuple):
    """A text that cannot be read: why, in the row and in the hint, and the value that F2 takes instead."""

    text: str
    why: str
    hint: str
    fix: Value
    fix_title: str


_NOT_TYPABLE = "control characters: edit the profile file"


class FormView(Widget):
    """Rows in groups, drawn in one widget."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name
        """Begin without rows."""
        super().__init__(id=id)
        self._groups: tuple[Group, ...] = ()
        self._lines: tuple[FormLine, ...] = ()
        self._drawn: list[Content] = []
        self._strips: dict[int, Strip] = {}
        self._cursor = ""
        self._open_row = ""  # the row whose values are shown to choose from, and which of them would be taken
        self._marked_option = -1
        self.unfolded: frozenset[str] = frozenset()
        self._unread_texts: dict[str, UnreadText] = {}

    @property
    def holds_focus(self) -> bool:
        """True while the focus is in the form."""
        raise NotImplementedError

    def rebuild_lines(self) -> None:
        """Find the lines again, and draw what has changed."""
        raise NotImplementedError

    def scroll_to_cursor(self) -> None:
        """Scroll to the cursor."""
        raise NotImplementedError

    @property
    def row(self) -> FormRow | None:
        """The row in which the cursor is."""
        return self._row_of(self._cursor)

    @property
    def cursor(self) -> str:
        """The key of the row or group in which the cursor is."""
        return self._cursor

    @property
    def unread_key(self) -> str:
        """The key of a row whose text cannot be read; empty where there is none."""
        keys = {line.key for line in self._lines}
        return next((key for key in self._unread_texts if key in keys), "")

    @property
    def rows(self) -> tuple[FormRow, ...]:
        """All rows, those of closed groups as well."""
        return tuple(row for group in self._groups for row in group.rows)

    def _row_of(self, key: str) -> FormRow | None:
        return next((line.row for line in self._lines if line.key == key), None)

    def _row_as_typed(self, row: FormRow) -> FormRow:
        if row.key not in self._unread_texts:
            untyped = row.is_typed and row.typed_text != row.text
            return replace(row, reason=_NOT_TYPABLE) if untyped and not row.reason else row
        unread = self._unread_texts[row.key]
        return replace(row, value=unread.text, error=unread.why, hint=unread.hint, fix=unread.fix_title)

    def _cursor_line(self) -> int:
        """The line of the cursor: of a row that stands open, the one that is chosen."""
        numbers = [number for number, line in enumerate(self._lines) if line.key == self._cursor]
        if not numbers:
            return -1
        row = self._lines[numbers[0]].row
        if row and self._open_row == row.key:
            return numbers[0] + 1 + max(0, self._marked_option)
        if row and row.stands_open and not row.reason:
            values = [option.value for option in row.options]
            chosen = fields.format_value(row.value)
            return numbers[values.index(chosen)] if chosen in values else numbers[0]
        return numbers[0]

    def _draw(self) -> None:
        width, here = self.content_size.width, self._cursor_line()
        focused = self.holds_focus
        drawn = [
            draw_line(
                line,
                width,
                here=focused and number == here,
                marked=self._marked_option if line.key == self._open_row else -1,
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
        self.refresh()
