"""A line of a log as it is easiest to read: a dictionary of values in columns, noise dimmed."""

import math
import re
from collections.abc import Iterator, Sequence

from tui_train.base.text import visible
from tui_train.runner.logs.lines import StyledPart

_DIM_STYLE = "2"
_MIN_VALUE_CELLS = 9  # 1.234e-05
_MAX_WHOLE_NUMBER = 1e15
_MAX_WHOLE_CAUSE_CHARACTERS = 200  # of a longer one only the beginning is known
_MIN_CAUSE_CHARACTERS = 8  # fewer are found in other lines as well
_MAX_READ_CHARACTERS = 2000  # of a longer line the expressions would take long
_LINE_OF_VALUES_PATTERN = re.compile(r"""(?P<before>(?:\[\w{1,12}\]: ?)?)\{(?P<values>(?:["'][^"'{}]{1,60}["']: ?"""
                             r"""(?:["'][^"'{}]{0,40}["']|[^\s,"'{}\[\]]{1,40})(?:, ?|\}$))+)""")  # fmt: skip
_NAME_AND_VALUE_PATTERN = re.compile(
    r"""["'](?P<name>[^"']+)["']: ?(?:["'](?P<quoted>[^"'{}]*)["']|(?P<bare>[^\s,"'{}\[\]]+))"""
)
# It may be what ended the training.
_ERROR_NAME_PATTERN = re.compile(r"\b\w*(?:Error|Exception)\b")
# What says how far the training is, which is read first, and what one trains for.
_PROGRESS_VALUE_NAMES = ("epoch", "step", "global_step", "iter", "iteration")
# They are about the library's own code or say what it does by itself: nothing of the training changes with them.
_NOISE_PATTERN = re.compile(
    r"\b(?:Future|Deprecation|PendingDeprecation|Syntax)Warning: |^\s+warnings\.warn\("
    r"|\bis deprecated\b"
    r"|Setting OMP_NUM_THREADS environment variable|tokenizers: The current process just got forked"
    r"|TOKENIZERS_PARALLELISM="
    r"|oneDNN custom operations are on|Redirects are currently not supported|TF-TRT Warning"
    r"|The hostname of the client socket cannot be retrieved"
    r"|`use_cache=True` is incompatible with gradient checkpointing"
    r"|The tokenizer has new PAD/BOS/EOS tokens|unauthenticated requests to the HF Hub"
    r"|Unable to register cu(?:FFT|DNN|BLAS) factory"
    r"|Failed to load (?:[\w `./-]{1,80}\b)?kernels?\b"
)


def readable_line_parts(parts: Sequence[StyledPart]) -> tuple[StyledPart, ...]:
    """Return the parts of a line, which say the same, in another form and colour where that reads better."""
    text = "".join(part.text for part in parts)
    if not text or len(text) > _MAX_READ_CHARACTERS:
        return tuple(parts)
    if (match := _LINE_OF_VALUES_PATTERN.fullmatch(text.strip())) and _has_number_value(match["values"]):
        return tuple(_name_and_value_parts(match["before"], match["values"]))
    is_noise = _NOISE_PATTERN.search(text) and not _ERROR_NAME_PATTERN.search(text)
    return (StyledPart(text, _DIM_STYLE),) if is_noise else tuple(parts)


def line_shows_cause(parts: Sequence[StyledPart], cause: str) -> bool:
    """Return whether a line holds the one that shows why the run failed, which is empty for none."""
    text = visible("".join(part.text for part in parts)).rstrip()
    is_there = cause in text if len(cause) >= _MAX_WHOLE_CAUSE_CHARACTERS else text.endswith(cause)
    return len(cause) >= _MIN_CAUSE_CHARACTERS and is_there


def _has_number_value(values: str) -> bool:
    return any(_column_number_text(value) is not None for _, value in _names_and_values(values))


def _names_and_values(values: str) -> list[tuple[str, str]]:
    found = _NAME_AND_VALUE_PATTERN.finditer(values)
    return [(match["name"], (match["quoted"] or match["bare"] or "").strip()) for match in found]


def _name_and_value_parts(before: str, values: str) -> Iterator[StyledPart]:
    """Yield names and values, so wide that the values of equal names stand below each other."""
    if before:
        yield StyledPart(f"{before.rstrip()} ", _DIM_STYLE)
    pairs = sorted(_names_and_values(values), key=lambda pair: _log_value_rank(pair[0]))
    for number, (name, value) in enumerate(pairs, start=1):
        shown = _column_number_text(value) or value
        yield StyledPart(f"{name} ", _DIM_STYLE)
        # Spaces at the end would make another row where lines are wrapped.
        yield StyledPart(f"{shown:<{_MIN_VALUE_CELLS}}  " if number < len(pairs) else shown)


def _log_value_rank(name: str) -> int:
    is_trained_for = name.rpartition("/")[2].endswith("loss") or name in {"reward", "reward_std"}
    return 0 if name in _PROGRESS_VALUE_NAMES else 1 if is_trained_for else 2


def _column_number_text(value: str) -> str | None:
    """Return a number that fits into a column, a longer one with four digits; None for what is no number."""
    try:
        number = float(value)
    except ValueError:
        return None
    if len(value) <= _MIN_VALUE_CELLS or not math.isfinite(number):
        return value
    return f"{number:.0f}" if number.is_integer() and abs(number) < _MAX_WHOLE_NUMBER else f"{number:.4g}"
