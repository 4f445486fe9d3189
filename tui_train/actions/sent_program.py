"""A program in a Python of this machine or a host, sent along with the question, which answers in lines of JSON."""

import json
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from time import monotonic
from typing import Any

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.parse import Unparsable, parse_json_object
from tui_train.base.text import quantity, visible
from tui_train.channel.session import Session
from tui_train.facts.machine.child_memory_limit import out_of_memory_reason
from tui_train.facts.machine.child_process import CHILDREN_CANCELLED_EVENT
from tui_train.profile.hosts import host_address

_SENT_PROGRAM_FOLDERS = ("result", "data", "nemo")


def sent_program_texts() -> dict[str, str]:
    """Return the text of each file of the programs that are sent to a host, by its path there."""
    programs = resources.files("tui_train").joinpath("programs")
    return {
        f"{folder}/{file.name}": file.read_text("utf-8")
        for folder in _SENT_PROGRAM_FOLDERS
        for file in programs.joinpath(folder).iterdir()
        if file.name.endswith(".py")
    }


class SentProgram:
    """A running program on a host (empty: this machine), sent along with the question; it answers in lines of JSON.

    It ends with the connection. A folder that it is to make (`into`) is there whole once it has ended with 0.
    """

    def __init__(  # noqa: PLR0913 - each but four has a default
        self,
        host: str,
        python: str,
        entry: str,
        request: dict[str, Any],
        variables: dict[str, str] | None = None,
        *,
        has_stdin: bool = False,
        into: str = "",
        memory_limit: int = 0,
    ) -> None:
        """Begin, with as much memory (0: any); what is not there is said once it is asked."""
        self.host, self._memory_limit = host, memory_limit
        self._cancelled: Callable[[], bool] = lambda: False
        question = {
            "do": "program", "files": sent_program_texts(), "entry": entry, "python": python, "request": request,
            "variables": variables or {}, "has_stdin": has_stdin, "into": into, "memory_limit": memory_limit,
        }  # fmt: skip
        self._session = Session(host_address(host), question, stays_open=has_stdin, is_cancelled=self._is_cancelled)
        self.is_alive = True

    def _is_cancelled(self) -> bool:
        return self._cancelled() or CHILDREN_CANCELLED_EVENT.is_set()

    def send_message(self, message: object) -> None:
        """Send it a message; one that is gone is noticed when its answer is read."""
        with suppress(OSError, ValueError, NoAnswer):
            self._session.send(json.dumps(message).encode() + b"\n")

    def read_line(self, seconds: float, cancelled: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Return its next line, None once it has ended with 0; TuiTrainError where it fails or is silent for so long.

        NoAnswer where it is `cancelled`, or the host is lost.
        """
        self._cancelled, ends = cancelled, monotonic() + seconds
        try:
            while line := self._session.read_line():
                try:
                    sent = parse_json_object(line)
                except Unparsable:
                    continue
                if "beat" not in sent:
                    return self._checked_line(sent)
                if monotonic() >= ends:
                    source = f" from {visible(self.host)}" if self.host else ""
                    why = f"no answer for {quantity(round(seconds), 'second')}{source}"
                    raise Unavailable(why, "The machine may be busy or short of memory; try again later.")
            raise self._session.incomplete_answer_error()
        except NoAnswer:
            self.is_alive = False
            raise

    def _checked_line(self, sent: dict[str, Any]) -> dict[str, Any] | None:
        refused, code, host = sent.get("error"), sent.get("code"), visible(self.host)
        if not isinstance(refused, str) and not sent.get("ended"):
            return sent
        self.is_alive = False
        if isinstance(refused, str) and host:
            raise Unavailable(f"{host}: {visible(refused)}", f"Look at it there: ssh {host}")
        remedy = f"Fix that in its Python, or name another one{' of that host' if host else ''}: --python PATH."
        if isinstance(refused, str):
            raise Unavailable(visible(refused), remedy)
        if code == 0:
            return None
        lines = str(sent.get("said")).strip().splitlines()
        last = f": {visible(lines[-1].strip()[:200])}" if lines else ""
        if why := out_of_memory_reason(code if isinstance(code, int) else None, last, self._memory_limit):
            remedy = "Stop what else uses that memory, or use a machine with more."
            raise Unavailable(f"{host or 'out of memory'}: {why}", remedy)
        on = f" on {host}" if host else ""
        raise Unavailable(f"the program{on} ended with exit code {visible(str(code))}{last}", remedy)

    def close(self) -> None:
        """End it and all that it started."""
        self._session.close()
        self.is_alive = False
