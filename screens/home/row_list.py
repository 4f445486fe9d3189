"""A list of any length in one widget, which draws only the rows that are seen."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.visual import Visual

from ..textual_fixes import forward_key
from ..widgets.text_layout import styled

_CURSOR_BAR = "▌"


class Row(NamedTuple):
    """A row: its key (empty: the cursor passes over it), what draws its lines for a width, and how many they are.

    `data` is all that the drawing depends on but the width: a row whose data stay is not drawn again. `section` groups
    the rows between which Tab goes.
    """

    key: str
    data: object
    draw: Callable[[int], Sequence[Content]]
    height: int = 1
    section: str = ""


# Not Textual's OptionList: where one of 1,000 rows has changed, that takes 1.8 times as long to draw it, and 5.8 times
# where all are given again, as Home does every two seconds (8.2.8, 80x24); it has no sections, nor rows of two lines.
class RowList(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows with a cursor; Tab goes to the next section."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", key_display="Enter"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "end(-1)", show=False),
        Binding("end", "end(1)", show=False),
        Binding("tab", "section(1)", show=False),
        Binding("shift+tab", "section(-1)", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

    class Opened(Message):
        """A row was opened, by its key."""

        def __init__(self, key: str) -> None:
            """Carry the key."""
            super().__init__()
            self.key = key

    def __init__(
        self,
        rows: Sequence[Row] = (),
        *,
        id: str,  # noqa: A002 - Textual's name
        start_typing: Callable[[], None],
    ) -> None:
        """Begin with some rows; `start_typing` puts the focus where one types what is to be listed."""
        super().__init__(id=id)
        self._start_typing = start_typing
        self._rows: tuple[Row, ...] = ()
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._positions: dict[str, int] = {}
        self._cursor = ""
        self._drawn: dict[int, Content] = {}
        self._strips: dict[int, Strip] = {}
        self._set_rows(tuple(rows))

    # What it shows

    @property
    def cursor(self) -> str:
        """The key of the row in which the cursor is; empty where there are none."""
        return self._cursor

    @property
    def visible_keys(self) -> tuple[str, ...]:
        """The keys of the rows that are on the screen."""
        top = round(self.scroll_y)
        first = max(0, bisect_right(self._starts, top) - 1)
        last = bisect_right(self._starts, top + max(1, self.size.height))
        return tuple(row.key for row in self._rows[first:last] if row.key)

    def show(self, rows: Sequence[Row], cursor: str = "") -> None:
        """Show these rows; the cursor stays on its row, or goes to `cursor`, or to the nearest."""
        before = self.virtual_size.height, self._cursor
        old, old_starts = self._rows, self._starts
        above = self._line_of_cursor() - round(self.scroll_y)
        self._set_rows(tuple(rows), cursor)
        width = self.content_size.width
        kept = {
            line: content
            for line, content in self._drawn.items()
            if (was := _row_at(old, old_starts, line))
            and (now := _row_at(self._rows, self._starts, line))
            and _is_same_line(was, now)
        }
        self._drawn = kept
        self.virtual_size = Size(self.size.width, self.height_of_rows)
        if before != (self.virtual_size.height, self._cursor) or not width:
            # What the user looks at stays where it is, unless they are to see the beginning.
            top = 0 if not self._stops or self._cursor == self._first_key else self._line_of_cursor() - above
            self.scroll_to(y=max(0, top), animate=False, immediate=True, force=True)
            self._scroll_to_cursor()
            self._strips.clear()
            self.refresh()
        else:
            self._refresh_changed(kept)
        if before[1] != self._cursor:
            self.post_message(self.Moved())

    @property
    def height_of_rows(self) -> int:
        """The lines that all rows take."""
        return self._starts[-1] + self._rows[-1].height if self._rows else 0

    @property
    def _first_key(self) -> str:
        return self._rows[self._stops[0]].key if self._stops else ""

    def _set_rows(self, rows: tuple[Row, ...], cursor: str = "") -> None:
        at = self._positions.get(self._cursor, 0)
        section = self._rows[self._stops[at]].section if self._stops else ""
        stops = [position for position, row in enumerate(rows) if row.key]
        self._rows, self._stops = rows, stops
        self._positions = {rows[position].key: number for number, position in enumerate(stops)}
        self._starts, line = [], 0
        for row in rows:
            self._starts.append(line)
            line += row.height
        wanted = cursor if cursor in self._positions else self._cursor
        if wanted not in self._positions:
            # The next row, or in the end of a section the one before.
            near = [number for number in (at, at - 1) if 0 <= number < len(stops)]
            same = [number for number in near if rows[stops[number]].section == section]
            wanted = rows[stops[(same or near or [0])[0]]].key if stops else ""
        self._cursor = wanted

    def _refresh_changed(self, kept: dict[int, Content]) -> None:
        """Draw the lines on the screen whose rows have changed, and write those that look different."""
        top, width = round(self.scroll_y), self.content_size.width
        for line in list(self._strips):
            if line in kept:
                continue
            before = self._strips.pop(line)
            if top <= line < top + self.size.height and self._strip(line) != before:
                self.refresh(Region(0, line - top, width + self.styles.gutter.width, 1))

    def _content(self, line: int) -> Content:
        if line not in self._drawn:
            position = bisect_right(self._starts, line) - 1
            row, start = self._rows[position], self._starts[position]
            for number, content in enumerate(row.draw(max(1, self.content_size.width - 2))[: row.height]):
                self._drawn[start + number] = content
        return self._drawn.get(line, Content())

    def _strip(self, line: int) -> Strip:
        if line not in self._strips:
            content = self._content(line)
            position = bisect_right(self._starts, line) - 1
            width = self.content_size.width
            if self.has_focus and self._rows[position].key == self._cursor:
                padded = content.pad_right(max(0, width - 1 - content.cell_length))
                content = styled((_CURSOR_BAR, "$primary"), padded).stylize_before("$here")
            else:
                content = styled(" ", content)
            (self._strips[line],) = Visual.to_strips(self, content, width, 1, self.visual_style, pad=True)
        return self._strips[line]

    def render_line(self, y: int) -> Strip:
        """Return a line of what is seen."""
        line = y + round(self.scroll_y)
        if not 0 <= line < self.height_of_rows:
            return Strip.blank(self.size.width, self.visual_style.rich_style)
        return self._strip(line)

    def notify_style_update(self) -> None:
        """Draw again in other colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_mount(self) -> None:
        """Know its height."""
        self.virtual_size = Size(self.size.width, self.height_of_rows)

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._drawn.clear()
        self._strips.clear()
        self.virtual_size = Size(self.size.width, self.height_of_rows)
        self._scroll_to_cursor()
        self.refresh()

    # Where one is

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row."""
        if key not in self._positions or key == self._cursor:
            return
        before, self._cursor = self._cursor, key
        top = round(self.scroll_y)
        self._scroll_to_cursor()
        for changed in (before, key):
            self._drop_strips(changed)
        if round(self.scroll_y) == top:
            self.refresh(*(region for changed in (before, key) for region in self._regions(changed)))
        self.post_message(self.Moved())

    def _drop_strips(self, key: str) -> None:
        for line in self._lines_of(key):
            self._strips.pop(line, None)

    def _lines_of(self, key: str) -> range:
        if key not in self._positions:
            return range(0)
        position = self._stops[self._positions[key]]
        return range(self._starts[position], self._starts[position] + self._rows[position].height)

    def _regions(self, key: str) -> list[Region]:
        top = round(self.scroll_y)
        return [Region(0, line - top, self.size.width, 1) for line in self._lines_of(key)]

    def _line_of_cursor(self) -> int:
        lines = self._lines_of(self._cursor)
        return lines.start if lines else 0

    def _scroll_to_cursor(self) -> None:
        """Scroll so that the cursor is seen; above the first row all that stands over it."""
        lines, height = self._lines_of(self._cursor), self.size.height
        if not lines or not height:
            return
        first, top = 0 if self._cursor == self._first_key else lines.start, round(self.scroll_y)
        if first < top:
            # The title of a section is seen with its first row.
            position = self._stops[self._positions[self._cursor]]
            first -= 1 if position and not self._rows[position - 1].key and first else 0
            self.scroll_to(y=first, animate=False, immediate=True, force=True)
        elif lines.stop > top + height:
            self.scroll_to(y=lines.stop - height, animate=False, immediate=True, force=True)

    def action_move(self, by: int) -> None:
        """Go to the next row."""
        self._go_to_number(self._positions.get(self._cursor, 0) + by)

    def action_page(self, by: int) -> None:
        """Go as many rows on as are seen."""
        self._go_to_number(self._positions.get(self._cursor, 0) + by * max(1, self.size.height - 2))

    def action_end(self, by: int) -> None:
        """Go to the first row, or to the last."""
        self._go_to_number(0 if by < 0 else len(self._stops) - 1)

    def action_section(self, by: int) -> None:
        """Go to the first row of the next section, or of this one or the one before."""
        firsts: dict[str, str] = {}
        for position in self._stops:
            firsts.setdefault(self._rows[position].section, self._rows[position].key)
        sections = list(firsts)
        if not sections:
            return
        here = self._rows[self._stops[self._positions[self._cursor]]].section
        inside = by < 0 and firsts[here] != self._cursor
        self.go_to_row(firsts[sections[(sections.index(here) + (0 if inside else by)) % len(sections)]])

    def _go_to_number(self, number: int) -> None:
        if self._stops:
            self.go_to_row(self._rows[self._stops[max(0, min(number, len(self._stops) - 1))]].key)

    def action_open(self) -> None:
        """Open the row of the cursor."""
        if self._cursor:
            self.post_message(self.Opened(self._cursor))

    def on_click(self, event: events.Click) -> None:
        """Go to the row that is clicked; another click opens it."""
        line = event.y - self.styles.gutter.top + round(self.scroll_y)
        row = _row_at(self._rows, self._starts, line)
        if row is None or not row[0].key:
            return
        if row[0].key == self._cursor and event.chain > 1:
            self.action_open()
        else:
            self.go_to_row(row[0].key)

    def on_key(self, event: events.Key) -> None:
        """Begin to type at once: letters that come in one piece with the slash are none of the screen's keys."""
        focused = self.screen.focused
        if focused is None or focused is self:
            if event.key == "slash":
                event.stop()
                self._start_typing()
            return
        event.stop()
        forward_key(focused, event)

    def on_focus(self) -> None:
        """Show where one is."""
        self._show_cursor()

    def on_blur(self) -> None:
        """Show that one is elsewhere."""
        self._show_cursor()

    def _show_cursor(self) -> None:
        self._drop_strips(self._cursor)
        if self.is_attached and self.size.height:
            self.refresh(*self._regions(self._cursor))


def _row_at(rows: Sequence[Row], starts: Sequence[int], line: int) -> tuple[Row, int] | None:
    """Return the row of a line, and which of its lines that is."""
    position = bisect_right(starts, line) - 1
    if position < 0 or line - starts[position] >= rows[position].height:
        return None
    return rows[position], line - starts[position]


def _is_same_line(was: tuple[Row, int], now: tuple[Row, int]) -> bool:
    return was[1] == now[1] and was[0].key == now[0].key and was[0].data == now[0].data
