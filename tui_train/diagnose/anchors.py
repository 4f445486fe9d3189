"""Words without which a regular expression matches nothing: much faster to look for than the expression itself."""

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

_GROUP = re.compile(r"\((?:\?(?:P<\w+>|[aimsux]*:|(?P<look><?[=!])|(?P<flags>[aimsux]+\)))?)?")
_REPEAT = re.compile(r"(?P<none>[*?]|\{0?,\d*\}|\{0\})|\+|\{\d+(?:,\d*)?\}")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_DIGITS = b"0123456789"

# Of each set of words one is there.
Anchors = tuple[frozenset[bytes], ...]


class _Part(NamedTuple):
    """A part of an expression: a character to be met, or anchors; else nothing that is certain."""

    character: str = ""
    anchors: Anchors = ()


def normalized(line: bytes) -> bytes:
    """Return a line as anchors are looked for in it: small letters, and no digits, by which most lines differ alone."""
    return line.translate(None, _DIGITS).lower()


@functools.cache
def anchors(expression: str) -> Anchors:
    """Return what each match of an expression holds; none where it may match any line."""
    return _alternatives(expression, 0)[0]


def may_match(text: bytes, choices: Anchors) -> bool:
    """Return whether plain text holds a word of each set, without which there is no match in it."""
    return all(any(word in text for word in words) for words in choices)


def rarest_words(choices: Anchors) -> frozenset[bytes]:
    """Return the set of words that lines seldom hold by chance."""
    return max(choices, key=lambda words: min(len(word.strip()) for word in words) - len(words) / 100)


def alternation(words: Iterable[bytes]) -> bytes:
    """Return an expression that matches any of some words, none of which begins another; it looks at no byte twice."""
    tails: dict[bytes, list[bytes]] = {}
    for word in words:
        tails.setdefault(word[:1], []).append(word[1:])
    parts = [re.escape(first) + (alternation(rest) if rest != [b""] else b"") for first, rest in sorted(tails.items())]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


def _alternatives(text: str, at: int) -> tuple[Anchors, int]:
    """Return the anchors of alternatives, up to the bracket that closes them; and where that is."""
    alternatives: list[Anchors] = []
    while True:
        alternative, at = _sequence(text, at)
        alternatives.append(alternative)
        if at >= len(text) or text[at] == ")":
            break
        at += 1
    if len(alternatives) == 1:
        return alternatives[0], at
    return ((frozenset[bytes]().union(*map(rarest_words, alternatives)),) if all(alternatives) else ()), at


def _sequence(text: str, at: int) -> tuple[Anchors, int]:
    """Return the anchors of parts that follow each other, up to what ends them."""
    runs, inner = [""], list[frozenset[bytes]]()
    while at < len(text) and text[at] not in "|)":
        part, at = _part(text, at)
        repeat = _REPEAT.match(text, at)
        if repeat:
            at = repeat.end() + (text[repeat.end() : repeat.end() + 1] == "?")
        if repeat and repeat["none"]:
            part = _Part()
        inner += part.anchors
        if part.character and not repeat:
            runs[-1] += part.character
        else:
            runs += [part.character, ""]
    words = (normalized(run.encode()) for run in runs)
    return (*(frozenset({word}) for word in words if word.strip()), *inner), at


def _part(text: str, at: int) -> tuple[_Part, int]:
    """Return one part of an expression, and where it ends."""
    group = _GROUP.match(text, at)
    if group and group["flags"]:
        return _Part(), group.end()
    if group:
        inner, end = _alternatives(text, group.end())
        return _Part(anchors=() if group["look"] else inner), end + 1
    if text[at] == "[" and (klass := _CLASS.match(text, at)):
        return _Part(), klass.end()
    if text[at] == "\\" and (escape := _ESCAPE.match(text, at)):
        escaped = escape[0][1:]
        return _Part("" if escaped.isalnum() else escaped), escape.end()
    return _Part("" if text[at] in ".^$" else text[at]), at + 1
