"""A job of Slurm on several machines: each attempt is one srun, which starts the command on all of them."""

from __future__ import annotations

import os
import signal

from ..system import other_programs
from ..system.processes import Process
from ..system.transport import LocalTransport, NodeCommand

# Seconds for the controller to answer, and for srun to end the tasks of all machines.
_SLURM_ANSWER_SECONDS = 30.0
_MAX_SRUN_END_SECONDS = 5.0
# A machine that was asked to end and did ends with 0: else --kill-on-bad-exit would kill those that still save.
_SRUN_TASK_SCRIPT = """\
trap 'asked=yes' TERM
"$@" &
task=$!
while :; do
  wait "$task"
  code=$?
  kill -0 "$task" 2> /dev/null || break
done
[ -z "${asked-}" ] || exit 0
exit "$code\""""


class SrunTransport(LocalTransport):
    """All machines of the job that this runs in; the batch step, in which it runs, is on the first of them."""

    def __init__(self, nodes: int) -> None:
        super().__init__()
        self._nodes = nodes

    def start(self, command: NodeCommand) -> Process:
        """Start a command on each machine, their output to one log."""
        words = (
            "srun", f"--nodes={self._nodes}", f"--ntasks={self._nodes}", "--ntasks-per-node=1",
            "--kill-on-bad-exit=1", "--mpi=none", "--input=none", "bash", "-c", _SRUN_TASK_SCRIPT, "bash",
        )  # fmt: skip
        return super().start(command._replace(words=words + command.words))

    def request_stop(self, leader: Process) -> None:
        """Send SIGTERM to the tasks of all machines, which srun would kill when it gets it; to srun without Slurm."""
        # Without --batch it goes to the job's steps, and not to its script.
        asked = other_programs.run_program(
            ("scancel", "--signal=TERM", os.environ["SLURM_JOB_ID"]), _SLURM_ANSWER_SECONDS, interruptible=False
        )
        if asked.code != 0:
            super().request_stop(leader)

    def end_remote_parts(self, leader: Process) -> None:
        """Have srun kill its tasks on all machines."""
        self._send_signal_and_wait(leader, signal.SIGTERM, _MAX_SRUN_END_SECONDS)
