"""Columns for a terminal: names with their descriptions, and tables that are cut to its width."""

import shutil
import sys
from collections.abc import Sequence

import click

from tui_train.base.text import text_table as whole
from tui_train.base.text import visible

_MAX_LIST_WIDTH = 120


def terminal_width_or_none() -> int | None:
    """Return how wide standard output is; None where it is no terminal, and nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def report_waiting(reason: str) -> None:
    """Say at a terminal what the command waits for."""
    if sys.stderr.isatty():
        click.echo(visible(reason), err=True)


def description_list(rows: Sequence[tuple[str, str]]) -> str:
    """Return names with their descriptions, folded to the terminal's width."""
    formatter = click.HelpFormatter(width=min(_MAX_LIST_WIDTH, shutil.get_terminal_size().columns))
    with formatter.indentation():
        formatter.write_dl(rows, col_max=32)
    return formatter.getvalue().rstrip("\n")


def aligned_table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as columns, the first row being the heads; at a terminal the widest are cut."""
    return whole(rows, terminal_width_or_none())
