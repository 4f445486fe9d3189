"""A list from which several are picked: GPUs, or the rungs of the ladder; and one whose order can be changed.

Not Textual's SelectionList: of 16 rows that takes 1.3 times as long to open, and 1.8 times for a key (8.2.8, 80x24); it
has neither lines below a row nor columns, and its rows cannot be moved.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.geometry import Region
from textual.message import Message

from .cursor_list import CursorList, ListRow
from .text_layout import FAILED_MARK, Styled, columns, styled

_SELECTED_BOX = styled(("[x]", "b $primary"))
_NOT_SELECTED_BOX = styled(("[ ]", "$muted"))
_NOT_SELECTABLE_BOX = styled(" ", FAILED_MARK, " ")
_NO_EFFECT_BOX = styled((" – ", "$muted"))


class SelectRow(NamedTuple):
    """A value, its cells, why it cannot be picked (empty: it can), what the hint says of it, and lines below it.

    `is_wrong`: a reason why it cannot be picked is an error; else it merely has no effect here.
    `is_left_out`: it has no effect here, picked or not, and stays as it is.
    """

    value: str
    cells: tuple[tuple[Styled, int], ...]
    why_disabled: str = ""
    hint: str = ""
    below: tuple[Content, ...] = ()
    is_left_out: bool = False
    is_wrong: bool = False


class MultiSelect(CursorList, inherit_bindings=False):
    """Lines with a box each; space picks, up and down move and leave the list at its ends.

    It is as high as its lines: what holds it scrolls.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pick", "Pick"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "go_to_end(-1)", show=False),
        Binding("end", "go_to_end(1)", show=False),
        Binding("tab", "leave(1)", show=False),
        Binding("shift+tab", "leave(-1)", show=False),
        Binding("left_square_bracket", "move_row(-1)", "Earlier", key_display="["),
        Binding("right_square_bracket", "move_row(1)", "Later", key_display="]"),
    ]

    @dataclass
    class Picked(Message):
        """Message that the picked values have changed: the values, in the order of the list."""

        values: tuple[str, ...]

    def __init__(self, *, id: str, ordered: bool = False, why_one_required: str = "") -> None:  # noqa: A002 - Textual's name
        """Make the list; `ordered`: its lines can move; `why_one_required`: why one must stay picked, if it must."""
        super().__init__(id=id)
        self.select_rows: tuple[SelectRow, ...] = ()
        self.picked: tuple[str, ...] = ()
        self._ordered = ordered
        self._why_one_required = why_one_required
        self._refused_at: str | None = None  # the row in which the last one was to be left out

    def show_select_rows(self, rows: Iterable[SelectRow], picked_values: Iterable[str]) -> None:
        """Show these lines, and which of them are picked."""
        self.select_rows, self.picked = tuple(rows), tuple(picked_values)
        self.show(
            [
                ListRow(pick.value, (pick, pick.value in self.picked), _select_row_lines, 1 + len(pick.below))
                for pick in self.select_rows
            ]
        )

    @property
    def was_last_unpick_refused(self) -> bool:
        """True where the last row that is picked was to be left out."""
        return self._refused_at == self.cursor

    @property
    def hint(self) -> str:
        """Hint for the marked line."""
        if self.was_last_unpick_refused:
            return self._why_one_required
        return next((pick.hint for pick in self.select_rows if pick.value == self.cursor), "")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only an ordered list can be reordered."""
        return action != "move_row" or self._ordered

    def go_to_row(self, key: str) -> None:
        """Put the cursor on a row."""
        self._refused_at = None
        super().go_to_row(key)
        self._scroll_parent_to_cursor()

    def focus(self, scroll_visible: bool = True) -> "MultiSelect":
        """Take the focus, and show the cursor's row: of a list that is not seen whole, Textual shows the first."""
        if scroll_visible:
            self._scroll_parent_to_cursor()
        return super().focus(scroll_visible=False)

    def _scroll_parent_to_cursor(self) -> None:
        """Scroll to the cursor's row, and to all that is above the list where nothing there takes the focus."""
        lines = self.state.lines_of_row(self.cursor)
        if lines and isinstance(self.parent, VerticalScroll):
            is_first = self.cursor == self.state.first_row_key and self.screen.focus_chain[:1] == [self]
            end = self.virtual_region.y + lines.stop
            top = 0 if is_first else self.virtual_region.y + lines.start
            self.parent.scroll_to_region(Region(0, top, 1, end - top), animate=False, force=True, immediate=True)

    def action_pick(self) -> None:
        """Pick the line, or put it back."""
        pick = next((pick for pick in self.select_rows if pick.value == self.cursor), None)
        if pick is None:
            return
        wanted = set(self.picked) ^ {pick.value}
        if pick.is_left_out or (pick.why_disabled and pick.value in wanted):
            self.app.bell()
        elif self._why_one_required and not wanted:
            self._refused_at = pick.value
            self.app.bell()
            self.post_message(self.Moved())
        else:
            self._refused_at = None
            self._set_rows_and_post(self.select_rows, wanted)

    def action_move(self, rows: int) -> None:
        """Move to the next line, or out of the list."""
        if key := self.state.row_key_at_distance(rows):
            self.go_to_row(key)
        else:
            self.action_leave(rows)

    def action_page(self, pages: int) -> None:
        """Go as many lines on as are seen, at most to the last; from there out of the list."""
        seen = max(1, min(self.size.height, self.screen.size.height // 2))
        if (key := self.state.row_key_at_distance_or_end(pages * seen)) != self.cursor:
            self.go_to_row(key)
        else:
            self.action_leave(pages)

    def action_go_to_end(self, direction: int) -> None:
        """Go to the first line, or to the last."""
        self.go_to_row(self.state.row_key_at_distance_or_end(direction * len(self.state.rows)))

    def action_leave(self, direction: int) -> None:
        """Go to what is above the list, or below it, if anything is."""
        chain = self.screen.focus_chain
        at = chain.index(self) + (1 if direction > 0 else -1)
        if 0 <= at < len(chain):
            chain[at].focus()

    def action_move_row(self, rows: int) -> None:
        """Move the line itself."""
        other = self.state.row_key_at_distance(rows)
        if not other:
            self.app.bell()
            return
        by_value = {pick.value: pick for pick in self.select_rows}
        swapped = {self.cursor: other, other: self.cursor}
        self._set_rows_and_post(
            [by_value[swapped.get(pick.value, pick.value)] for pick in self.select_rows], set(self.picked)
        )
        self.post_message(self.Moved())

    def click_row(self, key: str, *, is_second_click: bool) -> None:
        """Pick the clicked line."""
        self.go_to_row(key)
        self.action_pick()

    def _set_rows_and_post(self, rows: Iterable[SelectRow], picked_values: set[str]) -> None:
        ordered = tuple(rows)
        self.show_select_rows(ordered, [pick.value for pick in ordered if pick.value in picked_values])
        self.post_message(self.Picked(self.picked))


def _select_row_lines(row: SelectRow, is_picked: bool, width: int) -> list[Content]:
    is_picked = is_picked and not row.is_left_out
    not_picked = _NOT_SELECTED_BOX
    if row.why_disabled:
        not_picked = _NOT_SELECTABLE_BOX if row.is_wrong else _NO_EFFECT_BOX
    box = _SELECTED_BOX if is_picked else not_picked
    style = "$muted" if row.why_disabled and not is_picked else "b" if is_picked else ""
    line = columns(width - 4, *row.cells)
    drawn = [styled(box, " ", line.stylize_before(style)), *(styled("    ", below) for below in row.below)]
    return [columns(width, (text, 0)) for text in drawn]
