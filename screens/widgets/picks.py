"""A list from which several are picked: GPUs, or the rungs of the ladder; and one whose order can be changed."""

from typing import ClassVar, NamedTuple

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from .cut import lines_at_word


class Pick(NamedTuple):
    """A value, its words, why it cannot be picked (empty: it can), and what the hint line says of it."""

    value: str
    words: Text
    reason: str = ""
    hint: str = ""


class Picks(Widget, can_focus=True):
    """Lines with a box each; space picks, up and down move and leave the list at its ends."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "pick", "Pick"),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("left_square_bracket", "shift(-1)", "Earlier", key_display="["),
        Binding("right_square_bracket", "shift(1)", "Later", key_display="]"),
    ]
    picks: reactive[tuple[Pick, ...]] = reactive((), layout=True)
    picked: reactive[tuple[str, ...]] = reactive(())
    cursor: reactive[int] = reactive(0, repaint=False)

    class Picked(Message):
        """What is picked has changed: the values, in the order of the list."""

        def __init__(self, picks: "Picks", values: tuple[str, ...]) -> None:
            """Carry the list and the values."""
            super().__init__()
            self.picks = picks
            self.values = values

        @property
        def control(self) -> "Picks":
            """The list."""
            return self.picks

    def __init__(self, *, id: str, ordered: bool = False, least: str = "") -> None:  # noqa: A002 - Textual's name
        """Make the list; an ordered one lets its lines be moved; `least` says why one must stay picked, if it must."""
        super().__init__(id=id)
        self.ordered = ordered
        self.least = least
        self._refused = False

    class Moved(Message):
        """Another line is marked."""

    @property
    def hint(self) -> str:
        """What is to be said of the marked line."""
        if self._refused:
            return self.least
        return self.picks[self.cursor].hint if self.cursor < len(self.picks) else ""

    def watch_cursor(self, before: int, now: int) -> None:
        """Draw both lines, and have the hint line say it."""
        self._refused = False
        self.refresh(*(self._lines(position) for position in (before, now) if position < len(self.picks)))
        self.post_message(self.Moved())

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only an ordered list can be reordered."""
        del parameters
        return action != "shift" or self.ordered

    def render(self) -> Text:
        """Draw a line for each value."""
        lines = []
        for position, (value, words, reason, _) in enumerate(self.picks):
            here = self.has_focus and position == self.cursor
            box = "[x]" if value in self.picked else " ✗ " if reason else "[ ]"
            style = "bold" if here else "dim" if reason else ""
            lines.append(Text.assemble((f"{'›' if here else ' '} {box} ", style), words, style=style))
        return lines_at_word(Text("\n").join(lines), self.size.width)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """A line for each value, or for each line of its words."""
        del container, viewport, width
        return sum(str(words).count("\n") + 1 for _, words, *_ in self.picks) or 1

    def watch_has_focus(self, focused: bool) -> None:
        """Draw the marker again."""
        super().watch_has_focus(focused)
        self.refresh()

    def _lines(self, position: int) -> Region:
        heights = [str(words).count("\n") + 1 for _, words, *_ in self.picks]
        return Region(0, sum(heights[:position]), self.size.width, heights[position])

    def action_pick(self) -> None:
        """Pick the line, or put it back."""
        if not self.picks:
            return
        value, _, reason, _ = self.picks[self.cursor]
        if reason and value not in self.picked:
            self.app.bell()
            return
        wanted = set(self.picked) ^ {value}
        self._refused = bool(self.least) and not wanted
        if self._refused:
            self.app.bell()
            self.post_message(self.Moved())
            return
        self._post(tuple(found for found, *_ in self.picks if found in wanted))

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
        order = [value for value, *_ in self.picks]
        order[self.cursor], order[target] = order[target], order[self.cursor]
        lines = {pick[0]: pick for pick in self.picks}
        self.picks = tuple(lines[value] for value in order)
        self.cursor = target
        self._post(tuple(value for value in order if value in self.picked))

    def on_click(self, event: events.Click) -> None:
        """Pick the clicked line."""
        if 0 <= event.y < len(self.picks):
            self.cursor = event.y
            self.action_pick()

    def _post(self, values: tuple[str, ...]) -> None:
        self.picked = values
        self.post_message(self.Picked(self, values))
