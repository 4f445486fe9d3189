"""The commands for programs and agents: what can be called, and how it is put to use."""

import click

from tui_train.cli.group import cli


@cli.command()
def spec() -> None:
    """Print all commands as JSON: options, exit codes, what each reads and changes, schemas of what it answers."""
    from tui_train.cli.printing import print_json
    from tui_train.cli.spec import command_surface

    print_json(command_surface(cli))


@cli.command()
def skill() -> None:
    """Print a skill file for an agent: how it plans, changes, runs and repairs a training by these commands."""
    from importlib import resources

    click.echo(resources.files("tui_train.cli").joinpath("skill.md").read_text("utf-8"), nl=False)
