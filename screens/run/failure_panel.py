"""Panel with the diagnosis of a failed run: cause, log line, remedy, and the change that F2 makes."""

from msgspec.structs import replace
from textual.content import Content
from textual.message import Message

from tui_train.base.text import typeset_ascii, visible, with_first_capital
from tui_train.diagnose import Diagnosis
from tui_train.diagnose.types import failure_heading

from ..screen_words import words_on_screen
from ..widgets.lines import Lines
from ..widgets.text_layout import FAILED_MARK, KEY_STYLE, MUTED, RULE_STYLE, fit, styled

_PANEL_EDGE_MARK = ("▌", "b $error")
# Lines of the cause, of the remedy, whether the line of the log and the reason of the change are there: where rows are
# few, the first that has room.
_LINE_LIMITS_BY_DETAIL_LEVEL = (
    (3, 3, True, True),
    (2, 2, True, True),
    (1, 2, True, False),
    (1, 1, True, False),
    (0, 1, False, False),
)


class FailurePanel(Lines):
    """The panel with a diagnosis; hidden while there is none."""

    class RowsChanged(Message):
        """Message that the panel's number of rows has changed."""

    def __init__(self) -> None:
        super().__init__(id="why")
        self.display = False
        self._diagnosis: tuple[Diagnosis, str] | None = None
        self._max_rows = 0

    def show_diagnosis(self, diagnosis: Diagnosis | None, memory_fit_text: str = "") -> None:
        """Show a diagnosis, or none; `memory_fit_text` are words about the memory that its change would take."""
        self.display = diagnosis is not None
        if diagnosis:
            cause, remedy = words_on_screen(diagnosis.cause), words_on_screen(diagnosis.remedy)
            diagnosis = replace(diagnosis, cause=cause, remedy=remedy)
        self._diagnosis = (diagnosis, memory_fit_text) if diagnosis else None
        self.show(self._lines_that_fit)

    def limit_rows(self, max_rows: int) -> None:
        """Limit the panel to so many rows, but at least its head and the F2 line; 0: no limit."""
        if max_rows != self._max_rows:
            self._max_rows = max_rows
            self.show(self._lines_that_fit)

    def on_resize(self) -> None:
        """Say that its rows are known, which is only after it was laid out."""
        self.post_message(self.RowsChanged())

    def _lines_that_fit(self, width: int) -> list[Content]:
        if self._diagnosis is None:
            return []
        drawn: list[Content] = []
        for level in _LINE_LIMITS_BY_DETAIL_LEVEL:
            drawn = _failure_lines(*self._diagnosis, width, level)
            if not self._max_rows or len(drawn) <= self._max_rows:
                break
        return drawn


def split_first_clause(cause: str, max_cells: int) -> tuple[str, str]:
    """Return a cause as its first clause, empty where that does not fit into so many cells, and what follows it."""
    text = visible(cause)
    ends = [at for at in (text.find(": "), text.find(". "), text.find("; ")) if at > 0]
    end = min(ends, default=len(text.rstrip(".")))
    first, rest = text[:end], text[end:].lstrip(":.; ")
    if len(first) > max_cells:
        return "", text
    return first, with_first_capital(rest)


def _failure_lines(
    diagnosis: Diagnosis, memory_fit_text: str, width: int, detail_level: tuple[int, int, bool, bool]
) -> list[Content]:
    most_cause, most_remedy, with_line, with_reason = detail_level
    room = width - 2  # the edge, and the last column
    rank = f" on rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    first, rest = split_first_clause(diagnosis.cause, room - len(rank) - 5)
    title = first or failure_heading(diagnosis.failure)
    head = fit(styled((f"{FAILED_MARK[0]} {with_first_capital(title)}{rank}", "b $error")), room - 2)
    lines = [styled(head, " ", ("─" * max(0, room - head.cell_length - 1), RULE_STYLE))]
    lines += _wrap_text(rest, room, most_cause) if rest else []
    if diagnosis.position_text and with_line:
        number = f"{diagnosis.position_text}  "
        # An error of the script is its cause word for word.
        if diagnosis.line not in diagnosis.cause:
            lines.append(styled((number, MUTED), fit(visible(diagnosis.line), room - len(number))))
        lines += _script_lines_around_error(diagnosis, room, whole=with_reason)
    lines += _wrap_text(diagnosis.remedy, room, most_remedy)
    if diagnosis.change:
        aside = Content(visible(memory_fit_text))
        made = fit(
            styled(("F2", KEY_STYLE), "  ", (typeset_ascii(diagnosis.change.title), "b"), ("; opens Preview", MUTED)),
            room - aside.cell_length - 2,
        )
        lines.append(styled(made, " " * (room - made.cell_length - aside.cell_length), aside))
        lines += [fit(styled((f"    {visible(diagnosis.change.why)}", MUTED)), room)] if with_reason else []
    return [styled(_PANEL_EDGE_MARK, line) for line in lines]


def _script_lines_around_error(diagnosis: Diagnosis, width: int, *, whole: bool) -> list[Content]:
    """Return the line of the script that raised the error, `whole` with those around it."""
    shown = [each for each in diagnosis.source if whole or each[0] == diagnosis.source_line]
    digits = max((len(str(number)) for number, _ in shown), default=0)
    return [
        fit(styled((f"{number:>{digits}}  ", MUTED), (code, "b" if number == diagnosis.source_line else MUTED)), width)
        for number, code in shown
    ]


def _wrap_text(text: str, width: int, max_lines: int) -> list[Content]:
    lines = Content(visible(text)).wrap(max(1, width))
    if len(lines) <= max_lines or not max_lines:
        return lines[:max_lines]
    return [*lines[: max_lines - 1], fit(styled(lines[max_lines - 1], " ", lines[max_lines]), width)]
