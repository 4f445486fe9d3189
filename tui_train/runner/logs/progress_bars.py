"""Progress bars in a log: of tqdm, Keras, Lightning, torchtune and ultralytics."""

from __future__ import annotations

import re
from typing import NamedTuple

from .losses import text_after_evaluation_word
from .step_lines import LoggedPosition, parse_count, parse_logged_position

# A bar with a caption is only read where that is about steps: others are of data that is mapped, weights that load.
_TQDM_PATTERN = re.compile(
    r"^(?P<caption>[\[( ]{0,4}(?:epoch|train|step|iter)[^|]{0,100}[:\])]|\s*\d+/\d+ +[\d.]+[GM]B? [^|]{0,200}:)?"
    r"\s*\d+%\|.*?\b(?P<step>\d+)/(?P<steps>\d+) \[(?:\d+:)?\d+:\d+<",
    re.IGNORECASE,
)
# `10/938 [====>....] - ETA: 5s - loss: 2.1`, `10/938 ━━━━ 2s 3ms/step - loss: 2.1`, `938/938 - 3s - loss: 2.1`.
_KERAS_PATTERN = re.compile(r"^\s*(?P<step>\d+)/(?P<steps>\d+) (?:\[[=>.]{5}|[━╸╺─]{3}|- \d+m?s )")
# `Epoch 0/4 ━━━━ 4/10 0:00:01 • 0:00:02 9.9it/s`, whose second number is that of the last epoch.
_LIGHTNING_PATTERN = re.compile(
    r"^\s*Epoch (?P<epoch>\d+)(?:/(?P<last>\d+))? +[━╸╺─][━╸╺─ ]* (?P<step>\d+)/(?P<steps>\d+) \d+:\d"
)
_ULTRALYTICS_PATTERN = re.compile(
    r"^\s*(?P<caption>\d+/\d+) +[\d.]+[GM]B? [^|━]{0,200}: *\d+% [━╸╺─]+ *(?P<step>\d+)/(?P<steps>\d+)"
)
_TORCHTUNE_PATTERN = re.compile(r"^(?P<epoch>\d+)\|(?P<step>\d+)\|(?=Loss: )")
_EPOCH_PAIR_PATTERN = re.compile(r"\s*(\d+)/(\d+)")


class TrainingBar(NamedTuple):
    """A progress bar: the position of its training, None for an evaluation's; and its end, where losses follow."""

    position: LoggedPosition | None
    end: int


def parse_training_bar(line: str) -> TrainingBar | None:
    """Return the progress bar that a line is, of a training or of an evaluation of it."""
    if "%|" in line:
        if line.find("|Loss: ") > 0 and (match := _TORCHTUNE_PATTERN.match(line)):
            return _bar_if_it_has_step(match, LoggedPosition(parse_count(match["step"]), counts_across_epochs=True))
        match = _TQDM_PATTERN.match(line)
        if match and match["caption"] and text_after_evaluation_word(match["caption"]) is not None:
            return TrainingBar(None, match.end())
    elif "━" in line:
        match = _LIGHTNING_PATTERN.match(line) or _ULTRALYTICS_PATTERN.match(line) or _KERAS_PATTERN.match(line)
    else:
        match = _KERAS_PATTERN.match(line) if "/" in line[:24] else None
    return _bar_if_it_has_step(match, _bar_position(match)) if match else None


def _bar_if_it_has_step(match: re.Match[str], position: LoggedPosition | None) -> TrainingBar | None:
    return TrainingBar(position, match.end()) if position and position.step is not None else None


def _bar_position(match: re.Match[str]) -> LoggedPosition | None:
    """Return the position of a bar, None where a number is too long for a count."""
    groups = {name: text for name, text in match.groupdict().items() if text}
    step, steps = parse_count(groups["step"]), parse_count(groups["steps"])
    if step is None or steps is None:
        return None
    if "epoch" in groups:
        # Lightning's epochs count from 0, and where no terminal is it writes the last one only.
        epoch, last = parse_count(groups["epoch"]), parse_count(groups["last"]) if "last" in groups else None
        return LoggedPosition(
            step, steps, None if epoch is None else epoch + 1, 0 if last is None else last + 1, may_be_batch=True
        )
    caption = groups.get("caption", "")
    epochs = _EPOCH_PAIR_PATTERN.match(caption)
    if epochs:
        return LoggedPosition(step, steps, parse_count(epochs[1]), parse_count(epochs[2]) or 0, may_be_batch=True)
    at = parse_logged_position(caption) if "poch" in caption else None
    if at and at.epoch is not None:
        return LoggedPosition(step, steps, at.epoch, at.epochs, may_be_batch=True)
    return LoggedPosition(step, steps, may_be_batch=match.re is _KERAS_PATTERN)
