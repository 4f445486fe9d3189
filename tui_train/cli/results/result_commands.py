"""The commands about what a run made."""

import click

from tui_train.cli.group import JSON_OPTION, RUN_ARGUMENT, cli

PYTHON_OPTION = click.option("--python", metavar="PATH", default="", help="With this Python, not the one that trained.")

TRUST_OPTION = click.option(
    "--trust-remote-code", "trusted", is_flag=True, help="Run Python code that came with the model, this time."
)


@cli.command()
@RUN_ARGUMENT
@JSON_OPTION
def result(run: str, *, as_json: bool) -> None:
    """Print what RUN made: adapter or model, its path and size, losses, time, and the commands that serve it."""
    from tui_train.cli.results import result

    result.print_result(run, as_json=as_json)


@cli.command()
@RUN_ARGUMENT
@click.argument("folder")
@click.option("--base", metavar="MODEL", default="", help="Into this base model, not the one that was trained on.")
@PYTHON_OPTION
@TRUST_OPTION
def merge(run: str, folder: str, base: str, python: str, *, trusted: bool) -> None:
    """Merge RUN's adapter into its base model, as the new model folder FOLDER, and check that it answers the same."""
    from tui_train.actions.merge import MergeOptions
    from tui_train.cli.results import result

    result.merge_adapter_and_report(run, folder, MergeOptions(base, python, trusted))


@cli.command("try")
@RUN_ARGUMENT
@click.option("--prompt", metavar="TEXT", default=None, help="Answer this and end; without it, piped text or a chat.")
@click.option("--max-tokens", type=click.IntRange(1), metavar="N", default=256, show_default=True)
@click.option("--base", is_flag=True, help="The base model answers as well.")
@PYTHON_OPTION
@TRUST_OPTION
def try_(  # noqa: PLR0913 - one for each option
    run: str, prompt: str | None, max_tokens: int, python: str, *, base: bool, trusted: bool
) -> None:
    """Chat with what RUN made, in the terminal."""
    from tui_train.cli.results import result

    result.chat_with_result(run, prompt, max_tokens, python, base=base, trusted=trusted)
