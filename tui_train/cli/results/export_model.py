"""`tui-train export-model`: print what was written for llama.cpp, Ollama or vLLM."""

import click

from tui_train.actions.export_model import ExportModelOptions, export_model
from tui_train.actions.merge import require_loadable_weights, require_new_folder
from tui_train.base.text import size_text, visible
from tui_train.cli import answers
from tui_train.runs import run_folders
from tui_train.runs.results.result import read_result


def export_and_report(reference: str, folder: str, options: ExportModelOptions) -> None:
    """Export a run's result, and print what was written and the command that uses it."""
    run = run_folders.find_run_or_checkpoint(reference)
    require_loadable_weights(read_result(run))
    answers.announce_changes(writes=(str(require_new_folder(folder)),))
    made = export_model(run, folder, options, lambda what, of: click.echo(f"{what} {of} …", err=True))
    click.echo(f"wrote {visible(made.path)}: {size_text(made.size)}, {made.content}")
    click.echo(f"use it: {visible(made.command)}")
    if made.note:
        click.echo(visible(made.note))
