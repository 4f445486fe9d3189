"""The whole command line: importing the modules adds their commands; here are those for programs and agents."""

import click

from tui_train.cli.environments import environment_commands
from tui_train.cli.group import MEANING_BY_EXIT_CODE, cli, run_command_line
from tui_train.cli.plans import plan_commands
from tui_train.cli.runs import run_commands

__all__ = ["MEANING_BY_EXIT_CODE", "cli", "environment_commands", "plan_commands", "run_command_line", "run_commands"]


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
