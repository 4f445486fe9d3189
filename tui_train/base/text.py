"""Words for people: untrusted text made safe, and sizes and durations in short form."""

from collections.abc import Sequence
from pathlib import Path

from tui_train.supervisor.text import visible

__all__ = ["counted", "duration", "home", "size", "table", "visible"]


def home(path: str) -> str:
    """Return a path safe to show, the user's home folder as ~."""
    folder = str(Path.home())
    return visible("~" + path[len(folder) :] if path.startswith(folder + "/") else path)


def size(count: int | None) -> str:
    """Return a number of bytes as GiB or MiB, `?` when it is unknown."""
    if count is None:
        return "?"
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"


def counted(number: int, one: str, many: str = "") -> str:
    """Return `1 process` or `2 processes`; the plural is `one` + s where it is not given."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def duration(seconds: float) -> str:
    """Return seconds as `42 s`, `3 min 05 s` or `2 h 07 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as left-aligned columns, the first row being the heads."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
