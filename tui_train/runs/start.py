"""Starting a run so that it outlives us: a session of its own, its output in a file."""

import os
import shutil
import signal
import subprocess
import time

from tui_train.errors import Unavailable
from tui_train.files import writing
from tui_train.runs.processes import start_ticks
from tui_train.runs.rundir import RunDir
from tui_train.runs.status import status
from tui_train.runs.taken import one_at_a_time, refuse_clashes
from tui_train.text import visible

_ANEW = "To train anew, run its profile: tui-train run PROFILE, or its folder's profile.toml."
# The driver may take its time to list the cards.
_PATIENCE = 60.0
_LEAST = 1 << 16
# The shell between leaves at once, so that the run is nobody's child and no zombie stays; job control, so that the run
# does not begin with the keyboard's signals ignored.
_BETWEEN = 'set -m; "$0" "$1" < /dev/null >> "$2" 2>&1 & echo "$!"'


def start(run: RunDir, *, resume: bool = False) -> None:
    """Start a run's launch.sh and return once it has reported itself; Unavailable carries what it said instead.

    Several machines go on from a checkpoint only when that is meant: `resume`. A single one always does.
    """
    if nothing_left(run):
        raise Unavailable(f"{visible(run.name)} has finished: there is nothing left to train", _ANEW)
    with one_at_a_time():
        refuse_clashes(run)
        _start(run, resume=resume)


def nothing_left(run: RunDir) -> bool:
    """Tell whether a run has finished that another start would only resume at its end."""
    attempts = run.plan().get("attempts")
    first = attempts[0] if isinstance(attempts, list) and attempts else {}
    resumes = (isinstance(first, dict) and first.get("checkpoints")) or run.plan().get("resumes_itself")
    return bool(resumes) and status(run).state == "finished"


def _start(run: RunDir, *, resume: bool) -> None:
    bash = shutil.which("bash")
    if bash is None:
        raise Unavailable("bash was not found", "Install bash.")
    if left := status(run).leftover:
        pids = ", ".join(map(str, left))
        remedy = f"End them first: tui-train stop {visible(run.name)}"
        raise Unavailable(f"processes of an earlier start still train: {pids}", remedy)
    before = len(run.events())
    with writing(run.launcher_log):
        run.launcher_log.touch()
        offset = run.launcher_log.stat().st_size
    between = subprocess.run(
        [bash, "-c", _BETWEEN, bash, str(run.script), str(run.launcher_log)],
        cwd="/",
        # Of several machines, the one that plans is the first.
        env={"TUI_TRAIN_NODE_RANK": "0", **({"TUI_TRAIN_RESUME": "1"} if resume else {}), **os.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        start_new_session=True,
    )
    pid = int(between.stdout)
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        gone = start_ticks(pid) is None
        if any(event.event == "run_started" for event in run.events()[before:]):
            return
        if gone:
            break
        time.sleep(0.02)
    if start_ticks(pid) is not None:
        os.kill(pid, signal.SIGTERM)
    with run.launcher_log.open("rb") as log:
        log.seek(offset)
        said = visible(log.read(4000).decode(errors="replace").strip())
    if not said:
        # On a full disk it cannot even write that it cannot write.
        full = shutil.disk_usage(run.path).free < _LEAST
        said = "it cannot write, the disk is full" if full else "launch.sh did not answer"
    raise Unavailable(f"the run did not start: {said}", "Mend that, then start again.")
