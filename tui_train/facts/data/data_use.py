"""Use of data by a training: methods that suit it, and the size of an epoch."""

from collections.abc import Iterator, Mapping

import msgspec
from msgspec import Struct

from tui_train.base.parse import parse_json_as
from tui_train.facts.data.data_report import DataQuestion, DataReport, FinetuneMethod

FORMAT_LABELS = {
    "messages": "messages",
    "sharegpt": "ShareGPT",
    "alpaca": "Alpaca",
    "prompt_completion": "prompt + completion",
    "text": "text",
    "preference": "preference pairs",
    "kto": "KTO",
    "prompt": "prompts",
}
_CHAT_FORMATS = frozenset({"messages", "sharegpt"})
# With these TRL's trainers learn what the data means.
FORMATS_BY_METHOD: dict[FinetuneMethod, tuple[str, ...]] = {
    "sft": ("messages", "sharegpt", "alpaca", "prompt_completion", "text"),
    "dpo": ("preference",),
    "kto": ("kto", "preference"),
    "reward": ("preference",),
    "grpo": ("prompt",),
    "rloo": ("prompt",),
}


def facts_key_of_question(question: DataQuestion) -> str:
    """Return the key of a question in Facts."""
    return msgspec.json.encode(question).decode()


def learns_whole_chats(report: DataReport, question: DataQuestion) -> bool:
    """Return whether chats are learned whole, what the user says too."""
    chats = question.method == "sft" and report.format in _CHAT_FORMATS
    return chats and not (
        does_template_mark_answers(report, question.method) if question.answers_only is None else question.answers_only
    )


def does_template_mark_answers(report: DataReport, method: FinetuneMethod) -> bool:
    """Return whether the chat template marks what the assistant says, and its end, so that it is learned alone."""
    answers = report.answers
    return method == "sft" and report.format in _CHAT_FORMATS and answers.possible and not answers.caution


def known_format_of_files(files: tuple[str, ...], report_by_question: Mapping[str, DataReport]) -> str:
    """Return the format of files that were looked at, whatever else was asked; empty where they were not."""
    return next((look.format for look in _reports_of_files(files, report_by_question)), "")


def _reports_of_files(files: tuple[str, ...], report_by_question: Mapping[str, DataReport]) -> Iterator[DataReport]:
    for asked, look in report_by_question.items():
        if parse_json_as(asked.encode(), DataQuestion).files == files:
            yield look


def leaves_long_rows_out(report: DataReport, question: DataQuestion) -> bool:
    """Return whether rows beyond the sequence length are left out: of a pair, or of images, nothing can be cut off."""
    return question.method == "reward" or bool(report.images and report.images.rows)


def have_images(files: tuple[str, ...], report_by_question: Mapping[str, DataReport]) -> bool:
    """Return whether files that were looked at have images, whatever else was asked."""
    reports = _reports_of_files(files, report_by_question)
    return any(look.images is not None and look.images.rows > 0 for look in reports)


def image_folders_of_data(files: tuple[str, ...], report_by_question: Mapping[str, DataReport]) -> tuple[str, ...]:
    """Return the folders of the images of files that were looked at, whatever else was asked."""
    return next((look.images.folders for look in _reports_of_files(files, report_by_question) if look.images), ())


class EpochSize(Struct, frozen=True):
    """One pass through the data: its rows (for KTO, answers), tokens and steps, 0 where not known.

    `estimated`: not all was read or counted.
    """

    rows: int
    tokens: int = 0
    steps: int = 0
    estimated: bool = False


def suitable_methods(report: DataReport) -> tuple[FinetuneMethod, ...]:
    """Return the methods that can train on data of this format."""
    return tuple(method for method, formats in FORMATS_BY_METHOD.items() if report.format in formats)


def why_method_unsuitable(report: DataReport, method: FinetuneMethod) -> str:
    """Return why data cannot be trained on by a method; empty where it can."""
    if report.format in FORMATS_BY_METHOD[method]:
        return ""
    wanted = " or ".join(FORMAT_LABELS[name] for name in FORMATS_BY_METHOD[method])
    if not report.format:
        return f"the data has none of the known formats; {method} needs {wanted}"
    if report.format == "kto" and method == "sft":
        return "the data is KTO: its rejected answers (label false) would be learned too"
    return f"the data is {FORMAT_LABELS[report.format]}, and {method} needs {wanted}"


def epoch_size(report: DataReport, method: FinetuneMethod, global_batch: int = 0) -> EpochSize:
    """Return what one epoch is, with the steps of a global batch where it is given."""
    share_read = report.done / report.size if report.size and not report.all_read else 1.0
    unlearned_rows = (report.tokens.unlearned if report.shares else report.tokens.lost) if report.tokens else 0
    answers = 2 if method == "kto" and report.format == "preference" else 1
    rows = round((report.usable - unlearned_rows) * answers / (share_read or 1.0))
    tokens = round(report.tokens.epoch / (share_read or 1.0)) if report.tokens else 0
    estimated = not report.all_read or (report.tokens is not None and report.tokens.counted < report.usable)
    # Of these a batch holds several answers to each prompt.
    counts_rows = FORMATS_BY_METHOD[method] != ("prompt",)
    return EpochSize(rows, tokens, -(-rows // global_batch) if global_batch and counts_rows else 0, estimated)
