"""What Slurm's commands answer on another host, from which jobs are submitted."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

from msgspec import Struct

from tui_train.base import ssh
from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.ask import TIMED_OUT, ChildResult
from tui_train.supervisor.ssh import lost

NOT_FOUND = 127  # the exit code of a command that is not there
PATIENCE = 30.0  # seconds for a command
CONNECTS = 20.0  # seconds for the connection, besides those of the commands


class _Said(Struct):
    out: str = ""
    error: str = ""
    code: int | None = None
    late: bool = False


def command(
    host: str, commands: Sequence[Sequence[str]], *, without: str = "", folder: str = "", given: str = ""
) -> list[str]:
    """Return the command over ssh that has others answer on a host, one after the other; `{user}` is the user there.

    They run in a folder there, without the variables whose names match `without`, and with `given` as their input.
    """
    question = {
        "commands": commands, "patience": PATIENCE, "without": without, "folder": folder, "given": given,
    }  # fmt: skip
    return ssh.remote_python_command(host, _program(), question)


def answers(sent: ChildResult, count: int) -> tuple[ChildResult, ...]:
    """Return the answer of each of so many commands in that of ssh; `failure` is set in those that gave none."""
    for line in reversed(sent.out.splitlines()):
        try:
            said = json_as(line, list[_Said])
        except Unparsable:
            continue
        if len(said) == count:
            return tuple(map(_answer, said))
    return (ChildResult(failure=sent.failure or lost(sent.error)),) * count


def _answer(said: _Said) -> ChildResult:
    failure = TIMED_OUT if said.late or said.code is None else ""
    return ChildResult(said.out.encode(), said.error.encode(), said.code, said.late, failure)


@cache
def _program() -> str:
    return resources.files("tui_train.target").joinpath("slurm_there.py").read_text(encoding="utf-8")
