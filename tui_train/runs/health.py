"""Problems of a training that runs, or has ended without an error: an invalid loss, a standstill."""

import math
from itertools import takewhile

from tui_train.runner.logs.progress import LogReadingOptions, Progress

# Minutes without output that an evaluation, a checkpoint or a compilation may take.
STANDSTILL_MINUTES = 3
# Utilization below which a GPU is idle.
MIN_BUSY_GPU_PERCENT = 5
_MIN_ZERO_LOSSES = 3
# Lines of a log after which the first step would have been read; fewer where they name a loss.
MIN_LINES_WITHOUT_STEP = 200
_MIN_LOSS_LINES_WITHOUT_STEP = 5


def health_problems(
    progress: Progress, quiet_minutes: int, idle_minutes: float | None, *noticed_problems: str
) -> tuple[str, ...]:
    """Return the problems as sentences, after `noticed_problems`; empty ones are left out.

    `quiet_minutes` are the minutes since the last output, `idle_minutes` those since one of its GPUs was busy, None if
    unknown.
    """
    return (
        *filter(None, noticed_problems),
        *_loss_problems(progress),
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


def _loss_problems(progress: Progress) -> tuple[str, ...]:
    broken = [*takewhile(lambda point: not math.isfinite(point.loss), progress.curve.points_newest_first())]
    zero = [*takewhile(lambda point: point.loss == 0, progress.curve.points_newest_first())]
    word = progress.position_word
    if broken:
        return (f"the loss is {broken[0].loss} since {word} {broken[-1].step}: the model no longer learns",)
    if len(zero) >= _MIN_ZERO_LOSSES:
        return (f"the loss is 0 since {word} {zero[-1].step}: check labels and masks of the data",)
    return ()


def _standstill_problems(quiet_minutes: int, idle_minutes: float | None) -> tuple[str, ...]:
    if quiet_minutes < STANDSTILL_MINUTES or (idle_minutes is not None and idle_minutes < STANDSTILL_MINUTES):
        return ()
    return (
        f"no output for {quiet_minutes} min"
        + ("" if idle_minutes is None else f", its GPUs idle for {int(idle_minutes)} min"),
    )
