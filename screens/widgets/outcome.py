"""What an ended run leaves, and what can be done next."""

from collections.abc import Sequence
from pathlib import Path

from textual.content import Content

from tui_train.base.text import display_path, loss, size, thousands, visible
from tui_train.runs.follow import RunNews
from tui_train.runs.remains import Left, Remains
from tui_train.runs.result import Result
from tui_train.runs.weights import Weights

from .ink import KEY, MUTED, fit, heading, ink
from .run_state import joined

_LABEL = 12


def outcome(
    told: RunNews, left: Remains | None, made: Result | None, keys: Sequence[tuple[str, str]], width: int
) -> list[Content]:
    """Return a title and some lines: what the run `made` and left, and the `keys` of what can be done next."""
    lines = [heading("Outcome", "", width)]
    if numbers := _numbers(told):
        lines.append(_row("Loss", joined(numbers, width - _LABEL), width))
    weights = made.weights if made else None
    final = bool(made and weights and made.source != "checkpoint")
    if left and made and weights and final:
        when = f", {made.origin}" if made.source == "stopped" else ""
        folder = str(Path(left.fetched).parent) if left.fetched else left.folder
        lines.append(_row(weights.kind.capitalize(), _weights(weights, when, folder), width))
    if left and left.checkpoint:
        lines.append(_row("Checkpoint", _path(left.checkpoint, left.folder, left.host), width))
    elif left and left.host and not left.fetched:
        taken = "" if left.fetching is None else f", {size(left.fetching)} fetched …"
        words = ink((_short(left.output, left.folder), "b"), (f"   on {visible(left.host)}{taken}", MUTED))
        lines.append(_row("Saved", words, width))
    elif left and left.fetched and not final:
        lines.append(_row("Fetched", ink((display_path(left.fetched), "b")), width))
    elif left and not final and left.output:
        lines.append(_row("Saved", ink(("no complete checkpoint in ", MUTED), _short(left.output, left.folder)), width))
    words = Content("   ").join([ink((key, KEY), f" {word}") for key, word in keys])
    lines += [_row("Next", words, width)] if keys else []
    # Last, as what has no room is cut there.
    return [*lines, _row("Retries", ink(visible(told.status.why)), width)] if told.status.why else lines


def _numbers(told: RunNews) -> list[Content]:
    progress = told.progress
    if not progress.first or not progress.last:
        return []
    found = [ink((loss(progress.last.loss), "b"), (f" last, {loss(progress.first.loss)} first", MUTED))]
    if best := progress.best:
        found.append(ink(("eval ", MUTED), (loss(best.loss), "b"), (f" best, step {thousands(best.step)}", MUTED)))
    if progress.tokens_per_second:
        found.append(ink((thousands(progress.tokens_per_second), "b"), (" tokens/s last", MUTED)))
    return found


def _path(left: Left, folder: str, host: str) -> Content:
    step = f"step {thousands(left.step)}" if left.step else ""
    words = ", ".join(filter(None, (step, size(left.size) if left.size else "", f"on {visible(host)}" if host else "")))
    return ink((_short(left.path, folder), "b"), (f"   {words}", MUTED))


def _weights(weights: Weights, when: str, folder: str) -> Content:
    broken = ", cannot be loaded" if weights.problem else ""
    return ink((_short(weights.path, folder), "b"), (f"   {size(weights.size)}{when}{broken}", MUTED))


def _short(path: str, folder: str) -> str:
    """Return a path, one in the run folder from there on."""
    return visible(path[len(folder) + 1 :]) if path.startswith(f"{folder}/") else display_path(path)


def _row(label: str, words: Content, width: int) -> Content:
    return fit(ink((f"{label:<{_LABEL}}", MUTED), words), width)
