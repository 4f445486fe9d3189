"""Versions of libraries, as they are installed: "2.13.0+cpu", "1.15.0.dev0"."""

import re

_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6})*", re.ASCII)


def at_least(version: str | None, wanted: str) -> bool:
    """Tell whether a version is `wanted` or newer; one that tells nothing is taken to be new."""
    found = _numbers(version or "")
    return not found or found >= _numbers(wanted)


def older(version: str | None, than: str) -> bool:
    """Tell whether a version is known to be older than another."""
    return not at_least(version, than)


def known_since(version: str | None, wanted: str) -> bool:
    """Tell whether a version is known, and is `wanted` or newer."""
    return bool(_numbers(version or "")) and at_least(version, wanted)


def _numbers(version: str) -> tuple[int, ...]:
    match = _NUMBERS.match(version)
    numbers = [int(part) for part in match[0].split(".")] if match else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
