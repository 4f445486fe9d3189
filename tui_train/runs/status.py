"""The status of a run, the same for its supervisor and all viewers, and of all runs in a list.

In a list each is read separately, so that a damaged one does not hide the others.
"""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from tui_train.base.text import visible
from tui_train.runner.run_folder import state
from tui_train.runner.run_folder.events import JournalEvent
from tui_train.runner.run_folder.state import UNCONFIRMED_STATE, RunStatus
from tui_train.runs.remote_run import last_known_remote_status, read_run_location, read_unconfirmed_start
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.runs.slurm_job import (
    queue_reason_text,
    read_known_job,
    slurm_end_reason,
    slurm_host_text,
    status_if_cancelled_in_queue,
    status_in_queue,
)


def read_status(run: RunFolder, logged: tuple[JournalEvent, ...] | None = None) -> RunStatus:
    """Return the current status of a run; of one on another host or in a queue, as it was heard last.

    `logged` are its events, where they are read already.
    """
    asked = read_unconfirmed_start(run.path)
    if not asked and (queued := status_in_queue(run.path) or status_if_cancelled_in_queue(run.path)):
        return queued
    there = last_known_remote_status(run.path)
    known = there or state.read_status(str(run.path), logged)
    if asked:
        host = read_run_location(run.path).host
        return known._replace(state=UNCONFIRMED_STATE, host=slurm_host_text(host) if asked.slurm else host)
    return known._replace(host=slurm_host_text(known.host)) if there and read_known_job(run.path) else known


def waiting_or_end_reason(run: RunFolder, status: RunStatus) -> str:
    """Return why a run waits, or what ended it before it was done, as far as that is no failure of its own."""
    if status.state == "queued":
        return queue_reason_text(run.path)
    if status.state == "waiting":
        return visible(status.waits_for)
    if status.is_live:
        return ""
    return "while it waited" if status.never_had_turn else slurm_end_reason(run.path)


def may_training_still_write(status: RunStatus) -> bool:
    """Return whether a run's training may still write, with its supervisor or after that was killed."""
    return status.is_live or status.trains_unsupervised


def energy_used_and_if_all_metered(run: RunFolder, status: RunStatus) -> tuple[float | None, bool]:
    """Return what the cards of a run drew in its attempts, in joules (None: not metered), and whether all were metered.

    Other machines have folders of their own below the run's, where that is shared.
    """
    others = (state.read_status(str(path)) for path in other_machine_folders(run))
    ended = [attempt for each in (status, *others) for attempt in each.attempts if attempt.ended is not None]
    known = [attempt.joules for attempt in ended if attempt.joules is not None]
    return (sum(known), all(attempt.all_metered for attempt in ended)) if known else (None, False)


def other_machine_folders(run: RunFolder) -> list[Path]:
    """Return the folders of a run's other machines, where those share the run folder."""
    return [path for path in sorted(run.path.glob("node-*")) if path.is_dir()]


def made_step_count(last_logged_step: int, steps: int, state: str) -> int:
    """Return the steps of a run by its last one: a finished script that counts them from 0 has made one more."""
    return steps if state == "finished" and 0 < last_logged_step == steps - 1 else last_logged_step


def training_seconds(status: RunStatus) -> float | None:
    """Return how long a run trained, in seconds: its last start, or all attempts where it was resumed; not its wait."""
    known = [attempt.seconds for attempt in status.attempts if attempt.seconds is not None]
    if status.never_had_turn:
        return sum(known) if known else None
    return max(sum(known), status.seconds or 0.0) if known else status.seconds


class ListedRun(Struct, frozen=True, kw_only=True):
    """A run in a list: `status` is None if unknown, `damage` is what cannot be read."""

    run: RunFolder
    status: RunStatus | None
    damage: str = ""

    @property
    def is_stoppable(self) -> bool:
        """True while it has processes that can be stopped."""
        return self.status is not None and (self.status.is_live or bool(self.status.leftover))


def read_listed_run(run: RunFolder) -> ListedRun:
    """Return a run with its state, or with the reason why that cannot be read."""
    try:
        events, damage = run.events_and_damage()
        status = read_status(run, events)
        # Without a readable event it is unknown even whether it was started.
        known = status if events or not damage else None
        return ListedRun(run=run, status=known, damage=damage or run.plan_and_damage()[1])
    except Exception as error:  # noqa: BLE001 - whatever is in this folder, the others are shown
        return ListedRun(run=run, status=None, damage=visible(f"{type(error).__name__}: {error}")[:200])


def read_live_runs(candidates: Iterable[RunFolder]) -> tuple[RunFolder, ...]:
    """Return the runs among some whose supervisor works, or will; none of those that cannot be read."""
    listed = map(read_listed_run, candidates)
    return tuple(each.run for each in listed if each.status and each.status.is_live)


def read_listed_runs() -> tuple[ListedRun, ...]:
    """Return the runs in the runs folder, the newest first."""
    return tuple(map(read_listed_run, list_runs()))
