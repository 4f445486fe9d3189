"""Outcome of an ended run: what it leaves, and what can be done next; of one that waits, what it will do."""

from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len
from textual.content import Content

from tui_train.base.text import display_path, grouped_digits, size_text, visible
from tui_train.runs.follow import RunSnapshot
from tui_train.runs.results.result import RunResult, first_and_last_reward
from tui_train.runs.results.resuming import RunOutput, SavedCheckpoint
from tui_train.runs.results.weights import Weights
from tui_train.views.metric_summaries import metric_value_text

from ..widgets.text_layout import KEY_STYLE, MUTED, fit, fit_path, heading, labelled_lines, styled
from .run_state import join_parts_that_fit, metric_parts

_LABEL_WIDTH = 12
_MIN_PATH_WIDTH = 20


def outcome_lines(
    snapshot: RunSnapshot,
    output: RunOutput | None,
    run_result: RunResult | None,
    keys: Sequence[tuple[str, str]],
    width: int,
) -> list[Content]:
    """Return a title and some lines: what the run made (`run_result`), and the `keys` of what can be done next."""
    lines = [heading("Outcome", "", width)]
    # Where rewards are reported, the loss says nothing of how well it learned.
    rewards = _reward_parts(snapshot)
    if numbers := rewards or (metric_parts(snapshot) if snapshot.progress.first else []):
        label = "Reward" if rewards else "Loss"
        lines.append(_labelled_line(label, join_parts_that_fit(numbers, width - _LABEL_WIDTH), width))
    weights = run_result.weights if run_result else None
    final = bool(run_result and weights and run_result.source != "checkpoint")
    if output and run_result and weights and final:
        when = f", {run_result.weights_origin_text}" if run_result.source == "stopped" else ""
        when += ", in the run folder" if weights.path.startswith(f"{output.folder}/") else ""
        folder = str(Path(output.fetched).parent) if output.fetched else output.folder
        note = _weights_note(weights, when)
        lines.append(_path_line(weights.kind.capitalize(), _short_path(weights.path, folder), note, width))
    if output and output.checkpoint:
        path, note = output.checkpoint.path, _checkpoint_note(output.checkpoint, output.host)
        lines.append(_path_line("Checkpoint", _short_path(path, output.folder), note, width))
    elif output and output.host and not output.fetched:
        taken = "" if output.fetching is None else f", {size_text(output.fetching)} fetched …"
        note = f"   on {visible(output.host)}{taken}"
        lines.append(_path_line("Saved", _short_path(output.output, output.folder), note, width))
    elif output and output.fetched and not final:
        lines.append(_path_line("Fetched", display_path(output.fetched), "", width))
    elif output and run_result and (left := run_result.saved or run_result.written):
        first, *others = left
        more = f"   and {len(others)} more" if others else ""
        lines.append(_path_line("Saved", _short_path(first, output.folder), more, width))
    elif output and not final and output.output:
        folder = _short_path(output.output, output.folder)
        lacking = f"{output.awaited} in {folder}" if output.awaited else "model by save_pretrained, no new weights"
        saved = styled("nothing: ", (f"no {lacking}", MUTED))
        lines.append(_labelled_line("Saved", saved, width))
    words = Content("   ").join([styled((key, KEY_STYLE), f" {word}") for key, word in keys])
    lines += [_labelled_line("Next", words, width)] if keys else []
    # Last, as what has no room is cut there.
    return (
        [*lines, _labelled_line("Retries", styled(visible(snapshot.status.why)), width)]
        if snapshot.status.why
        else lines
    )


def outline_lines(texts: Sequence[tuple[str, str]], width: int) -> list[Content]:
    """Return a title and what a waiting run will do, each a label and words."""
    lines = [heading("Plan", "what it does once it starts", width)]
    for label, words in texts:
        lines += labelled_lines(label, words, width, _LABEL_WIDTH)
    return lines


def _reward_parts(snapshot: RunSnapshot) -> list[Content]:
    """Return the mean reward of the last and the first step that told one; nothing where none did."""
    first, last = first_and_last_reward(snapshot.progress)
    words = (f" last, {metric_value_text(first)} first", MUTED)
    return [] if last is None else [styled((metric_value_text(last), "b"), words)]


def _checkpoint_note(checkpoint: SavedCheckpoint, host: str) -> str:
    step = f"step {grouped_digits(checkpoint.step)}" if checkpoint.step else ""
    size, place = size_text(checkpoint.size) if checkpoint.size else "", f"on {visible(host)}" if host else ""
    return f"   {', '.join(filter(None, (step, size, place)))}"


def _weights_note(weights: Weights, written_at_text: str) -> str:
    return f"   {size_text(weights.size)}{written_at_text}{', cannot be loaded' if weights.problem else ''}"


def _short_path(path: str, run_folder: str) -> str:
    """Return a path, one in the run folder from there on."""
    return visible(path[len(run_folder) + 1 :]) if path.startswith(f"{run_folder}/") else display_path(path)


def _path_line(label: str, path: str, note: str, width: int) -> Content:
    """Return a path with its note; one that is too long keeps its end, which says more than its beginning."""
    room = max(_MIN_PATH_WIDTH, width - _LABEL_WIDTH - cell_len(note))
    return _labelled_line(label, styled((fit_path(path, room), "b"), (note, MUTED)), width)


def _labelled_line(label: str, words: Content, width: int) -> Content:
    return fit(styled((f"{label:<{_LABEL_WIDTH}}", MUTED), words), width)
