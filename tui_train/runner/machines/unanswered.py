"""Connections between the machines of a training that get no answer: what a firewall swallows, and no log names."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ..run_folder.supervisor_plan import SupervisorPlan
from ..system.safe_text import visible

_SYN_SENT_STATE = "02"
# Known services have lower ones; jobs of Slurm meet at one from here on.
_MIN_RANDOM_PORT = 10000
_MAX_CHECK_INTERVAL_SECONDS = 10.0


class _Peer(NamedTuple):
    address: str
    port: int


class UnansweredConnections:
    """Those of this machine's part of a training; the first machine of it has the `first_address`."""

    def __init__(self, plan: SupervisorPlan, first_address: str) -> None:
        self._plan, self._first_address = plan, first_address
        self.check_interval = min(_MAX_CHECK_INTERVAL_SECONDS, plan.connection_wait / 2)
        self._first_seen: dict[_Peer, float] = {}
        self._reported: set[_Peer] = set()

    def new_sentences(self, pids: Iterable[int], now: float) -> list[str]:
        """Return a line about each, once, that these processes have for the seconds of the plan.

        `now` are seconds of any clock. It is to be asked again after each `check_interval`.
        """
        peers = _unanswered_peers(pids, self._plan.port)
        self._first_seen = {peer: self._first_seen.get(peer, now) for peer in peers}
        late = [peer for peer, first in self._first_seen.items() if now - first >= self._plan.connection_wait]
        new = [peer for peer in late if peer not in self._reported]
        self._reported.update(new)
        return [self._unanswered_sentence(peer) for peer in new]

    def _unanswered_sentence(self, peer: _Peer) -> str:
        is_first = self._plan.hosts and peer.address == self._first_address
        name = f"{self._plan.hosts[0]} ({peer.address})" if is_first else peer.address
        library = "NCCL" if self._plan.backend == "nccl" else "Gloo"
        besides = f"port {self._plan.port}" if self._plan.port else "the port of the rendezvous"
        waits = f"launch.sh: {os.uname().nodename} waits for {name} at port {peer.port}, and got no answer"
        if not is_first and peer.port != self._plan.port:
            return visible(f"{waits}: if that is a machine of the training, open all TCP ports between them")
        return visible(
            f"{waits}: open all TCP ports between the machines in their firewalls; "
            f"{library} uses random ones besides {besides}"
        )


def _unanswered_peers(pids: Iterable[int], rendezvous_port: int) -> set[_Peer]:
    """Return where processes try to connect, at the port of the rendezvous or a random one."""
    peer_by_inode = {
        inode: peer
        for inode, peer in _connecting_sockets()
        if peer.port == rendezvous_port or peer.port >= _MIN_RANDOM_PORT
    }
    return {peer_by_inode[inode] for inode in _socket_inodes(pids) & peer_by_inode.keys()} if peer_by_inode else set()


def _connecting_sockets() -> Iterable[tuple[str, _Peer]]:
    """Yield the sockets of this machine that have sent a first packet and got none, by their inodes."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as rows:
                for fields in map(str.split, rows):
                    if len(fields) > 9 and fields[3] == _SYN_SENT_STATE:
                        yield fields[9], _parse_peer(fields[2])
        except OSError:
            continue


def _parse_peer(field: str) -> _Peer:
    """Return an address and port as the kernel lists them: its words as this machine has numbers."""
    address, _, port = field.partition(":")
    words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    text = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    prefix = "::ffff:"
    return _Peer(text[len(prefix) :] if text.startswith(prefix) and "." in text else text, int(port, 16))


def _socket_inodes(pids: Iterable[int]) -> set[str]:
    inodes = set()
    for pid in pids:
        folder = f"/proc/{pid}/fd"
        try:
            for name in os.listdir(folder):
                target = os.readlink(f"{folder}/{name}")
                if target.startswith("socket:["):
                    inodes.add(target[len("socket:[") : -1])
        except OSError:
            # Gone meanwhile, or another user's.
            continue
    return inodes
