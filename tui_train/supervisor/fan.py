"""One attempt on several machines: its command on this one, and over ssh a keeper of it on each of the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import Any, Sequence

from . import node, ssh
from .processes import MARK, process, send
from .signals import Signals
from .start import say
from .text import visible

_BEAT = 5.0
_LOOK = 0.5
# Seconds for the keepers of the others to end all of theirs, once their link is closed.
_ENDS = 10.0
# Of what this machine has in its environment, what the others get.
_PASSED = (MARK, "TUI_TRAIN_PYTHON")


class _Member:
    """One machine's part: its child here, which is the command itself or its ssh."""

    def __init__(self, rank: int, host: str, child: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.host = host
        self.child = child
        self.code: int | None = None

    def tell(self, word: bytes) -> None:
        """Write a word to its keeper; where the link takes none, it is dropped, for nothing here may wait for it."""
        if self.child.stdin:
            with contextlib.suppress(OSError):
                os.write(self.child.stdin.fileno(), word)
        elif word == node.ASK:
            send(process(self.child.pid), signal.SIGTERM)

    def close(self) -> None:
        """Close its link, so that its keeper ends everything there; this machine's own part is killed."""
        if self.child.stdin:
            with contextlib.suppress(OSError):
                self.child.stdin.close()
        else:
            send(process(self.child.pid), signal.SIGKILL)

    @property
    def words(self) -> str:
        """How it ended."""
        if self.rank and self.code == ssh.LOST:
            return f"machine {self.rank} ({visible(self.host)}) was lost: its ssh has ended"
        return f"machine {self.rank} ({visible(self.host)}) ended with exit code {self.code}"


def main(text: str, words: Sequence[str], run_dir: str) -> int:
    """Run a command on each machine to its end, and return the exit code of the one that failed first, else 0.

    SIGTERM asks all to save and end; where one fails, the others are asked as well, and ended after the grace.
    """
    asked: dict[str, Any] = json.loads(text)
    signals = Signals()
    members = [_here(asked, words), *(_there(asked, rank, words, run_dir) for rank in range(1, len(asked["hosts"])))]
    first, deadline, told, beat = None, float("inf"), False, 0.0
    while True:
        ended = [member for member in members if member.code is None and _ended(member)]
        # Of several that ended at once, a lost machine is why the others failed.
        failed = sorted((member for member in ended if member.code), key=lambda member: member.code != ssh.LOST)
        if failed and first is None:
            first = failed[0]
            if not signals.stop:
                say(first.words)
                deadline = time.monotonic() + float(asked["grace"])
        if all(member.code is not None for member in members):
            return first.code or 1 if first else 0
        if (first or signals.stop) and not told:
            told = True
            for member in members:
                member.tell(node.ASK)
        if signals.at_once or time.monotonic() > deadline:
            return _close(members, first)
        if time.monotonic() - beat >= _BEAT:
            beat = time.monotonic()
            for member in members:
                member.tell(node.BEAT)
        signals.wait(_LOOK)


def _ended(member: _Member) -> bool:
    code = member.child.poll()
    member.code = 128 - code if code is not None and code < 0 else code
    return code is not None


def _close(members: Sequence[_Member], first: _Member | None) -> int:
    deadline = time.monotonic() + _ENDS
    for member in members:
        member.close()
    while not all(_ended(member) for member in members) and time.monotonic() < deadline:
        time.sleep(0.05)
    for member in members:
        if member.code is None:
            say(f"machine {member.rank} ({visible(member.host)}) does not answer: its processes end within two minutes")
    return (first.code if first else None) or 128 + signal.SIGKILL


def _here(asked: dict[str, Any], words: Sequence[str]) -> _Member:
    child = subprocess.Popen([*words, "--node-rank=0"], stdin=subprocess.DEVNULL, start_new_session=True)
    return _Member(0, asked["hosts"][0]["host"], child)


def _stays() -> None:
    """Have an ssh stay where all processes of the run are asked to end: by it the others are asked, and save."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _there(asked: dict[str, Any], rank: int, words: Sequence[str], run_dir: str) -> _Member:
    host = asked["hosts"][rank]
    environment = {name: os.environ[name] for name in _PASSED if name in os.environ}
    environment["TUI_TRAIN_ADDRESS"] = host["address"]
    if host["shared"]:
        environment["TUI_TRAIN_SHARED"] = "1"
    # Its cards are its own.
    own = [word for word in words if not word.startswith("--gpus=")]
    question = {"rank": rank, "words": own, "environment": environment}
    command = ssh.words(host["host"], node.words_of(asked["python"], run_dir, "keep"))
    child = subprocess.Popen(command, stdin=subprocess.PIPE, preexec_fn=_stays)  # noqa: PLW1509 - here are no threads
    assert child.stdin is not None  # noqa: S101 - for the type
    with contextlib.suppress(OSError):
        child.stdin.write(json.dumps(question).encode() + b"\n")
        child.stdin.flush()
    os.set_blocking(child.stdin.fileno(), False)
    return _Member(rank, host["host"], child)
