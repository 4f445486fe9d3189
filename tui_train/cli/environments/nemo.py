"""`tui-train nemo`: prepares text as data, and converts models to NeMo checkpoints and back."""

import shlex
import sys
from pathlib import Path

import click

from tui_train.actions import nemo_files
from tui_train.actions.nemo_files import NemoChildProgress, NemoTextToPrepare
from tui_train.base.app_paths import expand_home
from tui_train.base.text import display_path, quantity, visible
from tui_train.cli import answers
from tui_train.cli.printing import print_progress
from tui_train.facts.machine import trusted_pythons

# NeMo gives 5 of 100 documents each to validation and test, where no files are named for these.
_MIN_DOCUMENTS_TO_SPLIT = 20


def prepare_data_and_report(data: NemoTextToPrepare, python: str, *, force: bool) -> None:
    """Prepare data, show the progress, and print the edits that train on it."""
    trusted_pythons.remember_chosen_python(python)
    interpreter = nemo_files.find_nemo_python(python)
    answers.announce_changes(writes=tuple(map(str, nemo_files.tokenized_files_to_write(data, force=force))))
    click.echo(f"Preparing with {display_path(interpreter)} …", err=True)

    def say(progress: NemoChildProgress) -> None:
        print_progress(f"{progress.split}: {preparation_progress_text(progress)}")

    result = nemo_files.prepare_nemo_data(data, interpreter, say, force=force)
    if sys.stderr.isatty():
        click.echo(err=True)
    counts = result.finished if isinstance(result.finished, dict) else {}
    outputs = nemo_files.bin_file_by_split(data)
    for name, path in outputs.items():
        has = counts.get(name, {})
        tokens = quantity(has.get("tokens", 0), "token")
        click.echo(f"{visible(str(path))}: {quantity(has.get('documents', 0), 'document')}, {tokens}")
    keys = {"train": "trainer.data", "validation": "trainer.validation_data", "test": "trainer.test_data"}
    words = [f"--set {keys[name]}={visible(_quote_for_shell_and_path_list(path))}" for name, path in outputs.items()]
    tokenizer = result.tokenizer or str(data.tokenizer)
    if result.tokenizer:
        click.echo(f"{visible(tokenizer)}: the tokenizer as NeMo's transformers 4 reads it")
    click.echo(f"\nTrain on it: {' '.join(words)} --set nemo.tokenizer={visible(shlex.quote(tokenizer))}")
    few = counts.get("train", {}).get("documents", 0) < _MIN_DOCUMENTS_TO_SPLIT
    if few and "validation" not in outputs:
        click.echo(
            f"warning: fewer than {_MIN_DOCUMENTS_TO_SPLIT} documents: too few for NeMo to split off validation and "
            "test. Name files for these (--validation, --test), or separate documents with blank lines.",
            err=True,
        )


def _quote_for_shell_and_path_list(path: Path) -> str:
    """Return a path quoted twice: for the shell, and for the list of paths, which is split like a shell's words."""
    return shlex.quote(shlex.quote(str(path)))


def preparation_progress_text(progress: NemoChildProgress) -> str:
    """Return how far a preparation is: percent, documents, tokens."""
    share = 100 * progress.done // progress.total if progress.total else 100
    return f"{share} %, {quantity(progress.documents, 'document')}, {quantity(progress.tokens, 'token')}"


def convert_model_and_report(direction: str, source: Path, target: Path, python: str) -> None:
    """Convert a model, and print the edits that train it."""
    trusted_pythons.remember_chosen_python(python)
    interpreter = nemo_files.find_nemo_python(python)
    nemo_files.require_convertible(direction, source, target)
    answers.announce_changes(writes=(str(target),))
    click.echo(
        f"Converting with the NeMo of {display_path(interpreter)}: about a minute, more for a large model …", err=True
    )
    result = nemo_files.convert_nemo_model(direction, source, target, interpreter)
    click.echo(f"Written to {visible(str(target))}")
    if result.difference is None:
        click.echo("The logits were not compared: Transformer Engine's layers compute on GPUs only.")
    else:
        click.echo(f"✓ Same logits as the model that it was made of (difference {result.difference:.1e})")
    if direction == "import":
        click.echo(f"Finetune it: --set nemo.task=finetune --set trainer.model={visible(shlex.quote(str(target)))}")


def absolute_path(path: Path) -> Path:
    """Return a path as absolute, `~` expanded."""
    return expand_home(str(path)).absolute()
