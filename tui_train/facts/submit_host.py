"""What Slurm's commands answer on another host, from which jobs are submitted."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

from msgspec import Struct

from tui_train.base import ssh
from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.ask import Answer, ask
from tui_train.supervisor.ssh import lost

NOT_FOUND = 127  # the exit code of a command that is not there
_CONNECTS = 20.0  # seconds for the connection, besides those of the commands


class _Said(Struct):
    out: str = ""
    error: str = ""
    code: int | None = None
    late: bool = False


def answers(  # noqa: PLR0913 - one for each part of the question
    host: str,
    commands: Sequence[Sequence[str]],
    patience: float,
    *,
    without: str = "",
    folder: str = "",
    given: str = "",
) -> tuple[Answer, ...]:
    """Return what commands answer on a host, one after the other, each within `patience` seconds; `{user}` is the user.

    They run in a folder there, without the variables whose names match `without`, and with `given` as their input.
    """
    question = {
        "commands": commands, "patience": patience, "without": without, "folder": folder, "given": given,
    }  # fmt: skip
    sent = ask(ssh.python(host, _program(), question), patience * len(commands) + _CONNECTS, folder=None)
    for line in reversed(sent.out.splitlines()):
        try:
            said = json_as(line, list[_Said])
        except Unparsable:
            continue
        if len(said) == len(commands):
            return tuple(map(_answer, said))
    failed = Answer(failure=sent.failure or lost(sent.error))
    return (failed,) * len(commands)


def _answer(said: _Said) -> Answer:
    failure = "no answer in time" if said.late or said.code is None else ""
    return Answer(said.out.encode(), said.error.encode(), said.code, said.late, failure)


@cache
def _program() -> str:
    return resources.files("tui_train.target").joinpath("slurm_there.py").read_text(encoding="utf-8")
