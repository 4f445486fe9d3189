"""Starts the command of a node: on this machine here, on those of a job by srun (srun_transport.py)."""

from __future__ import annotations

import os
import signal
import time
from typing import Iterable, Mapping, NamedTuple

from . import cgroup, other_programs, signals
from .processes import Process, process_with_pid, reap_children, send_signal


class NodeCommand(NamedTuple):
    """Command of one machine in an attempt: its words, its whole environment, and the file of all its output.

    `cgroup` is where it is to run, empty for no cgroup of its own.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str]
    log: str
    cgroup: str = ""


class LocalTransport:
    """This machine: a child in a session of its own, so that no terminal's signals reach it."""

    def __init__(self) -> None:
        # None while it runs. Only of commands that were started here: numbers of orphans come again.
        self._codes: dict[int, int | None] = {}

    def share_checkpoint_or_say_why_not(self, checkpoint: str) -> str:
        """Bring a checkpoint to all machines; return why it is of no use there, empty where it is: this one has it.

        Raises Refused where it cannot be brought to one of them.
        """
        return ""

    def start(self, command: NodeCommand) -> Process:
        """Start a command as a child, its output straight to its log; OSError where either is not possible."""
        log = os.open(command.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        try:
            # The child starts nothing before it is in its cgroup.
            ready, go = os.pipe2(os.O_CLOEXEC)
        except OSError:
            os.close(log)
            raise
        # A signal that came to the child before it has defaults would be lost there.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            pid = os.fork()
            if pid == 0:
                os.close(go)
                os.read(ready, 1)
                _exec_command(command, log, before)
            self._codes[pid] = None
            if command.cgroup:
                cgroup.try_to_move_process_into(command.cgroup, pid)
        finally:
            os.close(ready)
            os.close(go)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            os.close(log)
        # A child that is gone already has no start any more, and belongs to nobody else: it was not waited for.
        return process_with_pid(pid)._replace(pid=pid)

    def exit_code(self, leader: Process) -> int | None:
        """Return the exit code of a command, 128 + number where a signal ended it; None while it runs.

        Orphans that came here are let go as well.
        """
        for ended, status in reap_children().items():
            if ended in self._codes:
                self._codes[ended] = other_programs.shell_exit_code(status)
        return self._codes.get(leader.pid)

    def request_stop(self, leader: Process) -> None:
        """Ask a command to save and end."""
        send_signal(leader, signal.SIGTERM)

    def end_remote_parts(self, leader: Process) -> None:
        """End what no signal from here reaches: nothing here; this machine's processes are killed afterwards."""

    def _send_signal_and_wait(self, leader: Process, signal_number: int, max_seconds: float) -> None:
        send_signal(leader, signal_number)
        deadline = time.monotonic() + max_seconds
        while self.exit_code(leader) is None and time.monotonic() < deadline:
            time.sleep(0.05)


def _exec_command(command: NodeCommand, log: int, mask: Iterable[int]) -> None:
    """Become the command, in a child; never returns."""
    try:
        signals.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.execvpe(  # noqa: S606
            command.words[0], command.words, dict(command.environment)
        )
    except BaseException as error:  # noqa: BLE001 - a fork must not return into its parent's code
        os.write(2, (f"launch.sh: cannot start {command.words[0]}: {error}\n").encode(errors="replace"))
    finally:
        os._exit(127)
