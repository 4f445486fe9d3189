"""Position of a training in a line of its log: epoch and step, in the words of most trainers and scripts."""

from __future__ import annotations

import re
from typing import NamedTuple

# A number of more digits is no count of steps.
MAX_COUNT_DIGITS = 15

# Python's `{step:,}` writes 12,500.
_COUNT_PATTERN = r"(\d{1,3}(?:,\d{3})+(?![\d,])|\d+)"
_TOTAL_PATTERN = rf"(?:\s*(?:/|of)\s*{_COUNT_PATTERN})?"
# What follows a name: `: 7`, `[100/600]`, ` 10/ 100`.
_VALUE_PATTERN = rf"[ :=#\[]{{1,12}}{_COUNT_PATTERN}\b(?![.:]\d){_TOTAL_PATTERN}"
# `step 1/60 | loss 5.5`, `Step [100/600]`, `iteration 10/ 100 |`, `it: 7`.
_STEP_PATTERN = re.compile(
    r"(?<![\w/-])(?<!max )(?<!total )(?<!warmup )(?:(?:global|train|training|optimizer)[_ ])?"
    rf"(?:steps?|iters?|iterations?|updates?|it)(?:\(train\))?{_VALUE_PATTERN}",
    re.IGNORECASE,
)
# Those count across epochs, whatever else a line counts.
_OVERALL_STEP_PATTERN = re.compile(
    rf"(?<![\w/-])(?:global[_ ]step|num_updates)[ :=]{{1,12}}{_COUNT_PATTERN}\b(?![.:]\d)", re.IGNORECASE
)
_BATCH_PATTERN = re.compile(rf"(?<![\w/-])(?:mini-?)?batch(?:es|_idx|_id)?{_VALUE_PATTERN}", re.IGNORECASE)
_EPOCH_PATTERN = re.compile(rf"(?<![\w/-])(?:epochs?|ep)(?:\(train\))?{_VALUE_PATTERN}", re.IGNORECASE)
# `[65/200]`, `(65/200)`, `[ 640/60000 (1%)]`; DCGAN's `[0/5][7/1583]` are epoch and batch.
_BRACKETED_PAIR_PATTERN = re.compile(r"[\[(]\s*(\d+)\s*/\s*(\d+)(?:\s*\(\s*\d+(?:\.\d+)?%\))?\s*[\])]")
# `65/200 loss 0.1` at the beginning, `epoch 001:    100 / 1000 loss=8.2`; no date, and no time behind it. At the end,
# `(640/1280)  10/391`: a script may have gone back there by backspaces.
_BARE_PAIR_PATTERN = re.compile(
    r"(?:^|\bepoch:? \d{1,9}[:,] |\)(?: |\\x08){1,400}(?=\d+/\d+\s*$))\s*(\d+)\s*/\s*(\d+)(?![\d/.]|\s+\d+:\d)",
    re.IGNORECASE,
)
# A pair behind a loss counts steps only right behind it: `loss: 2.303494  [   64/60000]`.
_LOSS_BEFORE_PAIR_PATTERN = re.compile(
    r"loss\w{0,40}[ :=]{1,12}[-+]?(?:\d[\d.,]{0,20}(?:e[-+]?\d{1,4})?|nan|inf)(?: \([\d.e+-]{1,20}\))?[\s,;|]{0,12}",
    re.IGNORECASE,
)
# `acc: 90.1% (9010/10000)`, `GPU mem (10/80)`.
_OTHER_COUNT_LABEL_PATTERN = re.compile(
    r"(?<![a-z])(?:acc|accuracy|correct|mem|memory|gpus?)\w{0,10}[ :=@]{0,4}(?:[\d.]{1,12} ?%?)?[ :,=]{0,4}$",
    re.IGNORECASE,
)
# `[ 10] loss=0.5`, `10 | loss 0.5`, `i=10 loss: 0.5`, also behind a time or a level of a logger: no word names it.
_UNNAMED_STEP_PATTERN = re.compile(
    r"(?:^|\bINFO\b\W{1,3}|\d:\d\d(?:[.,]\d{1,6})?\]? )\s{0,12}(?:[int]\s?[=:]\s?)?[\[(]?\s{0,12}(\d{1,9})"
    r"\s{0,12}[\])]?(?:\s{0,12}[:|,;-])?\s{0,12}"
    r"(?:(?:train|training|batch|avg|average|mean|running) )?(?:\w{1,20}[_/])?loss\b",
    re.IGNORECASE,
)
# `Loss: 0.000418 after 875 batches`.
_AFTER_STEPS_PATTERN = re.compile(r"\bafter (\d{1,12}) (?:batches|steps|iterations|updates)\b", re.IGNORECASE)
# timm's `Train: 0 [  50/1251 (  4%)]`.
_TIMM_EPOCH_PATTERN = re.compile(r"(?<![\w/-])train: (\d+)(?= \[)", re.IGNORECASE)
# NeMo counts from 0, and its second number is that of an epoch's last step; AutoModel counts from 0 as well.
_NEMO_STEP_PATTERN = re.compile(r"epoch \d+, iteration (\d+)/(\d+) \|.*?\bglobal_step: (\d+)")
_AUTOMODEL_STEP_PATTERN = re.compile(r"\bstep (\d+) \| epoch \d+ \|")
# A line of its own before the steps of an epoch: `Epoch 2/5`, `=== Epoch 2 ===`, `Epoch 1` with a rule below it.
_EPOCH_HEADER_PATTERN = re.compile(
    rf"\W{{0,40}}(?:starting |begin )?epoch[ :=#\[]{{1,12}}(\d+){_TOTAL_PATTERN}\W{{0,80}}", re.IGNORECASE
)
_MAX_HEADER_LENGTH = 120


class LoggedPosition(NamedTuple):
    """Position of a training by one line: None and 0 where the line does not say it.

    `is_total_preliminary`: `steps` may still grow. `counts_across_epochs`: the step does so.
    `may_be_batch`: it may count within an epoch, or something else that is not named.
    """

    step: int | None = None
    steps: int = 0
    epoch: int | None = None
    epochs: int = 0
    is_total_preliminary: bool = False
    counts_across_epochs: bool = False
    may_be_batch: bool = False
    is_step_unnamed: bool = False


class StepCounting(NamedTuple):
    """State of a log's step count after the lines so far: its first epoch, and the newest of each number.

    `counts_across_epochs`: its steps do so; `offset` is what earlier epochs without a length add;
    `has_epoch_begun`: a line of its own began another epoch, of which no step is known yet.
    """

    epoch: int | None = None
    epochs: int = 0
    first: int = 1
    step: int = 0
    offset: int = 0
    counts_across_epochs: bool = False
    has_epoch_begun: bool = False


def parse_logged_position(line: str) -> LoggedPosition | None:
    """Return where a line says that its training is, None where it does not."""
    return _nemo_position(line) or _automodel_position(line) or _generic_position(line) or _unnamed_position(line)


def parse_epoch_header(line: str) -> LoggedPosition | None:
    """Return the epoch that begins with a line which says nothing else."""
    match = _EPOCH_HEADER_PATTERN.fullmatch(line) if len(line) <= _MAX_HEADER_LENGTH else None
    return _position_of_matches(None, match) if match else None


def advance_step_count(counting: StepCounting, position: LoggedPosition) -> tuple[StepCounting, int, int]:
    """Return the new count, the step of a position across epochs, and the total steps (0: unknown).

    A position without a step counts epochs.
    """
    epoch = counting.epoch if position.epoch is None else position.epoch
    epochs = position.epochs or counting.epochs
    if epoch is None or position.counts_across_epochs:
        return counting._replace(step=position.step or 0), position.step or 0, position.steps
    first = min(counting.first, epoch)
    later = counting.has_epoch_begun or (counting.epoch is not None and epoch > counting.epoch)
    now = counting._replace(
        epoch=epoch, epochs=epochs, first=first, step=position.step or counting.step, has_epoch_begun=False
    )
    if position.step is None:
        return now._replace(has_epoch_begun=later), epoch - first + 1, epochs
    if position.steps:
        overall = counting.counts_across_epochs or (later and 0 < counting.step < position.step)
        if overall:
            return now._replace(counts_across_epochs=True), position.step, position.steps
        return (
            now._replace(step=position.step),
            (epoch - first) * position.steps + position.step,
            epochs * position.steps,
        )
    offset = counting.offset
    if counting.epoch is not None and epoch < counting.epoch:
        # Resumed in an earlier epoch.
        offset = offset * (epoch - first) // (counting.epoch - first)
    # Where it begins again at 0, the last step of an epoch is one less than their number.
    offset += counting.step + (position.step == 0) if later and position.step < counting.step else 0
    return now._replace(step=position.step, offset=offset), offset + position.step, 0


def parse_count(text: str) -> int | None:
    """Return a number of steps, None for what has too many digits for one."""
    digits = text.replace(",", "").lstrip("0") or "0"
    return int(digits) if len(digits) <= MAX_COUNT_DIGITS else None


def _nemo_position(line: str) -> LoggedPosition | None:
    """Return what NeMo reports: the step, counted from 1, and how many there are as far as is known by now."""
    match = _NEMO_STEP_PATTERN.search(line) if "global_step" in line else None
    numbers = [parse_count(text) for text in match.groups()] if match else []
    if not numbers or None in numbers:
        return None
    iteration, last, step = (number or 0 for number in numbers)
    return LoggedPosition(step + 1, step - iteration + last + 1, is_total_preliminary=True, counts_across_epochs=True)


def _automodel_position(line: str) -> LoggedPosition | None:
    match = _AUTOMODEL_STEP_PATTERN.search(line) if "| epoch" in line else None
    step = parse_count(match[1]) if match else None
    return None if step is None else LoggedPosition(step + 1, counts_across_epochs=True)


def _generic_position(line: str) -> LoggedPosition | None:
    """Return the epoch and the step of a line: a number with its name first, then `[65/200]`, `65/200` at last."""
    names_epoch = "poch" in line or "POCH" in line or line.lstrip(" [(")[:2].lower() == "ep"
    epoch = _EPOCH_PATTERN.search(line) if names_epoch else None
    epoch = epoch or (_TIMM_EPOCH_PATTERN.search(line) if "rain: " in line else None)
    if ("lobal" in line or "num_updates" in line) and (overall := _OVERALL_STEP_PATTERN.search(line)):
        return LoggedPosition(parse_count(overall[1]), epoch=_number_pair(epoch)[0], counts_across_epochs=True)
    step = _STEP_PATTERN.search(line) or (_AFTER_STEPS_PATTERN.search(line) if " after " in line else None)
    if step is None and "/" in line:
        pairs = _bracketed_step_pairs(line, epoch.end() if epoch else 0)[:2]
        if len(pairs) > 1 and epoch is None:
            epoch = pairs.pop(0)
        step = (
            pairs[0]
            if pairs
            else next(filter(_is_number_within_total_above_one, _BARE_PAIR_PATTERN.finditer(line)), None)
        )
    return _position_of_matches(step or _BATCH_PATTERN.search(line), epoch)


def _bracketed_step_pairs(line: str, begin: int) -> list[re.Match[str]]:
    """Return the pairs in brackets that may count steps or epochs, not what is right of how many, or memory."""
    pairs = [
        match for match in _BRACKETED_PAIR_PATTERN.finditer(line, begin) if _is_number_within_total_above_one(match)
    ]
    before = line[: pairs[-1].start()].lower() if pairs else ""
    if "loss" in before:
        losses = [*_LOSS_BEFORE_PAIR_PATTERN.finditer(line)]
        ends = {match.end() for match in losses}
        pairs = [pair for pair in pairs if not losses or pair.start() < losses[0].start() or pair.start() in ends]
    if "acc" in before or "correct" in before or "mem" in before or "gpu" in before:
        pairs = [
            pair
            for pair in pairs
            if not _OTHER_COUNT_LABEL_PATTERN.search(line, max(0, pair.start() - 40), pair.start())
        ]
    return pairs


def _unnamed_position(line: str) -> LoggedPosition | None:
    match = _UNNAMED_STEP_PATTERN.search(line)
    return LoggedPosition(parse_count(match[1]), is_step_unnamed=True) if match else None


def _position_of_matches(step: re.Match[str] | None, epoch: re.Match[str] | None) -> LoggedPosition | None:
    number, steps = _number_pair(step)
    of_epoch, epochs = _number_pair(epoch)
    if number is None and of_epoch is None:
        return None
    may_be_batch = of_epoch is not None or (step is not None and step.re is not _STEP_PATTERN)
    return LoggedPosition(number, steps, of_epoch, epochs, may_be_batch=may_be_batch)


def _number_pair(match: re.Match[str] | None) -> tuple[int | None, int]:
    """Return the two numbers of `3/10`: None and 0 where they are not there, or too long."""
    if match is None or not match[1] or (first := parse_count(match[1])) is None:
        return None, 0
    second = match[2] if match.re.groups > 1 else None
    return first, (parse_count(second) or 0) if second else 0


def _is_number_within_total_above_one(match: re.Match[str]) -> bool:
    done, total = parse_count(match[1]), parse_count(match[2])
    return done is not None and total is not None and done <= total and total > 1
