"""Last lines of a command that trained, about the weights that were made."""

from collections.abc import Iterator

from tui_train.base.errors import TuiTrainError
from tui_train.base.text import display_path, size, visible
from tui_train.runs.results.result import read_result
from tui_train.runs.rundir import RunDir
from tui_train.supervisor.state import Status


def weights_lines(run: RunDir, now: Status) -> Iterator[str]:
    """Yield where a finished run's weights lie, and how they are tried and merged; nothing where there are none."""
    if now.state != "finished":
        return
    try:
        run_result = read_result(run)
    except TuiTrainError:
        return
    weights, name = run_result.weights, visible(run.name)
    if weights is None:
        return
    yield f"{visible(run_result.description)}, {size(weights.size)}: {display_path(weights.path)}"
    if weights.problem:
        yield f"It cannot be loaded: {visible(weights.problem)}"
        return
    merge = f"; merge it: tui-train merge {name} FOLDER" if weights.kind == "adapter" else ""
    try_line = "" if weights.scores else f"Try it: tui-train try {name}{merge}"
    yield try_line or f"More: tui-train result {name}"
