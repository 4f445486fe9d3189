"""The status of a run, the same for its supervisor and all viewers."""

from pathlib import Path

from tui_train.runner import state
from tui_train.runner.state import UNCONFIRMED_STATE, RunStatus
from tui_train.runs.elsewhere import last_known_remote_status, read_run_place, read_unconfirmed_start
from tui_train.runs.rundir import RunDir
from tui_train.runs.slurm_job import cluster_text, read_known_job, status_in_queue


def read_status(run: RunDir) -> RunStatus:
    """Return the current status of a run; of one on another host or in a queue, as it was heard last."""
    asked = read_unconfirmed_start(run.path)
    if not asked and (queued := status_in_queue(run.path)):
        return queued
    there = last_known_remote_status(run.path)
    if asked:
        host = cluster_text(read_run_place(run.path).host) if asked.slurm else read_run_place(run.path).host
        return (there or state.read_status(str(run.path)))._replace(state=UNCONFIRMED_STATE, host=host)
    if there and read_known_job(run.path):
        return there._replace(host=cluster_text(there.host))
    return there or state.read_status(str(run.path))


def may_still_write(status: RunStatus) -> bool:
    """Return whether a run's training may still write, with its supervisor or after that was killed."""
    return status.live or status.trains_unsupervised


def energy_used_and_if_all_metered(run: RunDir, status: RunStatus) -> tuple[float | None, bool]:
    """Return what the cards of a run drew in its attempts, in joules (None: not metered), and whether all were metered.

    Other machines have folders of their own below the run's, where that is shared.
    """
    others = (state.read_status(str(path)) for path in node_folders(run))
    ended = [attempt for each in (status, *others) for attempt in each.attempts if attempt.ended is not None]
    known = [attempt.joules for attempt in ended if attempt.joules is not None]
    return (sum(known), all(attempt.all_metered for attempt in ended)) if known else (None, False)


def node_folders(run: RunDir) -> list[Path]:
    """Return the folders of a run's other machines, where those share the run folder."""
    return [path for path in sorted(run.path.glob("node-*")) if path.is_dir()]


def training_seconds(status: RunStatus) -> float | None:
    """Return how long a run trained, in seconds: its last start, or all attempts where it was resumed."""
    known = [attempt.seconds for attempt in status.attempts if attempt.seconds is not None]
    return max(sum(known), status.seconds or 0.0) if known else status.seconds
