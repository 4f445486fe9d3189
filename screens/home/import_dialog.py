"""The question whether an import is taken: what becomes of each word of a command."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import ClassVar

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from tui_train.actions.command_import.table import Import
from tui_train.base.text import quantity
from tui_train.views.import_rows import displayed_import_rows

from ..widgets.dialogs import keys_with_words_line
from ..widgets.file_viewer import ScrollingPage
from ..widgets.lines import Lines
from ..widgets.text_layout import MUTED, columns, styled

_STYLE_BY_OUTCOME = {"taken": "$success", "argument": "$foreground", "replaced": MUTED, "not understood": "$warning"}
_OUTCOME_WIDTH = 15  # of the longest, and a space
_MAX_WORDS_SHARE = 0.4  # of the width


class ImportDialog(ModalScreen[bool]):
    """Shows what became of each word; Enter takes the profile, Esc leaves all as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "dismiss(True)", "Open it"),
        Binding("escape,q", "dismiss(False)", "Cancel"),
    ]

    def __init__(self, imported: Import) -> None:
        super().__init__()
        self._imported = imported

    def compose(self) -> ComposeResult:
        """Put the table between the question and its keys."""
        with Vertical(classes="dialog wide"):
            yield Static(self._question(), markup=False, classes="question")
            with ScrollingPage(id="import"):
                yield Lines()
            yield Static(keys_with_words_line(("Enter", "Open it"), ("↑↓", "Scroll"), ("Esc", "Cancel")))

    def on_mount(self) -> None:
        """Draw the table."""
        self.query_one(Lines).show(self._draw)
        self.query_one(ScrollingPage).focus()

    def _question(self) -> str:
        missed = sum(row.outcome == "not understood" for row in self._imported.rows)
        rest = f"; {quantity(missed, 'entry is', 'entries are')} not understood" if missed else ""
        return f"Open this command in the wizard? Nothing is saved or started yet{rest}."

    def _draw(self, width: int) -> Sequence[Content]:
        """Return the rows, each on as many lines as its words or its reason take."""
        rows = displayed_import_rows(self._imported.rows)
        words_width = min(max(cell_len(words) for words, _, _ in rows), int(width * _MAX_WORDS_SHARE)) + 1
        reason_width = max(width - words_width - _OUTCOME_WIDTH, 1)
        lines: list[Content] = []
        for words, outcome, reason in rows:
            cells = zip_longest(
                Content(words).wrap(max(words_width - 1, 1)),
                [styled((outcome, _STYLE_BY_OUTCOME[outcome]))],
                Content(reason).wrap(reason_width),
                fillvalue=Content(),
            )
            lines += [columns(width, *zip(line, (words_width, _OUTCOME_WIDTH, 0), strict=True)) for line in cells]
        return lines
