"""The lines about training data: its numbers, a histogram, samples with what is learned of them, and rows left out."""

from collections.abc import Sequence

from textual.content import Content

from tui_train.base.text import duration, percent, thousands, visible
from tui_train.checks import Finding
from tui_train.facts.data import DataProblem, DataQuestion, DataReport, DataSample, State, Tokens
from tui_train.facts.data_use import FORMAT_LABELS, Epoch
from tui_train.workflow import data

from .ink import DONE, FAILED, MUTED, WARNING, Piece, columns, fit, heading, ink
from .preview_lines import FIX_KEYS, finding_lines
from .side import finding_line

_LABEL = 14
_CELL, _WIDEST_CELL = 14, 26
_PLACE, _MOST_PLACE = 12, 30
_MOST_FOUND = 3
_STYLES: dict[State, tuple[str, str]] = {  # of the mark, and of the text beside it
    "read": (MUTED, MUTED),
    "learned": ("$success", ""),
    "rejected": ("$error", ""),
    "cut": ("$warning", MUTED),
}
_KEPT = frozenset({"duplicate"})  # what is wrong with a row that is trained on all the same


def set_lines(look: DataReport, asked: DataQuestion, one: Epoch | None, seconds: float, width: int) -> list[Content]:
    """Return what the data holds, and what an epoch of it is; `seconds` is how long one lasts, 0 where not known."""
    of = f"{FORMAT_LABELS.get(look.format, 'unknown format')}, columns {', '.join(look.columns) or 'none'}"
    out = data.left_out(look)
    usable = ink(WARNING, f" {thousands(out)} left out") if out else ink(DONE, " all rows usable")
    usable = usable if look.rows else ink(FAILED, " nothing to learn from")
    rows: list[list[Piece]] = [[_number(look.rows, "rows" if look.rows != 1 else "row")], []]
    tokens = look.tokens
    if tokens:
        learned = percent(tokens.learned / max(tokens.total, 1))
        rows[0] += [_number(tokens.total, "tokens"), ink((learned, "b"), (" learned", MUTED))]
        lengths = {"median": tokens.median, "at 95 %": tokens.p95, "longest": tokens.longest}
        rows[1] += [_number(length, words) for words, length in lengths.items()]
        done = "left out" if asked.method == "reward" else "cut"
        if asked.length:
            cut = ink(WARNING, f" {thousands(tokens.cut)} {done}") if tokens.cut else ink(DONE, f" none is {done}")
            rows[1].append(cut)
    rows[0].append(usable)
    cell = min(_WIDEST_CELL, max(_CELL, width // 4))
    lines = [heading("Set", visible(of), width)]
    lines += [columns(width, *((piece, cell) for piece in row[:-1]), (row[-1], 0)) for row in rows if row]
    if one:
        words = data.epoch_words(one, asked) + (f", about {duration(seconds)}" if seconds else "")
        lines.append(columns(width, (("one epoch", MUTED), _LABEL), (words, 0)))
    for number, words in enumerate(data.share_lines(look)):
        lines.append(columns(width, (("" if number else "of it", MUTED), _LABEL), (words, 0)))
    if words := data.end_words(look, asked):
        lines.append(columns(width, (("end", MUTED), _LABEL), (visible(words), 0)))
    return [*lines, *(_histogram(tokens, look, asked, width) if tokens else [])]


def _number(count: int, words: str) -> Content:
    return ink((thousands(count), "b"), (f" {words}", MUTED))


def _histogram(tokens: Tokens, look: DataReport, asked: DataQuestion, width: int) -> list[Content]:
    """Return how many rows have how many tokens, what is beyond the sequence length marked."""
    longest = thousands(tokens.longest)
    blocks = data.histogram(tokens, max(8, width - _LABEL - len(longest) - 4))
    if not 0 < asked.length < tokens.longest:
        drawn = ink((blocks, "$live"), (f" {longest}", MUTED))
        return [columns(width, (("tokens a row", MUTED), _LABEL), (("0 ", MUTED), 2), (drawn, 0))]
    at = min(asked.length * len(blocks) // tokens.longest, len(blocks) - 1)
    drawn = ink((blocks[:at], "$live"), ("│", "$warning"), (blocks[at:], "$warning"), (f" {longest}", MUTED))
    words = ink(("└ ", "$warning"), (thousands(asked.length), "b"), (f"  {data.cut_words(look, tokens, asked)}", MUTED))
    # The words stand left of the mark where they would not fit right of it.
    if _LABEL + 2 + at + words.cell_length > width:
        words = ink((f"{data.cut_words(look, tokens, asked)}  ", MUTED), (thousands(asked.length), "b"), " ")
        words = ink(words, ("┘", "$warning"))
        below = ink(" " * max(0, _LABEL + 3 + at - words.cell_length), words)
    else:
        below = ink(" " * (_LABEL + 2 + at), words)
    return [columns(width, (("tokens a row", MUTED), _LABEL), (("0 ", MUTED), 2), (drawn, 0)), below]


def sample_lines(
    sample: DataSample, place: tuple[int, int], width: int, *, several: bool, whole: bool
) -> list[Content]:
    """Return a sample as the model gets it, `place` of how many; beside the bar what it learns, `whole`: all of it."""
    number, count = place
    where = f"line {thousands(sample.line)}" + (f" of {sample.file}" if several else "")
    learned = "all learned (Answers only: off)" if whole else f"{thousands(sample.learned)} learned"
    tokens = f"   {thousands(sample.tokens)} tokens, {learned}" if sample.tokens else ""
    lines = [heading(f"Sample {number}", visible(f"of {count}   {where}{tokens}"), width)]
    for state, text in data.sample_lines(sample):
        mark, style = _STYLES[state]
        parts = Content(visible(text)).wrap(width - 2) if text else [Content()]
        lines += [ink((data.MARKS[state], mark), " ", (part.plain.rstrip(), style)) for part in parts]
    return [*lines, ink(("  …", MUTED))] if sample.shortened else lines


def row_lines(look: DataReport, width: int) -> list[Content]:
    """Return the rows with something wrong, by line, of which a few of each kind are named."""
    if not look.problems:
        return []
    twice = look.counts.get("duplicate", 0)
    note = ", ".join(
        ([f"{thousands(data.left_out(look))} left out"] if data.left_out(look) else [])
        + ([f"{thousands(twice)} more than once"] if twice else [])
    )
    places = [_place(problem, several=look.file_count > 1) for problem in look.problems]
    cell = min(_MOST_PLACE, max(_PLACE, *(len(place) + 2 for place in places)))
    lines = [heading("Rows", note, width)]
    for problem, place in zip(look.problems, places, strict=True):
        mark = WARNING if problem.kind in _KEPT else FAILED
        lines.append(columns(width, (mark, 2), (fit(place, cell - 1), cell), ((visible(problem.why), MUTED), 0)))
    named = sum(look.counts.values()) - len(look.problems)
    return [*lines, ink((f"  and {thousands(named)} more", MUTED))] if named > 0 else lines


def _place(problem: DataProblem, *, several: bool) -> str:
    name = visible(problem.file.rpartition("/")[2])
    if not problem.line:
        return name
    return f"{name}:{problem.line}" if several else f"line {thousands(problem.line)}"


def long_lines(look: DataReport, asked: DataQuestion, width: int) -> list[Content]:
    """Return the longest rows."""
    rows = look.tokens.longest_rows if look.tokens else ()
    lines = [heading("Longest", "", width)] if rows else []
    for row in rows:
        cut = ink(WARNING, " cut") if 0 < asked.length < row.tokens else Content()
        place = f"line {thousands(row.line)}"
        lines.append(columns(width, (place, _PLACE), ((f"{thousands(row.tokens)} tokens", MUTED), 16), (cut, 0)))
    return lines


def found_lines(findings: Sequence[Finding], width: int, *, tall: bool) -> list[Content]:
    """Return the findings, in full where there is room, else a line each; with the keys that fix them."""
    if tall or not findings:
        return finding_lines(findings, width) if findings else []
    keys = iter(FIX_KEYS)
    lines = [heading("Findings", f"{len(findings)}", width)]
    lines += [
        finding_line(finding, width, next(keys, "").upper() if finding.fix else "")
        for finding in findings[:_MOST_FOUND]
    ]
    more = len(findings) - _MOST_FOUND
    return [*lines[:-1], ink((f"  and {more + 1} more, on Preview", MUTED))] if more > 0 else lines
