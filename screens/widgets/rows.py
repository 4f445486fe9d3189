"""Form rows made from the fields: a label, an editor, and a marker that shows the focus without colour."""

from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import Binding, BindingType
from textual.reactive import reactive
from textual.widget import Widget

from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.fields import Value
from tui_train.profile.rows import Field
from tui_train.resolve.in_force import InForce
from tui_train.workflow.choices import Option

from ..messages import Chosen
from .cut import at_word, lines_at_word

LABEL_WIDTH = 20


class Row(Widget):
    """What all rows share: the field, why it cannot be edited, and whether something is wrong with it."""

    reason: reactive[str] = reactive("")
    wrong: reactive[str] = reactive("")

    def __init__(self, field: Field) -> None:
        """Make the row of a field."""
        super().__init__(id=row_id(field.key))
        self.field = field

    @property
    def hint(self) -> str:
        """What the hint line says while this row has the focus."""
        return self.wrong or self.field.help

    def show(self, value: Value, options: tuple[Option, ...], reason: str) -> None:
        """Show a value, what it may be, and why it cannot be changed here (empty: it can)."""
        raise NotImplementedError

    def in_force(self, held: InForce) -> None:
        """Show what holds where the user left the value to the trainer."""

    def head(self, *, focused: bool) -> Text:
        """Return the marker and label."""
        mark = "›" if focused else "!" if self.wrong else " "
        style = "bold red" if self.wrong else "bold" if focused else ""
        return Text.assemble((f"{mark} {self.field.label:<{LABEL_WIDTH}}", style))


def row_id(key: str) -> str:
    """Return the id of a field's row."""
    return "row-" + key.replace(".", "-").replace("_", "-")


class ChoiceRow(Row, can_focus=True):
    """One of some values: left and right change it; those that cannot work stand there with their reason."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "cycle(-1)", "Change", key_display="←→"),
        Binding("right,space", "cycle(1)", "Change", show=False),
    ]
    value: reactive[str] = reactive("")
    options: reactive[tuple[Option, ...]] = reactive((), layout=True)

    def __init__(self, field: Field, *, tall: bool = False) -> None:
        """Make the row; a tall one has a line for each value."""
        super().__init__(field)
        self.tall = tall
        self._source = ""

    def in_force(self, held: InForce) -> None:
        """Keep where the value comes from that holds while none is chosen."""
        self._source = held.source

    def show(self, value: Value, options: tuple[Option, ...], reason: str) -> None:
        """Show a value among its options."""
        self.options = options
        self.value = show_word(value)
        self.reason = reason

    @property
    def hint(self) -> str:
        """The help, and why some values cannot be chosen."""
        labels: dict[str, list[str]] = {}
        for option in self.options:
            if option.reason:
                labels.setdefault(option.reason, []).append(option.label)
        reasons = [f"✗ {', '.join(those)}: {reason}." for reason, those in labels.items()]
        source = f"Not set: {visible(self._source)}." if self._source else ""
        return self.wrong or " ".join(filter(None, [self.field.help, source, *reasons]))

    def render(self) -> Text:
        """Draw all values, the chosen one marked."""
        head = self.head(focused=self.has_focus)
        if self.reason:
            return at_word(Text.assemble(head, (self.reason, "dim")), self.size.width)
        width = max((len(option.label) for option in self.options), default=0)
        lines: list[Text] = []
        for option in self.options:
            chosen = option.value == self.value
            mark = "●" if chosen else "✗" if option.reason else "○"
            style = "bold" if chosen else "dim" if option.reason else ""
            words = Text.assemble((f"{mark} {option.label:<{width if self.tall else 0}}", style))
            note = option.reason or (option.note if self.tall or chosen else "")
            if note:
                words.append(f"  {note}" if self.tall else f" ({note})", "dim")
            lines.append(words)
        between = Text("\n" + " " * (LABEL_WIDTH + 2)) if self.tall else Text("  ")
        return lines_at_word(Text.assemble(head, between.join(lines)), self.size.width)

    def get_content_height(self, container: object, viewport: object, width: int) -> int:
        """A line for each value when tall, else one."""
        del container, viewport, width
        return max(1, len(self.options)) if self.tall and not self.reason else 1

    def action_cycle(self, by: int) -> None:
        """Choose the next value that can work."""
        possible = [option.value for option in self.options if not option.reason]
        if self.reason or not possible:
            self.app.bell()
            return
        if self.value not in possible:
            chosen = possible[0]
        else:
            chosen = possible[(possible.index(self.value) + by) % len(possible)]
        if chosen != self.value:
            self.value = chosen
            self.post_message(Chosen(self.field.key, fields.parse(self.field, chosen)))

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked line of a tall row."""
        if self.tall and not self.reason and 0 <= event.y < len(self.options) and not self.options[event.y].reason:
            self.value = self.options[event.y].value
            self.post_message(Chosen(self.field.key, fields.parse(self.field, self.value)))


def show_word(value: Value) -> str:
    """Return a choice's value as its option has it."""
    return fields.show(value)
