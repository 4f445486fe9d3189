"""Content of training data, read by a child in the training Python: format, rows, tokens, faults."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import msgspec
from msgspec import Struct

from tui_train.base.parse import Unparsable, parse_json_object
from tui_train.base.text import visible
from tui_train.facts.machine.child_process import ChildResult, run_child

FinetuneMethod = Literal["sft", "dpo", "kto", "reward", "grpo", "rloo"]
SampleTextState = Literal["read", "learned", "rejected", "cut"]
DataProblemKind = Literal["unreadable", "broken", "empty", "wrong", "other", "refused", "duplicate"]

# Reading and counting take at most twice _MAX_READING_SECONDS, the imports some more.
PROBE_DEADLINE_SECONDS = 120.0
_MAX_READING_SECONDS = 30
_MAX_ROWS_READ = 1_000_000
ENVIRONMENT_WITHOUT_GPUS = {"CUDA_VISIBLE_DEVICES": ""}


class RewardQuestion(Struct, frozen=True):
    """A reward to try: as it is chosen, its dotted path, its file (empty: Python finds it), and its variables."""

    text: str
    dotted: str
    file: str = ""
    variables: dict[str, str] = {}


class RewardTrial(Struct, frozen=True):
    """A reward that was imported and called with made-up answers to some rows.

    `problem` is why TRL could not use it, `untried` why that is not known; `seconds` are those of the call.
    """

    text: str
    problem: str = ""
    untried: str = ""
    seconds: float = 0.0


class DataQuestion(Struct, frozen=True, kw_only=True):
    """A question about data: which, and how they will be trained on."""

    files: tuple[str, ...]
    """Absolute paths of files or folders."""
    model: str = ""
    """A folder or an id in the Hub's cache, empty for none."""
    revision: str = ""
    """The revision of a model in the Hub's cache."""
    chat_template: str = ""
    """A file, or a model whose template is taken; empty for the model's own."""
    method: FinetuneMethod = "sft"
    length: int = 0
    """The tokens at which a sample is cut, 0 for never."""
    answers_only: bool | None = None
    """Only answers are learned; None: where the chat template marks them."""
    weights: tuple[float, ...] = ()
    """Each file's share of an epoch; none: what it holds."""
    rewards: tuple[RewardQuestion, ...] = ()
    """What scores answers, to be tried on some rows."""
    max_pixels: int = 0
    """The pixels to which an image is made smaller, 0 for never."""
    rows: int = _MAX_ROWS_READ
    """The most rows to read."""
    seconds: int = _MAX_READING_SECONDS


class DataFile(Struct, frozen=True):
    """A file that was read: its size in bytes, how many of them were read, and how many rows they held."""

    path: str
    size: int = 0
    rows: int = 0
    done: int = 0


class DataProblem(Struct, frozen=True):
    """A fault in a row, as words that follow its place; line 0 is the file itself.

    A JSON list has no lines: there it is the number of the row.
    """

    kind: DataProblemKind
    file: str
    line: int
    why: str


class RowConversion(Struct, frozen=True):
    """A change that rows need before TRL can take them."""

    why: str
    rows: int


class SampleText(Struct, frozen=True, array_like=True):
    """A part of a sample, with line breaks, and whether the model only reads it or learns it."""

    text: str
    state: SampleTextState


class SampleImage(Struct, frozen=True, kw_only=True):
    """An image of a sample: its path or where it is, pixels, bytes, and a small picture of it.

    Each line of the `thumbnail` has six hexadecimal digits for each of its pixels; it has none where none was made.
    """

    name: str
    width: int = 0
    height: int = 0
    size: int = 0
    thumbnail: tuple[str, ...] = ()


class DataSample(Struct, frozen=True, kw_only=True):
    """A row as the model gets it; without a tokenizer its texts by role, and 0 tokens."""

    file: str
    line: int
    pieces: tuple[SampleText, ...]
    tokens: int = 0
    learned: int = 0
    shortened: bool = False
    images: tuple[SampleImage, ...] = ()


class DataImages(Struct, frozen=True, kw_only=True):
    """Images of the usable rows: in how many rows, and how many.

    `files` are those that all rows name by paths, in or below `folders`. `text_only` is a model that reads no images,
    `problem` why its processor cannot be loaded, and it `needs_torchvision` where that is the one for its torch.
    Without Pillow they were not `checked`.
    """

    rows: int
    count: int
    files: int = 0
    folders: tuple[str, ...] = ()
    checked: bool = True
    text_only: bool = False
    problem: str = ""
    needs_torchvision: bool = False


class LongRow(Struct, frozen=True):
    """One of the longest rows."""

    file: str
    line: int
    tokens: int


class TokenCounts(Struct, frozen=True, kw_only=True):
    """Tokens of the rows that are usable: of `counted` rows chosen at random, `total` and the like for all of them.

    `epoch` is how many a training gets in one epoch, after what is too long was cut or left out.
    `unlearned` are the rows of an epoch of which nothing is left to learn, where files have weights.
    `histogram` has how many rows were counted in each of equal steps from 0 to the `longest`. `cut` are the rows longer
    than the question's length, `lost` those of them of which nothing is left to learn.
    """

    counted: int
    total: int
    learned: int
    epoch: int
    shortest: int
    median: int
    p95: int
    longest: int
    longest_rows: tuple[LongRow, ...] = ()
    cut: int = 0
    lost: int = 0
    unlearned: int = 0
    histogram: tuple[int, ...] = ()


class SequenceLengthEffect(Struct, frozen=True, array_like=True):
    """Effect of a sequence length: rows that are longer, and rows of which nothing is left to learn.

    `epoch` are the tokens of one pass.
    """

    length: int
    rows: int
    lost: int
    epoch: int


class RowLengths(Struct, frozen=True, kw_only=True):
    """Tokens of a row, for 99 % of them at most and of the longest; `at`: what each sequence length cuts, ascending.

    `estimated` from bytes, where no tokenizer counted.
    """

    counted: int
    p99: int
    longest: int
    at: tuple[SequenceLengthEffect, ...]
    estimated: bool = False

    def effect_of_length(self, length: int) -> SequenceLengthEffect:
        """Return what a length does, or the next shorter one that is known."""
        return next((cut for cut in reversed(self.at) if cut.length <= length), self.at[0])


class EpochFileShare(Struct, frozen=True):
    """Usable rows of a file or folder with a weight, and those that an epoch takes of them."""

    file: str
    weight: float
    rows: int
    taken: int


class AnswersOnlySupport(Struct, frozen=True):
    """Ability to learn answers alone: `why` not, or a `caution`."""

    possible: bool = False
    why: str = ""
    caution: str = ""


class TurnEndTokens(Struct, frozen=True):
    """The token that ends an assistant's turn in the chat template, and the tokenizer's end; empty for none.

    `passed` is the former where the model would not stop at it: the training takes it as the end.
    """

    turn: str = ""
    eos: str = ""
    passed: str = ""


class DataReport(Struct, frozen=True, kw_only=True):
    """Content of the data, or the `problem` why it could not be read."""

    files: tuple[DataFile, ...] = ()
    file_count: int = 0
    size: int = 0
    done: int = 0
    rows: int = 0
    """How many were read."""
    usable: int = 0
    """The rows without a problem that excludes them; duplicates are usable."""
    all_read: bool = True
    format: str = ""
    chat: bool = False
    """They are made of messages."""
    columns: tuple[str, ...] = ()
    desirable: int = 0
    """The rows of KTO whose label is true."""
    problems: tuple[DataProblem, ...] = ()
    """The first rows that have one."""
    counts: dict[str, int] = {}
    """The number of rows with each kind of problem."""
    conversions: tuple[RowConversion, ...] = ()
    samples: tuple[DataSample, ...] = ()
    tokens: TokenCounts | None = None
    lengths: RowLengths | None = None
    tokenizer: str = ""
    """Why no tokens were counted."""
    tokenizer_is_missing: bool = False
    """The model's folder holds none."""
    processor: str = ""
    """Why the processor of a model that sees lacks torchvision, where no row has images."""
    template: str = ""
    """The error of the chat template for a row that it refused."""
    answers: AnswersOnlySupport = AnswersOnlySupport()
    ends: TurnEndTokens = TurnEndTokens()
    """The tokens that end the turns of a chat."""
    shares: tuple[EpochFileShare, ...] = ()
    """The files' shares of an epoch, where they have weights and were read whole."""
    limit: int = 0
    """The most tokens that the model takes; 0: unknown."""
    rewards: tuple[RewardTrial, ...] = ()
    images: DataImages | None = None
    """None where no row names any, also among those that are left out."""
    problem: str = ""


def probe_data(
    python: str,
    question: DataQuestion,
    deadline: float = PROBE_DEADLINE_SECONDS,
    is_cancelled: Callable[[], bool] = lambda: False,
    inspections_file: str = "",
) -> DataReport:
    """Return what an interpreter reads in the data, its texts safe to show but for their line breaks.

    A `inspections_file` keeps how images looked.
    """
    from importlib import resources

    child = str(resources.files("tui_train").joinpath("programs/data/data_child.py"))
    command = [python, "-B", child, msgspec.json.encode(question).decode(), *filter(None, [inspections_file])]
    return parse_data_answer(run_child(command, deadline, ENVIRONMENT_WITHOUT_GPUS, is_cancelled=is_cancelled))


def parse_data_answer(child_result: ChildResult) -> DataReport:
    """Return what a child has answered; `problem` where that is nothing, with what it was reading."""
    being_read = ""
    trials: dict[str, RewardTrial] = {}
    for line in reversed(child_result.stdout.splitlines()):
        with suppress(Unparsable, msgspec.ValidationError):
            answer = _with_escaped_control_characters(parse_json_object(line))
            if "reward" in answer:
                # Of what was told of one, the newest holds.
                trial = msgspec.convert(answer["reward"], RewardTrial)
                trials.setdefault(trial.text, trial)
            elif "reading" in answer:
                being_read = being_read or visible(str(answer["reading"]))
            else:
                report = msgspec.convert(answer, DataReport)
                return msgspec.structs.replace(report, rewards=(*reversed(trials.values()), *report.rewards))
    return DataReport(problem=(f"{being_read}: " if being_read else "") + visible(child_result.why_unusable()))


def _with_escaped_control_characters(value: Any) -> Any:
    if isinstance(value, str):
        return "\n".join(visible(line) for line in value.replace("\r\n", "\n").expandtabs(4).split("\n"))
    if isinstance(value, list):
        return [_with_escaped_control_characters(inner) for inner in value]
    if isinstance(value, dict):
        return {
            _with_escaped_control_characters(key): _with_escaped_control_characters(inner)
            for key, inner in value.items()
        }
    return value
