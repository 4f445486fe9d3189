"""A list from which several are picked: GPUs, or the rungs of the ladder; and one whose order can be changed."""

from typing import ClassVar, NamedTuple

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from .text_layout import FAILED, Styled, columns, styled

_BAR = "▌"
_SELECTED = styled(("[x]", "b $primary"))
_NOT_SELECTED = styled(("[ ]", "$muted"))
_NOT_SELECTABLE = styled(" ", FAILED, " ")


class SelectRow(NamedTuple):
    """A value, its cells, why it cannot be picked (empty: it can), what the hint says of it, and lines below it."""

    value: str
    cells: tuple[tuple[Styled, int], ...]
    reason: str = ""
    hint: str = ""
    below: tuple[Content, ...] = ()

    @property
    def height(self) -> int:
        """The lines that it takes."""
        return 1 + len(self.below)


class MultiSelect(Widget, can_focus=True):
    """Lines with a box each; space picks, up and down move and leave the list at its ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pick", "Pick"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("left_square_bracket", "shift(-1)", "Earlier", key_display="["),
        Binding("right_square_bracket", "shift(1)", "Later", key_display="]"),
    ]
    picks: reactive[tuple[SelectRow, ...]] = reactive((), layout=True)
    picked: reactive[tuple[str, ...]] = reactive(())
    cursor: reactive[int] = reactive(0, repaint=False)

    class Picked(Message):
        """Message that the picked values have changed: the values, in the order of the list."""

        def __init__(self, picks: "MultiSelect", values: tuple[str, ...]) -> None:
            """Carry the list and the values."""
            super().__init__()
            self.picks = picks
            self.values = values

        @property
        def control(self) -> "MultiSelect":
            """The list."""
            return self.picks

    def __init__(self, *, id: str, ordered: bool = False, why_one_required: str = "") -> None:  # noqa: A002 - Textual's name
        """Make the list; `ordered`: its lines can move; `why_one_required`: why one must stay picked, if it must."""
        super().__init__(id=id)
        self.ordered = ordered
        self.why_one_required = why_one_required
        self._has_refused = False

    class Moved(Message):
        """Another line is marked."""

    @property
    def hint(self) -> str:
        """Hint for the marked line."""
        if self._has_refused:
            return self.why_one_required
        return self.picks[self.cursor].hint if self.cursor < len(self.picks) else ""

    def watch_cursor(self, before: int, now: int) -> None:
        """Draw both lines, and have the hint line say it."""
        self._has_refused = False
        self.refresh(*(self._region_of(position) for position in (before, now) if position < len(self.picks)))
        self.post_message(self.Moved())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only an ordered list can be reordered."""
        return action != "shift" or self.ordered

    def render(self) -> Content:
        """Draw a line for each value, and those below it."""
        lines: list[Content] = []
        width = self.size.width
        for position, pick in enumerate(self.picks):
            here = self.has_focus and position == self.cursor
            picked = pick.value in self.picked
            box = _SELECTED if picked else _NOT_SELECTABLE if pick.reason else _NOT_SELECTED
            style = "$muted" if pick.reason and not picked else "b" if picked else ""
            line = columns(width - 6, *pick.cells)
            drawn = [styled(box, " ", line.stylize_before(style)), *(styled("    ", below) for below in pick.below)]
            for text in drawn:
                cut = columns(width - 2, (text, 0))
                mark = styled((_BAR, "$primary")) if here else styled(" ")
                lines.append(styled(mark, cut, " ").stylize_before("$here") if here else styled(mark, cut))
        return Content("\n").join(lines)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """The lines of all values."""
        return sum(pick.height for pick in self.picks) or 1

    def watch_has_focus(self, focused: bool) -> None:
        """Draw the marker again."""
        super().watch_has_focus(focused)
        self.refresh()

    def _region_of(self, position: int) -> Region:
        above = sum(pick.height for pick in self.picks[:position])
        return Region(0, above, self.size.width, self.picks[position].height)

    def action_pick(self) -> None:
        """Pick the line, or put it back."""
        if not self.picks:
            return
        value, reason = self.picks[self.cursor].value, self.picks[self.cursor].reason
        if reason and value not in self.picked:
            self.app.bell()
            return
        wanted = set(self.picked) ^ {value}
        self._has_refused = bool(self.why_one_required) and not wanted
        if self._has_refused:
            self.app.bell()
            self.post_message(self.Moved())
            return
        self._post_picked(tuple(pick.value for pick in self.picks if pick.value in wanted))

    def action_move(self, by: int) -> None:
        """Move to the next line, or out of the list."""
        target = self.cursor + by
        if 0 <= target < len(self.picks):
            self.cursor = target
        elif by > 0:
            self.screen.focus_next()
        else:
            self.screen.focus_previous()

    def action_shift(self, by: int) -> None:
        """Move the line itself."""
        target = self.cursor + by
        if not 0 <= target < len(self.picks):
            self.app.bell()
            return
        order = [pick.value for pick in self.picks]
        order[self.cursor], order[target] = order[target], order[self.cursor]
        lines = {pick[0]: pick for pick in self.picks}
        self.picks = tuple(lines[value] for value in order)
        self.cursor = target
        self._post_picked(tuple(value for value in order if value in self.picked))

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked line."""
        tops = [self._region_of(position) for position in range(len(self.picks))]
        at = next((position for position, region in enumerate(tops) if region.y <= event.y < region.bottom), None)
        if at is not None:
            self.cursor = at
            self.action_pick()

    def _post_picked(self, values: tuple[str, ...]) -> None:
        self.picked = values
        self.post_message(self.Picked(self, values))
