"""Problems of a training that runs, or has ended without an error: an invalid loss, a standstill."""

import math
from itertools import takewhile

from tui_train.runner.progress import LogReading, Progress

# Minutes without output that an evaluation, a checkpoint or a compilation may take.
PATIENCE_MINUTES = 3
# Utilization below which a GPU is idle.
BUSY_PERCENT = 5
_MANY_ZEROS = 3
# Lines of a log after which the first step would have been read; fewer where they name a loss.
MANY_LINES = 200
_MANY_LOSSES = 5


def health_problems(
    progress: Progress, quiet_minutes: int, idle_minutes: float | None, not_resumed: str = "", unread: str = ""
) -> tuple[str, ...]:
    """Return the problems as sentences: that a checkpoint was `not_resumed`, that the log is `unread`.

    `quiet_minutes` are the minutes since the last output, `idle_minutes` those since one of its GPUs was busy, None if
    unknown.
    """
    return (
        *filter(None, (not_resumed, unread)),
        *_loss_problems(progress),
        *_standstill_problems(quiet_minutes, idle_minutes),
    )


def unread_text(progress: Progress, lines: int, losses: int, reading: LogReading) -> str:
    """Return in words that a script's log has had many lines, or some that name a loss, and no step was read of them.

    Empty where one was, and where the profile cannot name an expression.
    """
    few = lines < MANY_LINES and losses < _MANY_LOSSES
    if few or not reading.nameable or progress.step or progress.curve.size or progress.evaluations.size:
        return ""
    if reading.expressions:
        return f"no step or loss in {lines} lines of its log: none fits Progress lines (trainer.progress)"
    return f"no step or loss found in {lines} lines of its log: set Progress lines (trainer.progress)"


def _loss_problems(progress: Progress) -> tuple[str, ...]:
    broken = [*takewhile(lambda point: not math.isfinite(point.loss), progress.curve.backwards())]
    zero = [*takewhile(lambda point: point.loss == 0, progress.curve.backwards())]
    if broken:
        return (f"the loss is {broken[0].loss} since step {broken[-1].step}: the model no longer learns",)
    if len(zero) >= _MANY_ZEROS:
        return (f"the loss is 0 since step {zero[-1].step}: check labels and masks of the data",)
    return ()


def _standstill_problems(quiet: int, idle: float | None) -> tuple[str, ...]:
    if quiet < PATIENCE_MINUTES or (idle is not None and idle < PATIENCE_MINUTES):
        return ()
    return (f"no output for {quiet} min" + ("" if idle is None else f", its GPUs idle for {int(idle)} min"),)
