"""Refused: why launch.sh does not go on."""

from __future__ import annotations


class Refused(Exception):
    """Printed as `launch.sh: MESSAGE`; `code` is the exit code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
