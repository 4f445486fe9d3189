"""The place in a file of the user's own where an exception was raised."""

import re
from collections.abc import Sequence

from msgspec import Struct

from tui_train.diagnose.types import LogLine

_BEGIN = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?')
# Libraries, the standard library, and what has no file.
_FOREIGN = re.compile(r"/(site|dist)-packages/|/lib(64)?/python\d|^<")
_MAX_LINES = 400  # lines of a traceback that are looked at


class Frame(Struct, frozen=True):
    """A line of a file, and the function that it is in (empty: none is named)."""

    file: str
    line: str
    function: str = ""


def user_frame(lines: Sequence[LogLine], failed: LogLine) -> Frame | None:
    """Return the innermost frame in a file of the user's, of the traceback that ends at a line; None without one."""
    at = next((index for index, line in enumerate(lines) if line is failed), 0)
    for line in reversed(lines[max(0, at - _MAX_LINES) : at]):
        if line.rank != failed.rank:
            continue
        if _BEGIN in line.text:
            return None
        match = _FRAME.match(line.text)
        if match and not _FOREIGN.search(match["file"]):
            return Frame(match["file"], match["line"], match["function"] or "")
    return None
