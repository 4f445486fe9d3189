"""Slurm's own commands, on this machine or on a host from which jobs are submitted."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from tui_train.base.errors import NoAnswer, Unavailable
from tui_train.base.text import visible
from tui_train.channel.session import ask_host, machine_name
from tui_train.runner.questions.slurm import COMMAND_TIMEOUT_SECONDS, NOT_FOUND_EXIT_CODE, last_error_line

_CONNECT_TIMEOUT_SECONDS = 20.0  # seconds for the connection, besides those of the commands


class CommandResult(Struct, frozen=True):
    """The output of a command and its exit code, None where it took too long."""

    code: int | None
    out: str = ""
    error: str = ""

    @property
    def last_error_text(self) -> str:
        """The last line that it said as an error, or that it took too long; safe to show."""
        return visible(last_error_line(self.code, self.error)[:300])


def run_slurm_commands(
    host: str,
    commands: Sequence[Sequence[str]],
    *,
    is_cancelled: Callable[[], bool] = lambda: False,
    input_text: str = "",
) -> list[CommandResult]:
    """Run commands one after the other on a host (empty: this machine); NoAnswer where that does not answer.

    `{user}` in them is the user there, and `input_text` what each reads.
    """
    seconds = len(commands) * COMMAND_TIMEOUT_SECONDS + _CONNECT_TIMEOUT_SECONDS
    question = {"do": "slurm", "commands": commands, "input": input_text}
    results = ask_host(host, question, list[CommandResult], seconds, is_cancelled=is_cancelled)
    if len(results) != len(commands):
        raise NoAnswer(f"{machine_name(host)} sent something else than the answers of these commands", "Try again.")
    return results


def run_slurm_command(host: str, command: Sequence[str], input_text: str = "") -> CommandResult:
    """Return what a command says; Unavailable where it is missing, NoAnswer where it takes too long."""
    (result,) = run_slurm_commands(host, (command,), input_text=input_text)
    program, place = command[0], f" on {visible(host)}" if host else ""
    login = f"ssh {host} " if host else ""
    if result.code is None:
        raise NoAnswer(f"{program}{place} gave {result.last_error_text}", f"Check `{visible(login)}scontrol ping`.")
    if result.code == NOT_FOUND_EXIT_CODE:
        remedy = f"Name a login node of the cluster, one on which `{visible(login)}{program} --version` works."
        raise Unavailable(f"{program} cannot be started{place}: {result.last_error_text}", remedy)
    return result
