"""Lists as they are typed: one rule for all of them, what it refuses as ambiguous, and how they are written back."""

import re
import shlex
from collections.abc import Iterable
from itertools import pairwise

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.profile.rows import Field, FieldKind

RULE = "separate several values with spaces, and quote one that has a space or a comma in it"
COMMAS = "Names and numbers may have commas between instead."
# In these a comma is no part of a value.
_WITH_COMMAS = frozenset({"names", "integers", "numbers"})
# A comma after which the next value seems to begin. In `NCCL_SOCKET_IFNAME=eth0,eth1` none does.
_SEPARATES: dict[FieldKind, re.Pattern[str]] = {
    "table": re.compile(r",(?=[A-Za-z_]\w*=|$)"),
    "dotted": re.compile(r",(?=[A-Za-z_]\w*(\.\w+)+=|$)"),
    "words": re.compile(r",(?=--?[A-Za-z]|/[^,]*:/|$)"),
    "paths": re.compile(r","),
}
KINDS = frozenset({*_WITH_COMMAS, *_SEPARATES})
_QUOTED_COMMA = "\0"


class AmbiguousComma(BadInput):
    """A comma that may separate two values or belong to one; each reading is written without doubt.

    `several` is empty where the comma ends the only value.
    """

    def __init__(self, message: str, several: str, one: str) -> None:
        """Set the message, and a remedy with both readings."""
        super().__init__(message, both_readings(visible(several), visible(one)))
        self.several = several
        self.one = one


def both_readings(several: str, one: str) -> str:
    """Return what to do about a comma that may separate, by its two readings."""
    first = f"Write {several} for several values" if several else "Leave the comma out"
    return f"{first}, or {one} for one with the comma in it."


def split(row: Field, text: str) -> tuple[str, ...]:
    """Return the values in a text; BadInput for a quote that is not closed, and where a comma may separate two."""
    marked = text if _QUOTED_COMMA in text else _marked(text)
    if row.kind in _WITH_COMMAS:
        marked = marked.replace(",", " ")
    try:
        words = shlex.split(marked)
    except ValueError:
        raise BadInput(f"{row.label}: a quote is not closed", "Close it, or put a backslash before it.") from None
    if pattern := _SEPARATES.get(row.kind):
        for word in words:
            if pattern.search(word):
                raise _ambiguous(row, word, pattern)
    if _QUOTED_COMMA in text:
        return tuple(words)
    return tuple(word.replace(_QUOTED_COMMA, ",") for word in words)


def commas_to_spaces(row: Field, text: str) -> str:
    """Return a text with spaces for the commas that may separate values."""
    pattern = _SEPARATES.get(row.kind)
    if pattern is None or _QUOTED_COMMA in text:
        return text
    # The end of a word is that of the text in the expressions.
    words = (pattern.sub(" ", word) for word in re.split(r"(\s+)", _marked(text)))
    return "".join(words).replace(_QUOTED_COMMA, ",")


def join(words: Iterable[str]) -> str:
    """Return values as one text that `split` reads as the same ones."""
    return " ".join(map(_quoted, words))


def _ambiguous(row: Field, word: str, pattern: re.Pattern[str]) -> AmbiguousComma:
    parts = [part.replace(_QUOTED_COMMA, ",") for part in _cut(word, pattern)]
    whole = word.replace(_QUOTED_COMMA, ",")
    message = f"{row.label}: the comma in {visible(whole)} may end a value or belong to it"
    return AmbiguousComma(message, join(parts) if len(parts) > 1 else "", _in_quotes(whole))


def _cut(word: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the values that the commas would separate."""
    begins = [0, *(match.end() for match in pattern.finditer(word)), len(word) + 1]
    return [part for start, end in pairwise(begins) if (part := word[start : end - 1])]


def _quoted(word: str) -> str:
    """Return a word quoted where a shell, or a comma, would have it be more than one."""
    quoted = shlex.quote(word)
    bare = quoted == word and any(
        pattern.search(word) for kind, pattern in _SEPARATES.items() if kind != "paths" or word.startswith("/")
    )
    return f"'{word}'" if bare else quoted


def _in_quotes(word: str) -> str:
    """Return a word in quotes, whether or not it needs them; of NAME=VALUE the value alone."""
    name, equals, value = word.partition("=")
    whole = (f"{name}=", value) if equals and re.fullmatch(r"[\w.-]+", name) else ("", word)
    quoted = shlex.quote(whole[1])
    return whole[0] + (quoted if quoted != whole[1] else f"'{whole[1]}'")


def _marked(text: str) -> str:
    """Return a text with the commas that are quoted, or escaped, replaced by a mark, by the rules of shlex."""
    marked, quote, escaped = [], "", False
    for letter in text:
        protected = letter == "," and (escaped or quote)
        marked.append(_QUOTED_COMMA if protected else letter)
        if escaped:
            escaped = False
        elif letter == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
    return "".join(marked)
