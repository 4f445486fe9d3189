"""Which checkpoint is best: the scores of all that a run kept and of its result on the same rows."""

from collections.abc import Callable

from msgspec import Struct

from tui_train.actions.evaluate import (
    Evaluation,
    EvaluationOptions,
    require_scored_rows,
    rows_request,
    rows_scored_by_two_sides,
    score,
    unscored_rows_note,
)
from tui_train.actions.host_result import host_of_result
from tui_train.actions.merge import require_language_model
from tui_train.actions.result_child import weights_folder_request
from tui_train.base.errors import BadInput, NotFound, Unavailable
from tui_train.base.text import grouped_digits, visible
from tui_train.runner.run_folder.supervisor_plan import read_plan
from tui_train.runner.system.refused import Refused
from tui_train.runs.results.result import read_result, weights_by_checkpoint_step
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

_RESULT_SIDE = "result"


class CheckpointChoice(Struct, frozen=True, kw_only=True):
    """The best checkpoint of a run, by its step (0: its result as it is), and it beside each other one.

    `compared` has for each other step the best one as the result, for as many comparisons as there are pairs.
    """

    best: int
    compared: dict[int, Evaluation]
    note: str = ""

    @property
    def is_proven_better(self) -> bool:
        """True where the best is a checkpoint that is proven better than what is the result without a choice."""
        return self.best != 0 and self.compared[0].verdict == "better"


def choose_checkpoint(
    run: RunFolder,
    options: EvaluationOptions,
    on_progress: Callable[[str, int, int], None] = lambda _what, _done, _of: None,
) -> CheckpointChoice:
    """Score all checkpoints of a run and its result, and return which is best; TuiTrainError where that cannot be."""
    name = visible(run.name)
    if options.tasks or options.earlier or run.checkpoint:
        raise BadInput("checkpoints are compared with each other, on rows", "Leave out --task, --against and @STEP.")
    if host := host_of_result(run, options.host, options.python):
        remedy = f"Copy them here first: tui-train fetch {name} --checkpoints; then name a Python here: --python PATH"
        raise Unavailable(f"the checkpoints of {name} are on {visible(host)}", remedy)
    result = read_result(run)
    own = require_language_model(result)
    try:
        found = weights_by_checkpoint_step(run, read_plan(str(run.path)), read_status(run))
    except Refused as error:
        raise BadInput(f"{name} has no valid plan: {error}", "Name another run.") from error
    # The result may be a checkpoint itself, where no final weights were saved.
    steps = {step: weights for step, weights in found.items() if weights.path != own.path and not weights.problem}
    if not steps:
        remedy = "How many a training keeps is its save_total_limit; those on a host: tui-train fetch RUN --checkpoints"
        raise NotFound(f"{name} kept no checkpoint besides its result", remedy)
    sides = {_RESULT_SIDE: weights_folder_request(own)} | {
        str(step): weights_folder_request(each) for step, each in steps.items()
    }
    request = {
        **weights_folder_request(own),
        "base": result.base,
        "revision": result.revision,
        "earlier": None,
        "sides": sides,
    }
    request |= rows_request(run, options)
    # The scores that are kept are those of these files.
    request["files"] = [[each.path, each.changed_at] for each in (own, *steps.values())]
    kept, told = score(run, request, options, "", on_progress)

    def compared(result: int, other: int) -> Evaluation:
        name = f"step {grouped_digits(other)}" if other else "the result as it is"
        rows = rows_scored_by_two_sides(kept.scores, _side_of_step(result), _side_of_step(other))
        pairs = len(sides) * (len(sides) - 1) // 2
        return Evaluation(by=request["by"], other_name=name, rows=rows, usable_rows=told.usable, comparisons=pairs)

    best = 0
    for step in steps:
        both = compared(step, best)
        require_scored_rows(both.rows, kept.scores)
        ours, theirs = both.mean_scores
        # Of a loss the lower one is better; of equal ones the result as it is.
        if ours < theirs if both.is_by_loss else ours > theirs:
            best = step
    others = {other: compared(best, other) for other in (0, *steps) if other != best}
    return CheckpointChoice(best=best, compared=others, note=unscored_rows_note(kept.scores))


def _side_of_step(step: int) -> str:
    return str(step) if step else _RESULT_SIDE
