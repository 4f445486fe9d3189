"""The end of a run: why it failed, what it leaves, and what can be done with that."""

import time
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.text import size_text
from tui_train.diagnose import Diagnosis, LogReadObserver, StopReading, diagnose_run
from tui_train.diagnose.repeated_failure import why_not_restartable
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.predict import predict_memory
from tui_train.profile import store
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.runs.results.result import RunResult, read_result
from tui_train.runs.results.resuming import RunOutput, find_run_output
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

PROGRESS_INTERVAL_SECONDS = 0.5  # seconds between progress updates


class RunEnd(Struct, frozen=True, kw_only=True):
    """Findings on an ended run."""

    diagnosis: Diagnosis | None = None  # why it failed
    profile: Profile | None = None  # in which a change is tried
    output: RunOutput | None = None  # what it leaves
    memory_fit_text: str = ""  # the memory that the change would take, in words
    run_result: RunResult | None = None  # the adapter or model to use
    why_not_resumable: str = ""  # empty where it can be resumed

    @property
    def profile_and_change(self) -> tuple[Profile, Change] | None:
        """The change that may help, and the profile that it changes."""
        change = self.diagnosis.change if self.diagnosis else None
        return (self.profile, change) if self.profile and change else None

    @property
    def can_fetch(self) -> bool:
        """True where the results are on a host only."""
        left = self.output
        return left is not None and left.host != "" and not left.fetched and left.fetching is None

    @property
    def is_fetching(self) -> bool:
        """True while the results are fetched from a host."""
        return self.output is not None and self.output.fetching is not None

    @property
    def has_result(self) -> bool:
        """True where there is an adapter, a model or another file to see."""
        return self.run_result is not None and self.run_result.main_path != ""


RUN_NOT_ENDED = RunEnd(why_not_resumable="still runs")


class LogReadReporter(LogReadObserver):
    """Reports how a run's large log is read, until nobody waits for it."""

    def __init__(self, report: Callable[[Diagnosis | None, str], object], is_cancelled: Callable[[], bool]) -> None:
        """Report the explanation by the end of the log, and in words how much of it was read."""
        self._report, self._is_cancelled = report, is_cancelled
        self._end_diagnosis: Diagnosis | None = None
        self._next = time.monotonic() + 1.0

    def note_early_diagnosis(self, diagnosis: Diagnosis | None) -> None:
        """Show it at once; what F2 would change follows with the whole."""
        self._end_diagnosis = replace(diagnosis, change=None) if diagnosis else None
        self._report(self._end_diagnosis, "reading the rest of its log")

    def note_bytes_read(self, read_bytes: int, total_bytes: int) -> None:
        """Show it now and then."""
        if self._is_cancelled():
            raise StopReading
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + PROGRESS_INTERVAL_SECONDS
            words = f"reading the rest of its log: {100 * read_bytes // total_bytes} % of {size_text(total_bytes)}"
            self._report(self._end_diagnosis, words)


def explain_run_end(
    run: RunFolder, plan_position: int, facts: Facts | None, observer: LogReadObserver | None = None
) -> RunEnd:
    """Return what is known of an ended run whose last attempt is the plan's at a position; TuiTrainError."""
    found = diagnose_run(run, facts, observer)
    profile = store.load_profile_file(str(run.profile_file)) if found and found.change else None
    return RunEnd(
        diagnosis=found,
        profile=profile,
        memory_fit_text=_memory_after_change_text(profile, found.change, facts)
        if profile and found and found.change and facts
        else "",
        why_not_resumable=why_not_restartable(run, read_status(run), found),
        output=find_run_output(run, plan_position),
        run_result=read_result(run),
    )


def explain_broken_loss(run: RunFolder, facts: Facts | None) -> RunEnd:
    """Return why the loss of a run that still trains is NaN, and the change that may help another one."""
    found = diagnose_run(run, facts, while_it_trains=True)
    profile = store.load_profile_file(str(run.profile_file)) if found and found.change else None
    return replace(RUN_NOT_ENDED, diagnosis=found, profile=profile)


def _memory_after_change_text(profile: Profile, change: Change, facts: Facts) -> str:
    """Return the memory that would be needed after a change and whether it fits, empty where that is not known."""
    predicted = predict_memory(make_setup(apply_change(change, profile), facts))
    if predicted.estimate is None or not predicted.place_verdicts:
        return ""
    verdict = predicted.place_verdicts[0][1]
    return f"needs {size_text(verdict.reserved_bytes)} {'✓' if verdict.band == 'fits' else '!'} {verdict.band}"
