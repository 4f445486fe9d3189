"""The command line: every wizard feature without a terminal UI. MEANING_BY_EXIT_CODE lists the exit codes."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_train import __version__
from tui_train.base.errors import BadInput, CannotWrite, NotFound, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.runner.system.refused import BUSY_RESOURCE_EXIT_CODE

if TYPE_CHECKING:
    from tui_train.actions.machine_facts import FactsSource

# Click's own code is 2, which a training may end with.
_WRONG_USAGE_EXIT_CODE = 64
MEANING_BY_EXIT_CODE = {
    0: "done",
    _WRONG_USAGE_EXIT_CODE: "wrong usage",
    BadInput.exit_code: "a profile or value that cannot be used",
    NotFound.exit_code: "no such run or profile",
    Unavailable.exit_code: "something is missing on the machine, or the plan cannot run here",
    TuiTrainError.exit_code: "a fault of this program",
    CannotWrite.exit_code: "a file cannot be written, or would be overwritten",
    BUSY_RESOURCE_EXIT_CODE: "the run, its folder or its port is in use (launch.sh)",
    129: "ended by a lost terminal (SIGHUP)",
    130: "ended by Ctrl-C",
    137: "the run was lost: its supervisor was killed",
    143: "the run was stopped, or the command ended by SIGTERM",
}

_EXIT_CODES_HELP_TEXT = (
    "Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in MEANING_BY_EXIT_CODE.items())
    + (". run, quickstart, resume, logs --follow and, without a terminal, attach end with the training's own code.")
)


def lazy_completer(name: str) -> Callable[[click.Context, click.Parameter, str], Any]:
    """Return what completes an argument in a shell: `complete_NAME` of `completion`, which is imported only then."""

    def complete(context: click.Context, parameter: click.Parameter, text: str) -> Any:
        from tui_train.cli import completion

        return getattr(completion, f"complete_{name}")(context, parameter, text)

    return complete


SET_OPTION = click.option(
    "--set",
    "edits",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=lazy_completer("edits"),
    help="Change a value; see `tui-train keys`.",
)
PROFILE_ARGUMENT = click.argument("profile", shell_complete=lazy_completer("profiles"))
RUN_ARGUMENT = click.argument("run", shell_complete=lazy_completer("runs"))
FILE_TYPE = click.Path(path_type=Path)
YES_OPTION = click.option("--yes", "-y", is_flag=True, help="Remove without asking.")
_SLURM_OPTION = click.option(
    "--slurm", is_flag=True, help="For nodes of the Slurm cluster of this machine, or of the host of --on."
)
JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _CommandGroup(click.Group):
    """Commands with the exit codes of MEANING_BY_EXIT_CODE instead of click's."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their full sentences, which click truncates."""
        rows = [(name, command.get_short_help_str(limit=200)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        except BrokenPipeError:
            # The reader is gone, as with `| head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            ctx.exit(130)


def host_option(help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that names a host."""
    return click.option(
        "--on", "--host", "host", metavar="NAME", shell_complete=lazy_completer("hosts"), help=help_text
    )


def machine_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name another machine, which become the one argument `source`."""

    @click.option(
        "--machine",
        metavar="FILE",
        type=FILE_TYPE,
        help=("For the machine that this file describes (written by `facts --save`)."),
    )
    @host_option("For another host, read over ssh: one of `tui-train hosts`, or a name for ssh.")
    @_SLURM_OPTION
    @functools.wraps(command)
    def with_source(*arguments: Any, machine: Path | None, host: str | None, slurm: bool, **options: Any) -> None:
        command(*arguments, source=facts_source_of_options(machine, host, slurm=slurm), **options)

    return with_source


def facts_source_of_options(
    machine: Path | None, host: str | None, toolchain: Path | None = None, *, slurm: bool = False
) -> "FactsSource":
    """Return the machine that options name; UsageError where they name two, or an invalid host.

    With Slurm a host is where jobs are submitted, and the machine in a file is a node.
    """
    from tui_train.actions.machine_facts import FactsSource

    if machine and host is not None and not slurm:
        raise click.UsageError("Give --machine or --on, not both.")
    if host is not None and (not host or host.startswith("-")):
        raise click.UsageError("--on needs the name of a host.")
    return FactsSource(machine, toolchain, host or "", slurm=slurm)


@click.group(
    cls=_CommandGroup,
    invoke_without_command=True,
    epilog=_EXIT_CODES_HELP_TEXT,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tui-train %(version)s")
@machine_options
@click.pass_context
def cli(context: click.Context, source: "FactsSource") -> None:
    """Fine-tune and train models from your terminal. Without a command: the wizard."""
    if source.slurm:
        raise click.UsageError("--slurm comes after a command; in the wizard, H on Hardware chooses Slurm.")
    if context.invoked_subcommand is None:
        from tui_train.wizard import open_wizard

        context.exit(open_wizard(source=source))
    if source.machine_file or source.host:
        raise click.UsageError(f"--machine and --on come after the command: {context.invoked_subcommand}.")


def run_command_line(arguments: list[str]) -> int:
    """Run a command to its end and return the exit code."""
    try:
        return int(cli.main(arguments, prog_name="tui-train", standalone_mode=False) or 0)
    except click.UsageError as error:
        for line in _usage_error_lines(error):
            click.echo(visible(line), err=True)
        return _WRONG_USAGE_EXIT_CODE
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _usage_error_lines(error: click.UsageError) -> tuple[str, str]:
    """Return what is wrong, and what to do, in the form of all errors; click's own has the whole usage before it."""
    nearest = _nearest_known_word(error)
    what = (error.message if nearest else error.format_message()).rstrip(".")
    meant = f"Did you mean {nearest}? " if nearest else ""
    command = error.ctx.command_path if error.ctx else "tui-train"
    return f"tui-train: {what[:1].lower()}{what[1:]}", f"  {meant}`{command} --help` shows the usage."


def _nearest_known_word(error: click.UsageError) -> str:
    """Return what an unknown word may have meant, empty for none: also a key of a profile, given as an option."""
    if isinstance(error, click.NoSuchOption) and error.ctx:
        from tui_train.profile.fields import most_similar_key

        key = most_similar_key(error.option_name.lstrip("-"))
        if key and any("--set" in parameter.opts for parameter in error.ctx.command.params):
            return f"--set {key}=VALUE"
    return next(iter(getattr(error, "possibilities", None) or ()), "")
