"""The step that a line of a log reports, in the words of most trainers."""

from __future__ import annotations

import re

# The words of most trainers: `step 1/60 | loss 5.5`, `iteration 10/ 100 | … | lm loss: 1.2E+01`, `steps: 10 loss: 2.3`.
_STEP = re.compile(
    r"(?<![\w/-])(?:global[_ ])?(?:step|iter|iteration)s?[ :=\[]{1,12}(\d+)\b(?:\s*(?:/|of)\s*(\d+))?", re.IGNORECASE
)
# NeMo counts from 0, and its second number is that of an epoch's last step; AutoModel counts from 0 as well.
_NEMO = re.compile(r"epoch \d+, iteration (\d+)/(\d+) \|.*?\bglobal_step: (\d+)")
_AUTOMODEL = re.compile(r"\bstep (\d+) \| epoch \d+ \|")
# A number of more digits is no count of steps.
MOST_DIGITS = 15


def step_of(line: str) -> tuple[int, int, bool] | None:
    """Return the step that a line tells, the number of steps (0: not told), and whether that is known only by now."""
    return _nemo(line) or _automodel(line) or _usual(line)


def _nemo(line: str) -> tuple[int, int, bool] | None:
    """Return what NeMo tells: the step, counted from 1, and how many there are as far as is known by now."""
    match = _NEMO.search(line)
    numbers = [count(text) for text in match.groups()] if match else []
    if not numbers or None in numbers:
        return None
    iteration, last, step = (number or 0 for number in numbers)
    return step + 1, step - iteration + last + 1, True


def _automodel(line: str) -> tuple[int, int, bool] | None:
    match = _AUTOMODEL.search(line)
    step = count(match[1]) if match else None
    return None if step is None else (step + 1, 0, False)


def _usual(line: str) -> tuple[int, int, bool] | None:
    match = _STEP.search(line)
    step = count(match[1]) if match else None
    return None if match is None or step is None else (step, count(match[2] or "0") or 0, False)


def count(text: str) -> int | None:
    """Return a number of steps, None for what has too many digits for one."""
    digits = text.lstrip("0") or "0"
    return int(digits) if len(digits) <= MOST_DIGITS else None
