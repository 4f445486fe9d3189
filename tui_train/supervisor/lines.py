"""One line of a log as a terminal would leave it: carriage returns folded, colours told apart, all else harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .text import visible

LONGEST = 1 << 16
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])")
_COLOUR = re.compile(r"\x1b\[([\d;]*)m")
_BAR = re.compile(r"\d+/\d+ \[\d+:")
# What stands before it is of a bar below the first one: of an evaluation, of a file that is written.
_UP = "\x1b[A"
_TAB = 8
# Colours that are switched on and on without end: nobody sees the first.
_MOST_COLOURS = 200
# Of the processes of a training: torch names itself so in a traceback, torchrun with --tee and NeMo-Run in every line.
_RANK = re.compile(r"(?:\S{1,80}/\d+ )?\[(?:rank|default)?(\d{1,5})\]:")
# What programs that start processes write before each of their lines, one inside the other.
_ORIGIN = re.compile(
    r"\s*(?:(?:(?:\S{1,80}/\d+ )?\[(?:rank|default|trainer)(?P<a>\d{1,6})(?:\|\d+)?\]:|(?P<b>\d{1,6}):(?= )"
    r"|\[rank (?P<c>\d{1,6})\]|\((?:\w+ )?pid=\d+[^)]{0,80}\)|\[(?:\d+,)?(?P<d>\d{1,6})\]<std(?:out|err)>:)\s?)"
)
# A traceback begins where the cursor is: behind a progress bar.
_BEHIND_A_BAR = re.compile(
    r"^[^\[]{0,300}\d+%\|.{0,300}?(?=\[rank\d{1,6}\]: \W{0,300}Traceback \(most recent call last\))"
)
RANK = r"^(?:\S{1,80}/\d+ )?\[(?:rank|default)?%d\]:"


class Run(NamedTuple):
    """Characters of one look: `colour` are the parameters of the escape sequences in force, `1;31` for bold red."""

    text: str
    colour: str = ""


def fold(line: bytes) -> list[str]:
    """Return a line as a terminal would leave it after its carriage returns; none where it would leave nothing.

    A bar that other words overwrite stays as a line before them: only it tells the step that they are about.
    """
    text = line.decode(errors="replace")
    if text.isprintable() and len(text) <= LONGEST:
        return [text]
    return [_plain(version) for version in _left(text)]


def styled(line: bytes) -> list[tuple[Run, ...]]:
    """Return the same as `fold`, with colours."""
    text = line.decode(errors="replace")
    if text.isprintable() and len(text) <= LONGEST:
        return [(Run(text),)]
    return [tuple(_runs(version)) for version in _left(text)]


def bar(line: bytes) -> str:
    """Return the training's own progress bar in a line, empty where there is none."""
    return next((shown for shown in fold(line) if _BAR.search(shown)), "")


def last_of(versions: Iterable[str]) -> str:
    """Return the last of a line's versions that is not blank, safe to show; empty where all are."""
    return _plain(_last(versions))


def unstyled(text: str) -> str:
    """Return a text without what moves a terminal's cursor, or colours."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def rank(shown: str) -> int | None:
    """Return the rank that a line says it comes from, None where it does not."""
    match = _RANK.match(shown)
    return int(match[1]) if match else None


def without_rank(shown: str) -> str:
    """Return a line without the rank that it begins with."""
    match = _RANK.match(shown) if "]:" in shown else None
    return shown[match.end() :].lstrip() if match else shown


def origin(text: str) -> tuple[int | None, str]:
    """Return the rank that a line says it comes from, None where it does not, and what it says then."""
    rank = None
    before = _BEHIND_A_BAR.match(text) if "Traceback (most" in text else None
    text = text[before.end() :] if before else text
    for _ in range(3):
        match = _ORIGIN.match(text)
        if not match:
            break
        group = next((value for value in match.groups() if value), None)
        rank = int(group) if group else rank
        text = text[match.end() :]
    return rank, text


def _left(text: str) -> list[str]:
    """Return the versions of a line that a terminal would leave, as they were written."""
    versions = text.split("\r")
    own = [version.rpartition(_UP)[2] for version in versions]
    shown, drawn = _last(own), _last([version for version in own if _BAR.search(version)])
    if not shown:
        return [] if len(versions) > 1 or _UP in versions[0] else [""]
    return [drawn, shown] if drawn and not _BAR.search(shown) else [shown]


def _last(versions: Iterable[str]) -> str:
    return next((version for version in reversed([*versions]) if _plain(version).strip()), "")


def _plain(version: str) -> str:
    return visible(_ANSI.sub("", version[:LONGEST]).expandtabs(_TAB))


def _runs(version: str) -> Iterator[Run]:
    """Yield the parts of a version between its colours; together they are what `_plain` returns."""
    colour, column = "", 0
    parts = _COLOUR.split(version[:LONGEST])
    for text, switched in zip(parts[::2], [*parts[1::2], ""]):
        if text:
            begin = column % _TAB
            expanded = (" " * begin + _ANSI.sub("", text)).expandtabs(_TAB)[begin:]
            column += len(expanded)
            yield Run(visible(expanded), colour)
        first = switched.partition(";")[0]
        colour = "" if not first.strip("0") else f"{colour};{switched}".strip(";")
        if len(colour) > _MOST_COLOURS:
            colour = switched
