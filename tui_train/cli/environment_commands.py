"""The commands about what trains: environments, and data and models for NeMo."""

from pathlib import Path

import click

from tui_train.cli.group import FILE, cli


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
@click.argument("files", nargs=-1, required=True, type=FILE)
@click.option("--out", required=True, type=FILE, metavar="PREFIX", help="Write PREFIX_train.bin, PREFIX_train.idx ….")
@click.option("--tokenizer", required=True, type=FILE, metavar="FOLDER", help="The Hugging Face folder with it.")
@click.option("--validation", multiple=True, type=FILE, metavar="FILE", help="Text to validate on.")
@click.option("--test", multiple=True, type=FILE, metavar="FILE", help="Text to test on.")
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
@click.argument("folder", type=FILE)
@click.argument("out", type=FILE)
@_PYTHON
def nemo_import(folder: Path, out: Path, python: str) -> None:
    """Write the NeMo checkpoint OUT of the Hugging Face folder FOLDER, by NeMo's own converter."""
    from tui_train.cli import nemo

    nemo.convert("import", nemo.absolute(folder), nemo.absolute(out), python)


@nemo_group.command("export")
@click.argument("checkpoint", type=FILE)
@click.argument("out", type=FILE)
@_PYTHON
def nemo_export(checkpoint: Path, out: Path, python: str) -> None:
    """Write the Hugging Face folder OUT of a NeMo checkpoint, by NeMo's own converter."""
    from tui_train.cli import nemo

    nemo.convert("export", nemo.absolute(checkpoint), nemo.absolute(out), python)
