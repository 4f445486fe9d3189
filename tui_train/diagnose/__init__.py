"""Diagnosis of failed trainings: `of_log` and `of_run` read the disk, `root.diagnose` is pure."""

from tui_train.diagnose.evidence import of_log, of_run
from tui_train.diagnose.reader import EndOnly, Enough, Watch
from tui_train.diagnose.root import diagnose
from tui_train.diagnose.types import Diagnosis, Evidence

__all__ = ["Diagnosis", "EndOnly", "Enough", "Evidence", "Watch", "diagnose", "of_log", "of_run"]
