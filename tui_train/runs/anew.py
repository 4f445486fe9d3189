"""Whether an attempt that was given a checkpoint went on from it: what the beginning of its log tells."""

import re
from pathlib import Path

from tui_train.files import read_start
from tui_train.runs.lines import fold
from tui_train.runs.progress import Progress, Reading, advance

# The first step comes after a training's own preparations, and before much else is written.
HEAD = 256 << 10
# A bar with a label before its percentage is of something else: of loading, tokenizing, skipping.
_LABELLED = re.compile(r"[^\W\d_][^%|]*:\s+\d{1,3}%\|")


def first_step(log: Path, reading: Reading) -> int:
    """Return the first step that a log's beginning tells, 0 where it tells none."""
    try:
        pieces = read_start(log, HEAD).replace(b"\r", b"\n").split(b"\n")
    except OSError:
        return 0
    for piece in pieces[:-1]:
        lines = [line for line in fold(piece) if not _other(line)]
        now = advance(Progress(), lines, reading)
        # A bar of another length is of something else.
        if now.step and (not reading.steps or now.steps == reading.steps):
            return now.step
    return 0


def _other(line: str) -> bool:
    return line.startswith("start |") or "esum" in line or bool(_LABELLED.search(line))


def sentence(first: int, resumed: int) -> str:
    """Return in words that a training which was given the checkpoint of a step began before it; empty where not."""
    if not 0 < first < resumed:
        return ""
    return f"it was given the checkpoint of step {resumed} and began at step {first}: the script does not load it"
