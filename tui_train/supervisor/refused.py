"""Refused: what is wrong, in one sentence, and the exit code that says it."""

from __future__ import annotations

# As sysexits.h has them.
USAGE = 64
MISSING = 69
APART = 70
CANNOT_WRITE = 73
BUSY = 75


class Refused(Exception):
    """Nothing was started, or nothing can go on: `code` is the exit code, `message` says why and what to do."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
