"""Refused: what is wrong, in one sentence, and the exit code that says it."""

from __future__ import annotations

# As sysexits.h has them.
USAGE_EXIT_CODE = 64
UNAVAILABLE_EXIT_CODE = 69
RANKS_TRAINED_ALONE_EXIT_CODE = 70
CANNOT_WRITE_EXIT_CODE = 73
BUSY_RESOURCE_EXIT_CODE = 75


class Refused(Exception):
    """Nothing was started, or nothing can go on: the exit code, what is wrong, and what to do where it has a remedy."""

    def __init__(self, code: int, why: str, remedy: str = "") -> None:
        super().__init__(why, remedy)
        self.code = code
        self.why = why
        self.remedy = remedy

    @property
    def message(self) -> str:
        """Problem and remedy, on one line."""
        return f"{self.why}: {self.remedy}" if self.remedy else self.why
