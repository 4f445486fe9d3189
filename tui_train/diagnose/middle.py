"""The lines between the head and the tail of a large log that a signature may be about, in bounded memory."""

import functools
import itertools
import re
from collections import deque
from typing import NamedTuple

from tui_train.diagnose.anchors import Anchors, anchors, any_of, best, holds, plain
from tui_train.diagnose.details import details
from tui_train.diagnose.signatures import TELLS, signatures
from tui_train.supervisor.lines import origin

# So many of the first and of the latest lines are kept of each expression; more of one kind say nothing new.
_OF_EACH = 3
# Of a long traceback its innermost frames, and of all so many.
_FRAMES = 40
_TRACEBACKS = 30
_STEPS = 60
# What lines are like is remembered of so many kinds.
_KINDS = 1 << 16
_BEGIN = b"(most recent call last)"
_CHAINED = b"The above exception was the direct cause", b"During handling of the above exception"
ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_LOSS = b"loss"
_LONGEST = 1500

Numbered = tuple[int, bytes]


class _Expression(NamedTuple):
    """An expression of a signature, and what a line must hold for it; `warning`: the line may only warn."""

    pattern: re.Pattern[str]
    anchors: Anchors
    warning: bool


@functools.cache
def _expressions() -> tuple[_Expression, ...]:
    """Return all that are about one line; tracebacks, which others are about, are kept as a whole."""
    shown = [(expression, one.warning) for one, expressions in signatures() for expression in expressions]
    named = [(expression, False) for _, expression in details()]
    return tuple(
        _Expression(expression, anchors(expression.pattern), warning)
        for expression, warning in (*shown, *named)
        if r"\n" not in expression.pattern
    )


@functools.cache
def _by_word() -> dict[bytes, tuple[int, ...]]:
    """Return the numbers of the expressions by words of which a line that they match in holds one."""
    words = {word for expression in _expressions() for word in best(expression.anchors)}
    short: list[bytes] = []
    for word in sorted(words, key=lambda word: (len(word), word)):
        if not any(shorter in word for shorter in short):
            short.append(word)
    numbers_of: dict[bytes, list[int]] = {}
    for number, expression in enumerate(_expressions()):
        for word in {next(part for part in short if part in word) for word in best(expression.anchors)}:
            numbers_of.setdefault(word, []).append(number)
    return {word: tuple(numbers) for word, numbers in numbers_of.items()}


@functools.cache
def _any_word() -> re.Pattern[bytes]:
    """Return an expression for any of the words."""
    return re.compile(any_of(_by_word()))


def _candidates(line: bytes) -> tuple[int, ...]:
    """Return the numbers of the expressions that may match in a plain line."""
    if _any_word().search(line) is None:
        return ()
    numbers = {number for word, numbers in _by_word().items() if word in line for number in numbers}
    expressions = _expressions()
    return tuple(number for number in sorted(numbers) if holds(line, expressions[number].anchors))


def cut(block: bytes) -> list[bytes]:
    """Return the lines of a block, each cut to a length."""
    lines = block.split(b"\n")
    if max(map(len, lines)) <= _LONGEST:
        return lines
    half = _LONGEST // 2
    return [line if len(line) <= _LONGEST else line[:half] + b" " + line[-half:] for line in lines]


class Middle:
    """The lines to keep of what was read so far.

    Most lines of a log differ from an earlier one in digits alone: what a line of a kind is about is looked up once,
    and a block whose kinds are about nothing is passed over as a whole.
    """

    def __init__(self) -> None:
        """Start without lines."""
        self._known: set[int] = set()
        self._begin: set[int] = set()
        self._loss: set[int] = set()
        self._numbers: dict[int, tuple[int, ...]] = {}
        self._first: dict[int, list[Numbered]] = {}
        self._latest: dict[int, deque[Numbered]] = {}
        self._tracebacks: deque[list[Numbered]] = deque(maxlen=_TRACEBACKS)
        self._earliest: list[list[Numbered]] = []
        self._steps: deque[Numbered] = deque(maxlen=_STEPS)
        self._open: list[Numbered] = []
        self._frames: deque[Numbered] = deque(maxlen=_FRAMES)

    def read(self, number: int, block: bytes) -> None:
        """Read more whole lines, the first of which has this number, and keep those that matter."""
        lines = cut(block)
        texts = plain(b"\n".join(lines)).split(b"\n")
        kinds = [*map(hash, texts)]
        different = {*kinds}
        if unknown := different - self._known:
            self._learn({kind: text for kind, text in zip(kinds, texts, strict=True) if kind in unknown})
        if matching := different & self._numbers.keys():
            for place in [place for place, kind in enumerate(kinds) if kind in matching]:
                self._match(self._numbers[kinds[place]], number + place, lines[place])
        if self._open or not self._begin.isdisjoint(different):
            for kind, numbered in zip(kinds, enumerate(lines, number), strict=True):
                self._take(kind, *numbered)
        elif not self._loss.isdisjoint(different):
            latest = (place for place in range(len(lines) - 1, -1, -1) if kinds[place] in self._loss)
            places = [*itertools.islice(latest, _STEPS)]
            self._steps.extend((number + place, lines[place]) for place in reversed(places))

    def _take(self, kind: int, number: int, line: bytes) -> None:
        if self._open or (kind in self._begin and _BEGIN in line):
            self._follow(number, line)
        elif kind in self._loss:
            self._steps.append((number, line))

    def kept(self) -> list[Numbered]:
        """Return the lines that matter, in order."""
        every: dict[int, bytes] = dict(self._steps)
        for lines in (*self._first.values(), *self._latest.values(), *self._earliest, *self._tracebacks):
            every.update(lines)
        every.update((*self._open, *self._frames))
        return sorted(every.items())

    def _learn(self, texts: dict[int, bytes]) -> None:
        """Look up what new kinds of lines are about."""
        if len(self._known) >= _KINDS:
            for kept in (self._known, self._begin, self._loss, self._numbers):
                kept.clear()
        self._known.update(texts)
        self._begin.update(kind for kind, text in texts.items() if _BEGIN in text)
        self._loss.update(kind for kind, text in texts.items() if _LOSS in text)
        texts = {kind: ESCAPE.sub(b"", text).replace(b"\0", b"") for kind, text in texts.items()}
        if _any_word().search(b"\n".join(texts.values())):
            found = ((kind, _candidates(text)) for kind, text in texts.items())
            self._numbers.update((kind, numbers) for kind, numbers in found if numbers)

    def _match(self, numbers: tuple[int, ...], number: int, line: bytes) -> None:
        """Keep a line in which an expression matches."""
        raw = ESCAPE.sub(b"", line).replace(b"\0", b"").decode("utf-8", "replace")
        text = "\n".join(origin(piece)[1].rstrip() for piece in raw.split("\r"))
        expressions = _expressions()
        tells = None
        for which in numbers:
            expression = expressions[which]
            if expression.pattern.search(text) is None:
                continue
            if not expression.warning:
                tells = bool(TELLS.search(text)) if tells is None else tells
                if tells:
                    continue
            first = self._first.setdefault(which, [])
            if len(first) < _OF_EACH:
                first.append((number, line))
            else:
                self._latest.setdefault(which, deque(maxlen=_OF_EACH)).append((number, line))

    def _follow(self, number: int, line: bytes) -> None:
        """Take a line of a traceback: its begin, a frame, or what ends it."""
        if _BEGIN in line:
            self._close()
            self._open = [(number, line)]
            return
        text = origin(ESCAPE.sub(b"", line).decode("utf-8", "replace"))[1]
        self._frames.append((number, line))
        if text[:1].strip() and not text.startswith(("│", "|", "╭", "╰", "+")):
            self._close()

    def _close(self) -> None:
        if not self._open:
            return
        whole = [*self._open, *self._frames]
        (self._earliest if len(self._earliest) < _TRACEBACKS else self._tracebacks).append(whole)
        self._open = []
        self._frames.clear()
