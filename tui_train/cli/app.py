"""The command line: every wizard feature without a terminal UI. EXIT_CODES is the one table of exit codes."""

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tui_train import __version__
from tui_train.base.errors import BadInput, CannotWrite, NotFound, TuiTrainError, Unavailable

if TYPE_CHECKING:
    from tui_train.workflow.machines import Source

EXIT_CODES = (
    (0, "done"),
    (64, "wrong usage"),
    (BadInput.exit_code, "a profile or value that cannot be used"),
    (NotFound.exit_code, "no such run or profile"),
    (Unavailable.exit_code, "the machine lacks something, or the plan cannot run here"),
    (TuiTrainError.exit_code, "a fault of this program"),
    (CannotWrite.exit_code, "a file cannot be written, or would be overwritten"),
    (129, "ended by a lost terminal (SIGHUP)"),
    (130, "ended by Ctrl-C"),
    (137, "the run was lost: what started it was killed"),
    (143, "the run was stopped, or the command ended by SIGTERM"),
)

_EPILOG = (
    "Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES)
    + (". run, quickstart, resume, logs --follow and, without a terminal, attach end with the training's own code.")
)

click.UsageError.exit_code = 64

_SET = click.option("--set", "edits", multiple=True, metavar="KEY=VALUE", help="Change a value; see `tui-train keys`.")
_FILE = click.Path(path_type=Path)
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class _Commands(click.Group):
    """Commands that end as EXIT_CODES says, where click has codes of its own."""

    def invoke(self, ctx: click.Context) -> None:
        try:
            super().invoke(ctx)
        except click.NoSuchOption as error:
            from tui_train.profile.fields import similar_key

            # A key of a profile is no option of its own.
            key = similar_key(error.option_name.lstrip("-"))
            takes_keys = error.ctx and any("--set" in one.opts for one in error.ctx.command.params)
            if not key or not takes_keys:
                raise
            raise click.UsageError(f"{error.message} Did you mean --set {key}=VALUE?", error.ctx) from None
        except BrokenPipeError:
            # The reader is gone, `| head` for one: nobody is left to tell.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (KeyboardInterrupt, click.Abort):
            click.echo(err=True)
            ctx.exit(130)


def _elsewhere(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that name another machine, which become the one argument `source`."""

    @click.option("--machine", metavar="FILE", type=_FILE, help="For the machine in that file (`facts --save`).")
    @click.option("--host", metavar="NAME", default=None, help="For another host, asked over ssh.")
    @functools.wraps(command)
    def wrapped(*arguments: Any, machine: Path | None, host: str | None, **options: Any) -> None:
        command(*arguments, source=_source(machine, host), **options)

    return wrapped


def _source(machine: Path | None, host: str | None, toolchain: Path | None = None) -> "Source":
    from tui_train.workflow.machines import Source

    if machine and host is not None:
        raise click.UsageError("--machine and --host exclude each other.")
    if host is not None and (not host or host.startswith("-")):
        raise click.UsageError("--host wants the name of a host.")
    return Source(machine, toolchain, host or "")


@click.group(
    cls=_Commands,
    invoke_without_command=True,
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, message="tui-train %(version)s")
@_elsewhere
@click.pass_context
def cli(context: click.Context, source: "Source") -> None:
    """Take a GPU machine to a running, resumable training. Without a command: the wizard."""
    if context.invoked_subcommand is None:
        from tui_train.wizard import open_wizard

        context.exit(open_wizard(source=source))
    if source.machine or source.host:
        raise click.UsageError(f"--machine and --host come after the command: {context.invoked_subcommand}.")


@cli.command()
@_JSON
@click.option("--save", metavar="FILE", type=_FILE, help="Write a machine file that a bug report can carry.")
@click.option("--machine", metavar="FILE", type=_FILE, help="Show the machine in that file, not this one.")
@click.option("--host", metavar="NAME", default=None, help="Show another host, asked over ssh.")
@click.option(
    "--toolchain",
    metavar="FILE",
    type=_FILE,
    help="Judge the cards for the PyTorch in that file: JSON with torch, cuda and arch_list, as torch prints them.",
)
def facts(*, as_json: bool, save: Path | None, machine: Path | None, host: str | None, toolchain: Path | None) -> None:
    """Print what this machine has: cards and whether they can train, host, Pythons."""
    from tui_train.cli import plans

    plans.facts(as_json=as_json, source=_source(machine, host, toolchain), save=save)


@cli.command()
@click.argument("profile")
@_JSON
@_SET
@_elsewhere
def plan(profile: str, edits: tuple[str, ...], source: "Source", *, as_json: bool) -> None:
    """Print what a profile would start, and what is wrong with it."""
    from tui_train.cli import plans

    plans.plan(profile, edits, source, as_json=as_json)


@cli.command()
@click.argument("profile")
@click.option(
    "--trace", is_flag=True, help="Count it with the model's own code and fake tensors: some seconds, no GPU."
)
@click.option("--measure", is_flag=True, help="Take two real steps with random weights.")
@_JSON
@_SET
@_elsewhere
def estimate(  # noqa: PLR0913 - one for each option
    profile: str, edits: tuple[str, ...], source: "Source", *, trace: bool, measure: bool, as_json: bool
) -> None:
    """Print what memory a profile's training will take, by phase, and whether it fits."""
    from tui_train.cli import estimate

    if trace and measure:
        raise click.UsageError("--trace and --measure exclude each other.")
    how = "trace" if trace else "measure" if measure else ""
    if how and (source.machine or source.host):
        raise click.UsageError(f"--{how} runs on this machine: it says nothing of another one.")
    estimate.estimate(profile, edits, how, source, as_json=as_json)


@cli.command()
@click.argument("profile")
@click.option(
    "--precision",
    "precisions",
    multiple=True,
    type=click.Choice(["fp32", "bf16", "fp16"]),
    help="Try this precision as well: it changes what is learned a little.",
)
@click.option(
    "--seconds", type=click.IntRange(5, 3600), default=180, show_default=True, help="What a trial may take at most."
)
@click.option("--dry-run", is_flag=True, help="Show what would be tried, and try nothing.")
@_JSON
@_SET
@_elsewhere
def tune(  # noqa: PLR0913 - one for each option
    profile: str,
    edits: tuple[str, ...],
    precisions: tuple[str, ...],
    seconds: int,
    source: "Source",
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Find the fastest micro batch and activation checkpointing that fit, by a few short real trainings."""
    from tui_train.cli import tune

    if dry_run:
        tune.dry_run(profile, edits, precisions, source, as_json=as_json)
        return
    if source.machine or source.host:
        raise click.UsageError("trials run on this machine: for another one there is only --dry-run.")
    tune.run(profile, edits, precisions, seconds, as_json=as_json)


@cli.command()
@click.argument("profile")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@_SET
@_elsewhere
def export(profile: str, folder: Path, edits: tuple[str, ...], source: "Source", *, force: bool) -> None:
    """Write launch.sh and what it needs to FOLDER; it runs without tui-train."""
    from tui_train.cli import plans

    plans.export(profile, folder, edits, source, force=force)


@cli.command()
@click.argument("profile")
@click.option("--detach", is_flag=True, help="Start it and return at once.")
@_SET
def run(profile: str, edits: tuple[str, ...], *, detach: bool) -> None:
    """Run a profile and show its log; it goes on when the connection is lost."""
    from tui_train.cli import runs

    runs.run(profile, edits, detach=detach)


@cli.command()
@_SET
def quickstart(edits: tuple[str, ...]) -> None:
    """Train a small model on sample text from start to end, with defaults."""
    from tui_train.cli import runs

    runs.quickstart(edits)


@cli.command()
@_JSON
def runs(*, as_json: bool) -> None:
    """List the runs, newest first, with their state."""
    from tui_train.cli import runs

    runs.runs(as_json=as_json)


@cli.command()
@click.argument("image")
@click.option("--engine", type=click.Choice(["docker", "podman", "apptainer"]), help="Ask this engine for it.")
@click.option("--recipe", metavar="NAME", default="", help="See whether NeMo's recipe is in it, such as qwen25_500m.")
@_JSON
def image(image: str, engine: str | None, recipe: str, *, as_json: bool) -> None:
    """Print what IMAGE holds, and whether the cards are seen inside; it is never fetched."""
    from tui_train.cli import plans

    plans.image(image, engine or "", recipe, as_json=as_json)


@cli.command()
@click.argument("run")
@click.option("--follow", "-f", is_flag=True, help="Go on until the run ends.")
@click.option("--attempt", type=click.IntRange(min=1), help="Only this attempt.")
def logs(run: str, attempt: int | None, *, follow: bool) -> None:
    """Print the log of RUN (an id, its beginning, `last`, or a folder)."""
    from tui_train.cli import runs

    if follow and attempt is not None:
        raise click.UsageError("--follow shows what comes, --attempt what came: they exclude each other.")
    runs.logs(run, attempt, follow=follow)


@cli.command()
@click.argument("log")
@click.option("--exit-code", type=int, metavar="N", help="What the training of a LOG ended with, where that is known.")
@_JSON
def diagnose(log: str, exit_code: int | None, *, as_json: bool) -> None:
    """Print why LOG's training failed and what to do: any log, `-`, or a run (an id, `last`, a folder)."""
    from tui_train.cli import diagnose

    diagnose.diagnose(log, exit_code, as_json=as_json)


@cli.command()
@click.argument("run")
def attach(run: str) -> None:
    """Open RUN in the wizard; without a terminal, follow its log."""
    from tui_train.cli import runs

    runs.attach(run)


@cli.command()
@click.argument("run")
@click.option("--now", is_flag=True, help="At once, without time to save.")
def stop(run: str, *, now: bool) -> None:
    """End RUN and every process of it."""
    from tui_train.cli import runs

    runs.stop(run, at_once=now)


@cli.command()
@click.argument("run")
@click.option("--detach", is_flag=True, help="Start it and return at once.")
def resume(run: str, *, detach: bool) -> None:
    """Start RUN's script again: it resumes from the newest complete checkpoint."""
    from tui_train.cli import runs

    runs.resume(run, detach=detach)


@cli.command()
@click.argument("run")
@click.argument("file", required=False, type=_FILE)
@click.option("--force", is_flag=True, help="Replace an existing file.")
def report(run: str, file: Path | None, *, force: bool) -> None:
    """Write RUN to one archive for a colleague or a bug report, without secrets."""
    from tui_train.cli import runs

    runs.report(run, file, force=force)


@cli.command()
@_JSON
def profiles(*, as_json: bool) -> None:
    """List the saved profiles."""
    from tui_train.cli import plans

    plans.profiles(as_json=as_json)


@cli.command()
@click.argument("name")
@click.option("--like", metavar="PROFILE", default="quickstart", help="Begin with the values of this one.")
@click.option("--force", is_flag=True, help="Replace a saved profile of that name.")
@_SET
def new(name: str, like: str, edits: tuple[str, ...], *, force: bool) -> None:
    """Save a profile under NAME."""
    from tui_train.cli import plans

    plans.new(name, like, edits, force=force)


@cli.command()
def keys() -> None:
    """List the keys of a profile, with their defaults and meaning."""
    from tui_train.cli import plans

    plans.keys()


@cli.command()
@click.argument("name", required=False)
@_JSON
def presets(name: str | None, *, as_json: bool) -> None:
    """List the presets and what they pass to a script; with NAME, print that one as a start for your own."""
    from tui_train.cli import presets

    if name and as_json:
        raise click.UsageError("--json is for the list, a preset is TOML: they exclude each other.")
    if name:
        presets.text(name)
    else:
        presets.show_all(as_json=as_json)


@cli.command()
@click.option("--python", metavar="PATH", default="", help="Ask this Python; else the first with NeMo.")
@_JSON
def recipes(python: str, *, as_json: bool) -> None:
    """List the NeMo recipes that a Python has."""
    from tui_train.cli import environments

    environments.list_recipes(python, as_json=as_json)


@cli.group()
def env() -> None:
    """Environments with what trains: those found, and new ones."""


@env.command("list")
def env_list() -> None:
    """List the Pythons found, with what they can train, and the sets that can be made."""
    from tui_train.cli import environments

    environments.show_all()


@env.command("create")
@click.argument("name")
@click.option("--path", type=click.Path(file_okay=False, path_type=Path), help="Make it here; else with the others.")
@click.option("--python", metavar="PATH", default="", help="Make it of this Python.")
@click.option("--index-url", metavar="URL", default="", help="Take torch from this index; none: pip's own choice.")
@click.option("--dry-run", is_flag=True, help="Show what would be installed, and install nothing.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def env_create(  # noqa: PLR0913 - one for each option
    name: str, path: Path | None, python: str, index_url: str, *, dry_run: bool, yes: bool
) -> None:
    """Make an environment that trains (NAME is hf or nemo), with a torch that has code for the cards."""
    from tui_train.cli import environments

    environments.create(name, environments.Where(path, python, index_url), dry_run=dry_run, yes=yes)


@cli.group("nemo")
def nemo_group() -> None:
    """Data and models for NeMo: text to .bin files, Hugging Face folders to NeMo checkpoints and back."""


_PYTHON = click.option("--python", metavar="PATH", default="", help="Use the NeMo of this Python; else the first.")


@nemo_group.command("prepare")
@click.argument("files", nargs=-1, required=True, type=_FILE)
@click.option("--out", required=True, type=_FILE, metavar="PREFIX", help="Write PREFIX_train.bin, PREFIX_train.idx ….")
@click.option("--tokenizer", required=True, type=_FILE, metavar="FOLDER", help="The Hugging Face folder with it.")
@click.option("--validation", multiple=True, type=_FILE, metavar="FILE", help="Text to validate on.")
@click.option("--test", multiple=True, type=_FILE, metavar="FILE", help="Text to test on.")
@click.option("--force", is_flag=True, help="Replace files that already exist.")
@_PYTHON
def nemo_prepare(  # noqa: PLR0913, PLR0917 - one for each option
    files: tuple[Path, ...],
    out: Path,
    tokenizer: Path,
    validation: tuple[Path, ...],
    test: tuple[Path, ...],
    python: str,
    *,
    force: bool,
) -> None:
    """Turn FILES into data for a NeMo pretraining.

    A .jsonl has a document a line, its "text"; in other files, which are UTF-8 text, blank lines divide documents.
    An interrupted one resumes when it is started again.
    """
    from tui_train.cli import nemo
    from tui_train.workflow.nemo_files import Data

    named = {"train": files, "validation": validation, "test": test}
    splits = {name: tuple(map(nemo.absolute, paths)) for name, paths in named.items()}
    data = Data(splits=splits, tokenizer=nemo.absolute(tokenizer), out=nemo.absolute(out))
    nemo.prepare(data, python, force=force)


@nemo_group.command("import")
@click.argument("folder", type=_FILE)
@click.argument("out", type=_FILE)
@_PYTHON
def nemo_import(folder: Path, out: Path, python: str) -> None:
    """Write the NeMo checkpoint OUT of the Hugging Face folder FOLDER, by NeMo's own converter."""
    from tui_train.cli import nemo

    nemo.convert("import", nemo.absolute(folder), nemo.absolute(out), python)


@nemo_group.command("export")
@click.argument("checkpoint", type=_FILE)
@click.argument("out", type=_FILE)
@_PYTHON
def nemo_export(checkpoint: Path, out: Path, python: str) -> None:
    """Write the Hugging Face folder OUT of a NeMo checkpoint, by NeMo's own converter."""
    from tui_train.cli import nemo

    nemo.convert("export", nemo.absolute(checkpoint), nemo.absolute(out), python)
