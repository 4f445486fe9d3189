"""The rows of Home that begin a training: drawn before anything else is known."""

from textual.content import Content

from tui_train.base.text import visible

from .widgets.ink import MUTED, columns, ink
from .widgets.row_list import Row

_NAME = 22


def beginning(key: str, title: str, note: str) -> Row:
    """Return the row of a way to begin."""

    def draw(width: int) -> tuple[Content, ...]:
        return (columns(width, (ink(("+ ", "$primary"), (title, "b")), _NAME), (ink((visible(note), MUTED)), 0)),)

    return Row(key, (title, note), draw, section="start")


BEGINNINGS = (
    beginning("new", "New training", "begins with defaults"),
    beginning("quickstart", "Quickstart", "a small model on sample text, to see it work"),
)
