"""Answers of Slurm's commands on another host, from which jobs are submitted."""

from collections.abc import Sequence
from functools import cache
from importlib import resources

from msgspec import Struct

from tui_train.base import ssh
from tui_train.base.parse import Unparsable, json_as
from tui_train.facts.machine.child_process import TIMED_OUT_REASON, ChildResult
from tui_train.runner.ssh import failure_advice

PROGRAM_NOT_FOUND_CODE = 127  # the exit code of a command that is not there
COMMAND_TIMEOUT_SECONDS = 30.0  # seconds for a command
CONNECT_TIMEOUT_SECONDS = 20.0  # seconds for the connection, besides those of the commands


class _CommandAnswer(Struct):
    out: str = ""
    error: str = ""
    code: int | None = None
    late: bool = False


def combined_ssh_command(
    host: str, commands: Sequence[Sequence[str]], *, without_variables: str = "", folder: str = "", stdin_data: str = ""
) -> list[str]:
    """Return the command over ssh that has others answer on a host, one after the other; `{user}` is the user there.

    They run in a folder there, without the variables whose names match `without_variables`, and with `stdin_data` as
    their input.
    """
    question = {
        "commands": commands, "patience": COMMAND_TIMEOUT_SECONDS, "without": without_variables, "folder": folder,
        "given": stdin_data,
    }  # fmt: skip
    return ssh.remote_python_command(host, _remote_program(), question)


def parse_command_answers(result: ChildResult, count: int) -> tuple[ChildResult, ...]:
    """Return the answer of each of so many commands in that of ssh; `failure` is set in those that gave none."""
    for line in reversed(result.out.splitlines()):
        try:
            command_answers = json_as(line, list[_CommandAnswer])
        except Unparsable:
            continue
        if len(command_answers) == count:
            return tuple(map(_as_child_result, command_answers))
    return (ChildResult(failure=result.failure or failure_advice(result.error)),) * count


def _as_child_result(command_answer: _CommandAnswer) -> ChildResult:
    failure = TIMED_OUT_REASON if command_answer.late or command_answer.code is None else ""
    return ChildResult(
        command_answer.out.encode(), command_answer.error.encode(), command_answer.code, command_answer.late, failure
    )


@cache
def _remote_program() -> str:
    return resources.files("tui_train.programs").joinpath("slurm_there.py").read_text(encoding="utf-8")
