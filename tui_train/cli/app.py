"""The whole command line: importing its modules adds their commands."""

from tui_train.cli import program_commands
from tui_train.cli.environments import environment_commands
from tui_train.cli.group import MEANING_BY_EXIT_CODE, cli, run_command_line
from tui_train.cli.plans import plan_commands
from tui_train.cli.runs import run_commands

__all__ = [
    "MEANING_BY_EXIT_CODE",
    "cli",
    "environment_commands",
    "plan_commands",
    "program_commands",
    "run_command_line",
    "run_commands",
]
