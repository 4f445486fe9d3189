"""Facts from the beginning of an attempt's log: its first step, and whether its processes found each other."""

from __future__ import annotations

import re

from ..system import safe_open
from .lines import lines_left_on_terminal
from .progress import LogReadingOptions, Progress, advance_progress

# The first step comes after a training's own preparations, and before much else is written.
LOG_HEAD_BYTES = 256 << 10
# A bar with a label before its percentage is of something else: of loading, tokenizing, skipping.
_LABELLED_BAR_PATTERN = re.compile(r"[^\W\d_][^%|]*:\s+\d{1,3}%\|")
# Every rank says where it computes before the first step.
_RANK_LINES_HEAD_BYTES = 4_000_000
_RANK_IN_GROUP_PATTERN = re.compile(rb"rank \d+/(?:[2-9]|[1-9]\d+) \| host ")
_RANK_ALONE_PATTERN = re.compile(rb"rank 0/1 \| host ")


def first_logged_step(log: str, reading: LogReadingOptions) -> int:
    """Return the first step that a log's beginning tells, 0 where it tells none."""
    try:
        head = safe_open.read_bounded(log, LOG_HEAD_BYTES)
    except OSError:
        return 0
    for piece in head.replace(b"\0", b"").replace(b"\r", b"\n").split(b"\n")[:-1]:
        lines = [line for line in lines_left_on_terminal(piece) if not _is_resume_line_or_labelled_bar(line)]
        now = advance_progress(Progress(), lines, reading)
        # A bar of another length is of something else, and a step within an epoch is none.
        if now.step and not now.may_be_batch and (not reading.steps or now.steps == reading.steps):
            return now.step
    return 0


def first_step_if_checkpoint_ignored(log: str, resumed_step: int, reading: LogReadingOptions) -> int:
    """Return the first step that a log tells where that is before the step of the given checkpoint, else 0."""
    first = first_logged_step(log, reading) if resumed_step > 0 else 0
    return first if first < resumed_step else 0


def ignored_checkpoint_sentence(first_step: int, resumed_step: int) -> str:
    """Return in words that a training which was given the checkpoint of a step began before it; empty where not."""
    if not 0 < first_step < resumed_step:
        return ""
    began = f"it was given the checkpoint of step {resumed_step} and began at step {first_step}"
    return f"{began}: the script does not load it"


def has_each_process_trained_alone(log: str, world_size: int) -> bool:
    """Tell whether several processes were to train together, and each says in its log that it is alone."""
    if world_size < 2:
        return False
    try:
        head = safe_open.read_bounded(log, _RANK_LINES_HEAD_BYTES).replace(b"\0", b"")
    except OSError:
        return False
    return _RANK_IN_GROUP_PATTERN.search(head) is None and _RANK_ALONE_PATTERN.search(head) is not None


def _is_resume_line_or_labelled_bar(line: str) -> bool:
    return "esum" in line or bool(_LABELLED_BAR_PATTERN.search(line))
