"""Merging an adapter into its base model: a folder that serves like any model, whole or not there at all."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, structs

from tui_train.actions.host_result import host_of_result, require_path_on_host, result_folder_candidates
from tui_train.actions.result_child import ResultChild, training_python
from tui_train.base.app_paths import expand_home
from tui_train.base.errors import AlreadyExists, BadInput, NotFound, TuiTrainError, Unavailable
from tui_train.base.files import raising_cannot_write
from tui_train.base.text import visible
from tui_train.runner.system.new_folder import new_folder
from tui_train.runs.results.result import RunResult, read_result
from tui_train.runs.results.weights import Weights
from tui_train.runs.run_folders import RunFolder

# Seconds without a word: reading or writing a large model from a slow disk takes minutes.
_MAX_MERGE_SILENCE_SECONDS = 1800.0


class MergeResult(Struct, frozen=True):
    """A merged model: its folder, the type of its weights, and shares of the largest logit for a short prompt.

    `difference` is between the adapter and the merged model, at most `tolerance`; `change` is what the adapter changes
    of its base. `note` says what else is to be known of it.
    """

    folder: str
    dtype: str
    difference: float
    tolerance: float
    change: float
    note: str = ""
    host: str = ""
    """Where it is, empty for this machine."""


class MergeOptions(Struct, frozen=True):
    """Another base model than the one that was trained on, and another Python than the one that trained.

    `trusts_model_code`: Python code that came with the model may run. `host` is that of the run, where it is named.
    """

    base_model: str = ""
    python: str = ""
    trusts_model_code: bool = False
    host: str = ""


def require_loadable_weights(run_result: RunResult) -> Weights:
    """Return the weights of a run that can be loaded here.

    Unavailable where they are on its host, NotFound where there are none, BadInput for broken ones.
    """
    if run_result.host:
        why = f"the result of {visible(run_result.run)} is on {visible(run_result.host)}"
        raise Unavailable(why, f"Copy it here first: tui-train fetch {visible(run_result.run)}")
    if run_result.weights is None:
        where = f" in {visible(run_result.output)}" if run_result.output else ""
        raise NotFound(
            f"{visible(run_result.run)} has no adapter and no model{where}",
            f"See its log: tui-train logs {visible(run_result.run)}",
        )
    if run_result.weights.problem:
        weights = run_result.weights
        why = f"the {weights.kind} in {visible(weights.path)} cannot be loaded: {weights.problem}"
        raise BadInput(why, "Resume the run, which writes it again.")
    return run_result.weights


def require_language_model(run_result: RunResult) -> Weights:
    """Return the weights of a run that can be loaded; BadInput where they give scores and no text."""
    weights = require_loadable_weights(run_result)
    if weights.scores:
        raise BadInput(
            f"{visible(weights.path)} is a reward model: it gives scores, not text",
            "Only language models can be tried, evaluated and exported.",
        )
    return weights


def require_new_folder(folder: str) -> Path:
    """Return the whole path of a folder to make; AlreadyExists or NotFound if it cannot be made."""
    into = expand_home(folder).absolute()
    if os.path.lexists(into):
        raise AlreadyExists(f"{visible(str(into))} already exists", "Name a new folder.")
    if not into.parent.is_dir():
        raise NotFound(
            (f"there is no folder {visible(str(into.parent))}"), "Make that folder first, or name another one."
        )
    return into


def merge_adapter(
    run: RunFolder,
    folder: str,
    options: MergeOptions,
    on_step: Callable[[str, str], None] = lambda _what, _of: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> MergeResult:
    """Merge a run's adapter into `folder`, which must not exist, and return what came of the check.

    Where the result lies on a host, it is merged there, and the folder is one of that host. `on_step` is told each
    step. TuiTrainError where it cannot be done; then nothing is left.
    """
    run_result = read_result(run)
    host = host_of_result(run, options.host, options.python)
    base, revision = (options.base_model, "") if options.base_model else (run_result.base, run_result.revision)
    request: dict[str, object] = {"base": base, "revision": revision, "trusted": options.trusts_model_code}
    with ExitStack() as held:
        if host:
            target = into = require_path_on_host(folder, host)
            request |= {"candidates": result_folder_candidates(run), "keeps_base": bool(options.base_model)}
        else:
            adapter, path = require_loadable_weights(run_result), require_new_folder(folder)
            _refuse_unmergeable(adapter, base)
            held.enter_context(raising_cannot_write(path))
            target, into = str(path), ""
            request |= {"folder": adapter.path, "into": str(held.enter_context(new_folder(path)))}
        child = ResultChild(training_python(run, options.python, host), "merge_child.py", request, into=into)
        held.callback(child.close)
        merged = _wait_for_merge(child, target, on_step, cancelled)
        child.wait_for_end(_MAX_MERGE_SILENCE_SECONDS)
    note = "The training used the base in 4 or 8 bits; merged into its full weights." if run_result.quantized else ""
    return structs.replace(merged, note=note, host=host)


def _refuse_unmergeable(adapter: Weights, base: str) -> None:
    if adapter.kind != "adapter":
        raise BadInput(f"{visible(adapter.path)} is a full model: there is nothing to merge", "Use the model as it is.")
    if not base:
        raise BadInput("the adapter does not name its base model", "Name its base model: --base FOLDER")


def _wait_for_merge(
    child: ResultChild,
    target_folder: str,
    on_step: Callable[[str, str], None],
    cancelled: Callable[[], bool],
) -> MergeResult:
    """Return what a child measured; Unavailable where the merged model answers otherwise than the adapter."""
    while (message := child.read_message(_MAX_MERGE_SILENCE_SECONDS, cancelled))["event"] != "done":
        if message["event"] == "found":
            continue
        on_step(visible(str(message.get("what"))), visible(str(message.get("of"))))
    try:
        difference, tolerance, change = (float(message[name]) for name in ("difference", "tolerance", "change"))
    except (KeyError, TypeError, ValueError) as error:
        raise _answers_differ_error("no difference was measured") from error
    merged = MergeResult(target_folder, visible(str(message.get("dtype"))), difference, tolerance, change)
    if not merged.difference <= merged.tolerance:
        raise _answers_differ_error(f"a logit differs by {merged.difference:.2%}, more than {merged.tolerance:.2%}")
    return merged


def _answers_differ_error(why: str) -> TuiTrainError:
    message = f"the merged model does not answer as the adapter does: {why}"
    return Unavailable(message, "Serve the adapter beside its base model instead.")
