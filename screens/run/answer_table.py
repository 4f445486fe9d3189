"""The newest answers of a model that learns from rewards, read back from the table that TRL prints in the log."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from rich.cells import cell_len
from textual.content import Content

from tui_train.runner.logs.lines import without_rank_prefix

from ..widgets.text_layout import MUTED, WARNING_MARK, styled

# trl.trainer.utils.print_prompt_completions_sample: a panel with the step, in it a table of rich.
_TITLE_PATTERN = re.compile(r"╭─+ Step (\d{1,12}) ─+╮\s*$")
_CHAT_ROLES = frozenset({"SYSTEM", "DEVELOPER", "USER", "ASSISTANT", "TOOL"})  # alone in a line above what they say
_WIDER_TABLE_HINT = "the environment variable COLUMNS=200 (Backend) makes the columns of the next run wider"


class AnswerTable(NamedTuple):
    """The columns of the newest table, and a text for each of them in each row.

    `lines` are the table itself where its cells cannot be told apart; `is_cut` where it has an ellipsis.
    """

    step: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    lines: tuple[str, ...] = ()
    is_cut: bool = False


def newest_answers(log_lines: Iterable[str]) -> AnswerTable | None:
    """Return the last whole table of answers in lines that are safe to show; None where there is none."""
    newest: AnswerTable | None = None
    step, lines = "", None
    for line in map(without_rank_prefix, log_lines):
        if not line.startswith("│") and (title := _TITLE_PATTERN.search(line)):
            step, lines = title[1], list[str]()
        elif lines is not None and line.startswith("╰"):
            newest, lines = _read_table(step, lines), None
        elif lines is not None and line.startswith("│ "):
            lines.append(line[2:].rstrip().removesuffix("│").rstrip())
    return newest


def answer_lines(table: AnswerTable) -> Content:
    """Return the answers one below the other: rewards, prompt and answer; no markup in them is read."""
    pieces: list[Content] = []
    for number, row in enumerate(table.rows, start=1):
        prompt, completion, *scores = zip(table.names, row, strict=True)
        shown = "   ".join(f"{name} {' '.join(text.split())}" for name, text in scores)
        pieces += [
            styled((f"Answer {number} of {len(table.rows)}", "b"), f"   {shown}"),
            styled((f"{prompt[0]}\n", MUTED), prompt[1]),
            styled((f"{completion[0]}\n", MUTED), completion[1], "\n"),
        ]
    if table.lines:
        pieces.append(Content("\n".join(table.lines)))
    if table.is_cut:
        pieces.append(
            styled(WARNING_MARK, (f" A text with … may have been cut by the trainer: {_WIDER_TABLE_HINT}.", MUTED))
        )
    return Content("\n").join(pieces)


def _read_table(step: str, lines: Sequence[str]) -> AnswerTable:
    is_cut = any("…" in line for line in lines)
    rule = next((line for line in lines if line.startswith("┡")), "")
    widths = [len(part) for part in rule[1:-1].split("╇")]
    heads = [line.split("┃")[1:-1] for line in lines if line.startswith("┃")]
    rows: list[list[list[str]]] = [[]]
    for line in lines:
        if line.startswith("│"):
            rows[-1].append(_split_cells(line, widths))
        elif line.startswith("├"):
            rows.append([])
    lengths = {len(widths), *(len(cells) for row in rows for cells in row), *map(len, heads)}
    if not heads or len(widths) < 2 or len(lengths) > 1:
        return AnswerTable(step, (), (), tuple(lines), is_cut)
    names = tuple(" ".join(filter(None, map(str.strip, parts))) for parts in zip(*heads, strict=True))
    texts = (
        tuple(_unwrapped_cell_text(cell, width - 2) for cell, width in zip(zip(*row, strict=True), widths, strict=True))
        for row in rows
        if row
    )
    return AnswerTable(step, names, tuple(texts), (), is_cut)


def _split_cells(line: str, widths: Sequence[int]) -> list[str]:
    """Return the cells of a line by their width, for a text may have a bar itself; by the bars where that fails.

    Libraries differ in how wide they take some characters to be.
    """
    cells, rest = [], line.removeprefix("│")
    for width in widths:
        end, room = 0, width
        while end < len(rest) and (room := room - cell_len(rest[end])) >= 0:
            end += 1
        if rest[end : end + 1] != "│":
            return line.split("│")[1:-1]
        cells.append(rest[:end])
        rest = rest[end + 1 :]
    return cells if not rest else line.split("│")[1:-1]


def _unwrapped_cell_text(cell: Sequence[str], width: int) -> str:
    """Return the text of a cell: its lines joined where the next word had no room, else the breaks that it has."""
    lines = [line[1:].rstrip() for line in cell]
    text = lines[0]
    for before, line in pairwise(lines):
        word = line.split(" ", 1)[0]
        is_wrapped = before and word and before not in _CHAT_ROLES and cell_len(before) + 1 + cell_len(word) > width
        text += (" " if is_wrapped else "\n") + line
    return text.strip("\n")
