"""Reading a log of any size in bounded memory: its head, its tail, and between them what looks like a failure."""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from tui_train.diagnose.types import Line
from tui_train.errors import BadInput, NotFound
from tui_train.text import visible

_HEAD = 256 * 1024
_TAIL = 512 * 1024
_CHUNK = 1 << 20
_MOST = 1000
_LONGEST = 4000
_ESCAPE = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_TRIGGER = re.compile(rb"[Ee]rror|ERROR|Exception|Traceback|Killed|CANCELLED|oom.kill|[Ff]ail|Xid|signal|WARN|exitcode")
_PREFIX = re.compile(
    r"\s*(?:(?:\[(?:rank|default|trainer)(?P<a>\d{1,6})(?:\|\d+)?\]:|(?P<b>\d{1,6}):(?= )|\[rank (?P<c>\d{1,6})\]"
    r"|\((?:\w+ )?pid=\d+[^)]{0,80}\)|\[(?:\d+,)?(?P<d>\d{1,6})\]<std(?:out|err)>:)\s?)"
)


def lines_of(path: str) -> tuple[Line, ...]:
    """Return the lines of a log that a diagnosis looks at, `-` being standard input; an error where it cannot be read."""
    if path == "-":
        import sys

        return lines(sys.stdin.buffer)
    try:
        with Path(path).open("rb") as file:
            return lines(file)
    except FileNotFoundError:
        raise NotFound(f"there is no log {visible(path)}", "Name a log file, or a run: see `tui-train runs`.") from None
    except OSError as error:
        raise BadInput(f"{visible(path)} cannot be read: {error.strerror}", "Name a log that you may read.") from None


def lines(file: BinaryIO) -> tuple[Line, ...]:
    """Return head, tail and the suspicious lines of a stream, in order, numbered as in the whole of it."""
    head: list[tuple[int, bytes]] = []
    first: list[tuple[int, bytes]] = []
    latest: deque[tuple[int, bytes]] = deque(maxlen=_MOST)
    tail: deque[tuple[int, bytes]] = deque()
    in_head = in_tail = 0
    for number, raw in _numbered(file):
        if in_head < _HEAD:
            head.append((number, raw))
            in_head += len(raw) + 1
            continue
        tail.append((number, raw))
        in_tail += len(raw) + 1
        while in_tail > _TAIL:
            old = tail.popleft()
            in_tail -= len(old[1]) + 1
            if _TRIGGER.search(old[1]):
                (first if len(first) < _MOST else latest).append(old)
    return tuple(line for number, raw in (*head, *first, *latest, *tail) for line in _cleaned(number, raw))


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) with each line cut to a length; memory stays bounded without any line end too."""
    number, rest = 1, b""
    while chunk := file.read(_CHUNK):
        parts = (rest + chunk).split(b"\n")
        rest = parts.pop()[:_LONGEST]
        for part in parts:
            yield number, part if len(part) <= _LONGEST else part[-_LONGEST:]
            number += 1
    if rest:
        yield number, rest


def _cleaned(number: int, raw: bytes) -> Iterable[Line]:
    """Return what a terminal would have shown of a line, a carriage return beginning it anew."""
    encoding = "utf-16-le" if raw.count(b"\0") * 3 > len(raw) else "utf-8"
    for piece in _ESCAPE.sub(b"", raw).split(b"\r"):
        text = piece.decode(encoding, "replace").replace("\0", "")
        rank = None
        for _ in range(3):
            match = _PREFIX.match(text)
            if not match:
                break
            told = next((value for value in match.groups() if value), None)
            rank = int(told) if told else rank
            text = text[match.end() :]
        if text.strip():
            yield Line(number, text.rstrip(), rank)
