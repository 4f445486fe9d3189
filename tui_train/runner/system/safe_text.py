"""Untrusted text made safe to show."""

from __future__ import annotations

import re

_CONTROL_PATTERN = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]+")


def visible(text: str) -> str:
    """Return `text` with every control, direction-changing or undecodable character shown as an escape, on one line."""
    return _CONTROL_PATTERN.sub(
        lambda match: match.group().encode("unicode_escape", "surrogatepass").decode("ascii"), text
    )


def as_valid_utf8(text: str) -> str:
    """Return `text` with undecodable bytes replaced, so that it can be encoded as UTF-8."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
