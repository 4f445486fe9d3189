"""One attempt on several machines: its command on this one, and over ssh a keeper of it on each of the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any, Callable, Sequence

from ..containers import container
from ..run_folder.start import print_message
from ..system import runner_command
from ..system.processes import MARK_VARIABLE, process_with_pid, send_signal
from ..system.safe_text import visible
from ..system.signals import StopSignals
from . import node, node_network, ssh

_HEARTBEAT_SECONDS = 5.0
_POLL_SECONDS = 0.5
# Seconds for the keepers of the others to end all of theirs, once their link is closed.
_MAX_KEEPER_END_SECONDS = 10.0
# Of what this machine has in its environment, what the others get.
_VARIABLES_PASSED_TO_OTHERS = (MARK_VARIABLE, "TUI_TRAIN_PYTHON", container.CONTAINER_NAME_VARIABLE)


class _MachinePart:
    """One machine's part: its child here, which is the command itself or its ssh."""

    def __init__(
        self, rank: int, host: str, child: subprocess.Popen[bytes], end_here: Callable[[], object] | None = None
    ) -> None:
        """`end_here` asks this machine's own part to save and end."""
        self.rank = rank
        self.host = host
        self.child = child
        self._end_here = end_here
        self.code: int | None = None

    def send_byte(self, byte: bytes) -> None:
        """Write a byte to its keeper; where the link takes none, it is dropped, for nothing here may wait for it."""
        if self.child.stdin:
            with contextlib.suppress(OSError):
                os.write(self.child.stdin.fileno(), byte)
        elif byte == node.STOP_BYTE and self._end_here:
            self._end_here()

    def kill_part(self) -> None:
        """Close its link, so that its keeper ends everything there; this machine's own part is killed."""
        if self.child.stdin:
            with contextlib.suppress(OSError):
                self.child.stdin.close()
        else:
            send_signal(process_with_pid(self.child.pid), signal.SIGKILL)

    def has_ended(self) -> bool:
        """Tell whether it has ended, and with which `code`."""
        code = self.child.poll()
        self.code = 128 - code if code is not None and code < 0 else code
        return code is not None

    @property
    def end_sentence(self) -> str:
        """Sentence about its end."""
        if self.rank and self.code == ssh.CONNECTION_LOST_EXIT_CODE:
            return f"machine {self.rank} ({visible(self.host)}) was lost: its ssh has ended"
        return f"machine {self.rank} ({visible(self.host)}) ended with exit code {self.code}"


def main(request_json: str, command: Sequence[str], run_dir: str) -> int:
    """Run a command on each machine to its end, and return the exit code of the one that failed first, else 0.

    SIGTERM asks all to save and end; where one fails, the others are asked as well, and ended after the grace.
    """
    request: dict[str, Any] = json.loads(request_json)
    signals = StopSignals()
    parts = [
        _start_part_here(request, command),
        *(_start_part_over_ssh(request, rank, command, run_dir) for rank in range(1, len(request["hosts"]))),
    ]
    first_failed, deadline, asked_to_end, beat = None, float("inf"), False, 0.0
    while True:
        ended = [part for part in parts if part.code is None and part.has_ended()]
        # Of several that ended at once, a lost machine is why the others failed.
        failed = sorted(
            (part for part in ended if part.code), key=lambda part: part.code != ssh.CONNECTION_LOST_EXIT_CODE
        )
        if failed and first_failed is None:
            first_failed = failed[0]
            if not signals.stop:
                print_message(first_failed.end_sentence)
                deadline = time.monotonic() + float(request["grace"])
        if all(part.code is not None for part in parts):
            _print_containers_that_may_be_left(request["engine"], parts)
            return first_failed.code or 1 if first_failed else 0
        if (first_failed or signals.stop) and not asked_to_end:
            asked_to_end = True
            for part in parts:
                part.send_byte(node.STOP_BYTE)
        if signals.at_once or time.monotonic() > deadline:
            return _end_all_parts(request["engine"], parts, first_failed)
        if time.monotonic() - beat >= _HEARTBEAT_SECONDS:
            beat = time.monotonic()
            for part in parts:
                part.send_byte(node.HEARTBEAT_BYTE)
        signals.wait(_POLL_SECONDS)


def _end_all_parts(engine: str, parts: Sequence[_MachinePart], first_failed: _MachinePart | None) -> int:
    deadline = time.monotonic() + _MAX_KEEPER_END_SECONDS
    for part in parts:
        part.kill_part()
    while not all(part.has_ended() for part in parts) and time.monotonic() < deadline:
        time.sleep(0.05)
    for part in parts:
        if part.code is None:
            print_message(
                f"machine {part.rank} ({visible(part.host)}) does not answer: its processes end within two minutes"
            )
    _print_containers_that_may_be_left(engine, parts)
    return (first_failed.code if first_failed else None) or 128 + signal.SIGKILL


def _print_containers_that_may_be_left(engine: str, parts: Sequence[_MachinePart]) -> None:
    """Name the containers of lost machines: nothing ends one whose keeper was killed there."""
    own_name = os.environ.get(container.CONTAINER_NAME_VARIABLE, "")
    for part in parts:
        lost = part.rank and part.code in {None, ssh.CONNECTION_LOST_EXIT_CODE}
        if lost and (name := container.container_name_on_machine(own_name, part.rank)):
            print_message(
                f"the container of machine {part.rank} may train on; where it is there after two minutes: "
                f"ssh {visible(part.host)} {engine} rm -f {name}"
            )


def _start_part_here(request: dict[str, Any], words: Sequence[str]) -> _MachinePart:
    child = subprocess.Popen([*words, "--node-rank=0"], stdin=subprocess.DEVNULL, start_new_session=True)
    leader, name = process_with_pid(child.pid), os.environ.get(container.CONTAINER_NAME_VARIABLE, "")

    def end_here() -> None:
        container.request_stop(request["engine"], name, request["grace"], leader)

    return _MachinePart(0, request["hosts"][0]["host"], child, end_here)


def _ignore_sigterm() -> None:
    """Have an ssh stay where all processes of the run are asked to end: by it the others are asked, and save."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _start_part_over_ssh(request: dict[str, Any], rank: int, words: Sequence[str], run_dir: str) -> _MachinePart:
    host = request["hosts"][rank]
    environment = {name: os.environ[name] for name in _VARIABLES_PASSED_TO_OTHERS if name in os.environ}
    environment[node_network.FIRST_ADDRESS_VARIABLE] = host["address"]
    if host["shared"]:
        environment["TUI_TRAIN_SHARED"] = "1"
    # Its cards are its own.
    own = [word for word in words if not word.startswith("--gpus=")]
    question = {"rank": rank, "words": own, "environment": environment, "grace": request["grace"]}
    command = ssh.ssh_command(
        host["host"],
        runner_command.runner_command("keep", python=request["python"], run_dir=run_dir),
        host["connection"],
    )
    child = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=_ignore_sigterm)  # noqa: PLW1509 - here are no threads
    assert child.stdin is not None  # noqa: S101 - for the type
    with contextlib.suppress(OSError):
        child.stdin.write(json.dumps(question).encode() + b"\n")
        child.stdin.flush()
    os.set_blocking(child.stdin.fileno(), False)
    return _MachinePart(rank, host["host"], child)
