"""The metrics of a run: what its logs report from their first line on, and what its trainer kept."""

from pathlib import Path

from tui_train.base.files import inode_and_size
from tui_train.runner.logs.metric_series import Metrics, joined_metrics
from tui_train.runner.run_folder.supervisor_plan import read_plan
from tui_train.runner.system.refused import Refused
from tui_train.runs.follow import read_progress
from tui_train.runs.results.result import output_and_newest_checkpoint
from tui_train.runs.results.trainer_state import TrainerState, read_trainer_state, trainer_state_changed_at
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status


def read_metrics(run: RunFolder) -> Metrics:
    """Return the metrics of all attempts of a run; it reads whole logs, and takes as long as these are.

    Up to its last step the trainer's own record counts: it is exact, and a log may name no steps.
    """
    logged = read_progress(run, read_status(run).attempts, last_bytes=None).metrics
    return joined_metrics(read_trainer_metrics(run), logged)


def size_of_all_attempt_logs(run: RunFolder) -> int:
    """Return the bytes of the logs of all attempts."""
    return sum(inode_and_size(run.attempt_log(attempt.number))[1] for attempt in read_status(run).attempts)


def read_trainer_metrics(run: RunFolder) -> Metrics:
    """Return what the trainer of a run kept last; an output folder that was chosen may hold what another run left."""
    status = read_status(run)
    try:
        output, checkpoint = output_and_newest_checkpoint(run, read_plan(str(run.path)), status)
    except Refused:
        return Metrics()
    began = status.attempts[0].started if status.attempts else 0.0
    folders = [output, *([Path(checkpoint)] if checkpoint else [])]
    states = [read_trainer_state(folder) for folder in folders if trainer_state_changed_at(folder) > began]
    return max(states, key=lambda state: state.step, default=TrainerState()).metrics
