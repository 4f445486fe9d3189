"""Steps and endings in the lines of any trainer: what shows that a training went on after something frightening."""

import itertools
import re
from collections.abc import Iterator, Sequence

from tui_train.diagnose.types import LogLine

_LOSS_VALUE_PATTERN = r"[\"']?(?:=|:|\s)\s*[\"']?(?P<loss>nan|-?inf|-?\d[\d.]*(?:[eE][-+]?\d+)?)\b"
_LOSS_PATTERN = re.compile(
    rf"(?i)(?<![\w])(?:lm |train_|train |training |reduced_train_|total_)?loss{_LOSS_VALUE_PATTERN}"
)
_STEP_PATTERN = re.compile(
    # In the plural it is how many there are (`accumulation steps: 4`), unless it is one of them or has a loss:
    # `steps: 4/100`, and DeepSpeed's `steps: 10 loss: 0.8`.
    r"(?i)\b(?:global_?)?(?:step|iteration|iter)(?:\b|s\b(?=\W{1,3}\d{1,12}(?: ?/|[ ,|]{1,3}(?:\w{1,10}[ _])?loss\b)))"
    r"[\"']?\W{1,3}(?P<step>\d{1,12})\b"
    r"|\|\s*(?P<bar>\d{1,12})/\d+ \["
)
# An exception may name a number of steps as well; `top1 Error 30.2` is a metric.
_EXCEPTION_LINE_PATTERN = re.compile(r"\W{0,3}[\w.]{0,100}(?:Error|Exception): ")
# Bars of datasets and of downloads, which count rows, files and bytes.
_PREPARATION_BAR_PATTERN = re.compile(
    r"\s*(?:Map|Filter|Flatten|Generating|Tokeniz|Adding|Applying|Packing|Truncat|Convert|Extract|Download|Loading"
    r"|Fetching|Saving|Creating|Writing|Casting|Resolving|Running tokenizer|Grouping)"
)
_NAN_GRADIENT_PATTERN = re.compile(r"(?i)grad[_ ]norm[\"']?\s*[:=]\s*[\"']?nan")
_WORDS_OF_LINES_WITHOUT_STEP = ("eval_", "val_", "validation", "Error", "train_runtime")
_COMPLETION_PATTERN = re.compile(
    r"(?i)'?train_runtime'?|training (done|finished|complete|ended)|finished ok|trainer\.fit.? stopped"
    r"|max_(steps|epochs)=\d+. reached"
    r"|training completed|exiting with code 0|after training is done|^done\.?$"
)


def loss_lines_and_whether_broken(lines: Sequence[LogLine]) -> Iterator[tuple[LogLine, bool]]:
    """Yield the lines that name the loss of a step, and whether its numbers are broken."""
    for line in lines:
        match = _LOSS_PATTERN.search(line.text)
        if match is None or any(word in line.text for word in _WORDS_OF_LINES_WITHOUT_STEP):
            continue
        loss = match["loss"].lower()
        zero = loss.replace(".", "").strip("0") == "" and loss[0] == "0"
        yield line, loss in {"nan", "inf", "-inf"} or (zero and bool(_NAN_GRADIENT_PATTERN.search(line.text)))


def first_line_of_broken_end(lines: Sequence[LogLine]) -> LogLine | None:
    """Return the line from which on every loss is NaN or infinite, None where the last one is a number."""
    points = reversed([*loss_lines_and_whether_broken(lines)])
    return next(reversed([line for line, _ in itertools.takewhile(lambda point: point[1], points)]), None)


def last_completion_line_number(lines: Sequence[LogLine]) -> int:
    """Return the number of the last line that says that a training ended well, 0 where none does."""
    return max((line.number for line in lines if _COMPLETION_PATTERN.search(line.text)), default=0)


def last_step_with_finite_numbers(lines: Sequence[LogLine]) -> int | None:
    """Return the number of the last step whose numbers were whole, None where no line tells one."""
    broken = {line.number for line, bad in loss_lines_and_whether_broken(lines) if bad}
    for line in reversed(lines):
        names_step = line.number not in broken and not _EXCEPTION_LINE_PATTERN.match(line.text)
        match = _STEP_PATTERN.search(line.text) if names_step else None
        if match and not (match["bar"] and _PREPARATION_BAR_PATTERN.match(line.text)):
            return int(match["step"] or match["bar"])
    return None
