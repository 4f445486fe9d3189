"""Diagnosis of failed trainings: `diagnose_log` and `diagnose_run` read the disk, `root_cause.diagnose` is pure."""

from tui_train.diagnose.log_reader import LargeLogStopper, LogReadObserver, StopReading
from tui_train.diagnose.root_cause import diagnose
from tui_train.diagnose.run_diagnosis import diagnose_log, diagnose_run
from tui_train.diagnose.types import Diagnosis, Evidence

__all__ = [
    "Diagnosis",
    "Evidence",
    "LargeLogStopper",
    "LogReadObserver",
    "StopReading",
    "diagnose",
    "diagnose_log",
    "diagnose_run",
]
