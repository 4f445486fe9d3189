"""tui-train import: a profile of what starts a training elsewhere, with what became of each word."""

import sys
from pathlib import Path

import click

from tui_train.actions.command_import import imports
from tui_train.actions.command_import.shell import MAX_TEXT_CHARACTERS
from tui_train.actions.command_import.table import Import
from tui_train.base.own_command import with_own_command
from tui_train.base.text import quantity, visible
from tui_train.cli import printing
from tui_train.cli.plans import plans
from tui_train.profile import fields, store
from tui_train.profile.secret_values import displayed_value
from tui_train.views.import_rows import displayed_import_rows


def import_training(  # noqa: PLR0913 - one for each option
    words: tuple[str, ...], name: str, edits: tuple[str, ...], *, force: bool, dry_run: bool, as_json: bool
) -> None:
    """Print what becomes of the words of a command, and save the profile unless it is only shown."""
    folder = Path.cwd()
    if words == ("-",):
        imported = imports.import_text(sys.stdin.read(MAX_TEXT_CHARACTERS + 1), folder)
    else:
        imported = imports.import_words(words, folder)
    profile = plans.apply_edits(imported.profile, edits)
    profile = fields.profile_with_value(profile, "name", name) if name else profile
    imported = Import(profile, imported.rows)
    path = None if dry_run else store.save_profile(profile, overwrite=force)
    if as_json:
        _print_json(imported, path)
        return
    rows = displayed_import_rows(imported.rows)
    click.echo(printing.aligned_table_text([("IN THE COMMAND", "", "IN THE PROFILE"), *rows]))
    missed = sum(row.outcome == "not understood" for row in imported.rows)
    if missed:
        click.echo(f"\n{quantity(missed, 'entry is', 'entries are')} not in the profile: see above why", err=True)
    if path is None:
        click.echo(f"\nnothing is saved; the profile would be:\n\n{visible_toml(imported)}")
    else:
        click.echo(f"\nsaved {visible(str(path))}")
        hint = f"tui-train plan {visible(profile.name)} shows what it starts; the wizard has it on Home"
        click.echo(with_own_command(hint))


def visible_toml(imported: Import) -> str:
    """Return the keys of the profile, one a line, without secrets."""
    keys = ("name", *fields.chosen_keys(imported.profile))
    return "\n".join(f"{key}={visible(displayed_value(imported.profile, key))}" for key in keys)


def _print_json(imported: Import, path: Path | None) -> None:
    profile = imported.profile
    rows = zip(displayed_import_rows(imported.rows), imported.rows, strict=True)
    printing.print_json(
        {
            "name": profile.name,
            "saved": str(path) if path else None,
            "profile": {key: displayed_value(profile, key) for key in fields.chosen_keys(profile)},
            "words": [{"words": shown[0], "outcome": row.outcome, "text": shown[2]} for shown, row in rows],
        }
    )
