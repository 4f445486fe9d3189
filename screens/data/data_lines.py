"""The lines about training data: its numbers, a histogram, samples with what is learned of them, and rows left out."""

from collections.abc import Sequence

from textual.content import Content

from tui_train.base.text import grouped_digits, percent, size_text, visible
from tui_train.checks import Finding
from tui_train.facts.data.data_report import (
    DataProblem,
    DataQuestion,
    DataReport,
    DataSample,
    SampleImage,
    SampleTextState,
    TokenCounts,
)
from tui_train.facts.data.data_use import FORMAT_LABELS, EpochSize, leaves_long_rows_out
from tui_train.views import data_text

from ..widgets.findings_pane import finding_line
from ..widgets.preview_lines import FIX_KEYS, finding_lines
from ..widgets.text_layout import (
    DONE_MARK,
    FAILED_MARK,
    MUTED,
    WARNING_MARK,
    StyledPiece,
    columns,
    fit,
    heading,
    styled,
)

_LABEL_WIDTH = 14
_MIN_CELL_WIDTH, _MAX_CELL_WIDTH = 14, 26
_MIN_PLACE_WIDTH, _MAX_PLACE_WIDTH = 12, 30
_MAX_FINDINGS_SHOWN = 3
_MARK_AND_TEXT_STYLES_BY_STATE: dict[SampleTextState, tuple[str, str]] = {  # of the mark, and of the text beside it
    "read": (MUTED, MUTED),
    "learned": ("$success", ""),
    "rejected": ("$error", ""),
    "cut": ("$warning", MUTED),
}
_TRAINABLE_PROBLEM_KINDS = frozenset({"duplicate"})  # what is wrong with a row that is trained on all the same


def data_summary_lines(
    report: DataReport, question: DataQuestion, epoch: EpochSize | None, epoch_time: str, width: int
) -> list[Content]:
    """Return what the data holds, and what an epoch of it is; `epoch_time` is empty where not known."""
    of = f"{FORMAT_LABELS.get(report.format, 'unknown format')}, columns {', '.join(report.columns) or 'none'}"
    out = data_text.count_unusable_rows(report)
    usable = styled(WARNING_MARK, f" {grouped_digits(out)} left out") if out else styled(DONE_MARK, " all rows usable")
    usable = usable if report.rows else styled(FAILED_MARK, " nothing to learn from")
    rows: list[list[StyledPiece]] = [[_count_with_noun(report.rows, "rows" if report.rows != 1 else "row")], []]
    tokens = report.tokens
    if tokens:
        learned = "all" if tokens.learned >= tokens.total else percent(tokens.learned / max(tokens.total, 1))
        rows[0] += [_count_with_noun(tokens.total, "tokens"), styled((learned, "b"), (" are learned", MUTED))]
        lengths = {"median": tokens.median, "at 95 %": tokens.p95, "longest": tokens.longest}
        rows[1] += [_count_with_noun(length, words) for words, length in lengths.items()]
        done = "left out" if leaves_long_rows_out(report, question) else "cut"
        if question.length:
            cut = (
                styled(WARNING_MARK, f" {grouped_digits(tokens.cut)} {done}")
                if tokens.cut
                else styled(DONE_MARK, f" none is {done}")
            )
            rows[1].append(cut)
    rows[0].append(usable)
    cell = min(_MAX_CELL_WIDTH, max(_MIN_CELL_WIDTH, width // 4))
    lines = [heading("Data", visible(of), width)]
    lines += [columns(width, *((piece, cell) for piece in row[:-1]), (row[-1], 0)) for row in rows if row]
    if report.images:
        lines.append(columns(width, (("images", MUTED), _LABEL_WIDTH), (grouped_digits(report.images.count), 0)))
    if epoch:
        words = data_text.epoch_text(epoch, question) + (f", {epoch_time}" if epoch_time else "")
        lines.append(columns(width, (("one epoch", MUTED), _LABEL_WIDTH), (words, 0)))
    for number, words in enumerate(data_text.file_share_lines(report)):
        lines.append(columns(width, (("" if number else "of it", MUTED), _LABEL_WIDTH), (words, 0)))
    if words := data_text.passed_end_token_text(report, question):
        lines.append(columns(width, (("end", MUTED), _LABEL_WIDTH), (visible(words), 0)))
    return [*lines, *(_histogram_lines(tokens, report, question, width) if tokens else [])]


def _count_with_noun(count: int, words: str) -> Content:
    return styled((grouped_digits(count), "b"), (f" {words}", MUTED))


def _histogram_lines(tokens: TokenCounts, report: DataReport, question: DataQuestion, width: int) -> list[Content]:
    """Return how many rows have how many tokens, what is beyond the sequence length marked."""
    longest = grouped_digits(tokens.longest)
    blocks = data_text.token_histogram_text(tokens, max(8, width - _LABEL_WIDTH - len(longest) - 4))
    if not 0 < question.length < tokens.longest:
        drawn = styled((blocks, "$live"), (f" {longest}", MUTED))
        return [columns(width, (("tokens a row", MUTED), _LABEL_WIDTH), (("0 ", MUTED), 2), (drawn, 0))]
    at = min(question.length * len(blocks) // tokens.longest, len(blocks) - 1)
    drawn = styled((blocks[:at], "$live"), ("│", "$warning"), (blocks[at:], "$warning"), (f" {longest}", MUTED))
    words = styled(
        ("└ ", "$warning"),
        (grouped_digits(question.length), "b"),
        (f"  {data_text.too_long_rows_text(report, tokens, question)}", MUTED),
    )
    # The words stand left of the mark where they would not fit right of it.
    if _LABEL_WIDTH + 2 + at + words.cell_length > width:
        words = styled(
            (f"{data_text.too_long_rows_text(report, tokens, question)}  ", MUTED),
            (grouped_digits(question.length), "b"),
            " ",
        )
        words = styled(words, ("┘", "$warning"))
        below = styled(" " * max(0, _LABEL_WIDTH + 3 + at - words.cell_length), words)
    else:
        below = styled(" " * (_LABEL_WIDTH + 2 + at), words)
    return [columns(width, (("tokens a row", MUTED), _LABEL_WIDTH), (("0 ", MUTED), 2), (drawn, 0)), below]


def sample_lines(
    sample: DataSample,
    number_and_count: tuple[int, int],
    width: int,
    *,
    several_files: bool,
    learns_all: bool,
) -> list[Content]:
    """Return a sample as the model gets it; beside the bar what it learns, `learns_all`: all of it."""
    number, count = number_and_count
    where = f"line {grouped_digits(sample.line)}" + (f" of {sample.file}" if several_files else "")
    learned = "all learned" if learns_all else f"{grouped_digits(sample.learned)} learned"
    tokens = f"   {grouped_digits(sample.tokens)} tokens, {learned}" if sample.tokens else ""
    lines = [heading(f"Sample {number}", visible(f"of {count}   {where}{tokens}"), width)]
    for state, text in data_text.sample_lines_with_states(sample):
        mark, style = _MARK_AND_TEXT_STYLES_BY_STATE[state]
        parts = Content(visible(text)).wrap(width - 2) if text else [Content()]
        lines += [
            styled((data_text.MARK_BY_SAMPLE_TEXT_STATE[state], mark), " ", (part.plain.rstrip(), style))
            for part in parts
        ]
    return [*lines, styled(("  …", MUTED))] if sample.shortened else lines


def image_lines(sample: DataSample, width: int, *, drawn: bool) -> list[Content]:
    """Return the images of a sample: size, place, and where they are `drawn` a small picture in half blocks."""
    return [line for image in sample.images for line in _lines_of_image(image, width, drawn=drawn)]


def _lines_of_image(image: SampleImage, width: int, *, drawn: bool) -> list[Content]:
    size = f"{image.width} x {image.height}, {size_text(image.size)}" if image.width else size_text(image.size)
    lines = [
        columns(width, (("image", MUTED), _LABEL_WIDTH), (size, _MAX_CELL_WIDTH), ((visible(image.name), MUTED), 0))
    ]
    return [*lines, *_half_block_lines(image.thumbnail)] if drawn else lines


def _half_block_lines(thumbnail: Sequence[str]) -> list[Content]:
    """Return a picture two of whose lines of pixels share a line of the screen."""
    drawn = []
    for upper, lower in zip(thumbnail[::2], [*thumbnail[1::2], ""], strict=False):
        cells: list[StyledPiece] = ["  "]
        for at in range(0, len(upper) - 5, 6):
            below = lower[at : at + 6]
            cells.append(("▀", f"#{upper[at : at + 6]}" + (f" on #{below}" if below else "")))
        drawn.append(styled(*cells))
    return drawn


def bad_row_lines(report: DataReport, width: int) -> list[Content]:
    """Return the rows with something wrong, by line, of which a few of each kind are named."""
    if not report.problems:
        return []
    twice = report.counts.get("duplicate", 0)
    note = ", ".join(
        (
            [f"{grouped_digits(data_text.count_unusable_rows(report))} left out"]
            if data_text.count_unusable_rows(report)
            else []
        )
        + ([f"{grouped_digits(twice)} more than once"] if twice else [])
    )
    places = [_row_position_text(problem, several_files=report.file_count > 1) for problem in report.problems]
    cell = min(_MAX_PLACE_WIDTH, max(_MIN_PLACE_WIDTH, *(len(place) + 2 for place in places)))
    lines = [heading("Rows", note, width)]
    for problem, place in zip(report.problems, places, strict=True):
        mark = WARNING_MARK if problem.kind in _TRAINABLE_PROBLEM_KINDS else FAILED_MARK
        lines.append(columns(width, (mark, 2), (fit(place, cell - 1), cell), ((visible(problem.why), MUTED), 0)))
    named = sum(report.counts.values()) - len(report.problems)
    return [*lines, styled((f"  and {grouped_digits(named)} more", MUTED))] if named > 0 else lines


def _row_position_text(problem: DataProblem, *, several_files: bool) -> str:
    name = visible(problem.file.rpartition("/")[2])
    if not problem.line:
        return name
    return f"{name}:{problem.line}" if several_files else f"line {grouped_digits(problem.line)}"


def longest_row_lines(report: DataReport, question: DataQuestion, width: int) -> list[Content]:
    """Return the longest rows."""
    rows = report.tokens.longest_rows if report.tokens else ()
    lines = [heading("Longest", "", width)] if rows else []
    for row in rows:
        cut = styled(WARNING_MARK, " cut") if 0 < question.length < row.tokens else Content()
        place = f"line {grouped_digits(row.line)}"
        lines.append(
            columns(width, (place, _MIN_PLACE_WIDTH), ((f"{grouped_digits(row.tokens)} tokens", MUTED), 16), (cut, 0))
        )
    return lines


def data_finding_lines(findings: Sequence[Finding], width: int, *, tall: bool) -> list[Content]:
    """Return the findings, in full where there is room, else a line each; with the keys that fix them."""
    if tall or not findings:
        return finding_lines(findings, width) if findings else []
    keys = iter(FIX_KEYS)
    lines = [heading("Findings", f"{len(findings)}", width)]
    lines += [
        finding_line(finding, width, next(keys, "").upper() if finding.fix else "")
        for finding in findings[:_MAX_FINDINGS_SHOWN]
    ]
    more = len(findings) - _MAX_FINDINGS_SHOWN
    return [*lines[:-1], styled((f"  and {more + 1} more, on Preview", MUTED))] if more > 0 else lines
