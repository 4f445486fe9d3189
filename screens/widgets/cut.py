"""Cuts a line of text after a whole word."""

from rich.text import Text

_LONGEST = 20  # characters of a word that is left out whole


def at_word(line: Text, width: int) -> Text:
    """Return a line that fits into a width; where it does not, it ends after a word, with an ellipsis."""
    if width <= 0 or line.cell_len <= width:
        return line
    short = line.copy()
    short.truncate(width - 1)
    end = short.plain.rfind(" ")
    if line.plain[len(short.plain)] != " " and len(short.plain) - end <= _LONGEST:
        short = short[:end]
    # Neither a mark without its words nor a comma stands at the end.
    return short[: len(short.plain.rstrip(" ✗○,;:"))].append("…", "dim")


def lines_at_word(text: Text, width: int) -> Text:
    """Return a text whose lines all fit."""
    return Text("\n").join(at_word(line, width) for line in text.split("\n"))
