"""The hosts of a training over ssh, asked side by side: the GPUs, the Python, the paths and the clock of each."""

import math
import shlex
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tui_train.base import ssh as connections
from tui_train.base.text import visible
from tui_train.facts.ask import run_child
from tui_train.facts.remote import SMI, answered, of_nvidia_smi, sent
from tui_train.facts.types import Peer
from tui_train.supervisor import ssh

_EACH = 30.0
_LEAST = 90.0
# More ssh at once would leave the screen too little of the processor; a connection that is shared takes sshd's
# MaxSessions.
_AT_ONCE, _AT_ONCE_BY_ONE = 16, 8


def peers(hosts: Sequence[str], python: str, paths: Sequence[str], first: str = "") -> dict[str, Peer]:
    """Return what each of some hosts answers within 30 s; `first` is the host from which they are asked, if not this.

    `python` is the one that is to train.
    """
    question = {"pythons": [python], "only_named": True, "paths": [python, *paths], "files": []}
    command = sent({**question, "command": shlex.split(SMI)})
    at_once = _AT_ONCE_BY_ONE if first else _AT_ONCE
    whole = max(_LEAST, _EACH * math.ceil(len(hosts) / at_once))
    ends = time.monotonic() + whole
    asks = _asking(first)

    def peer(host: str) -> Peer:
        words: Sequence[str] = ssh.words(host, command)
        # The keys of the wizard come first. The connection to `first` is shared with what comes later, and keeps its
        # priority.
        words = [*connections.ssh_command(first), shlex.join(words)] if first else ["nice", *words]
        left = ends - time.monotonic()
        if left <= 0:
            return Peer(problem=f"was not asked within {whole:.0f} s")
        return _peer(host, words, asks, min(_EACH, left))

    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(hosts, pool.map(peer, hosts), strict=True))


class _Asking(NamedTuple):
    """The machine that asks: what no other has, empty where that is not known, and its clock against this one's."""

    identity: str
    ahead: float


def _asking(first: str) -> _Asking:
    command = ["sh", "-c", 'echo "$(uname -n) $(cat /proc/sys/kernel/random/boot_id) $(date +%s)"']
    words = [*connections.ssh_command(first), shlex.join(command)] if first else command
    lines = run_child(words, _EACH, folder=None).out.decode("utf-8", "replace").strip().splitlines()
    identity, _, clock = (lines or [""])[-1].strip().rpartition(" ")
    known = clock.isascii() and clock.isdigit() and len(clock) < 15
    return _Asking(identity, float(clock) - time.time()) if known else _Asking("", 0.0)


def _peer(host: str, words: Sequence[str], asks: _Asking, deadline: float) -> Peer:
    answer = run_child(words, deadline, folder=None)
    found = answered(answer.out)
    if found is None:
        return Peer(problem=visible(answer.failure) if answer.failure else ssh.lost(answer.error))
    return Peer(
        machine=of_nvidia_smi(host, found.said.text) if found.said and not found.said.code else None,
        is_first=bool(asks.identity) and found.identity == asks.identity,
        toolchain=found.toolchains[0] if found.toolchains else None,
        paths=found.paths,
        ahead=found.clock - time.time() - asks.ahead,
    )
