"""Output of commands: names with descriptions, tables cut to the terminal's width, and JSON."""

import re
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import text_table, visible

ANSWERED_KEY = "tui_train.answered"
_MAX_LIST_WIDTH = 120
# JSON allows these, but a terminal would interpret them; a line break occurs only between values.
_CONTROL_CHARACTER_PATTERN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")


def terminal_width_or_none() -> int | None:
    """Return how wide standard output is; None where it is no terminal, and nothing is cut."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def report_waiting(reason: str) -> None:
    """Print what the command waits for, on a terminal only."""
    if sys.stderr.isatty():
        click.echo(visible(reason), err=True)


def print_progress(text: str, *, only_on_terminal: bool = False) -> None:
    """Print to stderr how far something is: on a terminal in one line, again and again; elsewhere in lines."""
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[K{text}", nl=False, err=True)
    elif not only_on_terminal:
        click.echo(text, err=True)


def clear_progress_line() -> None:
    """Clear the line on which a terminal shows how far something is."""
    if sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)


def description_list_text(rows: Sequence[tuple[str, str]]) -> str:
    """Return names with their descriptions, folded to the terminal's width."""
    formatter = click.HelpFormatter(width=min(_MAX_LIST_WIDTH, shutil.get_terminal_size().columns))
    with formatter.indentation():
        formatter.write_dl(rows, col_max=32)
    return formatter.getvalue().rstrip("\n")


def aligned_table_text(rows: Sequence[tuple[str, ...]]) -> str:
    """Return rows as columns, the first row being the heads; at a terminal the widest are cut, as text_table says."""
    return text_table(rows, terminal_width_or_none())


def print_json(value: Any) -> None:
    """Print a value as JSON without control characters, and note that the command has answered."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError as error:
        raise TuiTrainError(
            (f"a value cannot be written as UTF-8: {error.reason}"),
            "Rename the file, profile or run that has this name.",
        ) from None
    click.echo(_CONTROL_CHARACTER_PATTERN.sub(lambda match: f"\\u{ord(match.group()):04x}", text))
    if context := click.get_current_context(silent=True):
        context.meta[ANSWERED_KEY] = True
