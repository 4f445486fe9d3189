"""The whole command line: importing its modules adds their commands."""

from tui_train.cli import (
    data_command,
    environment_commands,
    host_commands,
    plan_commands,
    result_commands,
    run_commands,
)
from tui_train.cli.group import EXIT_CODES, cli, run_command_line

__all__ = [
    "EXIT_CODES",
    "cli",
    "data_command",
    "environment_commands",
    "host_commands",
    "plan_commands",
    "result_commands",
    "run_command_line",
    "run_commands",
]
