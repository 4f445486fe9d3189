"""tui-train import: a profile of what starts a training elsewhere, with what became of each word."""

import sys
from pathlib import Path

import click
from msgspec import Struct
from msgspec.structs import replace

from tui_train.actions.command_import import imports
from tui_train.actions.command_import.shell import MAX_TEXT_CHARACTERS
from tui_train.actions.command_import.table import Import, ImportedWords, Outcome
from tui_train.base.own_command import with_runnable_commands
from tui_train.base.text import quantity, visible
from tui_train.cli import answers, printing
from tui_train.cli.plans import plans
from tui_train.profile import fields, store
from tui_train.profile.secret_values import displayed_value
from tui_train.views.import_rows import displayed_import_rows


class WordsAnswer(Struct, frozen=True, kw_only=True):
    """Words that belong together, what became of them, and as what, or why."""

    words: str
    outcome: Outcome
    text: str


class ImportAnswer(Struct, frozen=True, kw_only=True):
    """A profile by its chosen keys, and what became of each word; `saved` is its path, null in a dry run."""

    name: str
    saved: str | None
    profile: dict[str, str]
    words: tuple[WordsAnswer, ...]


def import_training(words: tuple[str, ...], *, name: str, edits: tuple[str, ...], force: bool, as_json: bool) -> None:
    """Print what becomes of the words of a command, and save the profile unless it is only shown."""
    if words[0].startswith("-") and words[0] != "-":
        raise click.NoSuchOption(words[0].partition("=")[0])
    folder = Path.cwd()
    if words == ("-",):
        imported = imports.import_text(sys.stdin.read(MAX_TEXT_CHARACTERS + 1), folder)
    else:
        imported = imports.import_words(words, folder)
    profile = plans.apply_edits(imported.profile, edits)
    profile = fields.profile_with_value(profile, "name", name) if name else profile
    imported = Import(profile, (*map(_with_note_on_own_option, imported.rows),))
    if not force:
        store.refuse_to_replace_profile(profile.name)
    if not as_json:
        _print_rows(imported)
        if answers.is_dry_run():
            click.echo(f"\nnothing is saved; the profile would be:\n\n{chosen_keys_text(imported)}\n")
    store.require_savable_profile(profile)
    if as_json and answers.is_dry_run():
        printing.print_json(_import_answer(imported, None))
    answers.announce_changes(writes=(str(store.profile_path(profile.name)),))
    path = store.save_profile(profile, overwrite=force)
    plans.warn_of_saved_secrets(profile)
    if as_json:
        printing.print_json(_import_answer(imported, path))
        return
    click.echo(f"\nsaved {visible(str(path))}")
    hint = f"tui-train plan {visible(profile.name)} shows what it starts; the wizard has it on Home"
    click.echo(with_runnable_commands(hint))


def _with_note_on_own_option(row: ImportedWords) -> ImportedWords:
    """Return a row that says of an argument which is also an option of this command that the script gets it."""
    context = click.get_current_context()
    own = {name for parameter in context.command.get_params(context) for name in parameter.opts}
    name = row.words.partition(" ")[0].partition("=")[0]
    if row.outcome != "argument" or name not in own:
        return row
    return replace(row, text=f"{row.text} to the script; an option of `tui-train import` goes before the command")


def _print_rows(imported: Import) -> None:
    rows = displayed_import_rows(imported.rows)
    click.echo(printing.aligned_table_text([("IN THE COMMAND", "", "IN THE PROFILE"), *rows]))
    missed = sum(row.outcome == "not understood" for row in imported.rows)
    if missed:
        click.echo(f"\n{quantity(missed, 'entry is', 'entries are')} not in the profile: see above why", err=True)


def chosen_keys_text(imported: Import) -> str:
    """Return the keys of the profile, one a line, without secrets."""
    keys = ("name", *fields.chosen_keys(imported.profile))
    return "\n".join(f"{key}={visible(displayed_value(imported.profile, key))}" for key in keys)


def _import_answer(imported: Import, path: Path | None) -> ImportAnswer:
    profile = imported.profile
    rows = zip(displayed_import_rows(imported.rows), imported.rows, strict=True)
    return ImportAnswer(
        name=profile.name,
        saved=str(path) if path else None,
        profile={key: displayed_value(profile, key) for key in fields.chosen_keys(profile)},
        words=tuple(WordsAnswer(words=shown[0], outcome=row.outcome, text=shown[2]) for shown, row in rows),
    )
