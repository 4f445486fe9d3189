"""Problems of a training that runs, or has ended without an error: an invalid loss, a standstill."""

import math
from itertools import islice, takewhile

from tui_train.base.text import grouped_digits
from tui_train.runner.logs.progress import LogReadingOptions, Progress

# Minutes without output that an evaluation, a checkpoint or a compilation may take.
STANDSTILL_MINUTES = 3
# Utilization below which a GPU is idle.
MIN_BUSY_GPU_PERCENT = 5
_MIN_ZERO_LOSSES = 3
# A loss below it may become 0 by learning.
_MAX_CONVERGED_LOSS = 0.01
# Lines of a log after which the first step would have been read; fewer where they name a loss.
MIN_LINES_WITHOUT_STEP = 200
_MIN_LOSS_LINES_WITHOUT_STEP = 5


def health_problems(
    progress: Progress,
    quiet_minutes: int,
    idle_minutes: float | None,
    *noticed_problems: str,
    is_diagnosed: bool = False,
) -> tuple[str, ...]:
    """Return the problems as sentences, after `noticed_problems`; empty ones are left out.

    `quiet_minutes` are the minutes since the last output, `idle_minutes` those since one of its GPUs was busy, None if
    unknown. Where the training `is_diagnosed`, that explains its losses.
    """
    return (
        *filter(None, (*noticed_problems, "" if is_diagnosed else _loss_problem(progress))),
        *_standstill_problems(quiet_minutes, idle_minutes),
    )


def no_step_read_text(progress: Progress, line_count: int, loss_line_count: int, reading: LogReadingOptions) -> str:
    """Return in words that a script's log has had many lines, or some that name a loss, and no step was read of them.

    Empty where one was, and where the profile cannot name an expression.
    """
    few = line_count < MIN_LINES_WITHOUT_STEP and loss_line_count < _MIN_LOSS_LINES_WITHOUT_STEP
    if few or not reading.nameable or progress.step or progress.curve.size or progress.evaluations.size:
        return ""
    if reading.expressions:
        return f"no step or loss in {line_count} lines of its log: none fits Progress lines (trainer.progress)"
    return f"no step or loss found in {line_count} lines of its log: set Progress lines (trainer.progress)"


def _loss_problem(progress: Progress) -> str:
    """Return what is wrong with the newest losses as a sentence, empty for nothing."""
    newest_first = progress.curve.points_newest_first
    broken = [*takewhile(lambda point: not math.isfinite(point.loss), newest_first())]
    word = progress.position_word
    if broken:
        what = " or ".join(dict.fromkeys("NaN" if math.isnan(point.loss) else "infinite" for point in broken))
        since = f"{word} {grouped_digits(broken[-1].step)}"
        return f"the loss is {what} since {since} and will not recover: stop it and lower the learning rate"
    zeros = [*takewhile(lambda point: point.loss == 0, newest_first())]
    if len(zeros) < _MIN_ZERO_LOSSES:
        return ""
    before = next(islice(newest_first(), len(zeros), None), None)
    lacks_gradient = progress.gradient_norm is not None and not progress.gradient_norm > 0
    since = f"{word} {grouped_digits(zeros[-1].step)}"
    if progress.metrics.series_named("reward"):
        # The advantages of a group add up to 0, and so may its loss; without any there is no gradient either.
        has_equal_answers = progress.gradient_norm == 0
        why = "all answers to a prompt got the same reward"
        return f"nothing is learned since {since}: {why}" if has_equal_answers else ""
    # A loss that falls to 0 has converged; one that is 0 at once has nothing to learn from.
    if before and not (lacks_gradient and before.loss > _MAX_CONVERGED_LOSS):
        return ""
    if progress.gradient_norm is not None and math.isnan(progress.gradient_norm):
        # transformers logs a loss that is NaN as the mean of those since the last line, which is 0 where each is one.
        return f"the loss is 0 since {since}, and its gradients are NaN: stop it and lower the learning rate"
    return f"the loss is 0 since {since}: do the data's labels mask every token?"


def _standstill_problems(quiet_minutes: int, idle_minutes: float | None) -> tuple[str, ...]:
    if quiet_minutes < STANDSTILL_MINUTES or (idle_minutes is not None and idle_minutes < STANDSTILL_MINUTES):
        return ()
    return (
        f"no output for {quiet_minutes} min"
        + ("" if idle_minutes is None else f", its GPUs idle for {int(idle_minutes)} min"),
    )
