"""End of a run's job as Slurm wrote it: a failed node, a time limit, a preemption."""

import re
from pathlib import Path

from tui_train.base.text import visible
from tui_train.runner.safe_open import open_regular
from tui_train.runs.rundir import RunDir

JOB_FILE = "slurm.json"
_TAIL_BYTES = 64 << 10  # bytes at the end of the log
_END_LINE_PATTERN = re.compile(
    rb"^slurmstepd\S*: error: \*\*\* (?:JOB|STEP) \S+ ON (\S+) CANCELLED AT \S+ DUE TO ([A-Z ]+)", re.MULTILINE
)
_ATTEMPT_LINE_PATTERN = re.compile(rb"^\S+ launch\.sh: attempt ", re.MULTILINE)


def slurm_end_reason(run_folder: Path) -> str:
    """Return why Slurm ended the last start of a run's job, and on which node; empty where it did not."""
    if not (run_folder / JOB_FILE).exists():
        return ""
    try:
        with open_regular(RunDir(run_folder).launcher_log) as log:
            log.seek(max(0, log.seek(0, 2) - _TAIL_BYTES))
            text = log.read(_TAIL_BYTES)
    except OSError:
        return ""
    ends, begins = [*_END_LINE_PATTERN.finditer(text)], [*_ATTEMPT_LINE_PATTERN.finditer(text)]
    if not ends or (begins and begins[-1].start() > ends[-1].start()):
        return ""
    node, why = (part.decode("ascii", "replace").strip() for part in ends[-1].groups())
    return visible(f"Slurm ended it on {node}: {why.lower()}")
