"""A list of any length in one widget: rows, the one in which the cursor is, and on the screen those that are seen.

Not Textual's OptionList: where one of 1,000 rows has changed, that takes 1.8 times as long to draw it, and 5.8 times
where all are given again, as Home does every two seconds (8.2.8, 80x24); it has no sections, nor rows of two lines.
"""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from .text_layout import line_strip, line_with_cursor


class ListRow(NamedTuple):
    """A row: its key (empty: the cursor passes over it), what draws its lines of its data and a width, and how many.

    A row whose data stay is not drawn again. `section` groups the rows between which Tab goes.
    """

    key: str
    data: tuple[object, ...]
    draw: Callable[..., Sequence[Content]]
    height: int = 1
    section: str = ""

    def lines(self, width: int) -> Sequence[Content]:
        """Return its lines for a width."""
        return self.draw(*self.data, width)


class ListState:
    """Rows below each other, and the key of the one in which the cursor is, empty for none."""

    def __init__(self, rows: Sequence[ListRow] = (), pinned_section: str = "") -> None:
        self.cursor = ""
        self.pinned_section = pinned_section  # the first one, which stays in sight; empty for none
        self._pinned_end = 0
        self.rows: tuple[ListRow, ...] = ()
        self._starts: list[int] = []
        self._keyless_lines: list[int] = []
        self._stops: list[ListRow] = []
        self._numbers: dict[str, int] = {}  # of the stops, by key
        self._lines: dict[str, range] = {}
        self.set_rows(rows)

    @property
    def height(self) -> int:
        """The lines that all rows take."""
        return self._starts[-1] + self.rows[-1].height if self.rows else 0

    @property
    def first_row_key(self) -> str:
        """The key of the first row in which the cursor can be."""
        return self._stops[0].key if self._stops else ""

    def set_rows(self, rows: Sequence[ListRow], cursor: str = "") -> None:
        """Set the rows; the cursor stays on its row, or goes to `cursor`, or to the nearest."""
        at = self._numbers.get(self.cursor, 0)
        section = self._stops[at].section if self._stops else ""
        self.rows = tuple(rows)
        self._stops = [row for row in rows if row.key]
        self._numbers = {row.key: number for number, row in enumerate(self._stops)}
        self._starts, line = [], 0
        for row in rows:
            self._starts.append(line)
            line += row.height
        self._keyless_lines = [start for row, start in zip(self.rows, self._starts, strict=True) if not row.key]
        self._lines = {
            row.key: range(start, start + row.height)
            for row, start in zip(self.rows, self._starts, strict=True)
            if row.key
        }
        pinned = [row.key for row in self._stops if row.section == self.pinned_section] if self.pinned_section else []
        self._pinned_end = self._lines[pinned[-1]].stop + 1 if pinned else 0
        wanted = cursor if cursor in self._numbers else self.cursor
        if wanted not in self._numbers:
            # The next row, or in the end of a section the one before.
            near = [number for number in (at, at - 1) if 0 <= number < len(self._stops)]
            same = [number for number in near if self._stops[number].section == section]
            wanted = self._stops[(same or near or [0])[0]].key if self._stops else ""
        self.cursor = wanted

    def lines_of_row(self, key: str) -> range:
        """Return the lines of a row."""
        return self._lines.get(key, range(0))

    def row_at(self, line: int) -> tuple[ListRow, int] | None:
        """Return the row of a line, and which of its lines that is."""
        at = bisect_right(self._starts, line) - 1
        if at < 0 or line - self._starts[at] >= self.rows[at].height:
            return None
        return self.rows[at], line - self._starts[at]

    def title_line_above(self, line: int) -> int:
        """Return the line of the title under which a line stands, -1 for that of no row, or of one without a key."""
        at = bisect_right(self._keyless_lines, line) - 1
        return self._keyless_lines[at] if at >= 0 and self._keyless_lines[at] < line < self.height else -1

    def row_keys_between_lines(self, top: int, end: int) -> tuple[str, ...]:
        """Return the keys of the rows that have lines from `top` to before `end`."""
        first = max(0, bisect_right(self._starts, top) - 1)
        return tuple(row.key for row in self.rows[first : bisect_right(self._starts, end)] if row.key)

    def row_key_at_distance(self, rows_further: int) -> str:
        """Return the key of the row so many rows further; empty where there is none."""
        at = self._numbers.get(self.cursor, 0) + rows_further
        return self._stops[at].key if 0 <= at < len(self._stops) else ""

    def row_key_at_distance_or_end(self, rows_further: int) -> str:
        """Return the same, or the key of the row at the end."""
        at = self._numbers.get(self.cursor, 0) + rows_further
        return self._stops[max(0, min(at, len(self._stops) - 1))].key if self._stops else ""

    def first_row_key_of_section(self, direction: int) -> str:
        """Return the key of the first row of the next section, or of this one or the one before."""
        firsts: dict[str, str] = {}
        for row in self._stops:
            firsts.setdefault(row.section, row.key)
        if not firsts:
            return ""
        sections, here = list(firsts), self._stops[self._numbers[self.cursor]].section
        inside = direction < 0 and firsts[here] != self.cursor
        return firsts[sections[(sections.index(here) + (0 if inside else direction)) % len(sections)]]

    def pinned_line_count(self, height: int) -> int:
        """Return how many lines stay in sight: those of `pinned_section` and what stands above and right below it.

        None, where they would take more than half of a list of this height.
        """
        return self._pinned_end if self._pinned_end <= height // 2 else 0

    def top_line_to_show_cursor(self, top: int, height: int) -> int:
        """Return by how many lines to scroll, so that the cursor is seen: above the first row all that is over it."""
        lines, pinned = self.lines_of_row(self.cursor), self.pinned_line_count(height)
        if not lines or not height or (lines.stop <= pinned and self.cursor != self.first_row_key):
            return top
        first = 0 if self.cursor == self.first_row_key else lines.start - pinned
        if first < top:
            # The title of a section is seen with its first row.
            above = self.row_at(lines.start - 1)
            return first - 1 if first and above and not above[0].key else first
        return max(top, lines.stop - height)


class CursorList(ScrollView, can_focus=True, inherit_bindings=False):
    """Rows with a cursor; Tab goes to the next section."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open", key_display="Enter"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "go_to_end(-1)", show=False),
        Binding("end", "go_to_end(1)", show=False),
        Binding("tab", "go_to_section(1)", show=False),
        Binding("shift+tab", "go_to_section(-1)", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row."""

    @dataclass(eq=False, repr=False)
    class Opened(Message):
        """A row was opened, by its key."""

        key: str

    def __init__(self, rows: Sequence[ListRow] = (), *, id: str, pinned_section: str = "") -> None:  # noqa: A002 - Textual's name
        """`pinned_section` is the first one, which stays in sight."""
        super().__init__(id=id)
        self.state = ListState(rows, pinned_section)
        self._strips: dict[int, Strip] = {}

    def allow_focus(self) -> bool:
        """Return whether it can take the focus: not while hidden, of which Textual takes no account (8.2.8)."""
        return self.display and super().allow_focus()

    @property
    def cursor(self) -> str:
        """The key of the row in which the cursor is; empty where there are none."""
        return self.state.cursor

    @property
    def visible_keys(self) -> tuple[str, ...]:
        """The keys of the rows that are on the screen."""
        top, pinned = self._top_line, self._pinned_line_count
        seen = self.state.row_keys_between_lines(top + pinned, top + max(1, self.size.height))
        return (*self.state.row_keys_between_lines(0, pinned - 1), *seen) if pinned else seen

    @property
    def _top_line(self) -> int:
        return round(self.scroll_y)

    @property
    def _pinned_line_count(self) -> int:
        return self.state.pinned_line_count(self.size.height)

    def _line_at(self, y: int) -> int:
        """Return the line that is seen at a height; the last pinned one, a blank, gives way to a title out of sight."""
        pinned, top = self._pinned_line_count, self._top_line
        if y == pinned - 1 and (title := self.state.title_line_above(pinned + top)) >= pinned:
            return title
        return y if y < pinned else y + top

    def y_of_line(self, line: int) -> int:
        """Return at which height a line is seen, -1 where it is not."""
        pinned, y = self._pinned_line_count, line - self._top_line
        if pinned and line >= pinned and line == self._line_at(pinned - 1):
            return pinned - 1
        return line if line < pinned else y if pinned <= y < self.size.height else -1

    def show(self, rows: Sequence[ListRow], cursor: str = "") -> None:
        """Show these rows; the cursor stays on its row, or goes to `cursor`, or to the nearest."""
        state, before = self.state, self.state.cursor
        above = (state.lines_of_row(before) or range(1)).start - self._top_line
        was = {line: state.row_at(line) for line in self._strips}
        state.set_rows(rows, cursor)
        changed = [line for line, row in was.items() if not _is_same_line(row, state.row_at(line))]
        if (self.virtual_size.height, before) != (state.height, state.cursor) or not self.content_size.width:
            self.virtual_size = Size(0, state.height)
            # What the user looks at stays where it is, unless they are to see the beginning.
            place = state.lines_of_row(state.cursor)
            self._set_top(place.start - above if place and state.cursor != state.first_row_key else 0)
            self._scroll_to_cursor()
            self._strips.clear()
            self.refresh()
        else:
            self._redraw_lines(changed)
        if before and before != state.cursor:
            self.post_message(self.Moved())

    def _redraw_lines(self, lines: Sequence[int]) -> None:
        """Draw lines again, and write those that are seen and look different."""
        before = {line: self._strips.pop(line, None) for line in lines}
        for line, strip in before.items():
            if (y := self.y_of_line(line)) >= 0 and self._drawn_strip(line) != strip:
                self.refresh(Region(0, y, self.size.width, 1))

    def _drawn_strip(self, line: int) -> Strip:
        if line not in self._strips and (found := self.state.row_at(line)):
            row, width = found[0], self.content_size.width
            here = self.has_focus and row.key == self.cursor
            for number, content in enumerate(row.lines(max(1, width - 2))[: row.height], start=line - found[1]):
                self._strips[number] = line_strip(self, line_with_cursor(content, width, has_cursor=here), width)
        return self._strips.get(line) or Strip.blank(self.size.width, self.visual_style.rich_style)

    def render_line(self, y: int) -> Strip:
        """Return a line of what is seen."""
        return self._drawn_strip(self._line_at(y))

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """Take as many lines as all rows, where that decides the height."""
        return max(1, self.state.height)

    def notify_style_update(self) -> None:
        """Draw again in other colours."""
        self._strips.clear()
        super().notify_style_update()

    def on_mount(self) -> None:
        """Set the virtual size once the list is mounted."""
        self.virtual_size = Size(0, self.state.height)

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._strips.clear()
        self._scroll_to_cursor()
        self.refresh()

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row."""
        before = self.cursor
        if not self.state.lines_of_row(key) or key == before:
            return
        self.state.cursor = key
        self._scroll_to_cursor()
        self._redraw_lines([*self.state.lines_of_row(before), *self.state.lines_of_row(key)])
        self.post_message(self.Moved())

    def _scroll_to_cursor(self) -> None:
        if (top := self.state.top_line_to_show_cursor(self._top_line, self.size.height)) != self._top_line:
            self._set_top(top)

    def _set_top(self, top: int) -> None:
        self.scroll_to(y=max(0, top), animate=False, immediate=True, force=True)

    def action_move(self, rows: int) -> None:
        """Go to the next row."""
        self.go_to_row(self.state.row_key_at_distance_or_end(rows))

    def action_page(self, pages: int) -> None:
        """Go as many rows on as are seen."""
        self.action_move(pages * max(1, self.size.height - 2))

    def action_go_to_end(self, direction: int) -> None:
        """Go to the first row, or to the last."""
        self.action_move(direction * len(self.state.rows))

    def action_go_to_section(self, direction: int) -> None:
        """Go to the first row of the next section, or of this one or the one before."""
        self.go_to_row(self.state.first_row_key_of_section(direction))

    def action_open(self) -> None:
        """Open the row of the cursor."""
        if self.cursor:
            self.post_message(self.Opened(self.cursor))

    def on_click(self, event: events.Click) -> None:
        """Do what a click on the row does."""
        found = self.state.row_at(self._line_at(event.y - self.styles.gutter.top))
        if found and found[0].key:
            self.click_row(found[0].key, is_second_click=event.chain > 1)

    def click_row(self, key: str, *, is_second_click: bool) -> None:
        """Go to the row that is clicked; another click opens it."""
        if is_second_click and key == self.cursor:
            self.action_open()
        else:
            self.go_to_row(key)

    def watch_has_focus(self, focused: bool) -> None:
        """Redraw the cursor's row for the new focus."""
        super().watch_has_focus(focused)
        if self.is_attached:
            self._redraw_lines(self.state.lines_of_row(self.cursor))


def _is_same_line(before: tuple[ListRow, int] | None, after: tuple[ListRow, int] | None) -> bool:
    if before is None or after is None:
        return before is after
    return before[1] == after[1] and before[0].key == after[0].key and before[0].data == after[0].data
