"""One trial: a short real training, watched until its speed is known, then ended with all its processes."""

import shutil
import threading
import time
from collections.abc import Callable

import psutil
from msgspec import Struct

from tui_train.actions.tune.search import Trial, TrialOutcome, TrialSetting
from tui_train.base.errors import TuiTrainError
from tui_train.diagnose import diagnose_run
from tui_train.facts.gpus.live_samples import yield_changed_samples
from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.types import Gpu
from tui_train.runner.logs.progress import Progress, advance_progress
from tui_train.runner.run_folder import state
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.local_start import start_run
from tui_train.runs.logs.tail import LogTail
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status
from tui_train.runs.stop import stop_local_run

# The first steps are slower: kernels are chosen, the allocator takes its blocks.
_UNTIMED_FIRST_STEPS = 2
_MIN_TIMED_STEPS = 3
_MIN_TIMED_SECONDS = 3.0
_STEP_POLL_SECONDS = 0.05
_MEMORY_POLL_SECONDS = 0.5
# Seconds after its time limit after which a trial is ended where nobody did that.
SECONDS_BEYOND_LIMIT = 60
# The share of the host's memory that a trial leaves: below it the kernel kills programs.
MIN_FREE_HOST_MEMORY_SHARE = 0.05


class TrialStepPace:
    """The speed of steps, from the moments when each was first reported: known after `min_seconds` of them."""

    def __init__(self, min_seconds: float = _MIN_TIMED_SECONDS) -> None:
        """Start without a step."""
        self._min_seconds = min_seconds
        self._first = 0
        self._reported: list[tuple[float, int]] = []

    def record(self, step: int, seconds: float) -> None:
        """Record the step reached at a moment, in seconds."""
        if step and not self._first:
            self._first = step
        if step and (not self._reported or step > self._reported[-1][1]):
            self._reported.append((seconds, step))

    @property
    def timed_steps(self) -> int:
        """The steps after the first ones, where there are enough."""
        return self._timed_seconds_and_steps()[1]

    @property
    def step_seconds(self) -> float:
        """Seconds of a step, 0 while none is timed."""
        took, steps = self._timed_seconds_and_steps()
        return took / steps if steps else 0.0

    @property
    def is_known(self) -> bool:
        """True where more steps would change the speed little."""
        took, steps = self._timed_seconds_and_steps()
        warm = self._reported and self._reported[-1][1] - self._first >= _UNTIMED_FIRST_STEPS + _MIN_TIMED_STEPS
        return bool(warm) and steps >= _MIN_TIMED_STEPS and took >= self._min_seconds

    def _timed_seconds_and_steps(self) -> tuple[float, int]:
        warm = [(now, step) for now, step in self._reported if step - self._first >= _UNTIMED_FIRST_STEPS]
        window = warm if len(warm) > 1 else self._reported[-2:]
        return (window[-1][0] - window[0][0], window[-1][1] - window[0][1]) if len(window) > 1 else (0.0, 0)


class TrialResources(Struct, frozen=True):
    """Machine side of a trial: the UUIDs of its cards, none for the CPU, and how many seconds it has at most."""

    cards: tuple[str, ...]
    max_seconds: float


def run_trial(
    run: RunFolder, setting: TrialSetting, global_batch: int, resources: TrialResources, cancelled: Callable[[], bool]
) -> Trial:
    """Start a run folder's training, time its steps, end it, and return what came of it.

    Raises Unavailable where it cannot be started, or something of it cannot be ended.
    """
    memory = LocalMemoryWatcher(run, resources.cards)
    pace = TrialStepPace()
    try:
        # Also where this program is killed.
        start_run(run, end_after=int(resources.max_seconds) + SECONDS_BEYOND_LIMIT)
        why = time_steps(run, pace, resources, lambda: cancelled() or memory.host_is_low)
        now = read_status(run)
    finally:
        memory.end()
        stop_local_run(run, at_once=True)
        # The model of a trial is useless.
        for output in run.path.glob("output*"):
            shutil.rmtree(output, ignore_errors=True)
    return judge_trial(run, setting, now, pace, memory, global_batch, why)


class MemoryWatcher:
    """What watches the memory of a trial: its peak so far, and whether it was to be ended for the host's sake."""

    def __init__(self, cards: tuple[str, ...], watch: Callable[[], None]) -> None:
        """Start to watch the cards with these UUIDs, of none the host, in a thread."""
        self.peak: int | None = None
        self.host_is_low = False
        self._cards, self._ended = cards, threading.Event()
        self._thread = threading.Thread(target=watch, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join(timeout=5)

    def _note_card(self, card: CardSample | Gpu) -> None:
        if card.uuid in self._cards and card.memory_total is not None and card.memory_free is not None:
            self.peak = max(self.peak or 0, card.memory_total - card.memory_free)


def judge_trial(  # noqa: PLR0913, PLR0917 - what is known at its end
    run: RunFolder,
    setting: TrialSetting,
    before_end: RunStatus,
    pace: TrialStepPace,
    memory: MemoryWatcher,
    global_batch: int,
    why: str,
) -> Trial:
    """Return what came of a trial: its status before it was ended, and `why` its steps were not timed to the end."""
    log = str(run.attempt_log(1))
    if memory.host_is_low:
        return Trial(setting=setting, outcome="out of memory", memory=memory.peak, why="the host's memory", log=log)
    if pace.step_seconds and not _has_failed(before_end):
        rate = global_batch / pace.step_seconds
        return Trial(
            setting=setting, outcome="measured", rate=rate, steps=pace.timed_steps, memory=memory.peak, log=log
        )
    outcome, words = _outcome_and_reason_of_failure(run, before_end)
    words = words or why if outcome == "failed" else ""
    return Trial(setting=setting, outcome=outcome, memory=memory.peak, why=words, log=log)


def time_steps(run: RunFolder, pace: TrialStepPace, resources: TrialResources, cancelled: Callable[[], bool]) -> str:
    """Time the steps until the speed is known, the training ends or its time is up; return the problem, if any."""
    tail, progress, reading = LogTail(run.attempt_log(1)), Progress(), run.log_reading_options()
    until = time.monotonic() + resources.max_seconds
    polled_at = 0.0
    while not cancelled():
        now = time.monotonic()
        progress = advance_progress(progress, [*tail.remaining_lines(), tail.progress_bar], reading)
        pace.record(progress.step, now)
        if pace.is_known:
            return ""
        if now > until:
            return f"no two steps reported within {resources.max_seconds:.0f} s"
        if now - polled_at > _MEMORY_POLL_SECONDS:
            polled_at = now
            if not read_status(run).is_live:
                return "the training ended before its speed was known"
        time.sleep(_STEP_POLL_SECONDS)
    return "stopped"


def _has_failed(run_status: RunStatus) -> bool:
    return run_status.state in {"failed", "lost"}


def _outcome_and_reason_of_failure(run: RunFolder, run_status: RunStatus) -> tuple[TrialOutcome, str]:
    try:
        diagnosis = diagnose_run(run) if _has_failed(run_status) else None
    except TuiTrainError:
        diagnosis = None
    # A card that another program fills is no result for the setting.
    by_other_process = diagnosis is not None and diagnosis.failure == "cuda_oom_other_process"
    if any(attempt.out_of_memory for attempt in run_status.attempts) and not by_other_process:
        return "out of memory", ""
    return "failed", diagnosis.cause if diagnosis else ""


class LocalMemoryWatcher(MemoryWatcher):
    """The peak memory of a trial, read twice a second: of its fullest card, or of the host."""

    def __init__(self, run: RunFolder, cards: tuple[str, ...]) -> None:
        """Start reading in a thread."""
        self._run = run
        super().__init__(cards, self._watch_cards if cards else self._watch_host)

    def _watch_cards(self) -> None:
        for now in yield_changed_samples(self._ended.is_set):
            for card in now:
                self._note_card(card)

    def _watch_host(self) -> None:
        while not self._ended.wait(_MEMORY_POLL_SECONDS):
            now = read_status(self._run)
            if now.mark:
                used = sum(
                    map(_resident_bytes, state.process_family_of_run(str(self._run.path), now).living_ticks_by_pid())
                )
                self.peak = max(self.peak or 0, used)
            memory = psutil.virtual_memory()
            self.host_is_low |= memory.available < MIN_FREE_HOST_MEMORY_SHARE * memory.total


def _resident_bytes(process_id: int) -> int:
    try:
        return int(psutil.Process(process_id).memory_info().rss)
    except psutil.Error:
        return 0
