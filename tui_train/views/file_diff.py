"""The lines in which a file differs from an earlier one, as rows of both, to be drawn beside or below each other."""

import difflib
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Literal, NamedTuple

from msgspec import Struct

_CONTEXT_LINES = 2  # lines around those that differ


class DiffRow(NamedTuple):
    """A line of both files, None where one of them has none.

    `names` has the names of both, `place` the number of the line that comes next and how many follow: `12,7`.
    """

    kind: Literal["names", "place", "same", "changed"]
    old: str | None
    new: str | None


class FileDiff(Struct, frozen=True):
    """The differing lines of one file, with the name under which it is shown."""

    path: str
    rows: tuple[DiffRow, ...]

    @property
    def text(self) -> str:
        """The same as a unified diff."""
        return "\n".join(_unified_diff_lines(self.rows))


def diff_rows(names: tuple[str, str], old: Sequence[str], new: Sequence[str]) -> tuple[DiffRow, ...]:
    """Return the lines that differ in two files with these names, some lines around them, and where they are."""
    rows = [DiffRow("names", *names)]
    for group in difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(_CONTEXT_LINES):
        (_, old_start, _, new_start, _), (_, _, old_end, _, new_end) = group[0], group[-1]
        rows.append(DiffRow("place", _hunk_range_text(old_start, old_end), _hunk_range_text(new_start, new_end)))
        for tag, old_begin, old_stop, new_begin, new_stop in group:
            lines = zip_longest(old[old_begin:old_stop], new[new_begin:new_stop])
            rows += (DiffRow("same" if tag == "equal" else "changed", *pair) for pair in lines)
    return tuple(rows)


def _hunk_range_text(start: int, end: int) -> str:
    """Return a stretch of lines as a unified diff has it: of one without lines, the line before it."""
    return f"{start + (end > start)},{end - start}"


def _unified_diff_lines(rows: Sequence[DiffRow]) -> Iterator[str]:
    for kind, block in groupby(rows, key=lambda row: row.kind):
        if kind == "names":
            yield from (line for row in block for line in (f"--- {row.old}", f"+++ {row.new}"))
        elif kind == "place":
            yield from (f"@@ -{row.old} +{row.new} @@" for row in block)
        elif kind == "same":
            yield from (f" {row.old}" for row in block)
        else:
            changed = [*block]
            yield from (f"-{row.old}" for row in changed if row.old is not None)
            yield from (f"+{row.new}" for row in changed if row.new is not None)
