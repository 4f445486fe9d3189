"""The regular expressions by which a preset or a profile reads the lines of a training's log."""

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

LOG_GROUPS = ("step", "steps", "loss", "eval_loss", "lr", "grad_norm", "tokens_per_second")
_MAX_LENGTH = 500
# A line is cut to 500 characters: four parts that share all of them would be tried in 2.5e9 ways.
_MOST_SHARING = 3
_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")  # its name before Python 3.11
_REPEATS = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_CATEGORIES = {"DIGIT": r"\d", "NOT_DIGIT": r"\D", "SPACE": r"\s", "NOT_SPACE": r"\S", "WORD": r"\w", "NOT_WORD": r"\W"}
# One character of each usual class, besides those that an expression names.
_USUAL = "5ax _.,:;=-+/|%[]()é\t"


class _Ways(NamedTuple):
    """How many parts can share a row of one character: at most, at the beginning, at the end.

    `through`: the row may go on from what is before to what comes after.
    """

    most: int = 0
    first: int = 0
    last: int = 0
    through: bool = True


def why_expression_unusable(expression: str) -> str:
    """Return why an expression cannot read lines, as what follows its name; empty where it can."""
    if len(expression) > _MAX_LENGTH:
        return f"has more than {_MAX_LENGTH} characters"
    try:
        groups = {*re.compile(expression).groupindex}
        tree = _parser.parse(expression)
        wrong = _slow(tree)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if not groups or groups - {*LOG_GROUPS}:
        return f"must have groups, and only some of these: {', '.join(LOG_GROUPS)}"
    return wrong


def _slow(tree: Any) -> str:
    """Return why an expression may take too long for a line, as what follows its name; empty where it cannot."""
    if any(_varies(body) for repeats, body in _bodies(tree) if repeats > 1):
        return "repeats a group that itself repeats or offers a choice: on some lines that takes hours"
    for character in sorted({*_USUAL, *(chr(code) for code in _literals(tree))}):
        # A search may begin at each character.
        sharing = _after(_Ways(1, 1, 1), _ways(tree, character)).most
        if sharing > _MOST_SHARING:
            row = "spaces" if character.isspace() else character * 3
            return (
                f"has parts that can share a row such as {row} in too many ways: on some lines that takes minutes. "
                "Put the words of the line between them, and begin with one"
            )
    return ""


def _bodies(tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield how often each part may be repeated, and the part."""
    for name, value in _parts(tree):
        if name in _REPEATS:
            yield value[1], value[2]
        for inner in _inside(name, value):
            yield from _bodies(inner)


def _parts(tree: Any) -> Iterator[tuple[str, Any]]:
    return ((str(code), value) for code, value in tree)


def _inside(name: str, value: Any) -> tuple[Any, ...]:
    """Return the expressions within a part."""
    if name in _REPEATS:
        return (value[2],)
    if name == "SUBPATTERN":
        return (value[3],)
    if name == "BRANCH":
        return tuple(value[1])
    if name == "ATOMIC_GROUP":
        return (value,)
    if name in {"ASSERT", "ASSERT_NOT"}:
        return (value[1],)
    return tuple(filter(None, value[1:])) if name == "GROUPREF_EXISTS" else ()


def _varies(tree: Any) -> bool:
    """Return whether what matches may have several lengths, or be one of several choices."""
    return any(
        name in {"BRANCH", "GROUPREF", "GROUPREF_EXISTS"}
        or (name in _REPEATS and value[0] != value[1])
        or any(map(_varies, _inside(name, value)))
        for name, value in _parts(tree)
    )


def _literals(tree: Any) -> Iterator[int]:
    """Yield the characters that an expression names, of ranges the first."""
    for name, value in _parts(tree):
        if name in {"LITERAL", "NOT_LITERAL"}:
            yield value
        elif name == "IN":
            yield from _literals(each for each in value if str(each[0]) != "NEGATE")
        elif name == "RANGE":
            yield value[0]
        for inner in _inside(name, value):
            yield from _literals(inner)


def _ways(tree: Any, character: str) -> _Ways:
    """Return how many parts of an expression can share a row of a character."""
    whole = _Ways()
    for name, value in _parts(tree):
        choices = _choices(name, value, character)
        undecided = int(sum(each.through for each in choices) > 1 and _takes(((name, value),), character))
        whole = _after(whole, _Ways(undecided, undecided, undecided))
        each_way = [_after(whole, each) for each in choices]
        whole = _Ways(*(max(column) for column in zip(*each_way, strict=True)))
    return whole


def _after(one: _Ways, other: _Ways) -> _Ways:
    return _Ways(
        max(one.most, other.most, one.last + other.first),
        one.first + (other.first if one.through else 0),
        other.last + (one.last if other.through else 0),
        one.through and other.through,
    )


def _choices(name: str, value: Any, character: str) -> list[_Ways]:
    """Return the ways of each choice that one part of an expression offers."""
    inside = [_ways(inner, character) for inner in _inside(name, value)]
    if name in _REPEATS:
        least, most, body = value
        if least == most or most <= 1:
            return [*inside, _Ways()] if not least else inside
        shares = int(_takes(body, character))
        return [_Ways(shares, shares, shares, bool(shares) or not least)]
    if name in {"ASSERT", "ASSERT_NOT"}:
        return [inside[0]._replace(through=True)]
    if name == "AT":
        return [_Ways(through=str(value) not in {"AT_BEGINNING", "AT_BEGINNING_STRING"})]
    if name == "GROUPREF_EXISTS":
        return [*inside, _Ways()]
    return inside or [_Ways(through=name == "GROUPREF" or _takes(((name, value),), character))]


def _takes(tree: Iterable[Any], character: str) -> bool:
    """Return whether an expression has a place for a character, in whatever case."""
    return any(
        any(_is(name, value, each) for each in {character, character.lower(), character.upper()})
        or any(_takes(inner, character) for inner in _inside(name, value))
        for name, value in _parts(tree)
    )


def _is(name: str, value: Any, character: str) -> bool:
    """Return whether a part that takes one character takes this one."""
    if len(character) != 1:
        return False
    if name in {"LITERAL", "NOT_LITERAL"}:
        return bool((ord(character) == value) == (name == "LITERAL"))
    if name == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    if name == "CATEGORY":
        return bool(re.match(_CATEGORIES.get(str(value).removeprefix("CATEGORY_"), "."), character))
    if name == "IN":
        found = any(_is(str(each), inner, character) for each, inner in value)
        return found != (str(value[0][0]) == "NEGATE")
    return name == "ANY"
