"""The commands about environments, and about data and models for NeMo."""

from pathlib import Path

import click

from tui_train.cli.group import PATH_PARAMETER_TYPE, cli, host_option


@cli.group()
def env() -> None:
    """List and create Python environments for training."""


@env.command("list", reads="the Pythons of this machine or of --on")
@host_option("List those of this host.")
def env_list(host: str) -> None:
    """List the environments that `env create` can make, and the Pythons found, with what they can train."""
    from tui_train.cli.environments import environments

    environments.print_package_sets_and_pythons(host)


@env.command("create", reads="this machine or --on", writes="the environment")
@click.argument("name")
@click.option(
    "--path",
    type=click.Path(file_okay=False, path_type=Path),
    help=("Create it in this folder, not beside the other environments."),
)
@click.option("--python", metavar="PATH", default="", help="Create it with this Python.")
@click.option(
    "--index-url", metavar="URL", default="", help=("Install torch from this package index; `none`: from pip's own.")
)
@click.option("--yes", "-y", is_flag=True, help="Install without asking.")
@host_option("Create it on this host, by what that has; all paths are those there.")
def env_create(  # noqa: PLR0913 - one for each option
    name: str, path: Path | None, python: str, index_url: str, host: str, *, yes: bool
) -> None:
    """Create an environment for training (NAME is hf, hf-images or nemo), with a torch build that supports the GPUs."""
    from tui_train.cli.environments import environments

    environments.confirm_and_create_environment(host, name, path, python, index_url, yes=yes)


@cli.group("nemo")
def nemo_files_group() -> None:
    """Data and models for NeMo: text to .bin files, Hugging Face folders to NeMo checkpoints and back."""


_PYTHON_OPTION = click.option(
    "--python", metavar="PATH", default="", help="Use the NeMo of this Python, not of the first one found."
)


@nemo_files_group.command(
    "prepare",
    reads="FILES, the tokenizer",
    writes="PREFIX_train.bin, PREFIX_train.idx and those of other splits",
    removes="with --force the files of these names",
)
@click.argument("files", nargs=-1, required=True, type=PATH_PARAMETER_TYPE)
@click.option(
    "--out",
    required=True,
    type=PATH_PARAMETER_TYPE,
    metavar="PREFIX",
    help="Write PREFIX_train.bin, PREFIX_train.idx ….",
)
@click.option(
    "--tokenizer",
    required=True,
    type=PATH_PARAMETER_TYPE,
    metavar="FOLDER",
    help="The Hugging Face folder with the tokenizer.",
)
@click.option("--validation", multiple=True, type=PATH_PARAMETER_TYPE, metavar="FILE", help="Text to validate on.")
@click.option("--test", multiple=True, type=PATH_PARAMETER_TYPE, metavar="FILE", help="Text to test on.")
@click.option("--force", is_flag=True, help="Replace files that already exist.")
@_PYTHON_OPTION
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

    A .jsonl file has one document per line, in "text"; in other files (UTF-8 text) blank lines separate documents.
    An interrupted preparation resumes when started again.
    """
    from tui_train.actions.nemo_files import NemoTextToPrepare
    from tui_train.cli.environments import nemo

    named = {"train": files, "validation": validation, "test": test}
    splits = {name: tuple(map(nemo.absolute_path, paths)) for name, paths in named.items()}
    data = NemoTextToPrepare(splits=splits, tokenizer=nemo.absolute_path(tokenizer), out=nemo.absolute_path(out))
    nemo.prepare_data_and_report(data, python, force=force)


@nemo_files_group.command("import", reads="the folder", writes="OUT, which has to be new")
@click.argument("folder", type=PATH_PARAMETER_TYPE)
@click.argument("out", type=PATH_PARAMETER_TYPE)
@_PYTHON_OPTION
def nemo_import(folder: Path, out: Path, python: str) -> None:
    """Convert the Hugging Face folder FOLDER to the NeMo checkpoint OUT, with NeMo's own converter."""
    from tui_train.cli.environments import nemo

    nemo.convert_model_and_report("import", nemo.absolute_path(folder), nemo.absolute_path(out), python)


@nemo_files_group.command("export", reads="the checkpoint", writes="OUT, which has to be new")
@click.argument("checkpoint", type=PATH_PARAMETER_TYPE)
@click.argument("out", type=PATH_PARAMETER_TYPE)
@_PYTHON_OPTION
def nemo_export(checkpoint: Path, out: Path, python: str) -> None:
    """Convert a NeMo checkpoint to the Hugging Face folder OUT, with NeMo's own converter."""
    from tui_train.cli.environments import nemo

    nemo.convert_model_and_report("export", nemo.absolute_path(checkpoint), nemo.absolute_path(out), python)


@cli.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that lets SHELL (bash, zsh or fish) complete commands, profiles, runs and keys by Tab."""
    from tui_train.cli.completion import completion_script

    click.echo(completion_script(shell, cli))
