"""What `tui-train nemo` does: data of text, a checkpoint of a Hugging Face folder, and a folder of a checkpoint."""

import shlex
import sys
from pathlib import Path

import click

from tui_train.base.places import expanded
from tui_train.base.text import counted, home, visible
from tui_train.workflow import nemo_files
from tui_train.workflow.nemo_files import Data, Progress

# NeMo gives 5 of 100 documents each to validation and test, where no files are named for these.
_FEW = 20


def prepare(data: Data, python: str, *, force: bool) -> None:
    """Prepare data, with a line about how far it is, and say what to name in a profile."""
    interpreter = nemo_files.python(python)
    click.echo(f"Preparing with {home(interpreter)} …", err=True)
    terminal = sys.stderr.isatty()

    def say(told: Progress) -> None:
        line = f"{told.split}: {progress(told)}"
        click.echo(f"\r\x1b[K{line}" if terminal else line, nl=not terminal, err=True)

    told = nemo_files.prepare(data, interpreter, say, force=force)
    if terminal:
        click.echo(err=True)
    counts = told.finished if isinstance(told.finished, dict) else {}
    made = nemo_files.outputs(data)
    for name, path in made.items():
        has = counts.get(name, {})
        tokens = counted(has.get("tokens", 0), "token")
        click.echo(f"{visible(str(path))}: {counted(has.get('documents', 0), 'document')}, {tokens}")
    keys = {"train": "trainer.data", "validation": "trainer.validation_data", "test": "trainer.test_data"}
    words = [f"--set {keys[name]}={visible(_typed(path))}" for name, path in made.items()]
    click.echo(f"\nTrain on it: {' '.join(words)} --set nemo.tokenizer={visible(shlex.quote(str(data.tokenizer)))}")
    few = counts.get("train", {}).get("documents", 0) < _FEW
    if few and "validation" not in made:
        click.echo(
            f"warning: fewer than {_FEW} documents: NeMo cannot take some for validation and test. Name files for these"
            " (--validation, --test), or divide documents by blank lines.",
            err=True,
        )


def _typed(path: Path) -> str:
    """Return a path as a shell hands it to a list of paths, which is split as by a shell once more."""
    return shlex.quote(shlex.quote(str(path)))


def progress(told: Progress) -> str:
    """Return in words how far it is."""
    share = 100 * told.done // told.total if told.total else 100
    return f"{share} %, {counted(told.documents, 'document')}, {counted(told.tokens, 'token')}"


def convert(what: str, source: Path, target: Path, python: str) -> None:
    """Convert a model, and say what to name in a profile."""
    interpreter = nemo_files.python(python)
    click.echo(f"Converting with the NeMo of {home(interpreter)}: about a minute, more for a large model …", err=True)
    nemo_files.convert(what, source, target, interpreter)
    click.echo(f"{visible(str(target))} is written")
    if what == "import":
        click.echo(f"Finetune it: --set nemo.task=finetune --set trainer.model={visible(shlex.quote(str(target)))}")


def absolute(path: Path) -> Path:
    """Return a path as absolute, `~` expanded."""
    return expanded(str(path)).absolute()
