"""The command about training data."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tui_train.cli.group import FILE_TYPE, JSON_OPTION, cli

if TYPE_CHECKING:
    from tui_train.facts.data.data_report import FinetuneMethod


@cli.command()
@click.argument("files", nargs=-1, required=True, type=FILE_TYPE)
@click.option(
    "--model", metavar="M", default="", help="Count tokens for this model: a folder, or an id in the Hub's cache."
)
@click.option("--revision", metavar="R", default="", help="Branch, tag or commit of that model in the cache.")
@click.option("--python", metavar="PATH", default="", help="Read with this Python; else the best for fine-tuning.")
@click.option(
    "--method",
    type=click.Choice(["sft", "dpo", "kto", "reward"]),
    default="sft",
    show_default=True,
    help="Check the data for this method.",
)
@click.option("--length", type=click.IntRange(1), default=None, metavar="N", help="Cut samples at N tokens.")
@click.option(
    "--batch", type=click.IntRange(1), default=None, metavar="N", help="Count the steps of this global batch."
)
@click.option("--weights", metavar="N,N", default="", help="What each file has of an epoch, such as 3,1.")
@click.option("--answers-only", is_flag=True, help="Learn only what the assistant says.")
@JSON_OPTION
def data(  # noqa: PLR0913, PLR0917 - one for each option
    files: tuple[Path, ...],
    model: str,
    revision: str,
    python: str,
    method: "FinetuneMethod",
    length: int | None,
    batch: int | None,
    weights: str,
    *,
    answers_only: bool,
    as_json: bool,
) -> None:
    """Print what training data holds, what is wrong with it, and what the model would learn."""
    from tui_train.cli.data import data
    from tui_train.facts.data.data_report import DataQuestion

    question = DataQuestion(
        files=(), model=model, revision=revision, method=method, length=length or 0, answers_only=answers_only or None
    )
    data.print_data_report(files, question, python, batch or 0, weights, as_json=as_json)
