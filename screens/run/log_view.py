"""A log of any size: reads and draws only the lines in sight, follows the end until it is scrolled."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import accumulate, dropwhile, islice, pairwise
from time import monotonic
from typing import ClassVar, NamedTuple

from rich.ansi import AnsiDecoder
from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from tui_train.runner.logs.lines import StyledPart, lines_left_on_terminal, styled_lines_left_on_terminal
from tui_train.runs.logs.folded_bars import FoldedBars
from tui_train.runs.logs.logfile import LogFile, LogFileLine
from tui_train.runs.logs.search import FilteredLog
from tui_train.views.readable_log_lines import line_shows_cause, readable_line_parts

_POLL_SECONDS = 0.1  # seconds between two looks for what is new
_REDRAW_SECONDS = 1.0  # seconds between two drawings of what is new: a line that scrolls is written again
_ROWS_PER_WHEEL_TURN = 3
_CELLS_PER_SIDEWAYS_STEP = 16
_SCROLL_BAR_STYLE = Style(dim=True)
_HIT_STYLE = Style(reverse=True)
_MAX_EMPTY_LINES_SKIPPED = 4000  # lines that show nothing, of which a screen may be full


LogSource = LogFile | FilteredLog


class RowPosition(NamedTuple):
    """Position of a screen row: byte offset of its line in the file, and its number in that line."""

    start: int
    row: int = 0


class LogHit(NamedTuple):
    """A matching line: its byte offset, and the matched characters of each row that it is shown as."""

    start: int
    spans: tuple[tuple[tuple[int, int], ...], ...] = ()


class _DrawnRow(NamedTuple):
    place: RowPosition
    end: int
    strip: Strip


class LogView(Widget, can_focus=True):
    """Rows of a log; while it stands at the end it stays there."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"cause"}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup,b", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("left", "scroll_sideways(-1)", show=False),
        Binding("right", "scroll_sideways(1)", show=False),
        Binding("home,g", "go_to_start", "To the start of the log", show=False),
        Binding("end,G", "go_to_end", "To the end of the log, and follow it", show=False),
        Binding("w", "toggle_wrapping", "Wrap long lines", show=False),
        Binding("x", "toggle_raw_lines", "Lines as they are written", show=False),
    ]

    class ViewChanged(Message):
        """The view shows something else, or the log has grown."""

    class Replaced(Message):
        """Message that the log is another one: it was emptied, deleted, or another one stands in its place."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.source: LogSource | None = None
        self.following = True
        self.wrapping = False
        self.as_written = False
        self.cause = ""
        self.hit: LogHit | None = None
        self._top = RowPosition(0)
        self._left = 0
        self._rows: list[_DrawnRow] = []
        self._drawn: list[Strip] = []
        self._stamp = (0, 0)
        self._bytes = 0
        self._redrawn_at = 0.0
        self._bars: FoldedBars | None = None

    def on_mount(self) -> None:
        """Look for what is new."""
        self.set_interval(_POLL_SECONDS, self._redraw_if_changed)

    def notify_style_update(self) -> None:
        """Draw again in the colours of another theme, which are those of the drawn rows."""
        super().notify_style_update()
        if self._drawn:
            self.call_next(self._lay_out)

    def show(self, source: LogSource, *, start_offset: int | None = None) -> None:
        """Show the lines of a source from an offset on; without one its end, and follow it."""
        self.source, self.hit = source, None
        self.following, self._top = start_offset is None, RowPosition(start_offset or 0)
        self._lay_out()

    def show_hit(self, hit: LogHit) -> None:
        """Show where a line matches, some context above it."""
        self.following, self.hit = False, hit
        row, first, last = self._hit_position(hit)
        if not self.wrapping and not self._left <= first <= last < self._left + self.size.width - 2:
            self._left = max(0, first - self.size.width // 2)
        if RowPosition(hit.start, row) not in {row.place for row in self._rows}:
            self._top = RowPosition(hit.start, row)
            self._scroll_by(-(self.size.height // 3))
        self._lay_out()

    def clear_hit(self) -> None:
        """Point out no match any more."""
        if self.hit:
            self.hit = None
            self._lay_out()

    def _hit_position(self, hit: LogHit) -> tuple[int, int, int]:
        """Return on which of a line's rows its first match begins, and its first and last cell in an unwrapped line."""
        row = 0
        for line in islice(self._lines_from(hit.start), 1):
            for shown, spans in zip(lines_left_on_terminal(line.shown_data), hit.spans, strict=False):
                rows = chop_cells(shown, max(1, self.size.width - 1)) if self.wrapping else [shown]
                if spans:
                    first, last = spans[0]
                    above = bisect_right([*accumulate(map(len, rows))], first)
                    return row + above, cell_len(shown[:first]), cell_len(shown[:last])
                row += max(1, len(rows))
        return 0, 0, 0

    @property
    def top_offset(self) -> int:
        """Byte offset in the file of the first visible line."""
        return self._rows[0].place.start if self._rows else 0

    @property
    def bottom_offset(self) -> int:
        """Byte offset in the file behind the last visible line."""
        return self._rows[-1].end if self._rows else 0

    def on_resize(self) -> None:
        """Fill the new size."""
        self._lay_out()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.action_move(-_ROWS_PER_WHEEL_TURN)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll by the wheel."""
        event.stop()
        self.action_move(_ROWS_PER_WHEEL_TURN)

    def on_click(self, event: events.Click) -> None:
        """Go where the bar at the right is clicked."""
        if self.source and event.x == self.size.width - 1:
            self.following = False
            self._top = RowPosition(self.source.size() * event.y // max(1, self.size.height))
            self._lay_out()

    def action_move(self, rows: int) -> None:
        """Scroll by rows; follow when that reaches the end."""
        self._scroll_by(rows)
        self._lay_out()

    def action_page(self, pages: int) -> None:
        """Scroll by screens, one row of which stays."""
        self.action_move(pages * max(1, self.size.height - 1))

    def action_scroll_sideways(self, steps: int) -> None:
        """Scroll sideways."""
        self._left = 0 if self.wrapping else max(0, self._left + steps * _CELLS_PER_SIDEWAYS_STEP)
        self._lay_out()

    def action_go_to_start(self) -> None:
        """Go to the start."""
        self.following, self._top, self._left = False, RowPosition(0), 0
        self._lay_out()

    def action_go_to_end(self) -> None:
        """Go to the end and follow."""
        self.following, self._left = True, 0
        self._lay_out()

    def action_toggle_wrapping(self) -> None:
        """Wrap long lines, or do not."""
        self.wrapping, self._left, self._top = not self.wrapping, 0, RowPosition(self._top.start)
        self._lay_out()

    def action_toggle_raw_lines(self) -> None:
        """Show lines as they are written, or as they are easier to read."""
        self.as_written = not self.as_written
        self._lay_out()

    def highlight_cause_line(self, text: str) -> None:
        """Mark the line that shows why the run failed; empty for none."""
        if text != self.cause:
            self.cause = text
            self._lay_out()

    def _redraw_if_changed(self) -> None:
        """Draw what is new where it is in sight."""
        if self.source is None or not self.is_on_screen:
            return
        stamp, size = self.source.change_stamp(), self.source.size()
        gone = self._stamp[0] not in {0, stamp[0]} or size < self._bytes
        if gone:
            self.following = True
            self.post_message(self.Replaced())
        if gone or (stamp != self._stamp and monotonic() - self._redrawn_at >= _REDRAW_SECONDS):
            self._redrawn_at = monotonic()
            self._lay_out()
        self._bytes = size

    def _scroll_by(self, rows: int) -> None:
        if rows < 0:
            above = [*islice(self._rows_above(self._top), -rows)]
            self.following = self.following and not above
            self._top = above[-1].place if above else self._top
        elif not self.following:
            below = [*islice(self._rows_from(self._top), rows + self.size.height + 1)]
            self.following = len(below) <= rows + self.size.height
            self._top = below[min(rows, len(below) - 1)].place if below else self._top

    def _lay_out(self) -> None:
        """Find the rows in sight, and draw those that have changed."""
        if self.source is None or not self.size.height:
            return
        height = self.size.height
        self._stamp, self._bytes = self.source.change_stamp(), self.source.size()
        if self._bars:
            self._bars.forget_changed_blocks(self._stamp)
        rows = [] if self.following else [*islice(self._rows_from(self._top), height)]
        if len(rows) < height:
            first = rows[0].place if rows else RowPosition(self._bytes)
            rows = [*islice(self._rows_above(first), height - len(rows))][::-1] + rows
        self._top = rows[0].place if rows else RowPosition(0)
        self._rows = rows
        self._draw()
        self.post_message(self.ViewChanged())

    def _draw(self) -> None:
        width, height = self.size
        strips = [row.strip for row in self._rows]
        strips += [Strip([])] * (height - len(strips))
        first, last = self._scroll_bar_thumb_rows(height)
        line = "│" if len(self._rows) == height else " "
        drawn = [
            Strip.join([
                strip.apply_style(self.rich_style).adjust_cell_length(width - 1, self.rich_style),
                Strip([Segment("█" if first <= y <= last else line, self.rich_style + _SCROLL_BAR_STYLE)]),
            ])
            for y, strip in enumerate(strips)
        ]  # fmt: skip
        before, self._drawn = self._drawn, drawn
        if len(before) != len(drawn):
            self.refresh()
        elif changed := [y for y, strip in enumerate(drawn) if strip != before[y]]:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def _scroll_bar_thumb_rows(self, height: int) -> tuple[int, int]:
        """Return the first and the last row of the scroll bar's thumb, by bytes; a log all in sight has none."""
        if not self._bytes or len(self._rows) < height:
            return (height, height)
        first = min(height - 1, self.top_offset * height // self._bytes)
        last = height - 1 if self.following else max(first, min(height - 1, self.bottom_offset * height // self._bytes))
        return (min(first, last), last)

    def render_line(self, y: int) -> Strip:
        """Draw the row at a height."""
        return self._drawn[y] if y < len(self._drawn) else Strip.blank(self.size.width, self.rich_style)

    def _rows_from(self, place: RowPosition) -> Iterator[_DrawnRow]:
        """Yield the rows from a place on."""
        rows = (
            row
            for line in islice(self._lines_from(place.start), _MAX_EMPTY_LINES_SKIPPED)
            for row in self._rows_of_line(line)
        )
        return dropwhile(lambda row: row.place < place, rows)

    def _rows_above(self, place: RowPosition) -> Iterator[_DrawnRow]:
        """Yield the rows before a place, the nearest first."""
        lines = self.source.lines_before(place.start) if self.source else iter(())
        own = islice(self._lines_from(place.start), 1) if place.row else ()
        yield from reversed([row for line in own for row in self._rows_of_line(line) if row.place < place])
        for line in islice(lines, _MAX_EMPTY_LINES_SKIPPED):
            yield from reversed(self._rows_of_line(line))

    def _begins_with_superseded_bar(self, line: LogFileLine) -> bool:
        """Tell whether the first of a line's rows is a state of a bar that goes on, which is not shown.

        All is shown of lines that were searched for or filtered, and of the log as it is written.
        """
        if self.as_written or not isinstance(self.source, LogFile) or (self.hit and self.hit.start == line.start):
            return False
        if self._bars is None or self._bars.log is not self.source:
            self._bars = FoldedBars(self.source)
        return self._bars.begins_with_superseded_state(line)

    def _lines_from(self, start: int) -> Iterator[LogFileLine]:
        return self.source.lines_from(start) if self.source else iter(())

    def _rows_of_line(self, line: LogFileLine) -> list[_DrawnRow]:
        """Return the rows that a line takes."""
        if line.is_hidden_bar_state:
            return []
        spans = self.hit.spans if self.hit and self.hit.start == line.start else ()
        width = max(1, self.size.width - 1)
        strips: list[Strip] = []
        first = int(self._begins_with_superseded_bar(line))
        for index, written in enumerate(styled_lines_left_on_terminal(line.shown_data)[first:], start=first):
            found = spans[index] if index < len(spans) else ()
            # Matches are counted in characters of the line as it is written.
            runs = written if self.as_written or spans else readable_line_parts(written)
            segments = highlighted_segments(runs, found, with_colours=not self.app.no_color)
            if not self.as_written and line_shows_cause(written, self.cause):
                style = self.get_component_rich_style("cause")
                segments = [Segment(text, (shown or Style()) + style) for text, shown, _ in segments]
            if self.wrapping:
                rows = chop_cells("".join(run.text for run in runs), width) or [""]
                strips += map(Strip, split_segments(segments, map(len, rows)))
            else:
                strips.append(_cut_strip(Strip(segments), self._left, width))
        return [
            _DrawnRow(RowPosition(line.start, row), line.end, strip) for row, strip in enumerate(strips, start=first)
        ]


# Its colours, and what is pointed out in it: styles that neither hide nor blink.


def highlighted_segments(
    parts_of_line: Iterable[StyledPart], spans: Iterable[tuple[int, int]], *, with_colours: bool
) -> list[Segment]:
    """Return the runs, and the spans of characters among them pointed out."""
    segments = [
        Segment(run.text, _style_of_escape_parameters(run.colour, with_colours=with_colours) if run.colour else None)
        for run in parts_of_line
    ]
    edges = (0, *(edge for span in spans for edge in span), sum(len(run.text) for run in segments))
    parts = split_segments(segments, (last - first for first, last in pairwise(edges)))
    return [
        Segment(text, (style or Style()) + _HIT_STYLE if index % 2 else style)
        for index, part in enumerate(parts)
        for text, style, _ in part
    ]


def split_segments(segments: Iterable[Segment], lengths: Iterable[int]) -> Iterator[list[Segment]]:
    """Yield segments in parts of so many characters: Textual's own division takes a long line too long."""
    rest = [*segments][::-1]
    for length in lengths:
        part, left = [], length
        while left > 0 and rest:
            text, style, _ = rest.pop()
            part.append(Segment(text[:left], style))
            if len(text) > left:
                rest.append(Segment(text[left:], style))
            left -= len(text)
        yield part


@lru_cache(1000)
def _style_of_escape_parameters(parameters: str, *, with_colours: bool) -> Style:
    """Return the style of an escape sequence's parameters: colours and weights, nothing that hides or blinks."""
    decoder = AnsiDecoder()
    decoder.decode_line(f"\x1b[{parameters}m")
    style = decoder.style
    return Style(
        color=style.color if with_colours else None,
        bgcolor=style.bgcolor if with_colours else None,
        bold=style.bold,
        dim=style.dim,
        italic=style.italic,
        underline=style.underline,
    )


def _cut_strip(strip: Strip, left: int, width: int) -> Strip:
    """Return the part of a line from `left` on that fits; an ellipsis says that it goes on."""
    if strip.cell_length <= left + width:
        return strip.crop(left, left + width)
    *shown, last = strip.crop(left, left + width - 1) or (Segment(""),)
    return Strip([*shown, Segment(f"{last.text}…", last.style)])
