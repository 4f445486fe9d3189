"""What is wrong with a training that goes on, or has ended as if all were well: a loss that is none, a standstill."""

import math
from itertools import takewhile

from tui_train.supervisor.progress import Progress

# So many minutes without a line are no standstill yet: an evaluation, a checkpoint or a compilation takes them.
PATIENCE = 3
# A card that is used less waits.
BUSY = 5
_ZEROS = 3


def worries(progress: Progress, quiet: int, idle: float | None, not_resumed: str = "") -> tuple[str, ...]:
    """Return in sentences what is wrong; `not_resumed` is one already, of a checkpoint that was not loaded.

    `quiet` are the minutes since the last output, `idle` those since one of its GPUs last worked, None where that is
    not known.
    """
    return (*filter(None, (not_resumed,)), *_loss(progress), *_standstill(quiet, idle))


def _loss(progress: Progress) -> tuple[str, ...]:
    broken = [*takewhile(lambda point: not math.isfinite(point.loss), progress.curve.backwards())]
    zero = [*takewhile(lambda point: point.loss == 0, progress.curve.backwards())]
    if broken:
        return (f"the loss is {broken[0].loss} since step {broken[-1].step}: it learns nothing any more",)
    if len(zero) >= _ZEROS:
        return (f"the loss is 0 since step {zero[-1].step}: there may be nothing to learn from (labels, masks)",)
    return ()


def _standstill(quiet: int, idle: float | None) -> tuple[str, ...]:
    if quiet < PATIENCE or (idle is not None and idle < PATIENCE):
        return ()
    return (f"no output for {quiet} min" + ("" if idle is None else f", its GPUs idle for {int(idle)} min"),)
