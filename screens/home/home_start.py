"""The rows of Home that begin a training: drawn before anything else is known."""

from textual.content import Content

from tui_train.base.text import visible

from ..widgets.cursor_list import ListRow
from ..widgets.text_layout import MUTED, columns, styled

_NAME_WIDTH = 22


def make_start_row(key: str, title: str, note: str) -> ListRow:
    """Return the row of a way to begin."""

    def draw(width: int) -> tuple[Content, ...]:
        return (
            columns(
                width, (styled(("+ ", "$primary"), (title, "b")), _NAME_WIDTH), (styled((visible(note), MUTED)), 0)
            ),
        )

    return ListRow(key, (title, note), draw, section="start")


START_ROWS = (
    make_start_row("new", "New training", "begins with defaults"),
    make_start_row("quickstart", "Quickstart", "a small model on sample text, to see it work"),
)
