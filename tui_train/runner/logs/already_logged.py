"""Finds how much of two streams is already in a log to which both were written, interleaved."""

from __future__ import annotations

import os
import select
from typing import Sequence

_PIECE_BYTES = 1 << 16
# So much of what was passed stays within reach, for a wrong turn to be taken back.
_BYTES_KEPT_BEHIND_POSITION = 1 << 15
# Nor is more than this read at once.
_MAX_TAIL_BYTES = 1 << 20
# So many bytes are not the same by chance.
_CERTAIN_MATCH_BYTES = 32
# A line of fewer bytes is not enough to find a place again.
_MIN_MATCHED_LINE_BYTES = 4


class ByteSource:
    """Bytes that are read from a descriptor as they are needed; `passed` counts those that were passed over."""

    def __init__(self, descriptor: int) -> None:
        """Whoever writes to two pipes waits where one of them is not read: they are read `together`."""
        self.descriptor = descriptor
        self.together: Sequence[ByteSource] = (self,)
        self.passed = 0
        self.ended = False
        self._data = bytearray()
        self._at = 0

    def fill_to(self, count: int) -> int:
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
        piece = os.read(self.descriptor, _PIECE_BYTES)
        self._data += piece
        self.ended = not piece

    def peek(self, start: int, end: int) -> bytes:
        """Return the bytes from `start` to `end`, counted from here; those behind are negative."""
        return bytes(self._data[max(0, self._at + start) : max(0, self._at + end)])

    def skip(self, count: int) -> None:
        """Pass over so many bytes; a negative count takes some back."""
        self._at += count
        self.passed += count
        if self._at > 4 * _BYTES_KEPT_BEHIND_POSITION:
            del self._data[: self._at - _BYTES_KEPT_BEHIND_POSITION]
            self._at = _BYTES_KEPT_BEHIND_POSITION

    def rest_of_line_length(self) -> int:
        """Return how many bytes are left of the line that begins here, its end included; 0 where it has no end yet."""
        seen = 0
        while seen < _BYTES_KEPT_BEHIND_POSITION and self.fill_to(seen + 1) > seen:
            text = self.peek(seen, seen + _PIECE_BYTES)
            ends = [offset for offset in (text.find(b"\n"), text.find(b"\r")) if offset >= 0]
            if ends:
                return seen + min(ends) + 1
            seen += len(text)
        kept = _BYTES_KEPT_BEHIND_POSITION
        return kept if self.fill_to(kept) >= kept else 0

    def bytes_since_line_start(self, max_bytes: int) -> int:
        """Return how many bytes, no more than `max_bytes`, lie between the beginning of this line and here."""
        text = self.peek(-min(max_bytes, self._at), 0)
        return len(text) - 1 - max(text.rfind(b"\n"), text.rfind(b"\r"))


def skip_already_logged(log: ByteSource, streams: Sequence[ByteSource]) -> bytes:
    """Pass over what the log has of two streams, and return the end of the log that they do not have yet.

    Each stream is in the log in its own order, and all that is in the log of one is its beginning. What comes from
    neither is left out, and so is a line that they do not have in these very bytes.
    """
    current, run = 0, 0
    while log.fill_to(1):
        for turn in (current, 1 - current):
            common = _common_length_ahead(log, streams[turn])
            if common:
                run = run + common if turn == current else common
                current = turn
                _skip_in_all((log, streams[current]), common)
                break
        else:
            if not any(stream.fill_to(1) for stream in streams):
                return log.peek(0, log.fill_to(_MAX_TAIL_BYTES))[:_MAX_TAIL_BYTES]
            taken = _bytes_to_rewind(log, streams[1 - current], min(run, _BYTES_KEPT_BEHIND_POSITION // 2))
            if taken:
                _skip_in_all((log, streams[current]), -taken)
                current, run = 1 - current, 0
                continue
            # None of the line is ours, not even what looked so.
            begun = log.bytes_since_line_start(_BYTES_KEPT_BEHIND_POSITION // 2)
            streams[current].skip(-min(run, begun))
            log.skip(-begun)
            run = 0
            log.skip(log.rest_of_line_length() or log.fill_to(_MAX_TAIL_BYTES))
            _skip_streams_to_log_line(log, streams)
    return b""


class LoggedTailFilter:
    """The end of a log that its streams did not have when they were read: they will tell it again.

    An engine keeps a line to itself until it is whole, or long. The end of the log may be of another's words as well.
    """

    def __init__(self, begun: bytes) -> None:
        self._logged = begun
        self._undecided: dict[int, bytes] = {}

    def new_bytes(self, stream: int, piece: bytes) -> bytes:
        """Return what is new in the next bytes of a stream; those too few to judge by are kept for the next time."""
        text = self._undecided.pop(stream, b"") + piece
        if not self._logged or not text:
            return text
        same = _common_prefix_length(text, self._logged)
        if same == len(text) and same < min(len(self._logged), _CERTAIN_MATCH_BYTES):
            self._undecided[stream] = text
            return b""
        if same < min(len(text), len(self._logged), _CERTAIN_MATCH_BYTES):
            return text
        # What follows in the log where the two part is of somebody else, such as the last words of a client.
        self._logged = self._logged[same:] if same == len(text) else b""
        return text[same:]


def _common_length_ahead(first: ByteSource, other: ByteSource) -> int:
    """Return how many bytes are the same in both from here on."""
    same, piece = 0, 256
    while True:
        most = min(first.fill_to(same + piece), other.fill_to(same + piece)) - same
        piece = min(piece, most)
        if piece <= 0:
            return same
        left, right = first.peek(same, same + piece), other.peek(same, same + piece)
        if left != right:
            return same + _common_prefix_length(left, right)
        same += piece
        piece = min(4 * piece, _PIECE_BYTES)


def _common_prefix_length(first: bytes, other: bytes) -> int:
    # Mostly few: where they part is sooner found one by one than by halves.
    for count, (left, right) in enumerate(zip(first, other)):
        if left != right:
            return count
    return min(len(first), len(other))


def _skip_in_all(sources: Sequence[ByteSource], count: int) -> None:
    for source in sources:
        source.skip(count)


def _bytes_to_rewind(log: ByteSource, other: ByteSource, max_bytes: int) -> int:
    """Return how many bytes to take back so that the other stream goes on beyond here; 0 where it nowhere does."""
    behind, ahead = log.peek(-max_bytes, 0), log.peek(0, 1)
    other.fill_to(max_bytes + 1)
    follows = other.peek(0, max_bytes + 1)
    for count in range(1, len(behind) + 1):
        if follows.startswith(behind[-count:] + ahead):
            return count
    return 0


def _skip_streams_to_log_line(log: ByteSource, streams: Sequence[ByteSource]) -> None:
    """Go where a stream has the line that begins here in the log; nowhere where none has it near."""
    line = log.rest_of_line_length()
    text = log.peek(0, line)
    if line < _MIN_MATCHED_LINE_BYTES:
        return
    for stream in streams:
        stream.fill_to(_PIECE_BYTES)
        near = b"\n" + stream.peek(0, _PIECE_BYTES)
        offsets = [near.find(end + text) for end in (b"\n", b"\r")]
        if any(offset >= 0 for offset in offsets):
            stream.skip(min(offset for offset in offsets if offset >= 0))
            return
