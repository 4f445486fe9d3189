"""Losses of evaluations, as trainers print them: apart from the loss of the training, and at which step."""

from __future__ import annotations

import re
from typing import Mapping, NamedTuple

NUMBER = r"[-+]?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)"
IS = r"[ :=\[]{1,4}"
_NAMES = r"(?:val|valid|validation|eval|evaluation|dev)"
# `val_loss: 2.1`, `val loss 2.1`, `eval/loss=2.1`: beside the loss of the training, or alone.
_NAMED = re.compile(rf"(?<![\w/-]){_NAMES}[ _/](?:(?:epoch|step)_)?loss{IS}({NUMBER})(?![\d.e])", re.IGNORECASE)
# A whole line about an evaluation: `[val] step 9 | epoch 0 | loss 2.1`, `eval | step 9 | loss 2.1`.
_LINE = re.compile(
    rf"(?:\[{_NAMES}\]|(?:^|\| ){_NAMES} ?[|:]).{{0,200}}?(?<![\w/-])loss{IS}({NUMBER})(?![\d.e])", re.IGNORECASE
)
_MEGATRON = re.compile(
    rf"\bvalidation loss at iteration (\d{{1,15}})(?: on validation set)? \|.{{0,80}}?loss value: ({NUMBER})",
    re.IGNORECASE,
)
_HF = re.compile(r"eval_(?:\w+_)?loss")


class Evaluation(NamedTuple):
    """The loss that a line reports, as text; `step` is what only it says, 0 where it says none.

    `alone`: the line is about nothing else. Others repeat the newest evaluation with every step.
    """

    loss: str
    alone: bool
    step: int = 0


def in_line(line: str) -> Evaluation | None:
    """Return the evaluation that a line reports, None where it reports none."""
    if "oss" not in line or ("val" not in line.lower() and "dev" not in line.lower()):
        return None
    if match := _MEGATRON.search(line):
        return Evaluation(match[2], alone=True, step=int(match[1]))
    if match := _LINE.search(line):
        return Evaluation(match[1], alone=True)
    if match := _NAMED.search(line):
        return Evaluation(match[1], alone=False)
    return None


def in_values(values: Mapping[str, float]) -> float | None:
    """Return the loss of the evaluation among the values that HF Trainer prints; of several data sets the first."""
    return values.get("eval_loss", next((value for name, value in values.items() if _HF.fullmatch(name)), None))
