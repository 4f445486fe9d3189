"""`tui-train compare`: prints runs side by side."""

import shutil
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.cli.printing import print_json
from tui_train.runs import run_folders
from tui_train.runs.run_code import RunCode
from tui_train.runs.status import training_seconds
from tui_train.views.compare import (
    RUN_LETTERS,
    ComparedRun,
    ComparisonRow,
    differing_code_rows,
    differing_setting_rows,
    faster_run_sentence,
    read_compared_runs,
    result_rows,
)
from tui_train.views.run_settings import shortened_setting_text

_LABEL_WIDTH = 20
_MAX_LOSS_POINTS_IN_JSON = 1000


class ComparedRunAnswer(Struct, frozen=True, kw_only=True):
    """What came of a run: seconds, losses, bytes, points of a step and its value, and the settings that differ."""

    run: str
    path: str
    state: str
    seconds: float | None
    step: int
    steps: int
    loss: float | None
    eval_loss: float | None
    eval_loss_best: float | None
    eval_loss_best_step: int | None
    tokens_per_second: float | None
    memory_peak: int | None
    losses: Sequence[tuple[int, float | None]]
    eval_losses: Sequence[tuple[int, float | None]]
    metrics: Mapping[str, Sequence[tuple[float, float | None]]]
    code: RunCode | None
    settings: dict[str, str] | None


ComparisonAnswer = tuple[ComparedRunAnswer, ...]


def print_comparison(references: Sequence[str], metric_names: Sequence[str] = (), *, as_json: bool) -> None:
    """Print what came of runs, also of some metrics, and the settings in which they differ."""
    compared = read_compared_runs([run_folders.find_run(reference) for reference in references])
    for name in metric_names:
        if not any(each.progress.metrics.series_named(name) for each in compared):
            raise BadInput(f"none of these runs has a metric {visible(name)}", "`tui-train metrics RUN` lists them.")
    if as_json:
        keys = [row.key for row in differing_setting_rows(compared)]
        print_json([_compared_run_data(each, keys, metric_names) for each in compared])
        return
    for letter, each in zip(RUN_LETTERS, compared, strict=False):
        click.echo(f"{letter}  {visible(each.run.name)}")
    width, rows = shutil.get_terminal_size().columns, result_rows(compared, metric_names)
    click.echo("\n" + "\n".join(_comparison_table_lines("result", rows, len(compared), width)))
    if differing := differing_setting_rows(compared):
        click.echo("\n" + "\n".join(_comparison_table_lines("setting", differing, len(compared), width)))
    else:
        click.echo("\nThe settings are the same.")
    if code := differing_code_rows(compared):
        click.echo("\n" + "\n".join(_comparison_table_lines("code", code, len(compared), width)))
    if words := faster_run_sentence(compared):
        click.echo(f"\n{words}")


def _comparison_table_lines(title: str, rows: Sequence[ComparisonRow], run_count: int, width: int) -> list[str]:
    label_width = max(_LABEL_WIDTH, *(len(row.label) for row in rows))
    cell = max(8, min(28, (width - label_width - 12) // run_count - 2))
    lines = [f"{title:<{label_width}}" + "".join(f"  {letter:>{cell}}" for letter in RUN_LETTERS[:run_count])]
    for row in rows:
        cells = "".join(f"  {shortened_setting_text(text, cell):>{cell}}" for text in row.cells)
        best = f"{row.note}  " if row.note else ""
        better = f"{RUN_LETTERS[row.best_index]} is better" if row.best_index is not None and run_count > 2 else ""
        lines.append(f"{row.label:<{label_width}}{cells}  {best}{better}".rstrip())
    return lines


def _compared_run_data(
    compared_run: ComparedRun, keys: Sequence[str], metric_names: Sequence[str]
) -> ComparedRunAnswer:
    progress = compared_run.progress
    best = progress.best_evaluation
    return ComparedRunAnswer(
        run=compared_run.run.name,
        path=str(compared_run.run.path),
        state=compared_run.status.state,
        seconds=training_seconds(compared_run.status),
        step=progress.step,
        steps=progress.steps,
        loss=progress.last.loss if progress.last else None,
        eval_loss=progress.evaluations.last.loss if progress.evaluations.last else None,
        eval_loss_best=best.loss if best else None,
        eval_loss_best_step=best.step if best else None,
        tokens_per_second=progress.tokens_per_second,
        memory_peak=compared_run.peak_memory or None,
        losses=[(point.step, point.loss) for point in progress.curve.thinned_points(_MAX_LOSS_POINTS_IN_JSON)],
        eval_losses=[
            (point.step, point.loss) for point in progress.evaluations.thinned_points(_MAX_LOSS_POINTS_IN_JSON)
        ],
        metrics={name: compared_run.metric_over(name, "step") for name in metric_names},
        code=compared_run.code,
        settings={key: compared_run.settings[key].value for key in keys} if compared_run.settings else None,
    )
