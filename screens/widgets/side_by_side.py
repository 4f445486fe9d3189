"""A diff in two columns: what a file had at the left, what it has now at the right."""

from collections.abc import Sequence

from textual.content import Content

from tui_train.base.text import visible
from tui_train.views.file_diff import DiffRow, FileDiff

from .text_layout import MUTED, RULE_STYLE, columns, styled

MIN_SIDE_BY_SIDE_WIDTH = 106  # cells, which a page has on a screen of 110 columns
_GAP_TEXT = " │ "
_MAX_ROWS_SHOWN = 2000
_CONTEXT_CHARACTERS = 8  # characters that are seen before the first that differs, at least
_MARKS_AND_STYLES_BY_KIND = {
    "names": (("", "b"), ("", "b")),
    "place": (("", MUTED), ("", MUTED)),
    "same": (("  ", MUTED), ("  ", MUTED)),
    "changed": (("- ", "$error"), ("+ ", "$success")),
}


def side_by_side(diff: FileDiff, width: int) -> Content:
    """Return the rows of a diff as lines of so many cells."""
    cell = (width - len(_GAP_TEXT)) // 2
    lines = []
    for row in diff.rows[:_MAX_ROWS_SHOWN]:
        old, new = _side_by_side_cells(row, cell)
        lines.append(styled(columns(cell, (old, 0)), (_GAP_TEXT, RULE_STYLE), new))
    if more := len(diff.rows) - len(lines):
        lines.append(styled((f"… {more} more lines: export the files to read on", MUTED)))
    return Content("\n").join(lines)


def side_by_side_texts(diff: FileDiff) -> Sequence[str]:
    """Return the whole text of each of these lines, to be searched."""
    return [f"{row.old or ''}\n{row.new or ''}" for row in diff.rows[:_MAX_ROWS_SHOWN]]


def _side_by_side_cells(row: DiffRow, width: int) -> list[Content]:
    texts = [visible((text or "").expandtabs()) for text in (row.old, row.new)]
    if row.kind == "place":
        texts = [f"line {text.partition(',')[0]}" for text in texts]
    first = next((at for at, (old, new) in enumerate(zip(*texts, strict=False)) if old != new), 0)
    if first >= width - _CONTEXT_CHARACTERS:
        # Both from the same place, so far on that the difference is seen.
        start = min(first - _CONTEXT_CHARACTERS, max(map(len, texts)) - width + len("- …"))
        texts = [f"…{text[start:]}" for text in texts]
    looks = _MARKS_AND_STYLES_BY_KIND[row.kind]
    return [
        _cut_to_width(styled((mark + text, style)), width) if there is not None else Content()
        for text, there, (mark, style) in zip(texts, (row.old, row.new), looks, strict=True)
    ]


def _cut_to_width(line: Content, width: int) -> Content:
    """Return a line cut at its last cell; words would be cut between them."""
    return line if line.cell_length <= width else line.truncate(max(0, width - 1)).append_text("…", MUTED)
