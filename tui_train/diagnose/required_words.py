"""Words without which a regular expression matches nothing: much faster to look for than the expression itself."""

import functools
import re
from collections.abc import Iterable
from typing import NamedTuple

_GROUP_START_PATTERN = re.compile(r"\((?:\?(?:P<\w+>|[aimsux]*:|(?P<look><?[=!])|(?P<whole>(?:[aimsux]+|P=\w+)\)))?)?")
_REPEAT_PATTERN = re.compile(r"(?P<none>[*?]|\{0?,\d*\}|\{0\})|\+|\{\d+(?:,\d*)?\}")
_CHARACTER_CLASS_PATTERN = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]")
_ESCAPE_PATTERN = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_DIGIT_BYTES = b"0123456789"

# Of each set of words one is there.
RequiredWords = tuple[frozenset[bytes], ...]


class _ParsedExpressionPart(NamedTuple):
    """A part of an expression: a character to be met, or required words; else nothing that is certain."""

    character: str = ""
    required: RequiredWords = ()


def normalized_for_required_words(text: bytes) -> bytes:
    """Return a line as words are looked for in it: small letters, and no digits, in which alone most lines differ."""
    return text.translate(None, _DIGIT_BYTES).lower()


@functools.cache
def required_words(expression: str) -> RequiredWords:
    """Return what each match of an expression holds; none where it may match any line."""
    return _parse_alternatives(expression, 0)[0]


def may_contain_match(text: bytes, required: RequiredWords) -> bool:
    """Return whether plain text holds a word of each set, without which there is no match in it."""
    return all(any(word in text for word in words) for words in required)


def rarest_required_words(required: RequiredWords) -> frozenset[bytes]:
    """Return the set of words that lines seldom hold by chance."""
    return max(required, key=lambda words: min(len(word.strip()) for word in words) - len(words) / 100)


def alternation_pattern(words: Iterable[bytes]) -> bytes:
    """Return an expression that matches any of some words, none of which begins another; it looks at no byte twice."""
    tails: dict[bytes, list[bytes]] = {}
    for word in words:
        tails.setdefault(word[:1], []).append(word[1:])
    parts = [
        re.escape(first) + (alternation_pattern(rest) if rest != [b""] else b"")
        for first, rest in sorted(tails.items())
    ]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"


def _parse_alternatives(expression: str, position: int) -> tuple[RequiredWords, int]:
    """Return the required words of alternatives, up to the bracket that closes them; and where that is."""
    alternatives: list[RequiredWords] = []
    while True:
        alternative, position = _parse_sequence(expression, position)
        alternatives.append(alternative)
        if position >= len(expression) or expression[position] == ")":
            break
        position += 1
    if len(alternatives) == 1:
        return alternatives[0], position
    return (
        (frozenset[bytes]().union(*map(rarest_required_words, alternatives)),) if all(alternatives) else ()
    ), position


def _parse_sequence(expression: str, position: int) -> tuple[RequiredWords, int]:
    """Return the required words of parts that follow each other, up to what ends them."""
    runs, inner = [""], list[frozenset[bytes]]()
    while position < len(expression) and expression[position] not in "|)":
        part, position = _parse_part(expression, position)
        repeat = _REPEAT_PATTERN.match(expression, position)
        if repeat:
            position = repeat.end() + (expression[repeat.end() : repeat.end() + 1] == "?")
        if repeat and repeat["none"]:
            part = _ParsedExpressionPart()
        inner += part.required
        if part.character and not repeat:
            runs[-1] += part.character
        else:
            runs += [part.character, ""]
    words = (normalized_for_required_words(run.encode()) for run in runs)
    return (*(frozenset({word}) for word in words if word.strip()), *inner), position


def _parse_part(expression: str, position: int) -> tuple[_ParsedExpressionPart, int]:
    """Return one part of an expression, and where it ends."""
    group = _GROUP_START_PATTERN.match(expression, position)
    if group and group["whole"]:
        return _ParsedExpressionPart(), group.end()
    if group:
        inner, end = _parse_alternatives(expression, group.end())
        return _ParsedExpressionPart(required=() if group["look"] else inner), end + 1
    if expression[position] == "[" and (klass := _CHARACTER_CLASS_PATTERN.match(expression, position)):
        return _ParsedExpressionPart(), klass.end()
    if expression[position] == "\\" and (escape := _ESCAPE_PATTERN.match(expression, position)):
        escaped = escape[0][1:]
        return _ParsedExpressionPart("" if escaped.isalnum() else escaped), escape.end()
    return _ParsedExpressionPart("" if expression[position] in ".^$" else expression[position]), position + 1
