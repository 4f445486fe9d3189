"""Lists as they are typed: one rule for all of them, what it refuses as ambiguous, and how they are written back."""

import re
import shlex
from collections.abc import Iterable
from itertools import pairwise

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile.rows import Field, FieldKind

QUOTING_RULE_TEXT = "separate several values with spaces, and quote one that has a space or a comma in it"
COMMA_HINT_TEXT = "Names and numbers may have commas between instead."
# In these a comma is no part of a value.
_COMMA_SEPARATED_KINDS = frozenset({"names", "integers", "numbers", "rewards"})
# A comma after which the next value seems to begin. In `NCCL_SOCKET_IFNAME=eth0,eth1` none does.
_AMBIGUOUS_COMMA_PATTERN_BY_KIND: dict[FieldKind, re.Pattern[str]] = {
    "table": re.compile(r",(?=[A-Za-z_]\w*=|$)"),
    "dotted": re.compile(r",(?=[A-Za-z_]\w*(\.\w+)+=|$)"),
    "words": re.compile(r",(?=--?[A-Za-z]|/[^,]*:/|$)"),
    "paths": re.compile(r","),
}
LIST_FIELD_KINDS = frozenset({*_COMMA_SEPARATED_KINDS, *_AMBIGUOUS_COMMA_PATTERN_BY_KIND})
_QUOTED_COMMA_MARK = "\0"


class AmbiguousComma(BadInput):
    """A comma that may separate two values or belong to one; each reading is written without doubt.

    `as_several_values` is empty where the comma ends the only value.
    """

    def __init__(self, message: str, as_several_values: str, as_single_value: str) -> None:
        """Set the message, and a remedy with both readings."""
        super().__init__(message, both_readings_remedy(visible(as_several_values), visible(as_single_value)))
        self.as_several_values = as_several_values
        self.as_single_value = as_single_value


def both_readings_remedy(as_several_values: str, as_single_value: str) -> str:
    """Return what to do about a comma that may separate, by its two readings."""
    first = f"Write {as_several_values} for several values" if as_several_values else "Leave the comma out"
    return f"{first}, or {as_single_value} for one with the comma in it."


def split_values(row: Field, text: str) -> tuple[str, ...]:
    """Return the values in a text; BadInput for a quote that is not closed, and where a comma may separate two."""
    marked = text if _QUOTED_COMMA_MARK in text else _mark_quoted_commas(text)
    if row.kind in _COMMA_SEPARATED_KINDS:
        marked = marked.replace(",", " ")
    try:
        words = shlex.split(marked)
    except ValueError:
        raise BadInput(f"{row.label}: a quote is not closed", "Close it, or put a backslash before it.") from None
    if pattern := _AMBIGUOUS_COMMA_PATTERN_BY_KIND.get(row.kind):
        for word in words:
            if pattern.search(word):
                raise _ambiguity_error(row, word, pattern)
    if _QUOTED_COMMA_MARK in text:
        return tuple(words)
    return tuple(word.replace(_QUOTED_COMMA_MARK, ",") for word in words)


def commas_to_spaces(row: Field, text: str) -> str:
    """Return a text with spaces for the commas that may separate values."""
    pattern = _AMBIGUOUS_COMMA_PATTERN_BY_KIND.get(row.kind)
    if pattern is None or _QUOTED_COMMA_MARK in text:
        return text
    # The end of a word is that of the text in the expressions.
    words = (pattern.sub(" ", word) for word in re.split(r"(\s+)", _mark_quoted_commas(text)))
    return "".join(words).replace(_QUOTED_COMMA_MARK, ",")


def join_values(words: Iterable[str]) -> str:
    """Return values as one text that `split_values` reads as the same ones."""
    return " ".join(map(_quote_if_needed, words))


def _ambiguity_error(row: Field, word: str, pattern: re.Pattern[str]) -> AmbiguousComma:
    parts = [part.replace(_QUOTED_COMMA_MARK, ",") for part in _split_at_commas(word, pattern)]
    unmarked = word.replace(_QUOTED_COMMA_MARK, ",")
    message = f"{row.label}: the comma in {visible(unmarked)} may end a value or belong to it"
    return AmbiguousComma(message, join_values(parts) if len(parts) > 1 else "", _quote_always(unmarked))


def _split_at_commas(word: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the values that the commas would separate."""
    begins = [0, *(match.end() for match in pattern.finditer(word)), len(word) + 1]
    return [part for start, end in pairwise(begins) if (part := word[start : end - 1])]


def _quote_if_needed(word: str) -> str:
    """Return a word quoted where a shell, or a comma, would have it be more than one."""
    quoted = shlex.quote(word)
    bare = quoted == word and any(
        pattern.search(word)
        for kind, pattern in _AMBIGUOUS_COMMA_PATTERN_BY_KIND.items()
        if kind != "paths" or word.startswith("/")
    )
    return f"'{word}'" if bare else quoted


def _quote_always(word: str) -> str:
    """Return a word in quotes, whether or not it needs them; of NAME=VALUE the value alone."""
    name, equals, value = word.partition("=")
    prefix, rest = (f"{name}=", value) if equals and re.fullmatch(r"[\w.-]+", name) else ("", word)
    quoted = shlex.quote(rest)
    return prefix + (quoted if quoted != rest else f"'{rest}'")


def _mark_quoted_commas(text: str) -> str:
    """Return a text with the commas that are quoted, or escaped, replaced by a mark, by the rules of shlex."""
    marked, quote, escaped = [], "", False
    for letter in text:
        protected = letter == "," and (escaped or quote)
        marked.append(_QUOTED_COMMA_MARK if protected else letter)
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
    return "".join(marked)
