"""Reads keys from a terminal so that Esc answers at once, and a key whose bytes come in two pieces stays one key.

Textual waits 100 ms for what may follow an escape character, on any terminal, and looks only ten times a second (8.2.8;
#4848 made that a setting). A test shows that it still does: what is private in Textual here goes with that.
"""

import os
import re
import selectors
from codecs import getincrementaldecoder
from collections.abc import Iterable

from textual._time import get_time  # the clock of the parser's own timeouts
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.drivers.linux_driver import LinuxDriver
from textual.message import Message

_ESCAPE_CHARACTER = "\x1b"
# Seconds to wait for the rest of a key: after a lone escape character, which most often is the key Esc; the same on a
# slow line; and after the beginning of a sequence, which nobody types.
_SHORT_ESCAPE_DELAY_SECONDS, _LONG_ESCAPE_DELAY_SECONDS, _KEY_SEQUENCE_DELAY_SECONDS = 0.02, 0.1, 0.5
_MAX_ESCAPE_DELAY_SECONDS = 0.3
# A terminal that takes longer to answer a question is slow, and so is one at the other end of ssh that does not answer.
_SLOW_TERMINAL_ANSWER_SECONDS = 0.08
_MODE_REPORT_ENDING = "$y"
_POLL_SECONDS = 0.1
_MAX_READ_BYTES = 4096
# What follows the escape character of an arrow, a function key or the mouse.
_KEY_REST_PATTERN = re.compile(r"\[[0-9;:<]*[A-DFHIMOP-SZmu~]|O[A-DFHP-S]")
_PASTE_START, _PASTE_END = "\x1b[200~", "\x1b[201~"
_PASTED_SEQUENCE_PATTERN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|.)?", re.DOTALL)


class PasteCleaner:
    """Drops escape sequences within a paste: Textual takes them for keys, and drops the text behind them (8.2.8).

    A terminal that does not mark the beginning and the end of a paste sends the same bytes as one who types.
    """

    def __init__(self) -> None:
        """Begin outside of a paste."""
        self._is_pasting = False
        self._held_back = ""  # what may be the beginning of the mark of the end

    def clean(self, data: str, partial_key: str) -> str:
        """Return what was read without those sequences; `partial_key` was read before, and may begin a paste."""
        data, kept = self._held_back + data, ""
        self._held_back = ""
        while data:
            if self._is_pasting:
                text, end, rest = data.partition(_PASTE_END)
                if not end:
                    text = self._without_partial_end_mark(text)
                kept += _PASTED_SEQUENCE_PATTERN.sub("", text) + end
                self._is_pasting = not end
            else:
                before, start, rest = (partial_key + data).partition(_PASTE_START)
                kept += (before + start)[len(partial_key) :]
                self._is_pasting, partial_key = bool(start), ""
            data = rest
        return kept

    def _without_partial_end_mark(self, text: str) -> str:
        """Hold the end of a text back where the mark of the end may begin there."""
        size = next((size for size in range(len(_PASTE_END) - 1, 0, -1) if text.endswith(_PASTE_END[:size])), 0)
        self._held_back = text[len(text) - size :]
        return text[: len(text) - size]


class KeyParser(XTermParser):
    """Textual's parser with a wait that depends on the line, and on what has come so far."""

    def __init__(self, *, debug: bool = False) -> None:
        """Begin with what is known of the line."""
        super().__init__(debug)
        self._escape_delay = ESCAPE_DELAY
        self._set_escape_delay(
            _LONG_ESCAPE_DELAY_SECONDS if os.environ.get("SSH_CONNECTION") else _SHORT_ESCAPE_DELAY_SECONDS
        )
        self._asked_at = get_time()
        self._partial_key = ""  # from an escape character on whose key is not complete
        self._escape_at = 0.0  # when that character was read
        self._lone_escape_at = 0.0  # the same where it was taken for Esc
        self._paste_cleaner = PasteCleaner()

    @property
    def timeout(self) -> float:
        """Seconds until what has come counts as keys of its own, or until one looks whether the wizard ends."""
        return (
            _POLL_SECONDS
            if self._timeout_time is None
            else min(_POLL_SECONDS, max(0.0, self._timeout_time - get_time()))
        )

    def feed(self, data: str) -> Iterable[Message]:
        """Yield the keys, answers and pasted texts in what was read."""
        data = self._paste_cleaner.clean(self._drop_late_key_rest(data), self._partial_key)
        if self._asked_at and _MODE_REPORT_ENDING in data:
            self._set_escape_delay(
                _SHORT_ESCAPE_DELAY_SECONDS
                if get_time() - self._asked_at < _SLOW_TERMINAL_ANSWER_SECONDS
                else _LONG_ESCAPE_DELAY_SECONDS
            )
            self._asked_at = 0.0
        if not data:
            return
        yield from super().feed(data)
        _, mark, after = (self._partial_key + data).rpartition(_ESCAPE_CHARACTER)
        self._partial_key = ""
        if self._timeout_time is not None:
            self._partial_key = mark + after
            self._escape_at = get_time()
            self._timeout_time = self._escape_at + (
                _KEY_SEQUENCE_DELAY_SECONDS if after[:1] in {"[", "O"} else self._escape_delay
            )

    def _drop_late_key_rest(self, data: str) -> str:
        """Drop the rest of a key whose first byte was taken for Esc: it would be typed as letters; wait longer then."""
        late, self._lone_escape_at = get_time() - self._lone_escape_at, 0.0
        rest = _KEY_REST_PATTERN.match(data)
        if rest is None or late > _KEY_SEQUENCE_DELAY_SECONDS:
            return data
        self._set_escape_delay(max(self._escape_delay, min(_MAX_ESCAPE_DELAY_SECONDS, 1.5 * late)))
        return data[rest.end() :]

    def _set_escape_delay(self, seconds: float) -> None:
        if "ESCDELAY" not in os.environ:
            self._escape_delay = seconds

    def tick(self) -> Iterable[Message]:
        """Yield what is a key after all, since nothing followed."""
        keys = [*super().tick()]
        if keys and self._partial_key == _ESCAPE_CHARACTER:
            self._lone_escape_at = self._escape_at
        # Nobody types the beginning of a sequence.
        return [] if self._partial_key[1:2] == "[" and len(self._partial_key) > 2 else keys


class TerminalDriver(LinuxDriver):
    """Textual's driver, which looks as soon as a wait is over."""

    def run_input_thread(self) -> None:
        """Read and hand on keys until input is no longer wanted."""
        parser = KeyParser(debug=self._debug)
        decode = getincrementaldecoder("utf-8")("replace").decode
        with selectors.SelectSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(parser.timeout):
                    data = os.read(self.fileno, _MAX_READ_BYTES)
                    if not data:
                        self.exit_event.wait(_POLL_SECONDS)  # a terminal that is gone is always ready
                    for message in parser.feed(decode(data)):
                        self.process_message(message)
                for message in parser.tick():
                    self.process_message(message)
