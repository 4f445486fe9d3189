"""Lines of a host about a run on it, of known types."""

from msgspec import Struct

from tui_train.base.errors import Unavailable
from tui_train.base.parse import Unparsable, json_as
from tui_train.base.text import visible
from tui_train.runner.state import Status

_MAX_ERROR_LENGTH = 1000


class HostLine(Struct, frozen=True, kw_only=True):
    """One line of a host: `error` is what it cannot do, and the others are what it answers."""

    error: str = ""
    gone: bool = False
    folder: str = ""
    # The folder of that name is the sender's own, and what this machine calls itself.
    shared: bool = False
    node: str = ""
    started: bool = False
    said: str = ""
    run: str = ""
    # How a run stands.
    status: Status | None = None
    checkpoint: str = ""
    starts: int = 0
    limit: bool = False
    starting: bool = False
    # A piece of a log, in base64.
    file: str = ""
    at: int = 0
    data: bytes = b""
    # The files of an output folder, or one of them, whose name is in base64.
    files: int | None = None
    total: int = 0
    # What it leaves out of them.
    links: int = 0
    empty: int = 0
    others: int = 0
    name: bytes = b""
    size: int = 0
    # When it was changed last, in nanoseconds.
    mtime: int = 0
    # It is here already.
    kept: bool = False
    end: bool = False
    # It still works.
    beat: bool = False


class RunGone(Unavailable):
    """The run's folder is not on its host any more."""


def parse_host_line(line: bytes) -> HostLine | None:
    """Return a line of the host's program, None for one of a login script."""
    try:
        return json_as(line, HostLine) if line.startswith(b"{") else None
    except Unparsable:
        return None


def refusal_error(host: str, line: HostLine) -> Unavailable:
    """Return what a host says that it cannot do, as an error."""
    kind = RunGone if line.gone else Unavailable
    return kind(f"{visible(host)}: {visible(line.error[:_MAX_ERROR_LENGTH])}", f"Look at it there: ssh {visible(host)}")
