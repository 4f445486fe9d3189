"""How much of two streams a log has already that both were written to, one between the other."""

from __future__ import annotations

import os
import select
from typing import Sequence

_PIECE = 1 << 16
# So much of what was passed stays within reach, for a wrong turn to be taken back.
_BEHIND = 1 << 15
# Nor is more than this read at once.
_MOST = 1 << 20
# So many bytes are not the same by chance.
_SURE = 32
# A line of fewer bytes is not enough to find a place again.
_TELLING = 4


class Source:
    """Bytes that are read from a descriptor as they are needed; `passed` counts those that were passed over."""

    def __init__(self, descriptor: int, together: Sequence[Source] = ()) -> None:
        """Whoever writes to two pipes waits where one of them is not read: they are read `together`."""
        self.descriptor = descriptor
        self.together = together or (self,)
        self.passed = 0
        self.ended = False
        self._data = bytearray()
        self._at = 0

    def need(self, count: int) -> int:
        """Read until so many bytes are there, or all that there are; return how many there are."""
        while len(self._data) - self._at < count and not self.ended:
            open_ones = [source for source in self.together if not source.ended]
            ready = select.select([source.descriptor for source in open_ones], [], [])[0]
            for source in open_ones:
                if source.descriptor in ready:
                    source.read()
        return len(self._data) - self._at

    def read(self) -> None:
        """Read once."""
        piece = os.read(self.descriptor, _PIECE)
        self._data += piece
        self.ended = not piece

    def peek(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, counted from here; those behind are negative."""
        return bytes(self._data[max(0, self._at + start) : max(0, self._at + end)])

    def move(self, count: int) -> None:
        """Pass over so many bytes; a negative count takes some back."""
        self._at += count
        self.passed += count
        if self._at > 4 * _BEHIND:
            del self._data[: self._at - _BEHIND]
            self._at = _BEHIND

    def line(self) -> int:
        """Return how many bytes are left of the line that begins here, its end included; 0 where it has no end yet."""
        seen = 0
        while seen < _BEHIND and self.need(seen + 1) > seen:
            text = self.peek(seen, seen + _PIECE)
            ends = [place for place in (text.find(b"\n"), text.find(b"\r")) if place >= 0]
            if ends:
                return seen + min(ends) + 1
            seen += len(text)
        return 0 if self.need(_BEHIND) < _BEHIND else _BEHIND

    def behind(self, most: int) -> int:
        """Return how many bytes, no more than `most`, lie between the beginning of this line and here."""
        text = self.peek(-min(most, self._at), 0)
        return len(text) - 1 - max(text.rfind(b"\n"), text.rfind(b"\r"))


def pass_over(log: Source, streams: Sequence[Source]) -> bytes:
    """Pass over what the log has of two streams, and return the end of the log that they do not have yet.

    Each stream is in the log in its own order, and all that is in the log of one is its beginning. What comes from
    neither is left out, and so is a line that they do not have in these very bytes.
    """
    now, run = 0, 0
    while log.need(1):
        for turn in (now, 1 - now):
            common = _common(log, streams[turn])
            if common:
                run = run + common if turn == now else common
                now = turn
                _move((log, streams[now]), common)
                break
        else:
            if not any(stream.need(1) for stream in streams):
                return log.peek(0, log.need(_MOST))[:_MOST]
            taken = _wrong_turn(log, streams[1 - now], min(run, _BEHIND // 2))
            if taken:
                _move((log, streams[now]), -taken)
                now, run = 1 - now, 0
                continue
            # None of the line is ours, not even what looked so.
            begun = log.behind(_BEHIND // 2)
            streams[now].move(-min(run, begun))
            log.move(-begun)
            run = 0
            log.move(log.line() or log.need(_MOST))
            _find(log, streams)
    return b""


class Ahead:
    """The end of a log that its streams did not have when they were read: they will tell it again.

    An engine keeps a line to itself until it is whole, or long. The end of the log may be of another's words as well.
    """

    def __init__(self, begun: bytes) -> None:
        self._begun = begun
        self._held: dict[int, bytes] = {}

    def new(self, stream: int, piece: bytes) -> bytes:
        """Return what is new in the next bytes of a stream; those too few to judge by are kept for the next time."""
        text = self._held.pop(stream, b"") + piece
        if not self._begun or not text:
            return text
        same = _same(text, self._begun)
        if same == len(text) and same < min(len(self._begun), _SURE):
            self._held[stream] = text
            return b""
        if same < min(len(text), len(self._begun), _SURE):
            return text
        # What follows in the log where the two part is of somebody else, such as the last words of a client.
        self._begun = self._begun[same:] if same == len(text) else b""
        return text[same:]


def _common(first: Source, other: Source) -> int:
    """Return how many bytes are the same in both from here on."""
    same, piece = 0, 256
    while True:
        most = min(first.need(same + piece), other.need(same + piece)) - same
        piece = min(piece, most)
        if piece <= 0:
            return same
        left, right = first.peek(same, same + piece), other.peek(same, same + piece)
        if left != right:
            return same + _same(left, right)
        same += piece
        piece = min(4 * piece, _PIECE)


def _same(first: bytes, other: bytes) -> int:
    """Return with how many bytes both begin."""
    # Mostly few: where they part is sooner found one by one than by halves.
    for count, (left, right) in enumerate(zip(first, other)):
        if left != right:
            return count
    return min(len(first), len(other))


def _move(sources: Sequence[Source], count: int) -> None:
    for source in sources:
        source.move(count)


def _wrong_turn(log: Source, other: Source, most: int) -> int:
    """Return how many bytes to take back so that the other stream goes on beyond here; 0 where it nowhere does."""
    behind, ahead = log.peek(-most, 0), log.peek(0, 1)
    other.need(most + 1)
    follows = other.peek(0, most + 1)
    for count in range(1, len(behind) + 1):
        if follows.startswith(behind[-count:] + ahead):
            return count
    return 0


def _find(log: Source, streams: Sequence[Source]) -> None:
    """Go where a stream has the line that begins here in the log; nowhere where none has it near."""
    line = log.line()
    text = log.peek(0, line)
    if line < _TELLING:
        return
    for stream in streams:
        stream.need(_PIECE)
        near = b"\n" + stream.peek(0, _PIECE)
        places = [near.find(end + text) for end in (b"\n", b"\r")]
        if any(place >= 0 for place in places):
            stream.move(min(place for place in places if place >= 0))
            return
