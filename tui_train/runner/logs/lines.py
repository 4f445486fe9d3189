"""One line of a log as a terminal would leave it: carriage returns folded, colours told apart, all else harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..system.safe_text import visible

MAX_LINE_LENGTH = 1 << 16
_ESCAPE_PATTERN = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])"
)
_COLOUR_PATTERN = re.compile(r"\x1b\[([\d;]*)m")
_PROGRESS_BAR_PATTERN = re.compile(r"\d+/\d+ \[\d+:")
# What stands before it is of a bar below the first one: of an evaluation, of a file that is written.
_CURSOR_UP_SEQUENCE = "\x1b[A"
_TAB_WIDTH = 8
# Colours that are switched on and on without end: nobody sees the first.
_MAX_COLOUR_LENGTH = 200
# Of the processes of a training: torch names itself so in a traceback, torchrun with --tee and NeMo-Run in every line.
_ANY_RANK_PREFIX_PATTERN = re.compile(r"(?:\S{1,80}/\d+ )?\[(?:rank|default)?(\d{1,5})\]:")
# What programs that start processes write before each of their lines, one inside the other.
_LINE_ORIGIN_PATTERN = re.compile(
    r"\s*(?:(?:(?:\S{1,80}/\d+ )?\[(?:rank|default|trainer|(?=\d{1,5}\]:.))(?P<a>\d{1,6})(?:\|\d+)?\]:"
    r"|(?P<b>\d{1,6}):(?= )|(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[\w{1,60}\.py:\d+\]"
    r"|\[rank (?P<c>\d{1,6})\]|\((?:\w+ )?pid=\d+[^)]{0,80}\)|\[(?:\d+,)?(?P<d>\d{1,6})\]<std(?:out|err)>:"
    r"|\[[\dT:.Z-]{20,40}\] \w{4,16} \[rank=(?P<e>\d{1,6})\] \|\|)\s?)"
)
# What containers' logs and the journal have before each line, whoever wrote it.
_LINE_TIME_PATTERN = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) (?:std(?:out|err) [FP] )?"
    r"|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d [\w.-]{1,80} (?!systemd|kernel|sshd|nvidia|slurm|docker|containerd)"
    r"[\w.@-]{1,60}\[\d{1,8}\]: )"
)
# A traceback begins where the cursor is: behind a progress bar.
_BAR_BEFORE_TRACEBACK_PATTERN = re.compile(
    r"^[^\[]{0,300}\d+%\|.{0,300}?(?=\[rank\d{1,6}\]: \W{0,300}Traceback \(most recent call last\))"
)
RANK_PREFIX_PATTERN_TEMPLATE = r"^(?:\S{1,80}/\d+ )?\[(?:rank|default)?%d\]:"


class StyledPart(NamedTuple):
    """Characters of one look: `colour` are the parameters of the escape sequences in force, `1;31` for bold red."""

    text: str
    colour: str = ""


def lines_left_on_terminal(line: bytes) -> list[str]:
    """Return a line as a terminal would leave it after its carriage returns; none where it would leave nothing.

    A bar that other words overwrite stays as a line before them: only it tells the step that they are about.
    """
    text = line.decode(errors="replace")
    if text.isprintable() and len(text) <= MAX_LINE_LENGTH:
        return [text]
    return [_plain_text(version) for version in _versions_left_on_terminal(text)]


def styled_lines_left_on_terminal(line: bytes) -> list[tuple[StyledPart, ...]]:
    """Return the same as `lines_left_on_terminal`, with colours."""
    text = line.decode(errors="replace")
    if text.isprintable() and len(text) <= MAX_LINE_LENGTH:
        return [(StyledPart(text),)]
    return [tuple(_styled_parts(version)) for version in _versions_left_on_terminal(text)]


def progress_bar_in_line(line: bytes) -> str:
    """Return the training's own progress bar in a line, empty where there is none."""
    return next((shown for shown in lines_left_on_terminal(line) if _PROGRESS_BAR_PATTERN.search(shown)), "")


def last_nonblank_version_as_plain_text(versions: Iterable[str]) -> str:
    """Return the last of a line's versions that is not blank, safe to show; empty where all are."""
    return _plain_text(_last_nonblank_version(versions))


def without_escape_sequences(text: str) -> str:
    """Return a text without what moves a terminal's cursor, or colours."""
    return _ESCAPE_PATTERN.sub("", text) if "\x1b" in text else text


def rank_in_line(line: str) -> int | None:
    """Return the rank that a line says it comes from, None where it does not."""
    match = _ANY_RANK_PREFIX_PATTERN.match(line)
    return int(match[1]) if match else None


def without_rank_prefix(line: str) -> str:
    """Return a line without the rank that it begins with."""
    match = _ANY_RANK_PREFIX_PATTERN.match(line) if "]:" in line else None
    return line[match.end() :].lstrip() if match else line


def split_rank_and_text(line: str) -> tuple[int | None, str]:
    """Return the rank that a line says it comes from, None where it does not, and what it says then."""
    rank = None
    if (line[:1].isdigit() or line[3:4] == " ") and (time := _LINE_TIME_PATTERN.match(line)):
        line = line[time.end() :]
    before = _BAR_BEFORE_TRACEBACK_PATTERN.match(line) if "Traceback (most" in line else None
    line = line[before.end() :] if before else line
    for _ in range(3):
        match = _LINE_ORIGIN_PATTERN.match(line)
        if not match:
            break
        group = next((value for value in match.groups() if value), None)
        rank = int(group) if group else rank
        line = line[match.end() :]
    return rank, line


def _versions_left_on_terminal(text: str) -> list[str]:
    """Return the versions of a line that a terminal would leave, as they were written."""
    versions = text.split("\r")
    own = [version.rpartition(_CURSOR_UP_SEQUENCE)[2] for version in versions]
    shown, drawn = (
        _last_nonblank_version(own),
        _last_nonblank_version([version for version in own if _PROGRESS_BAR_PATTERN.search(version)]),
    )
    if not shown:
        return [] if len(versions) > 1 or _CURSOR_UP_SEQUENCE in versions[0] else [""]
    return [drawn, shown] if drawn and not _PROGRESS_BAR_PATTERN.search(shown) else [shown]


def _last_nonblank_version(versions: Iterable[str]) -> str:
    return next((version for version in reversed([*versions]) if _plain_text(version).strip()), "")


def _plain_text(version: str) -> str:
    return visible(_ESCAPE_PATTERN.sub("", version[:MAX_LINE_LENGTH]).expandtabs(_TAB_WIDTH))


def _styled_parts(version: str) -> Iterator[StyledPart]:
    """Yield the parts of a version between its colours; together they are what `_plain_text` returns."""
    colour, column = "", 0
    parts = _COLOUR_PATTERN.split(version[:MAX_LINE_LENGTH])
    for text, switched in zip(parts[::2], [*parts[1::2], ""]):
        if text:
            begin = column % _TAB_WIDTH
            expanded = (" " * begin + _ESCAPE_PATTERN.sub("", text)).expandtabs(_TAB_WIDTH)[begin:]
            column += len(expanded)
            yield StyledPart(visible(expanded), colour)
        first = switched.partition(";")[0]
        colour = "" if not first.strip("0") else f"{colour};{switched}".strip(";")
        if len(colour) > _MAX_COLOUR_LENGTH:
            colour = switched
