"""The regular expressions by which a preset or a profile reads the lines of a training's log."""

import importlib
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_LOG_EXPRESSION_GROUP_NAMES = ("step", "steps", "loss", "eval_loss", "lr", "grad_norm", "tokens_per_second")
_MAX_EXPRESSION_LENGTH = 500
# A line is cut to 500 characters: four parts that share all of them would be tried in 2.5e9 ways.
_MAX_PARTS_SHARING_CHARACTERS = 3
_regex_parser: Any = getattr(re, "_parser", None) or importlib.import_module("sre_parse")  # its name before Python 3.11
_REPEAT_CODES = {"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"}
_PATTERN_BY_CATEGORY = {
    "DIGIT": r"\d",
    "NOT_DIGIT": r"\D",
    "SPACE": r"\s",
    "NOT_SPACE": r"\S",
    "WORD": r"\w",
    "NOT_WORD": r"\W",
}
# One character of each usual class, besides those that an expression names.
_SAMPLE_CHARACTERS = "5ax _.,:;=-+/|%[]()é\t"


class _SharingPartCounts(NamedTuple):
    """How many parts can share a row of one character: at most, at the beginning, at the end.

    `may_span`: the row may go on from what is before to what comes after.
    """

    max_count: int = 0
    count_at_start: int = 0
    count_at_end: int = 0
    may_span: bool = True


def why_expression_unusable(expression: str) -> str:
    """Return why an expression cannot read lines, as what follows its name; empty where it can."""
    if len(expression) > _MAX_EXPRESSION_LENGTH:
        return f"has more than {_MAX_EXPRESSION_LENGTH} characters"
    try:
        groups = {*re.compile(expression).groupindex}
        tree = _regex_parser.parse(expression)
        wrong = _why_search_may_take_long(tree)
    except (re.error, RecursionError, OverflowError) as error:
        return f"is not a regular expression: {error}"
    if not groups or groups - {*_LOG_EXPRESSION_GROUP_NAMES}:
        return f"must have groups, and only some of these: {', '.join(_LOG_EXPRESSION_GROUP_NAMES)}"
    return wrong


def _why_search_may_take_long(tree: Any) -> str:
    """Return why an expression may take too long for a line, as what follows its name; empty where it cannot."""
    if any(_has_varying_match(body) for repeats, body in _repeat_limits_and_bodies(tree) if repeats > 1):
        return "repeats a group that itself repeats or offers a choice: on some lines that takes hours"
    for character in sorted({*_SAMPLE_CHARACTERS, *(chr(code) for code in _literal_character_codes(tree))}):
        # A search may begin at each character.
        sharing = _sharing_counts_in_sequence(
            _SharingPartCounts(1, 1, 1), _count_parts_sharing_characters(tree, character)
        ).max_count
        if sharing > _MAX_PARTS_SHARING_CHARACTERS:
            row = "spaces" if character.isspace() else character * 3
            return (
                f"has parts that can share a row such as {row} in too many ways: on some lines that takes minutes. "
                "Put the words of the line between them, and begin with one"
            )
    return ""


def _repeat_limits_and_bodies(tree: Any) -> Iterator[tuple[int, Any]]:
    """Yield how often each part may be repeated, and the part."""
    for name, value in _part_names_and_values(tree):
        if name in _REPEAT_CODES:
            yield value[1], value[2]
        for inner in _inner_expressions(name, value):
            yield from _repeat_limits_and_bodies(inner)


def _part_names_and_values(tree: Any) -> Iterator[tuple[str, Any]]:
    return ((str(code), value) for code, value in tree)


def _inner_expressions(name: str, value: Any) -> tuple[Any, ...]:
    if name in _REPEAT_CODES:
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


def _has_varying_match(tree: Any) -> bool:
    """Return whether what matches may have several lengths, or be one of several choices."""
    return any(
        name in {"BRANCH", "GROUPREF", "GROUPREF_EXISTS"}
        or (name in _REPEAT_CODES and value[0] != value[1])
        or any(map(_has_varying_match, _inner_expressions(name, value)))
        for name, value in _part_names_and_values(tree)
    )


def _literal_character_codes(tree: Any) -> Iterator[int]:
    """Yield the characters that an expression names, of ranges the first."""
    for name, value in _part_names_and_values(tree):
        if name in {"LITERAL", "NOT_LITERAL"}:
            yield value
        elif name == "IN":
            yield from _literal_character_codes(each for each in value if str(each[0]) != "NEGATE")
        elif name == "RANGE":
            yield value[0]
        for inner in _inner_expressions(name, value):
            yield from _literal_character_codes(inner)


def _count_parts_sharing_characters(tree: Any, character: str) -> _SharingPartCounts:
    """Return how many parts of an expression can share a row of a character."""
    whole = _SharingPartCounts()
    for name, value in _part_names_and_values(tree):
        choices = _sharing_counts_of_each_choice(name, value, character)
        undecided = int(
            sum(each.may_span for each in choices) > 1 and _can_match_character(((name, value),), character)
        )
        whole = _sharing_counts_in_sequence(whole, _SharingPartCounts(undecided, undecided, undecided))
        each_way = [_sharing_counts_in_sequence(whole, each) for each in choices]
        whole = _SharingPartCounts(*(max(column) for column in zip(*each_way, strict=True)))
    return whole


def _sharing_counts_in_sequence(before: _SharingPartCounts, after: _SharingPartCounts) -> _SharingPartCounts:
    return _SharingPartCounts(
        max(before.max_count, after.max_count, before.count_at_end + after.count_at_start),
        before.count_at_start + (after.count_at_start if before.may_span else 0),
        after.count_at_end + (before.count_at_end if after.may_span else 0),
        before.may_span and after.may_span,
    )


def _sharing_counts_of_each_choice(name: str, value: Any, character: str) -> list[_SharingPartCounts]:
    """Return the ways of each choice that one part of an expression offers."""
    inside = [_count_parts_sharing_characters(inner, character) for inner in _inner_expressions(name, value)]
    if name in _REPEAT_CODES:
        least, most, body = value
        if least == most or most <= 1:
            return [*inside, _SharingPartCounts()] if not least else inside
        shares = int(_can_match_character(body, character))
        return [_SharingPartCounts(shares, shares, shares, bool(shares) or not least)]
    if name in {"ASSERT", "ASSERT_NOT"}:
        return [inside[0]._replace(may_span=True)]
    if name == "AT":
        return [_SharingPartCounts(may_span=str(value) not in {"AT_BEGINNING", "AT_BEGINNING_STRING"})]
    if name == "GROUPREF_EXISTS":
        return [*inside, _SharingPartCounts()]
    return inside or [
        _SharingPartCounts(may_span=name == "GROUPREF" or _can_match_character(((name, value),), character))
    ]


def _can_match_character(tree: Iterable[Any], character: str) -> bool:
    """Return whether an expression has a place for a character, in whatever case."""
    return any(
        any(_part_matches_character(name, value, each) for each in {character, character.lower(), character.upper()})
        or any(_can_match_character(inner, character) for inner in _inner_expressions(name, value))
        for name, value in _part_names_and_values(tree)
    )


def _part_matches_character(name: str, value: Any, character: str) -> bool:
    if len(character) != 1:
        return False
    if name in {"LITERAL", "NOT_LITERAL"}:
        return bool((ord(character) == value) == (name == "LITERAL"))
    if name == "RANGE":
        return bool(value[0] <= ord(character) <= value[1])
    if name == "CATEGORY":
        return bool(re.match(_PATTERN_BY_CATEGORY.get(str(value).removeprefix("CATEGORY_"), "."), character))
    if name == "IN":
        found = any(_part_matches_character(str(each), inner, character) for each, inner in value)
        return found != (str(value[0][0]) == "NEGATE")
    return name == "ANY"
