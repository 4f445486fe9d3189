"""The lines between the head and the tail of a large log that a signature may be about, in bounded memory."""

import functools
import itertools
import re
from collections import deque
from typing import NamedTuple

from tui_train.diagnose.failure_details import load_details
from tui_train.diagnose.required_words import (
    RequiredWords,
    alternation_pattern,
    may_contain_match,
    normalized_for_required_words,
    rarest_required_words,
    required_words,
)
from tui_train.diagnose.signatures import HARMLESS_LINE_PATTERN, load_signatures
from tui_train.runner.logs.lines import split_rank_and_text

# So many of the first and of the latest lines are kept of each expression; more of one kind say nothing new.
_MAX_LINES_KEPT_PER_EXPRESSION = 3
# Of a long traceback its innermost frames, and of all so many.
_MAX_FRAME_LINES = 40
_MAX_TRACEBACKS = 30
_MAX_STEP_LINES_KEPT = 60
# What lines are like is remembered of so many kinds.
_MAX_REMEMBERED_LINE_KINDS = 1 << 16
_TRACEBACK_HEADER = b"(most recent call last)"
TERMINAL_ESCAPE_PATTERN = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LOSS_WORD_BYTES = b"loss"
_MAX_LINE_BYTES = 1500
# A word of so many bytes is seldom in a line by chance: of an expression over several lines, those with it are kept.
_MIN_KEPT_WORD_BYTES = 24
_ANY_TEXT_PATTERN = re.compile("")

NumberedLine = tuple[int, bytes]


class _SignatureExpression(NamedTuple):
    """An expression of a signature, and what a line must hold for it; `warning`: the line may only warn."""

    pattern: re.Pattern[str]
    required: RequiredWords
    warning: bool


@functools.cache
def _all_line_expressions() -> tuple[_SignatureExpression, ...]:
    """Return all that are about one line, and the long words of the others; tracebacks are kept as a whole."""
    shown = [
        (expression, signature.warning) for signature, expressions in load_signatures() for expression in expressions
    ]
    named = [(expression, False) for _, expression in load_details()]
    all_expressions = (*shown, *named)
    long_words = {
        words: warning
        for expression, warning in all_expressions
        if r"\n" in expression.pattern
        for words in required_words(expression.pattern)
        if min(map(len, words)) >= _MIN_KEPT_WORD_BYTES and not any(_TRACEBACK_HEADER in word for word in words)
    }
    return (
        *(
            _SignatureExpression(expression, required_words(expression.pattern), warning)
            for expression, warning in all_expressions
            if r"\n" not in expression.pattern
        ),
        *(_SignatureExpression(_ANY_TEXT_PATTERN, (words,), warning) for words, warning in long_words.items()),
    )


@functools.cache
def _expression_numbers_by_word() -> dict[bytes, tuple[int, ...]]:
    """Return the numbers of the expressions by words of which a line that they match in holds one."""
    words = {word for expression in _all_line_expressions() for word in rarest_required_words(expression.required)}
    short: list[bytes] = []
    for word in sorted(words, key=lambda word: (len(word), word)):
        if not any(shorter in word for shorter in short):
            short.append(word)
    numbers_of: dict[bytes, list[int]] = {}
    for number, expression in enumerate(_all_line_expressions()):
        for word in {
            next(part for part in short if part in word) for word in rarest_required_words(expression.required)
        }:
            numbers_of.setdefault(word, []).append(number)
    return {word: tuple(numbers) for word, numbers in numbers_of.items()}


@functools.cache
def _any_required_word_pattern() -> re.Pattern[bytes]:
    """Return an expression for any of the words."""
    return re.compile(alternation_pattern(_expression_numbers_by_word()))


def _possible_expression_numbers(line: bytes) -> tuple[int, ...]:
    """Return the numbers of the expressions that may match in a plain line."""
    if _any_required_word_pattern().search(line) is None:
        return ()
    numbers = {number for word, numbers in _expression_numbers_by_word().items() if word in line for number in numbers}
    expressions = _all_line_expressions()
    return tuple(number for number in sorted(numbers) if may_contain_match(line, expressions[number].required))


def shortened_lines(block: bytes) -> list[bytes]:
    """Return the lines of a block, each cut to a length."""
    lines = block.split(b"\n")
    if max(map(len, lines)) <= _MAX_LINE_BYTES:
        return lines
    half = _MAX_LINE_BYTES // 2
    return [line if len(line) <= _MAX_LINE_BYTES else line[:half] + b" " + line[-half:] for line in lines]


class KeptMiddleLines:
    """The lines to keep of what was read so far.

    Most lines of a log differ from an earlier one in digits alone: what a line of a kind is about is looked up once,
    and a block whose kinds are about nothing is passed over as a whole.
    """

    def __init__(self) -> None:
        self._known_kinds: set[int] = set()
        self._traceback_kinds: set[int] = set()
        self._loss_kinds: set[int] = set()
        self._numbers: dict[int, tuple[int, ...]] = {}
        self._first: dict[int, list[NumberedLine]] = {}
        self._latest: dict[int, deque[NumberedLine]] = {}
        self._tracebacks: deque[list[NumberedLine]] = deque(maxlen=_MAX_TRACEBACKS)
        self._earliest: list[list[NumberedLine]] = []
        self._steps: deque[NumberedLine] = deque(maxlen=_MAX_STEP_LINES_KEPT)
        self._open: list[NumberedLine] = []
        self._frames: deque[NumberedLine] = deque(maxlen=_MAX_FRAME_LINES)

    def keep_relevant_lines(self, number: int, block: bytes) -> None:
        """Read more whole lines, the first of which has this number, and keep those that matter."""
        lines = shortened_lines(block)
        texts = normalized_for_required_words(b"\n".join(lines)).split(b"\n")
        kinds = [*map(hash, texts)]
        different = {*kinds}
        if unknown := different - self._known_kinds:
            self._classify_kinds({kind: text for kind, text in zip(kinds, texts, strict=True) if kind in unknown})
        if matching := different & self._numbers.keys():
            for index in [index for index, kind in enumerate(kinds) if kind in matching]:
                self._keep_if_matching(self._numbers[kinds[index]], number + index, lines[index])
        if self._open or not self._traceback_kinds.isdisjoint(different):
            for kind, numbered in zip(kinds, enumerate(lines, number), strict=True):
                self._keep_traceback_or_step(kind, *numbered)
        elif not self._loss_kinds.isdisjoint(different):
            latest = (index for index in range(len(lines) - 1, -1, -1) if kinds[index] in self._loss_kinds)
            indexes = [*itertools.islice(latest, _MAX_STEP_LINES_KEPT)]
            self._steps.extend((number + index, lines[index]) for index in reversed(indexes))

    def _keep_traceback_or_step(self, line_kind: int, line_number: int, line: bytes) -> None:
        if self._open or (line_kind in self._traceback_kinds and _TRACEBACK_HEADER in line):
            self._keep_traceback_line(line_number, line)
        elif line_kind in self._loss_kinds:
            self._steps.append((line_number, line))

    def kept_lines(self) -> list[NumberedLine]:
        """Return the lines that matter, in order."""
        every: dict[int, bytes] = dict(self._steps)
        for lines in (*self._first.values(), *self._latest.values(), *self._earliest, *self._tracebacks):
            every.update(lines)
        every.update((*self._open, *self._frames))
        return sorted(every.items())

    def _classify_kinds(self, texts: dict[int, bytes]) -> None:
        """Look up what new kinds of lines are about."""
        if len(self._known_kinds) >= _MAX_REMEMBERED_LINE_KINDS:
            for kept in (self._known_kinds, self._traceback_kinds, self._loss_kinds, self._numbers):
                kept.clear()
        self._known_kinds.update(texts)
        self._traceback_kinds.update(kind for kind, text in texts.items() if _TRACEBACK_HEADER in text)
        self._loss_kinds.update(kind for kind, text in texts.items() if _LOSS_WORD_BYTES in text)
        texts = {kind: TERMINAL_ESCAPE_PATTERN.sub(b"", text).replace(b"\0", b"") for kind, text in texts.items()}
        if _any_required_word_pattern().search(b"\n".join(texts.values())):
            found = ((kind, _possible_expression_numbers(text)) for kind, text in texts.items())
            self._numbers.update((kind, numbers) for kind, numbers in found if numbers)

    def _keep_if_matching(self, expression_numbers: tuple[int, ...], line_number: int, line: bytes) -> None:
        """Keep a line in which an expression matches."""
        raw = TERMINAL_ESCAPE_PATTERN.sub(b"", line).replace(b"\0", b"").decode("utf-8", "replace")
        text = "\n".join(split_rank_and_text(piece)[1].rstrip() for piece in raw.split("\r"))
        expressions = _all_line_expressions()
        is_report = None
        for which in expression_numbers:
            expression = expressions[which]
            if expression.pattern.search(text) is None:
                continue
            if not expression.warning:
                is_report = bool(HARMLESS_LINE_PATTERN.search(text)) if is_report is None else is_report
                if is_report:
                    continue
            first = self._first.setdefault(which, [])
            if len(first) < _MAX_LINES_KEPT_PER_EXPRESSION:
                first.append((line_number, line))
            else:
                self._latest.setdefault(which, deque(maxlen=_MAX_LINES_KEPT_PER_EXPRESSION)).append((line_number, line))

    def _keep_traceback_line(self, line_number: int, line: bytes) -> None:
        """Take a line of a traceback: its begin, a frame, or what ends it."""
        if _TRACEBACK_HEADER in line:
            self._end_traceback()
            self._open = [(line_number, line)]
            return
        text = split_rank_and_text(TERMINAL_ESCAPE_PATTERN.sub(b"", line).decode("utf-8", "replace"))[1]
        self._frames.append((line_number, line))
        if text[:1].strip() and not text.startswith(("│", "|", "╭", "╰", "+")):
            self._end_traceback()

    def _end_traceback(self) -> None:
        if not self._open:
            return
        traceback = [*self._open, *self._frames]
        (self._earliest if len(self._earliest) < _MAX_TRACEBACKS else self._tracebacks).append(traceback)
        self._open = []
        self._frames.clear()
