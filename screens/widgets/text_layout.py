"""Text on the grid that all screens share: columns, titles that run out into a rule, bars; none of it reads markup."""

from collections.abc import Sequence
from itertools import groupby

from rich.cells import cell_len
from textual.content import Content
from textual.strip import Strip
from textual.visual import Visual
from textual.widget import Widget

MUTED, RULE_STYLE, KEY_STYLE = "$muted", "$rule", "b $primary"
DONE_MARK, FAILED_MARK, WARNING_MARK = ("✓", "$success"), ("✗", "$error"), ("!", "$warning")
LIVE_MARK, OPEN_MARK = ("●", "$live"), ("○", "$muted")
# Of a run by its state; of one that has not begun, or was stopped, `OPEN_MARK`.
MARK_BY_RUN_STATE = {
    "running": LIVE_MARK,
    "stopping": LIVE_MARK,
    "finished": DONE_MARK,
    "failed": FAILED_MARK,
    "lost": FAILED_MARK,
    "damaged": WARNING_MARK,
}
_MAX_RULE_CELLS = 400
_MIN_CELLS_BETWEEN_RUNS = 10
_MIN_LINES_BELOW_TITLE = 2

StyledPiece = str | Content | tuple[str, str]
Styled = StyledPiece | Sequence[StyledPiece]


def styled(*pieces: StyledPiece) -> Content:
    """Return text of pieces: each a string, one with its style, or text that is styled already."""
    return Content.assemble(*pieces)


def _as_content(words: Styled) -> Content:
    if isinstance(words, str):
        return Content(words)
    if isinstance(words, Content):
        return words
    if isinstance(words, tuple) and len(words) == 2 and all(isinstance(part, str) for part in words):
        return Content.styled(str(words[0]), str(words[1]))
    return Content.assemble(*words)


def fit(words: Styled, width: int) -> Content:
    """Return text that takes at most this many cells: cut after a whole word where there is one near, with `…`."""
    text = _as_content(words)
    if text.cell_length <= width:
        return text
    if width < 1:
        return Content()
    short = text.truncate(width - 1)
    end = short.plain.rfind(" ")
    if text.plain[len(short.plain) : len(short.plain) + 1] != " " and 0 < len(short.plain) - end <= width // 3:
        short = short[:end]
    return short[: len(short.plain.rstrip(" ✗○,;:"))].append_text("…", MUTED)


def fit_path(path: str, width: int) -> str:
    """Return a path that takes at most this many cells; its end says more than its beginning."""
    while path and cell_len(path) > width:
        path = f"…{path[2:] if path.startswith('…') else path[1:]}" if len(path) > 2 else ""
    return path


def columns(width: int, *cells: tuple[Styled, int]) -> Content:
    """Lay cells into columns: a positive number is a width, a negative one aligns right, 0 takes what is left."""
    room = max(0, width - sum(abs(size) for _, size in cells))
    line = Content()
    for words, size in cells:
        space = abs(size) or room
        text = fit(words, space)
        gap = space - text.cell_length
        line += text.pad_left(gap) if size < 0 else text.pad_right(gap)
    return line


def labelled_lines(label: str, words: str | Content, width: int, label_width: int) -> list[Content]:
    """Return a label and its text, in as many lines as it needs."""
    first, *rest = styled(words).wrap(max(1, width - label_width)) or [Content()]
    name = fit((label, MUTED), label_width - 1)
    head = fit(styled(name, " " * (label_width - name.cell_length), first), width)
    return [head, *(styled(" " * label_width, line) for line in rest)]


def heading(title: Styled, note: Styled = "", width: int = _MAX_RULE_CELLS) -> Content:
    """Return a panel's title, what is true of all of it, and the rule into which they run out."""
    words = _as_content(title)
    bold = words.stylize("b")
    beside = _as_content(note)
    head = Content.assemble(bold, ("  ", ""), _muted_where_uncoloured(beside)) if beside.plain else bold
    head = fit(head, max(0, width - 3))
    return Content.assemble(head, " ", ("─" * max(0, width - head.cell_length - 1), RULE_STYLE))


def _muted_where_uncoloured(text: Content) -> Content:
    """Return text of which what has no colour is muted; in plain a colour would be dim besides."""
    coloured = sorted((span.start, span.end) for span in text.spans if "$" in str(span.style))
    muted, end = text, 0
    for start, stop in (*coloured, (len(text.plain), len(text.plain))):
        muted = muted.stylize_before(MUTED, end, start) if start > end else muted
        end = max(end, stop)
    return muted


def heading_title(line: Content) -> str:
    """Return the title of a line that `heading` made; empty for any other line."""
    bold = next((span for span in line.spans if span.start == 0 and span.style == "b"), None)
    return line.plain[: bold.end] if bold and line.plain.endswith("─") else ""


def keep_titles_with_text(lines: Sequence[Content], height: int) -> list[Content]:
    """Return lines in which a title at the end of a page, as high as that, is moved to the next one."""
    shown: list[Content] = []
    for line in lines:
        left = height - len(shown) % max(1, height)
        if heading_title(line) and 0 < left <= _MIN_LINES_BELOW_TITLE < height - 1:
            shown += [Content()] * left
        shown.append(line)
    return shown


def share_bar(share: float, width: int, style: str = "$live") -> Content:
    """Return a heavy line over a light one, to half a cell, for a share between 0 and 1."""
    halves = round(min(1.0, max(0.0, share)) * width * 2)
    full, half = divmod(halves, 2)
    return Content.assemble(("━" * full + "╸" * half, style), ("─" * (width - full - half), RULE_STYLE))


def stacked_bar(shares: Sequence[tuple[float, str, str]], total: float, width: int) -> Content:
    """Return shares of a total side by side, each (size, texture, style): it is read by texture alone as well."""
    cells: list[tuple[str, str]] = []
    left = width
    for size, texture, style in shares:
        count = min(left, max(1, round(size / total * width))) if size > 0 and total > 0 else 0
        cells.append((texture * count, style))
        left -= count
    return Content.assemble(*cells, ("·" * left, RULE_STYLE))


def differing_cells(line_before: Content, line_after: Content) -> list[tuple[int, int]]:
    """Return the runs of cells in which two lines differ, each as its first cell and the one behind its last.

    Runs with little between them are one: each is written after a move of the cursor.
    """
    if line_before.is_same(line_after):
        return []
    before, after = _styled_characters(line_before), _styled_characters(line_after)
    if not len(before) == len(after) == line_before.cell_length == line_after.cell_length:
        # What stands behind may have moved, and not all characters are one cell wide.
        same = next((at for at, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(before))
        start = Content(line_after.plain[:same]).cell_length
        return [(start, max(line_before.cell_length, line_after.cell_length))]
    runs: list[tuple[int, int]] = []
    for at in (at for at, (old, new) in enumerate(zip(before, after, strict=True)) if old != new):
        if runs and at - runs[-1][1] < _MIN_CELLS_BETWEEN_RUNS:
            runs[-1] = (runs[-1][0], at + 1)
        else:
            runs.append((at, at + 1))
    return runs


def _styled_characters(text: Content) -> list[tuple[str, tuple[object, ...]]]:
    """Return the characters of a text with the styles that lie on each."""
    styles: list[tuple[object, ...]] = [()] * len(text.plain)
    for span in text.spans:
        for at in range(span.start, min(span.end, len(styles))):
            styles[at] = (*styles[at], span.style)
    return [*zip(text.plain, styles, strict=True)]


def line_with_cursor(line: Content, width: int, *, has_cursor: bool) -> Content:
    """Return a line after a cell for the bar of the cursor, which has a ground as wide as all where it is there."""
    if not has_cursor:
        return styled(" ", line)
    return styled(("▌", "$primary"), line.pad_right(max(0, width - 1 - line.cell_length))).stylize_before("$here")


def line_strip(widget: Widget, line: Content, width: int) -> Strip:
    """Return a line as a widget shows it."""
    (strip,) = Visual.to_strips(widget, line, width, 1, widget.visual_style, pad=True)
    return strip


def merge_cells(cells: Sequence[tuple[str, str]]) -> Content:
    """Return cells, each a character and its style, with one escape for neighbours of one style."""
    pieces = [("".join(char for char, _ in same), style) for style, same in groupby(cells, key=lambda cell: cell[1])]
    return Content.assemble(*pieces)
