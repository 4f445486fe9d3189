"""Numbers to which a line of a log gives a name, where that is certain: `acc: 0.5`, `acc=0.5`, `| acc 0.5 |`."""

from __future__ import annotations

import re
from functools import lru_cache

from .metric_series import is_counter_name
from .records import parse_number

_MAX_LINE_LENGTH = 1000
# Not the end of `top1` or `acc@1`. A sign would make it slow: it ends the text before the number.
_NUMBER_PATTERN = re.compile(r"\b(?<!@)(\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?)")
_NUMBER_OR_NAN_PATTERN = re.compile(r"\b(?<!@)(\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?|nan\b|inf\b)")
# What may stand between a number and the next word: `12.3k`, `5 %`, `3.1 GiB`, `20ms`, `4 it/s`.
_UNIT_PATTERN = r"(?:%|ms|us|µs|s|sec|secs|min|h|[kmg]i?b|b|w|c|[a-zµ]{1,8}/[a-z]{1,7})(?![\w=:.])"
_TEXT_AFTER_NUMBER_PATTERN = re.compile(rf"(?P<factor>[km](?![\w/]))?(?: ?{_UNIT_PATTERN})?")
_FIELD_END_PATTERN = re.compile(r"\s*(?:$|[|,;()\[\]{}•·]|[-–—]\s)|\s{2}")
# `2.1 -> 1.9`, `3/10`, `10:32`, `1.2.3` and `12_345` are no plain numbers.
_NOT_PLAIN_NUMBER_PATTERN = re.compile(r"\s*(?:[/:→]|->)|[\w.]|-\d")
_ASSIGNMENT_PATTERN = re.compile(r"(?<!\s)\s*(?::|==?)\s*(?:tensor\(|\[)?$")
_SIGN_PATTERN = re.compile(r"(?<![\w.])[-+]$")
_FIELD_START_PATTERN = re.compile(r"[|,;()\[\]{}•·>]|(?:^|\s)[-–—]+\s|:|\s{2,}")
_UNIT_AFTER_NAME_PATTERN = re.compile(r"(?: in \w{1,3}| ?\(\w{1,5}\))$")
_NAME_PATTERN = re.compile(r"[a-z_][\w./@%-]*(?: [a-z_][\w./@%-]*){0,4}")
_LAST_WORD_PATTERN = re.compile(r"(?:^|\s)([a-z_][\w./@%-]*)$")
_FACTOR_BY_SUFFIX = {"k": 1e3, "m": 1e6}
_STANDARD_NAME_BY_NAME = {
    "lr": "learning_rate",
    "gnorm": "grad_norm",
    "gradient_norm": "grad_norm",
    "global_grad_norm": "grad_norm",
    **dict.fromkeys(("tps", "tok/s", "tokens/s", "tok/sec", "tokens/sec", "tokens_per_sec"), "tokens_per_second"),
    **dict.fromkeys(("num_input_tokens_seen", "consumed_tokens", "total_tokens", "tokens_seen"), "num_tokens"),
}


def named_values(line: str) -> dict[str, float]:
    """Return the numbers of a line by their names, in small letters and one word."""
    text = line[:_MAX_LINE_LENGTH].lower()
    pattern = _NUMBER_OR_NAN_PATTERN if "nan" in text or "inf" in text else _NUMBER_PATTERN
    # Lines of one training differ in their numbers only: what is between them is looked at once.
    pieces = pattern.split(text)
    values: dict[str, float] = {}
    for index, name, factor in _names_of_numbers(tuple(pieces[::2])):
        try:
            value: float | None = float(pieces[index])
        except ValueError:
            value = parse_number(pieces[index])  # 12,345
        if value is not None and name not in values:
            values[name] = value * factor
    return values


@lru_cache(maxsize=1024)
def _names_of_numbers(texts_between: tuple[str, ...]) -> tuple[tuple[int, str, float], ...]:
    """Return which numbers have a name, by the texts before and behind each: place in the line, name and factor."""
    found: list[tuple[int, str, float]] = []
    before = texts_between[0]
    for number, behind in enumerate(texts_between[1:]):
        # A digit stands for the next number.
        behind = behind if number == len(texts_between) - 2 else f"{behind}0"  # noqa: PLW2901
        end = _TEXT_AFTER_NUMBER_PATTERN.match(behind)
        suffix, rest = (end["factor"], behind[end.end() :]) if end else (None, behind)
        unsigned = _SIGN_PATTERN.sub("", before)
        if not _NOT_PLAIN_NUMBER_PATTERN.match(rest):
            name = _name_before_number(unsigned, is_closed=_FIELD_END_PATTERN.match(rest) is not None)
            # A single letter may count as well: `i=20`.
            if len(name) > 1 and not is_counter_name(name):
                name = _STANDARD_NAME_BY_NAME.get(name, name)
                factor = _FACTOR_BY_SUFFIX[suffix] if suffix and "tok" in name else 1.0
                found.append((2 * number + 1, name, -factor if before[len(unsigned) :] == "-" else factor))
        before = rest[:-1]
    return tuple(found)


def _name_before_number(text: str, *, is_closed: bool) -> str:
    """Return the name at the end of a text before a number; empty where it may be any word.

    Without `:` or `=` the number has to be closed by what ends a field, as its name begins one.
    """
    assignment = _ASSIGNMENT_PATTERN.search(text)
    text = _UNIT_AFTER_NAME_PATTERN.sub("", (text[: assignment.start()] if assignment else text).rstrip())
    begins = [match.end() for match in _FIELD_START_PATTERN.finditer(text)]
    field = text[begins[-1] if begins else 0 :].strip()
    match = _NAME_PATTERN.fullmatch(field)
    if assignment:
        word = _LAST_WORD_PATTERN.search(field) if match is None else None
        name = match[0] if match else word[1] if word else ""
    else:
        name = match[0] if match and begins and is_closed and field.count(" ") < 2 else ""
    return name.replace(" ", "_")
