"""Claims of this program about a machine: the expected, the seen, and the verdict."""

from typing import Literal

from msgspec import Struct

ClaimVerdict = Literal["ok", "differs", "not tested"]


class Claim(Struct, frozen=True, kw_only=True):
    """A claim, and what came of it; `why` of one that differs may be empty, for `seen` says it."""

    claim: str
    expected: str = ""
    seen: str = ""
    verdict: ClaimVerdict
    why: str = ""


def checked_claim(claim: str, expected: str, seen: str, *, holds: bool, why: str = "") -> Claim:
    """Return a claim that was tested."""
    return Claim(claim=claim, expected=expected, seen=seen, verdict="ok" if holds else "differs", why=why)


def untested_claim(claim: str, why: str) -> Claim:
    """Return a claim that could not be tested here."""
    return Claim(claim=claim, verdict="not tested", why=why)
