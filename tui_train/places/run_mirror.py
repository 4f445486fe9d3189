"""Keeps the local copy of a run on a host, or in Slurm's queue, up to date while somebody watches it."""

import threading
from collections.abc import Callable

from tui_train.base.errors import CannotWrite, TuiTrainError
from tui_train.channel.session import Session
from tui_train.places.jobs import refresh_jobs
from tui_train.places.receive_changes import UPDATE_TIMEOUT_SECONDS, receive_run_changes
from tui_train.runs.remote_run import RunLocation, read_remote_location, read_unconfirmed_start
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.slurm_job import read_queued_job, status_in_queue

_RETRY_PAUSES_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a lost connection is made again
_QUEUE_POLL_SECONDS = 5.0  # seconds between two questions to Slurm


class RunMirror:
    """A copy that is kept in a thread until `close`, or until the run has ended.

    `on_problem` is called with what is wrong, and with an empty text once the host, or Slurm, answers again.
    """

    def __init__(self, run: RunFolder, on_problem: Callable[[str], object]) -> None:
        """Begin to follow where the run is on another host or in a queue."""
        self._run, self._on_problem = run, on_problem
        self._place = read_remote_location(run.path)
        self._closed = threading.Event()
        self._session: Session | None = None
        self._thread = threading.Thread(target=self._keep_current, daemon=True)
        if self._place or self._has_job_or_unconfirmed_start:
            self._thread.start()

    def close(self) -> None:
        """Stop following the run."""
        self._closed.set()
        if self._session:
            self._session.kill()

    def wait(self) -> None:
        """Wait until the run has ended and all of it is here."""
        if self._thread.is_alive():
            self._thread.join()

    @property
    def _has_job_or_unconfirmed_start(self) -> bool:
        """True where Slurm may have a job of it, or its start is not confirmed."""
        return bool(read_queued_job(self._run.path) or read_unconfirmed_start(self._run.path))

    def _keep_current(self) -> None:
        """Ask Slurm while a job waits, and listen to the host while a run on it trains, by turns."""
        failures = 0
        while not self._closed.is_set():
            why = _refresh_job(self._run)
            if self._place is None or status_in_queue(self._run.path) or read_unconfirmed_start(self._run.path):
                self._on_problem(why)
                ended, pause = True, _QUEUE_POLL_SECONDS
            else:
                heard, why = self._receive_updates(self._place)
                ended, failures = not why, 0 if heard else failures + 1
                pause = (
                    _QUEUE_POLL_SECONDS
                    if ended
                    else _RETRY_PAUSES_SECONDS[min(failures, len(_RETRY_PAUSES_SECONDS) - 1)]
                )
            if self._closed.is_set() or (ended and not self._has_job_or_unconfirmed_start):
                return
            if self._place and not ended:
                self._on_problem(why)
            self._closed.wait(pause)

    def _receive_updates(self, place: RunLocation) -> tuple[bool, str]:
        """Take what the host sends; return whether that went well at first, and why it stopped, empty at the end."""
        try:
            answered, why = receive_run_changes(
                self._run, place, on_session=self._set_session, on_answer=lambda: self._on_problem("")
            )
        except CannotWrite as error:
            return False, error.message
        return answered, _failure_text(place, why)

    def _set_session(self, session: Session) -> None:
        self._session = session
        if self._closed.is_set():
            session.kill()


def update_local_copy(run: RunFolder) -> str:
    """Bring a run's copy here up to date now; return why that was not possible, empty where it was.

    Raises CannotWrite where it cannot be kept here.
    """
    job, place = read_queued_job(run.path), read_remote_location(run.path)
    why = _refresh_job(run)
    # Where Slurm has answered, what its job wrote is here.
    if place is None or (job and not why) or read_unconfirmed_start(run.path):
        return why
    _, lost = receive_run_changes(run, place, within_seconds=UPDATE_TIMEOUT_SECONDS)
    return why or _failure_text(place, lost)


def _refresh_job(run: RunFolder) -> str:
    """Ask what became of a start, and of the run's job; return why there is no answer, empty where there is one."""
    try:
        refresh_jobs([run])
    except TuiTrainError as error:
        return error.message if read_unconfirmed_start(run.path) else f"Slurm does not answer: {error.message}"
    return ""


def _failure_text(place: RunLocation, why: str) -> str:
    """Return why a host sends nothing more, by its name; empty for nothing."""
    return why if not why or why.startswith(place.host) else f"{place.host} does not answer: {why}"
