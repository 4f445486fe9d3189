"""Two columns: names and their descriptions."""

import shutil
from collections.abc import Sequence

import click


def listed(rows: Sequence[tuple[str, str]]) -> str:
    """Return names with their descriptions, folded to the terminal's width."""
    formatter = click.HelpFormatter(width=min(120, shutil.get_terminal_size().columns))
    with formatter.indentation():
        formatter.write_dl(rows, col_max=32)
    return formatter.getvalue().rstrip("\n")
