"""One trial on a host: a run there, followed as any other, then ended and removed on both sides; its log stays here."""

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec

from tui_train.actions.tune.search import Trial, TrialSetting
from tui_train.actions.tune.trial import (
    MIN_FREE_HOST_MEMORY_SHARE,
    SECONDS_BEYOND_LIMIT,
    MemoryWatcher,
    TrialResources,
    TrialStepPace,
    judge_trial,
    time_steps,
)
from tui_train.base.errors import NoAnswer, TuiTrainError
from tui_train.base.files import raising_cannot_write
from tui_train.base.text import duration_text
from tui_train.facts.other_machines.remote import read_host_cards
from tui_train.places.place import Place
from tui_train.places.run_mirror import RunMirror
from tui_train.plan.render.prepare import PreparedPlan
from tui_train.plan.types import Plan
from tui_train.runs.interrupts import record_signals
from tui_train.runs.local_start import StartOptions
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

# What a host has logged comes up to half a second late: that is to be little of what is timed.
_MIN_TIMED_SECONDS = 15.0
_MEMORY_POLL_SECONDS = 3.0


def run_trial_on_host(  # noqa: PLR0913, PLR0917 - what a trial is made of
    folder: Path,
    setting: TrialSetting,
    prepared: PreparedPlan,
    plan: Plan,
    place: Place,
    resources: TrialResources,
    cancelled: Callable[[], bool],
) -> Trial:
    """Start a trial on a host, time its steps, end it, and return what came of it; its log is kept in a new folder.

    NoAnswer where the host does not say that it has ended: then it stays among the runs, and the host ends it in time.
    """
    end_after = int(resources.max_seconds) + SECONDS_BEYOND_LIMIT
    named = msgspec.structs.replace(plan, name=f"{plan.name}-{folder.name}")
    with record_signals() as interrupts:
        run = place.submit(prepared, named, interrupts, StartOptions(end_after=end_after))
    mirror, memory = RunMirror(run, lambda _why: None), _HostMemoryWatcher(place.address, resources.cards)
    pace = TrialStepPace(_MIN_TIMED_SECONDS)
    try:
        if interrupts.number:
            signal.raise_signal(interrupts.number)
        why = time_steps(run, pace, resources, lambda: cancelled() or memory.host_is_low)
        before_end = read_status(run)
    finally:
        mirror.close()
        memory.end()
        _stop_trial_and_keep_log(run, place, folder, end_after)
    return judge_trial(RunFolder(folder), setting, before_end, pace, memory, plan.global_batch, why)


def _stop_trial_and_keep_log(run: RunFolder, place: Place, folder: Path, end_after: int) -> None:
    try:
        place.stop(run, at_once=True)
    except NoAnswer as error:
        itself = f"It ends there by itself {duration_text(end_after)} after its start"
        raise NoAnswer(error.message, f"{itself}; `tui-train runs` lists it. {error.remedy}") from None
    with raising_cannot_write(folder):
        shutil.copytree(run.path, folder, symlinks=True, ignore=shutil.ignore_patterns("output*"))
    place.remove(run)


class _HostMemoryWatcher(MemoryWatcher):
    """The memory of a trial on a host, asked for every few seconds: the peak of its fullest card, none on the CPU."""

    def __init__(self, host: str, cards: tuple[str, ...]) -> None:
        self._host = host
        super().__init__(cards, self._watch)

    def _watch(self) -> None:
        while not self._ended.wait(_MEMORY_POLL_SECONDS):
            try:
                machine = read_host_cards(self._host, self._ended.is_set).machine
            except TuiTrainError:
                continue
            for card in machine.gpus:
                self._note_card(card)
            if not self._cards and machine.memory_available is not None and machine.memory_total:
                self.host_is_low |= machine.memory_available < MIN_FREE_HOST_MEMORY_SHARE * machine.memory_total
