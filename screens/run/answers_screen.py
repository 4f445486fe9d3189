"""Answers: the newest ones of a model that learns from rewards, with their rewards, as the log has them."""

from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from tui_train.base.text import visible
from tui_train.runs.logs.tail import LogTail

from ..base import WizardScreen
from ..widgets.key_bar import KeyBar
from ..widgets.step_bar import StepBar
from ..widgets.text_layout import MUTED, styled
from .answer_table import AnswerTable, answer_lines, newest_answers

if TYPE_CHECKING:
    from .run_view import RunView

_LOG_TAIL_BYTES = 4 << 20  # at the end of the log, which holds thousands of lines of tables
_SECONDS_BETWEEN_READS = 5.0
_NO_ANSWERS_TEXT = (
    "No answers in this log. With Printed answers on Recipe the next run prints some with each line of metrics, if its "
    "Python has the package rich."
)


class AnswersScreen(WizardScreen):
    """The newest table of answers in the log of the run that the screen below shows."""

    HELP = """Answers

The newest answers that the model wrote while it trains, each with its rewards and how much better or worse than the
others to its prompt it was (Advantage). Printed answers on Recipe says how many are printed.

  ↑ ↓ PgUp PgDn   scroll
  Esc             back

Words are cut (…) where the columns of the table in the log are narrow: the environment variable COLUMNS=200 (Backend)
makes them wider in the next run."""
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "app.pop_screen", "Back", key_display="Esc")]

    def __init__(self, view: "RunView") -> None:
        super().__init__()
        self._view = view
        self._read_log = ("", -1)  # its path, and its size when it was read

    def compose(self) -> ComposeResult:
        """Compose the answers and the keys."""
        yield StepBar(title="Run › Answers")
        with VerticalScroll(id="body"):
            yield Static(styled(("Reading the log.", MUTED)), id="answers", markup=False)
        yield KeyBar()

    def on_mount(self) -> None:
        """Read the log now, and again as it grows."""
        self.query_one("#body").focus()
        self._read_answers()
        self.set_interval(_SECONDS_BETWEEN_READS, self._read_answers)

    @work(thread=True, exclusive=True, group="answers")
    def _read_answers(self) -> None:
        tail = LogTail(self._view.run.attempt_log(self._view.newest_logged_attempt_number), last_bytes=_LOG_TAIL_BYTES)
        read = (str(tail.path), tail.size())
        if read == self._read_log:
            return
        self._read_log = read
        self.call_unless_cancelled(self._show_answers, newest_answers(tail.remaining_lines()))

    def _show_answers(self, table: AnswerTable | None) -> None:
        shown = answer_lines(table) if table else styled((_NO_ANSWERS_TEXT, MUTED))
        self.query_one("#answers", Static).update(shown)
        step = f"step {table.step}" if table else ""
        self.query_one(StepBar).show_at_right(styled((step, MUTED)), visible(self._view.run.name))
