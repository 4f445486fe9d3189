"""The command line: every wizard feature without a terminal UI. MEANING_BY_EXIT_CODE lists the exit codes."""

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_train import __version__
from tui_train.base.errors import BadInput, CannotWrite, NotFound, TuiTrainError, Unavailable
from tui_train.base.text import visible
from tui_train.runner.system.refused import BUSY_RESOURCE_EXIT_CODE

if TYPE_CHECKING:
    from tui_train.places.place import Place

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

# What a command can do to something; in the order in which it is told.
CHANGE_VERBS = ("writes", "removes", "starts", "stops", "sends")
# Under these names a command's context knows how it was called.
DRY_RUN_KEY, JSON_KEY = "tui_train.dry_run", "tui_train.json"
# Words that other tools have for what a command does here.
_SYNONYMS_BY_COMMAND = {
    "attach": "open view watch",
    "env": "envs install venv",
    "export-model": "convert gguf quantize",
    "facts": "gpus info",
    "fetch": "download pull",
    "logs": "log tail",
    "new": "create init",
    "publish": "push upload",
    "resume": "continue restart",
    "run": "launch start submit train",
    "runs": "history jobs list ls ps show status",
    "stop": "abort cancel end kill",
    "try": "chat",
}
COMMAND_BY_SYNONYM = {word: command for command, words in _SYNONYMS_BY_COMMAND.items() for word in words.split()}
# What changes something, and has no answer of its own, answers that.
_CHANGES_ANSWER = "tui_train.cli.answers:Changes"


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
RUNS_ARGUMENT = click.argument("runs", nargs=-1, required=True, metavar="RUN...", shell_complete=lazy_completer("runs"))
PATH_PARAMETER_TYPE = click.Path(path_type=Path)
YES_OPTION = click.option("--yes", "-y", is_flag=True, help="Remove without asking.")


def _note_in_context(key: str) -> Callable[[click.Context, click.Parameter, bool], bool]:
    def note(context: click.Context, _parameter: click.Parameter, value: bool) -> bool:
        context.meta[key] = context.meta.get(key) or value
        return value

    return note


JSON_OPTION = click.option("--json", "as_json", is_flag=True, help="Print JSON.", callback=_note_in_context(JSON_KEY))


class _DescribedForPrograms:
    """What a program has to know of a command beside its parameters: `tui-train spec` prints it.

    `reads`, and what it `writes`, `removes`, `starts`, `stops` and `sends` (CHANGE_VERBS), in a few words; `only_with`
    is the option without which it changes nothing. What changes something takes --dry-run and --json by that.
    `answer` and `dry_run_answer` are the types of what --json prints, as MODULE:NAME, with a blank between two.
    `exit_codes` are those with a meaning of its own; `trained` is when it ends with the training's own code.
    """

    def __init__(  # noqa: PLR0913 - one for each fact
        self,
        *arguments: Any,
        reads: str = "",
        writes: str = "",
        removes: str = "",
        starts: str = "",
        stops: str = "",
        sends: str = "",
        only_with: str = "",
        answer: str = "",
        dry_run_answer: str = _CHANGES_ANSWER,
        exit_codes: Mapping[int, str] | None = None,
        trained: str = "",
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        told = zip(CHANGE_VERBS, (writes, removes, starts, stops, sends), strict=True)
        self.reads, self.changes = reads, {verb: words for verb, words in told if words}
        self.only_with, self.exit_codes, self.trained = only_with, exit_codes or {}, trained
        self.prints_changes = bool(self.changes and not answer and not only_with)
        self.answer = answer or (_CHANGES_ANSWER if self.prints_changes else "")
        self.has_dry_run = bool(self.changes and not only_with)
        self.dry_run_answer = dry_run_answer if self.has_dry_run else ""


class Command(_DescribedForPrograms, click.Command):
    """A command; where it has no answer of its own, or in a dry run, it prints as JSON what it changes."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        if self.has_dry_run and not any("--dry-run" in parameter.opts for parameter in self.params):
            self.params.append(_DRY_RUN_PARAMETER)
        if self.prints_changes:
            self.params.append(_JSON_PARAMETER)

    def invoke(self, ctx: click.Context) -> Any:
        """Run it."""
        if not (self.has_dry_run and ctx.meta.get(JSON_KEY)):
            return super().invoke(ctx)
        self._invoke_for_program(ctx)
        return None

    def _invoke_for_program(self, ctx: click.Context) -> None:
        from tui_train.cli import answers

        ended = 0
        # The words are for people; what has an answer of its own prints none.
        with contextlib.redirect_stdout(sys.stderr if self.prints_changes else sys.stdout):
            try:
                super().invoke(ctx)
            except click.exceptions.Exit as end:
                ended = end.exit_code
            except SystemExit as end:
                ended = end.code if isinstance(end.code, int) else 0
            except KeyboardInterrupt:
                ended = 130
        if not ended or (self.trained and answers.were_changes_announced()):
            answers.print_changes()
        ctx.exit(ended)


class Group(_DescribedForPrograms, click.Group):
    """Commands of one name; without one of them a command itself."""

    command_class = Command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their full sentences, which click truncates."""
        rows = [(name, command.get_short_help_str(limit=200)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


_DRY_RUN_PARAMETER = click.Option(
    ["--dry-run"],
    is_flag=True,
    expose_value=False,
    callback=_note_in_context(DRY_RUN_KEY),
    help="Only print what would be changed.",
)
_JSON_PARAMETER = click.Option(
    ["--json", "as_json"],
    is_flag=True,
    expose_value=False,
    callback=_note_in_context(JSON_KEY),
    help="Print as JSON what is changed; ask nothing.",
)


class _RootGroup(Group):
    """Commands with the exit codes of MEANING_BY_EXIT_CODE instead of click's."""

    group_class = Group

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the exit codes, and which commands end with a training's."""
        codes = "; ".join(f"{code} {meaning}" for code, meaning in MEANING_BY_EXIT_CODE.items())
        known = sorted(self.commands.items())
        trained = ", ".join(
            f"{name} {command.trained}".removesuffix(" always")
            for name, command in known
            if isinstance(command, Command) and command.trained
        )
        formatter.write_paragraph()
        formatter.write_text(f"Exit codes: {codes}. These end with the training's own code: {trained}.")

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        except BrokenPipeError:
            # The reader is gone, as with `| head`.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            self._print_refusal_as_json(ctx, 130)
            ctx.exit(130)
        except (click.exceptions.Exit, SystemExit) as end:
            self._print_refusal_as_json(ctx, end.exit_code if isinstance(end, click.exceptions.Exit) else end.code)
            raise

    def _print_refusal_as_json(self, ctx: click.Context, code: int | str | None) -> None:
        """Tell a program why a command ends with an exit code and without another answer."""
        from tui_train.cli.printing import ANSWERED_KEY

        if isinstance(code, int) and code and ctx.meta.get(JSON_KEY) and not ctx.meta.get(ANSWERED_KEY):
            from tui_train.cli import answers

            answers.print_refusal(code)


def host_option(help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the option that names a host; without it `host` is empty, for this machine."""
    return click.option(
        "--on",
        "--host",
        "host",
        metavar="NAME",
        shell_complete=lazy_completer("hosts"),
        callback=_require_host_name,
        help=help_text,
    )


def _require_host_name(_context: click.Context, _parameter: click.Parameter, name: str | None) -> str:
    # An empty variable of a script is not to mean this machine, where runs may be removed.
    if name is not None and (not name or name.startswith("-")):
        raise click.UsageError("--on needs the name of a host.")
    return name or ""


def machine_options(
    machine_help: str = "For the machine described in FILE, which `facts --save` wrote there.",
    host_help: str = "For another host, over ssh: one of `tui-train hosts`, or a name that ssh knows.",
    slurm_help: str = "For a job on the Slurm cluster of this machine, or of the host of --on.",
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options that name another machine, which become the one argument `named_place`.

    With Slurm a host is where jobs are submitted, and the machine in a file is a node.
    """

    def add_options(command: Callable[..., None]) -> Callable[..., None]:
        @click.option("--machine", metavar="FILE", type=PATH_PARAMETER_TYPE, help=machine_help)
        @host_option(host_help)
        @click.option("--slurm", is_flag=True, help=slurm_help)
        @functools.wraps(command)
        def with_place(*arguments: Any, machine: Path | None, host: str, slurm: bool, **options: Any) -> None:
            from tui_train.places import place_of

            if machine and host and not slurm:
                raise click.UsageError("Give --machine or --on, not both.")
            command(*arguments, named_place=place_of(machine, host, slurm=slurm), **options)

        return with_place

    return add_options


@click.group(
    cls=_RootGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tui-train %(version)s")
@machine_options()
@click.pass_context
def cli(context: click.Context, named_place: "Place") -> None:
    """Fine-tune and train models from your terminal. Without a command: the wizard.

    PROFILE is the saved settings of a training: a name of `tui-train profiles`, or a TOML file. RUN is a training that
    was started: an id of `tui-train runs`, the beginning of one, `last`, its folder, or a profile, for its newest run.
    """
    if context.invoked_subcommand is None:
        if named_place.slurm:
            raise click.UsageError("--slurm takes a command; in the wizard, H on Hardware chooses Slurm.")
        from tui_train.wizard import open_wizard

        context.exit(open_wizard(place=named_place))
    _pass_machine_to_command(context, context.invoked_subcommand, named_place)


def _pass_machine_to_command(context: click.Context, name: str, named_place: "Place") -> None:
    """Give a command the machine that options before it name; UsageError where it takes none of them."""
    values = {"machine": named_place.machine_file, "host": named_place.host, "slurm": named_place.slurm}
    given = {option: value for option, value in values.items() if value}
    command = cli.get_command(context, name)
    taken = {parameter.name for parameter in command.params} if command else set()
    for option in given.keys() - taken:
        raise click.UsageError(f"{name} takes no --{'on' if option == 'host' else option}.")
    context.default_map = {name: given}


def is_asked_for_json(arguments: list[str]) -> bool:
    """Tell whether a program called, as it may also have called wrongly."""
    words = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in words


def run_command_line(arguments: list[str]) -> int:
    """Run a command to its end and return the exit code."""
    try:
        return int(cli.main(arguments, prog_name="tui-train", standalone_mode=False) or 0)
    except click.UsageError as error:
        what, remedy = _usage_error_lines(error)
        click.echo(visible(f"tui-train: {what}"), err=True)
        click.echo(visible(f"  {remedy}"), err=True)
        if is_asked_for_json(arguments):
            from tui_train.cli import answers

            answers.print_error(what, remedy, _WRONG_USAGE_EXIT_CODE)
        return _WRONG_USAGE_EXIT_CODE
    except click.ClickException as error:
        error.show()
        return error.exit_code


def _usage_error_lines(error: click.UsageError) -> tuple[str, str]:
    """Return what is wrong, and what to do, as of all errors; click's own has the whole usage before it."""
    nearest = _nearest_known_word(error)
    what = (error.message if nearest else error.format_message()).rstrip(".")
    meant = f"Did you mean {nearest}? " if nearest else ""
    command = error.ctx.command_path if error.ctx else "tui-train"
    return f"{what[:1].lower()}{what[1:]}", f"{meant}`{command} --help` shows the usage."


def _nearest_known_word(error: click.UsageError) -> str:
    """Return what an unknown word may have meant, empty for none: also a key of a profile, given as an option."""
    if isinstance(error, click.NoSuchOption) and error.ctx:
        from tui_train.profile.fields import most_similar_key

        key = most_similar_key(error.option_name.lstrip("-"))
        if key and any("--set" in parameter.opts for parameter in error.ctx.command.params):
            return f"--set {key}=VALUE"
    unknown_command = getattr(error, "command_name", "") if error.ctx and error.ctx.command is cli else ""
    command = COMMAND_BY_SYNONYM.get(unknown_command.lower(), "")
    return command or next(iter(getattr(error, "possibilities", None) or ()), "")
