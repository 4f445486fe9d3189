"""git, asked about a work tree: within a deadline, without its hooks and daemons, and without a change to it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import Mapping

from . import other_programs

_KEPT_VARIABLE_PREFIXES = ("GIT_CONFIG", "GIT_CEILING_", "GIT_DISCOVERY_")
_VARIABLES = {
    "LC_ALL": "C",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone would ask its server for what it has not.
    "GIT_NO_LAZY_FETCH": "1",
}
# A hook or a daemon of the repository has no part in a question about it.
_SETTINGS = (
    "core.fsmonitor=", "core.hooksPath=/dev/null", "core.splitIndex=false", "core.safecrlf=false", "gc.auto=0",
    "core.quotePath=true", "status.renames=false", "diff.renames=false",
)  # fmt: skip
_MAX_OUTPUT_BYTES = 32 << 20
_MEANING_BY_ERROR = (
    ("not a git repository", "no git repository"),
    ("must be run in a work tree", "a git repository without a work tree (bare)"),
    ("dubious ownership", "git refuses a repository of another user (safe.directory)"),
    ("unsafe repository", "git refuses a repository of another user (safe.directory)"),
)


class GitError(Exception):
    """What git cannot tell, in words."""


class GitTimeoutError(GitError):
    """git took longer than it may."""


class Git:
    """git in a folder; all commands together end within `seconds`."""

    def __init__(self, folder: str, seconds: float) -> None:
        self.folder, self._seconds = folder, seconds
        self._deadline = time.monotonic() + seconds
        program = other_programs.find_on_path("git")
        if not program:
            raise GitError("git is not installed (not on PATH)")
        self._command = [program, *(word for setting in _SETTINGS for word in ("-c", setting))]

    def output(self, *words: str, stdin: bytes = b"", variables: Mapping[str, str] | None = None) -> bytes:
        """Return what a command prints; GitError where it fails, is late, or prints too much."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("GIT_") or name.startswith(_KEPT_VARIABLE_PREFIXES)
        }
        # Files instead of pipes: neither side waits for the other, nor for what keeps one open.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            given.write(stdin)
            given.seek(0)
            child = subprocess.Popen(
                [*self._command, *words], cwd=self.folder, env={**kept, **_VARIABLES, **(variables or {})},
                stdin=given, stdout=out, stderr=err, start_new_session=True,
            )  # fmt: skip
            try:
                code = child.wait(max(0.0, self._deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise GitTimeoutError(f"git took more than {self._seconds:g} s") from None
            finally:
                _kill_group(child)
            err.seek(0)
            if code:
                raise GitError(_error_meaning(err.read(1 << 16).decode(errors="replace"), code))
            if out.seek(0, os.SEEK_END) > _MAX_OUTPUT_BYTES:
                raise GitError(f"git lists more than {_MAX_OUTPUT_BYTES >> 20} MiB")
            out.seek(0)
            return out.read()


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End git and what it has started; one that a dead disk holds is left behind."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(1.0)


def _error_meaning(text: str, code: int) -> str:
    for part, meaning in _MEANING_BY_ERROR:
        if part in text:
            return meaning
    first = next((line for line in text.splitlines() if line.startswith(("fatal:", "error:"))), "")
    return f"git: {first.partition(':')[2].strip()[:200]}" if first else f"git ended with exit code {code}"
