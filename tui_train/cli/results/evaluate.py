"""`tui-train evaluate`: print whether a result is better than its base, or than an earlier result."""

import sys
from collections.abc import Iterator

import click
from msgspec import Struct
from msgspec.structs import replace

from tui_train.actions.evaluate import (
    EVALUATIONS_FOLDER,
    Evaluation,
    EvaluationOptions,
    RowScores,
    Verdict,
    default_scoring,
    evaluate_run,
)
from tui_train.actions.evaluate_checkpoints import CheckpointChoice, choose_checkpoint
from tui_train.actions.host_result import host_of_result
from tui_train.actions.result_child import training_python
from tui_train.base.text import grouped_digits, percent, text_table, visible
from tui_train.cli import answers
from tui_train.cli.printing import clear_progress_line, print_json, print_progress
from tui_train.runs import run_folders
from tui_train.views.evaluation import differing_sample_texts, mean_score_texts, verdict_text

_EXIT_CODE_BY_VERDICT = {"better": 0, "no difference": 1, "worse": 2}
_DIFFERENCE_BY_VERDICT = {"better": "worse", "no difference": "no proven difference", "worse": "better"}
_SAMPLE_COUNT = 3


class EvaluationAnswer(Struct, frozen=True, kw_only=True):
    """The verdict, the share of rows on which the result is better with its interval of 95 %, and all scores."""

    verdict: Verdict
    by: str
    against: str
    better_share: float
    interval: tuple[float, float]
    equal_rows: int
    result: float | None
    other: float | None
    note: str
    tasks: dict[str, tuple[float, float]]
    usable_rows: int
    rows: tuple[RowScores, ...]


class CheckpointsAnswer(Struct, frozen=True):
    """The step of the checkpoint that scores best (0: the result), and how it compares with each other one."""

    best: int
    proven_better: bool
    compared: dict[str, EvaluationAnswer]


def evaluate_and_print(reference: str, options: EvaluationOptions, earlier: str, *, as_json: bool) -> None:
    """Evaluate a run, print what came of it, and end with the exit code of the verdict."""
    run, options = _find_runs_and_announce(reference, options, earlier)
    evaluation = evaluate_run(run, options, _print_progress)
    clear_progress_line()
    if as_json:
        print_json(_evaluation_answer(evaluation))
    else:
        for line in evaluation_lines(evaluation):
            click.echo(line)
    sys.exit(_EXIT_CODE_BY_VERDICT[evaluation.verdict])


def choose_checkpoint_and_print(reference: str, options: EvaluationOptions, earlier: str, *, as_json: bool) -> None:
    """Compare a run's checkpoints, print the best one, and end with 0 where it is proven better than the result."""
    run, options = _find_runs_and_announce(reference, options, earlier)
    choice = choose_checkpoint(run, options, _print_progress)
    clear_progress_line()
    if as_json:
        compared = {_side_name(step): _evaluation_answer(each) for step, each in choice.compared.items()}
        print_json(CheckpointsAnswer(choice.best, choice.is_proven_better, compared))
    else:
        for line in checkpoint_lines(run, choice):
            click.echo(line)
    sys.exit(not choice.is_proven_better)


def _find_runs_and_announce(
    reference: str, options: EvaluationOptions, earlier: str
) -> tuple[run_folders.RunFolder, EvaluationOptions]:
    """Return the run, and the options with the earlier run and how it is scored, once what is written is announced."""
    run = run_folders.find_run_or_checkpoint(reference)
    if earlier:
        options = replace(options, earlier=run_folders.find_run_or_checkpoint(earlier))
    if not options.by:
        options = replace(options, by="loss" if options.tasks else default_scoring(run))
    python = training_python(run, options.python, host_of_result(run, options.host, options.python))
    started = f"{python.host}:{python.python}" if python.host else python.python
    answers.announce_changes(starts=(started,), writes=(str(run.path / EVALUATIONS_FOLDER),))
    return run, options


def checkpoint_lines(run: run_folders.RunFolder, choice: CheckpointChoice) -> Iterator[str]:
    """Yield the score of each checkpoint, which is best, and whether that is proven."""
    texts = {step: mean_score_texts(each) for step, each in choice.compared.items()}
    label, best_score, _ = next(iter(texts.values()))
    scores = {choice.best: best_score} | {step: other for step, (_, _, other) in texts.items()}
    marks = {step: _DIFFERENCE_BY_VERDICT[each.verdict] for step, each in choice.compared.items()}
    rows = (
        (_side_name(step), scores[step], marks.get(step, "best")) for step in sorted(scores, key=lambda at: at or 1e99)
    )
    yield text_table((("checkpoint", label, ""), *rows))
    yield ""
    if choice.note:
        yield choice.note
    if not choice.best:
        yield "The result as it is scores best: nothing to choose."
        return
    yield f"Step {grouped_digits(choice.best)} scores best. {verdict_text(choice.compared[0])}"
    yield f"Use it: tui-train try {visible(run.name)}@{choice.best}; merge, export-model and publish take the same."


def _side_name(step: int) -> str:
    return f"step {grouped_digits(step)}" if step else "result"


def evaluation_lines(evaluation: Evaluation) -> Iterator[str]:
    """Yield the scores of both sides, some samples, and last the verdict."""
    label, result, other = mean_score_texts(evaluation)
    figures = [(each.name, f"{each.result:.4g}", f"{each.other:.4g}") for each in evaluation.figures]
    yield text_table((("", "result", evaluation.other_name), *(figures or ((label, result, other),))))
    for sample in differing_sample_texts(evaluation, _SAMPLE_COUNT):
        yield ""
        yield from (f"{name:<9} {visible(text)}" for name, text in sample)
    yield ""
    yield verdict_text(evaluation)
    if evaluation.note:
        yield evaluation.note


def _print_progress(what: str, done: int, count: int) -> None:
    if what:
        click.echo(f"loading {what} …", err=True)
    else:
        scores = f"{grouped_digits(done)} of {grouped_digits(count)} scores, {percent(done / max(1, count))}"
        print_progress(scores, only_on_terminal=True)


def _evaluation_answer(evaluation: Evaluation) -> EvaluationAnswer:
    result, other = evaluation.mean_scores
    return EvaluationAnswer(
        verdict=evaluation.verdict,
        by=evaluation.by,
        against=evaluation.other_name,
        better_share=evaluation.better_share,
        interval=evaluation.confidence_interval,
        equal_rows=evaluation.equal_row_count,
        result=result,
        other=other,
        note=evaluation.note,
        tasks={each.name: (each.result, each.other) for each in evaluation.figures},
        usable_rows=evaluation.usable_rows,
        rows=evaluation.rows,
    )
