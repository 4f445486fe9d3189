"""Resources of the live runs of this user, and a lock so that only one run starts at a time."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec.structs import replace

from tui_train.base.app_paths import runs_folder, trials_folder
from tui_train.base.errors import Unavailable
from tui_train.base.text import visible
from tui_train.facts.machine.exclusive_resources import is_port_in_use, path_and_real_path, resource_conflict_text
from tui_train.facts.types import ResourcesInUse
from tui_train.runner.run_folder.state import RunStatus
from tui_train.runs.remote_run import RunLocation, read_remote_location, read_run_location
from tui_train.runs.run_folders import RunFolder, list_runs
from tui_train.runs.script_outputs import command_and_saved_files, output_paths_in_script_arguments
from tui_train.runs.status import may_training_still_write, read_listed_run

_MAX_TRIALS_CHECKED = 32
_MAX_ENDED_RUNS_CHECKED = 10  # newest runs of which is read what they saved
_LOCK_POLL_SECONDS = 0.05


def resources_in_use(wanted_port: int = 0, place: RunLocation | None = None) -> tuple[ResourcesInUse, ...]:
    """Return the resources of training runs, also without a supervisor; and `wanted_port` if another program uses it.

    Of runs that ended on this machine they are the files that they saved outside of their folders, the newest run's
    first. Of a `place` on a host they are those of the runs there that are known here, also one of which it is not
    known whether it trains.
    """
    place = place or RunLocation("", "")
    trains = ((run, _status_while_training(run, place)) for run in (*list_runs(), *_newest_trial_runs()))
    resources = [
        _with_script_output_paths(replace(planned_resources(run), gpus=_gpus_in_use(run, status)), run)
        for run, status in trains
        if status
    ]
    if not place.host:
        resources += filter(None, map(_files_saved_by_ended_run, list_runs()[:_MAX_ENDED_RUNS_CHECKED]))
    held_ports = {resource.port for resource in resources}
    if wanted_port and not place.host and wanted_port not in held_ports and is_port_in_use(wanted_port):
        resources.append(ResourcesInUse(port=wanted_port))
    return tuple(resources)


def _status_while_training(run: RunFolder, place: RunLocation) -> RunStatus | None:
    """Return the state of a run that trains there, or waits to; a process left by a finished one does not count."""
    status = read_listed_run(run).status if read_run_location(run.path).is_on_same_machine(place) else None
    return status if status and may_training_still_write(status) else None


def _files_saved_by_ended_run(run: RunFolder) -> ResourcesInUse | None:
    """Return what an ended run of a script saved on this machine, None for nothing."""
    status = read_listed_run(run).status
    if not (status and status.attempts) or may_training_still_write(status) or read_remote_location(run.path):
        return None
    if (ended := status.attempts[-1].ended) is None:
        return None
    command, saved = command_and_saved_files(run, status.attempts[0].started, ended)
    return ResourcesInUse(run=run.name, saved=saved, command=command) if saved else None


def _gpus_in_use(run: RunFolder, status: RunStatus) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a live run has: none while it waits for them."""
    return () if status.state == "waiting" else status.gpus or planned_resources(run).gpus


def _newest_trial_runs() -> Iterator[RunFolder]:
    """Yield the newest trials; only these may still be running."""
    folders = sorted(trials_folder().glob("*/trial-*"), key=lambda path: path.parent.name)
    yield from map(RunFolder, folders[-_MAX_TRIALS_CHECKED:])


def planned_resources(run: RunFolder) -> ResourcesInUse:
    """Return the resources of a run, as far as its plan names them."""
    plan = run.plan()
    gpus, output, port = plan.get("gpus"), plan.get("output"), plan.get("port")
    return ResourcesInUse(
        run=run.name if run.path.parent == runs_folder() else str(run.path),
        gpus=tuple(map(str, gpus)) if isinstance(gpus, list) else (),
        outputs=path_and_real_path(output) if isinstance(output, str) and "\0" not in output else (),
        port=port if isinstance(port, int) and 0 < port < 1 << 16 else 0,
    )


def _with_script_output_paths(planned: ResourcesInUse, run: RunFolder) -> ResourcesInUse:
    """Return a run's resources with what its script may write to by the names of its arguments."""
    own = (each for path in output_paths_in_script_arguments(run) for each in path_and_real_path(path))
    return replace(planned, outputs=(*planned.outputs, *own))


def refuse_if_conflicting(run: RunFolder, *, waits_for_gpus: bool = False) -> None:
    """Raise Unavailable if a run conflicts with a live one; GPUs are no conflict where it waits for them."""
    wanted = planned_resources(run)
    wanted = replace(wanted, gpus=()) if waits_for_gpus else wanted
    for other in resources_in_use(wanted.port, read_run_location(run.path)):
        if other.run != wanted.run and (words := resource_conflict_text(wanted, other)):
            raise Unavailable(words, _conflict_remedy(other))


def _conflict_remedy(other_resources: ResourcesInUse) -> str:
    """Return the remedy for a resource that is in use."""
    if not other_resources.run:
        return "Choose another port (nodes.port)."
    waits = "Wait for that run (--when-free, w on Preview)" if other_resources.gpus else "Wait for that run"
    return f"{waits}, stop it (tui-train stop {visible(other_resources.run)}), or choose another."


@contextmanager
def lock_run_starts(while_waiting: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Let only one run of this user start at a time, if the file system has locks.

    `while_waiting` is called while another one starts; an exception in it ends the waiting.
    """
    # Where several users share the runs folder, a link is not followed and the reader of a pipe not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        file = os.fdopen(os.open(runs_folder() / ".starting", flags, 0o666), "ab")
    except OSError:
        yield
        return
    with file:
        # Some network file systems have no locks.
        with suppress(OSError):
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    while_waiting()
                    time.sleep(_LOCK_POLL_SECONDS)
        yield
