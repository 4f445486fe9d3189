"""The help of a screen for a width: paragraphs folded, tables of keys as tables, fields with what they are for."""

import re
from collections.abc import Iterable, Iterator, Sequence

from textual.content import Content

from .widgets.text_layout import KEY_STYLE, MUTED, columns, heading, styled

# A row of a table: its key, a gap of two cells or more, and what it does.
_KEY_ROW_PATTERN = re.compile(r" {0,2}(\S.*?) {2,}(\S.*)")
_CONTINUED_ROW_PATTERN = re.compile(r" {4,}(\S.*)")
_MAX_KEY_WIDTH = 18
_MAX_TEXT_WIDTH = 100  # cells of a line that is read well
_MIN_TEXT_WIDTH = 24  # cells for what a key does, beside it
_FIELD_NAME_WIDTH, _FIELD_KEY_WIDTH = 20, 35
_MIN_FIELD_TABLE_WIDTH = 110  # cells from which on a field stands in one line with what it is for
_SENTENCE_ENDS = (".", ":", "!", "?")


def help_lines(text: str, fields: Iterable[tuple[str, str, str]], width: int) -> list[Content]:
    """Return a help text, its first line as a title, and fields: each a label, a key and what it is for."""
    title, _, rest = text.partition("\n")
    lines = [heading(title, "", width), Content()]
    keys = (row[1] for row in map(_KEY_ROW_PATTERN.fullmatch, rest.split("\n")) if row)
    column = min(_MAX_KEY_WIDTH, max(map(len, keys), default=0)) + 2  # the same in all tables
    for block in re.split(r"\n{2,}", rest.strip("\n")):
        lines += [*_block_lines(block.split("\n"), column, width), Content()]
    for label, key, words in fields:
        lines += _field_lines(label, key, words, width)
    while lines and not lines[-1].plain:
        lines.pop()
    return lines


def _field_lines(label: str, key: str, words: str, width: int) -> list[Content]:
    """Return a field and what it is for, beside each other where there is room."""
    if width < _MIN_FIELD_TABLE_WIDTH:
        told = _wrap_words(words, width - 2)
        return [styled((label, "b"), (f"  {key}", MUTED)), *(styled("  ", line) for line in told)]
    before = columns(_FIELD_NAME_WIDTH + _FIELD_KEY_WIDTH, ((label, "b"), _FIELD_NAME_WIDTH), ((key, MUTED), 0))
    told = _wrap_words(words, width - before.cell_length) or [Content()]
    return [styled(before if number == 0 else " " * before.cell_length, line) for number, line in enumerate(told)]


def _block_lines(lines: Sequence[str], column: int, width: int) -> Iterator[Content]:
    """Yield one block: a heading, or sentences, and rows of a table."""
    first, *rest = lines
    short = len(first) < _MAX_KEY_WIDTH and not first.endswith(_SENTENCE_ENDS) and not _KEY_ROW_PATTERN.fullmatch(first)
    if short and all(_KEY_ROW_PATTERN.fullmatch(line) or _CONTINUED_ROW_PATTERN.fullmatch(line) for line in rest):
        yield heading(first, "", width)
        lines = rest
    rows: list[list[str]] = []
    words = ""
    for line in lines:
        more, row = _CONTINUED_ROW_PATTERN.fullmatch(line), _KEY_ROW_PATTERN.fullmatch(line)
        if rows and more:
            rows[-1][1] += f" {more[1]}"
        elif row:
            yield from _wrap_words(words, width)
            words = ""
            rows.append([row[1], row[2]])
        else:
            yield from _table_lines(rows, column, width)
            rows = []
            if words.endswith(_SENTENCE_ENDS):
                yield from _wrap_words(words, width)
                words = ""
            words = f"{words} {line.strip()}".strip()
    yield from _wrap_words(words, width)
    yield from _table_lines(rows, column, width)


def _table_lines(rows: Sequence[Sequence[str]], column: int, width: int) -> Iterator[Content]:
    """Yield rows, keys in a column and what they do in another, under each other where it is narrow."""
    for key, words in rows:
        if width - column < _MIN_TEXT_WIDTH or len(key) + 2 > column:
            yield styled((key, KEY_STYLE))
            yield from (styled("  ", line) for line in _wrap_words(words, width - 2))
            continue
        for number, line in enumerate(_wrap_words(words, width - column)):
            yield styled((key.ljust(column) if number == 0 else " " * column, KEY_STYLE), line)


def _wrap_words(words: str, width: int) -> list[Content]:
    return Content(words).wrap(max(8, min(width, _MAX_TEXT_WIDTH))) if words else []
