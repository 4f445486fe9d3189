"""Text for users: untrusted text made safe, and short forms of sizes and durations."""

import math
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from tui_train.runner.system.safe_text import visible

__all__ = [
    "capitalised",
    "display_path",
    "duration_text",
    "grouped_digits",
    "loss_text",
    "number_ranges_text",
    "percent",
    "quantity",
    "size_text",
    "sparkline",
    "text_table",
    "typeset_ascii",
    "visible",
    "with_first_capital",
    "wrapped_lines",
]  # fmt: skip

# Any other may be a name, which stays as it is written: of a host, a library, a parameter.
_WORDS_CAPITALIZED_AS_FIRST = frozenset({
    "a", "after", "all", "an", "another", "cannot", "each", "every", "in", "it", "its", "less", "line",
    "missing", "neither", "no", "none", "not", "nothing", "of", "one", "only", "other", "port", "some", "that",
    "the", "there", "these", "this", "tokens", "two", "unknown", "what", "whether", "with", "without", "you",
    "your",
})  # fmt: skip
_SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
_SETTING_PATTERN = re.compile(r"([\w.+-]+)=(.+)")
_NAME_PATTERN = re.compile(r"[/._\d]")
_MIN_COLUMN_WIDTH = 4  # of a column that is cut
_MAX_WORDS_WIDTH = 24  # of a column that is no sentence


def nearest_path_clause(missing_path: str, nearest_path: str) -> str:
    """Return how a missing path goes wrong, as the end of a sentence that says that it is missing.

    That is the folder that is missing above it, or a similar name; empty where the path alone says it.
    """
    if not nearest_path or nearest_path.rstrip("/") == missing_path.rstrip("/").rpartition("/")[0]:
        return ""
    if nearest_path.endswith("/") and missing_path.startswith(nearest_path):
        first = missing_path.removeprefix(nearest_path).partition("/")[0]
        return f": no {visible(first)} in {display_path(nearest_path)}"
    folder, _, name = nearest_path.rpartition("/")
    is_beside = bool(name) and folder == missing_path.rpartition("/")[0]
    return f"; there is {visible(name) if is_beside else display_path(nearest_path)}"


def display_path(path: str) -> str:
    """Return a path safe to show, with the home folder as ~ where the user has one."""
    try:
        folder = str(Path.home())
    except RuntimeError:
        return visible(path)
    return visible("~" + path[len(folder) :] if path.startswith(folder + "/") else path)


def size_text(byte_count: int | None) -> str:
    """Return a number of bytes as GiB or MiB, of few as KiB, `?` if unknown."""
    if byte_count is None:
        return "?"
    if 0 < byte_count < 1 << 20:
        return f"{byte_count / 1024:.1f} KiB"
    return f"{byte_count / 2**30:.1f} GiB" if byte_count >= 2**30 else f"{byte_count / 2**20:.0f} MiB"


def quantity(number: int, singular: str, plural: str = "") -> str:
    """Return `1 process` or `2 processes`; the default plural is `singular` + s."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def capitalised(message: str) -> str:
    """Return a message as a sentence begins, with a capital."""
    first_word, _, _ = message.partition(" ")
    return message[:1].upper() + message[1:] if first_word in _WORDS_CAPITALIZED_AS_FIRST else message


def with_first_capital(text: str) -> str:
    """Return a text with a capital first letter, unless its first word is a path or another name."""
    first_word = text.partition(" ")[0].rstrip(".,:;")
    return text if _NAME_PATTERN.search(first_word) else text[:1].upper() + text[1:]


def names_text(names: Sequence[str], most: int) -> str:
    """Return names in words, of many the first ones and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def grouped_digits(value: float) -> str:
    """Return a whole number with its digits in groups of three: `20 480`; an integer of any length."""
    return (f"{value:,}" if isinstance(value, int) else f"{value:,.0f}").replace(",", " ")


def percent(share: float, decimal_places: int = 0) -> str:
    """Return a share as `62 %`, rounded down: only what is whole is 100 %."""
    scale = 10**decimal_places
    return f"{math.floor(share * 100 * scale + 1e-9) / scale:.{decimal_places}f} %"


def typeset_ascii(text: str) -> str:
    """Return words of a plan, which are ASCII, as a screen shows them: `8 → 4`, `2 × 4`."""
    return visible(text).replace("->", "→").replace(" x ", " × ")


def loss_text(value: float) -> str:
    """Return a loss with as many digits as tell it from the next."""
    return f"{value:.3f}" if 0.1 <= abs(value) < 1000 or value == 0 else f"{value:.3g}"


def broken_loss_text(value: float | None) -> str:
    """Return that a loss is NaN or infinite, empty for a number or an unknown one."""
    if value is None or math.isfinite(value):
        return ""
    return "loss is NaN" if math.isnan(value) else "loss is infinite"


def duration_text(seconds: float) -> str:
    """Return seconds as `42 s`, `3 min 05 s` or `2 h 07 min`."""
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    minutes, remainder = divmod(total, 60)
    if minutes < 60:
        return f"{minutes} min {remainder:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def energy_text(joules: float) -> str:
    """Return an energy as `0.4 Wh`, `350 Wh` or `1.2 kWh`."""
    watt_hours = joules / 3600
    value, unit = (watt_hours / 1000, "kWh") if watt_hours >= 1000 else (watt_hours, "Wh")
    return f"{grouped_digits(value) if value >= 100 else f'{value:.2g}' if value < 10 else f'{value:.0f}'} {unit}"


def text_table(rows: Sequence[tuple[str, ...]], max_width: int | None = None, *, keeps_names: bool = False) -> str:
    """Return rows as left-aligned columns, the first row being the heads; the widest are cut to `max_width`.

    The first, by which a row is named, is cut last; with `keeps_names` never, and a line may be longer.
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    if max_width:
        widths = _fitting_column_widths(widths, max_width, keeps_names=keeps_names)
    lines = (
        "  ".join(truncated_text(cell, width).ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _fitting_column_widths(widths: Sequence[int], max_width: int, *, keeps_names: bool) -> list[int]:
    """Return widths of columns that fit, the widest made narrower."""
    narrowed = list(widths)
    every = range(len(widths))
    steps = (
        (every[1:], _MAX_WORDS_WIDTH),
        (every[1:], _MIN_COLUMN_WIDTH),
        (every[1:] if keeps_names else every, _MIN_COLUMN_WIDTH),
    )
    for columns, min_width in steps:
        while sum(narrowed) + 2 * (len(narrowed) - 1) > max_width and columns:
            widest = max(columns, key=lambda column: narrowed[column])
            if narrowed[widest] <= min_width:
                break
            narrowed[widest] -= 1
    return narrowed


def split_setting(text: str) -> tuple[str, str] | None:
    """Return name and value of a text that is `name=value` and nothing more, None for any other."""
    match = _SETTING_PATTERN.fullmatch(text)
    return (match[1], match[2]) if match else None


def truncated_text(text: str, width: int) -> str:
    """Return a text in so many characters: cut at its end, but that of a setting in its name, if the value fits."""
    if len(text) <= width:
        return text
    name, value = split_setting(text) or ("", text)
    if (room := width - len(value) - 2) >= 0:
        return f"{name[:room]}…={value}"
    return f"{text[: width - 1].rstrip()}…" if width > 0 else ""


def wrapped_lines(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text, safe to show, in lines that break no path; those after the first have an indent."""
    return textwrap.wrap(visible(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def number_ranges_text(numbers: Sequence[int]) -> str:
    """Return ascending numbers in short: `0-63`, `0 2-5`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return " ".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)


def sparkline(values: Sequence[float], width: int, scale: tuple[float, float] | None = None) -> str:
    """Return values as one line of blocks, from the lowest to the highest of a scale, or of themselves.

    What is no number, as the losses of a training that diverges, is left out.
    """
    values = [value for value in values if math.isfinite(value)]
    if not values or width < 1:
        return ""
    low, high = scale or (min(values), max(values))
    sampled = [values[round(column * (len(values) - 1) / max(1, width - 1))] for column in range(width)]
    # By halves: the difference of the largest and the smallest number is infinite.
    half = (high / 2 - low / 2) or 0.5
    return "".join(_SPARKLINE_BLOCKS[max(0, min(7, int((value / 2 - low / 2) / half * 8)))] for value in sampled)
