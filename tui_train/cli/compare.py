"""What `tui-train compare` does: print runs side by side."""

import shutil
from collections.abc import Sequence

import click

from tui_train.base.text import visible
from tui_train.cli.plans import print_json
from tui_train.runs import rundir
from tui_train.runs.status import took
from tui_train.workflow.compare import LETTERS, Compared, Row, read, results, sentence, settings
from tui_train.workflow.effective import cut

_LABEL = 20
_MOST_POINTS = 1000


def compare(references: Sequence[str], *, as_json: bool) -> None:
    """Print what came of runs, and the settings in which they differ."""
    compared = read([rundir.find(reference) for reference in references])
    if as_json:
        keys = [row.key for row in settings(compared)]
        print_json([_data(each, keys) for each in compared])
        return
    for letter, each in zip(LETTERS, compared, strict=False):
        click.echo(f"{letter}  {visible(each.run.name)}")
    width = shutil.get_terminal_size().columns
    click.echo("\n" + "\n".join(_table("result", results(compared), len(compared), width)))
    if differing := settings(compared):
        click.echo("\n" + "\n".join(_table("setting", differing, len(compared), width)))
    else:
        click.echo("\nThe settings are the same.")
    if words := sentence(compared):
        click.echo(f"\n{words}")


def _table(title: str, rows: Sequence[Row], runs: int, width: int) -> list[str]:
    cell = max(8, min(28, (width - _LABEL - 12) // runs - 2))
    lines = [f"{title:<{_LABEL}}" + "".join(f"  {letter:>{cell}}" for letter in LETTERS[:runs])]
    for row in rows:
        cells = "".join(f"  {cut(text, cell):>{cell}}" for text in row.cells)
        best = f"{row.note}  " if row.note else ""
        better = f"{LETTERS[row.best]} is better" if row.best is not None and runs > 2 else ""
        lines.append(f"{row.label:<{_LABEL}}{cells}  {best}{better}".rstrip())
    return lines


def _data(each: Compared, keys: Sequence[str]) -> dict[str, object]:
    progress = each.progress
    best = progress.best
    return {
        "run": each.run.name,
        "path": str(each.run.path),
        "state": each.now.state,
        "seconds": took(each.now),
        "step": progress.step,
        "steps": progress.steps,
        "loss": progress.last.loss if progress.last else None,
        "eval_loss": progress.evaluations.last.loss if progress.evaluations.last else None,
        "eval_loss_best": best.loss if best else None,
        "eval_loss_best_step": best.step if best else None,
        "tokens_per_second": progress.tokens_per_second,
        "memory_peak": each.peak or None,
        "losses": [[point.step, point.loss] for point in progress.curve.thinned(_MOST_POINTS)],
        "eval_losses": [[point.step, point.loss] for point in progress.evaluations.thinned(_MOST_POINTS)],
        "settings": {key: each.settings[key].value for key in keys} if each.settings else None,
    }
