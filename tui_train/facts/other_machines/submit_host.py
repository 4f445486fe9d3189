"""Answers of Slurm's commands on another host, from which jobs are submitted."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tui_train.base.errors import NoAnswer
from tui_train.channel.session import ask
from tui_train.facts.machine.child_process import TIMED_OUT_REASON, ChildResult

PROGRAM_NOT_FOUND_CODE = 127  # the exit code of a command that is not there
COMMAND_TIMEOUT_SECONDS = 30.0  # seconds for a command
_CONNECT_TIMEOUT_SECONDS = 20.0  # seconds for the connection, besides those of the commands


class _CommandAnswer(Struct):
    out: str = ""
    error: str = ""
    code: int | None = None
    late: bool = False


def run_on_submit_host(  # noqa: PLR0913 - each has a default but two
    host: str,
    commands: Sequence[Sequence[str]],
    *,
    without_variables: str = "",
    folder: str = "",
    stdin_data: str = "",
    is_cancelled: Callable[[], bool] = lambda: False,
) -> tuple[ChildResult, ...]:
    """Run commands on a host, one after the other; `failure` is set in those that gave no answer.

    `{user}` in them is the user there. They run in a folder there, without the variables whose names match
    `without_variables`, and with `stdin_data` as their input.
    """
    question = {
        "do": "slurm", "commands": commands, "patience": COMMAND_TIMEOUT_SECONDS, "without": without_variables,
        "folder": folder, "given": stdin_data,
    }  # fmt: skip
    seconds = len(commands) * COMMAND_TIMEOUT_SECONDS + _CONNECT_TIMEOUT_SECONDS
    try:
        answers = ask(host, question, list[_CommandAnswer], seconds, is_cancelled=is_cancelled)
    except NoAnswer as error:
        return (ChildResult(failure=error.message),) * len(commands)
    return (
        tuple(map(_as_child_result, answers))
        if len(answers) == len(commands)
        else ((ChildResult(failure="it sent something else than the answers of these commands"),) * len(commands))
    )


def _as_child_result(command_answer: _CommandAnswer) -> ChildResult:
    failure = TIMED_OUT_REASON if command_answer.late or command_answer.code is None else ""
    return ChildResult(
        command_answer.out.encode(), command_answer.error.encode(), command_answer.code, command_answer.late, failure
    )
