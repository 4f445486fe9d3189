"""Sentences about training data, on its screen, beside its field and by `tui-train data`; all of it safe to show."""

from collections.abc import Iterator
from pathlib import PurePath

from tui_train.base.text import display_path, grouped_digits, percent, quantity, size_text, sparkline, visible
from tui_train.facts.data.data_report import DataQuestion, DataReport, DataSample, SampleTextState, TokenCounts
from tui_train.facts.data.data_use import FORMAT_LABELS, EpochSize, leaves_long_rows_out
from tui_train.profile.types import Profile
from tui_train.setup.setup import Setup

_MIB = 2**20
_MAX_FILE_SHARE_LINES = 4
MARK_BY_SAMPLE_TEXT_STATE: dict[SampleTextState, str] = {"read": " ", "learned": "▌", "rejected": "✗", "cut": "┊"}
LEARNED_BY_TEMPLATE_TEXT = "What is learned depends on the model's chat template"


def data_title(report: DataReport) -> str:
    """Return the first file and how many more there are."""
    names = [display_path(file.path) for file in report.files]
    more = report.file_count - 1
    return names[0] + (f" and {quantity(more, 'more file')}" if more else "") if names else "no file"


def data_size_text(report: DataReport) -> str:
    """Return the size of all files."""
    return size_text(report.size) if report.size >= _MIB else f"{grouped_digits(report.size)} bytes"


def count_unusable_rows(report: DataReport) -> int:
    """Return how many rows cannot be trained on."""
    return max(0, report.rows - report.usable)


def data_summary(report: DataReport) -> str:
    """Return what data holds, in a line."""
    if report.problem:
        return f"could not be read: {report.problem}"
    if not report.rows:
        return "no rows"
    parts = [
        f"{grouped_digits(report.rows)} rows" if report.rows != 1 else "1 row",
        FORMAT_LABELS.get(report.format, "unknown format"),
    ]
    if report.tokens:
        parts.append(f"{grouped_digits(report.tokens.median)} tokens median")
    if out := count_unusable_rows(report):
        parts.append(f"{grouped_digits(out)} left out")
    return " · ".join(parts)


def reading_data_text(profile: Profile) -> str:
    """Return what is being read."""
    names = [PurePath(path).name or path for path in profile.trainer.data]
    more = f" and {quantity(len(names) - 1, 'more file')}" if len(names) > 1 else ""
    return visible(f"reading {names[0]}{more} …") if names else "reading …"


def why_data_unread(setup: Setup) -> str:
    """Return why data is not read before the training."""
    profile, facts = setup.profile, setup.facts
    if facts.other_machine and not facts.machine.hostname:
        return f"{visible(facts.other_machine)} has not answered yet"
    if facts.other_machine and (facts.scheduler or not facts.host):
        return f"the data is on {visible(facts.other_machine)}: tui-train data reads it there"
    if profile.container.engine != "none":
        return "it is read inside the container, when the training starts"
    if setup.toolchain is None:
        return f"not read yet: no Python {f'of {visible(facts.host)}' if facts.host else 'here'} has TRL"
    missing = [path for path in profile.trainer.data if facts.paths.get(path) == "missing"]
    where = f" on {facts.host}" if facts.host else ""
    return visible(f"{missing[0]} does not exist{where}") if missing else "not read yet"


def epoch_text(epoch: EpochSize, question: DataQuestion) -> str:
    """Return what a pass through the data is: rows, tokens and steps as far as they are known."""
    parts = [
        f"{'about ' * epoch.estimated}{grouped_digits(epoch.rows)} {'answers' if question.method == 'kto' else 'rows'}"
    ]
    parts += [f"{grouped_digits(epoch.tokens)} tokens"] if epoch.tokens else []
    parts += (
        [quantity(epoch.steps, "step").replace(str(epoch.steps), grouped_digits(epoch.steps), 1)] if epoch.steps else []
    )
    return ", ".join(parts)


def file_share_lines(report: DataReport) -> list[str]:
    """Return what each file has of an epoch: its share, and how often a row of it is taken; of many the first."""
    epoch_rows = max(sum(share.taken for share in report.shares), 1)
    lines = [
        f"{percent(share.taken / epoch_rows)} {PurePath(share.file).name or share.file},"
        f" each row {share.taken / max(share.rows, 1):.3g}×"
        for share in report.shares[:_MAX_FILE_SHARE_LINES]
    ]
    more = len(report.shares) - len(lines)
    return [*lines, *([f"and {quantity(more, 'more file')}"] if more else [])]


def passed_end_token_text(report: DataReport, question: DataQuestion) -> str:
    """Return with which token the turns of chats end where the model would not stop at it, else nothing."""
    ends = report.ends
    if not ends.passed or question.method == "reward":
        return ""
    own = f"the tokenizer's end is {ends.eos}" if ends.eos else "the tokenizer has no end"
    return f"turns end with {ends.turn}, {own}: it is passed as the end token"


def token_histogram_text(tokens: TokenCounts, max_width: int = 0) -> str:
    """Return how many rows have how many tokens, from 0 to the longest, as blocks; in so many cells at most."""
    counts = list(tokens.histogram)
    if max_width and len(counts) > max_width:
        every = -(-len(counts) // max_width)
        counts = [sum(counts[at : at + every]) for at in range(0, len(counts), every)]
    drawn = sparkline(counts, len(counts), (0, max(counts, default=0)))
    return "".join(block if count else " " for block, count in zip(drawn, counts, strict=True))


def too_long_rows_text(report: DataReport, tokens: TokenCounts, question: DataQuestion) -> str:
    """Return what share of the rows is longer than the sequence length."""
    done = "left out" if leaves_long_rows_out(report, question) else "cut"
    return f"{percent(tokens.cut / max(report.usable, 1), 1)} of the rows {done}"


def sample_text_states(report: DataReport) -> frozenset[SampleTextState]:
    """Return what is done with some part of the samples; `read` alone where it is not known."""
    return frozenset(piece.state for sample in report.samples for piece in sample.pieces)


def sample_lines_with_states(sample: DataSample) -> Iterator[tuple[SampleTextState, str]]:
    """Yield the lines of a sample, each with what is done with it; a line ends where that changes."""
    fresh = True
    for piece in sample.pieces:
        text = piece.text if fresh else piece.text.removeprefix("\n")
        fresh = text.endswith("\n")
        for line in text.removesuffix("\n").split("\n") if text else []:
            yield piece.state, line
