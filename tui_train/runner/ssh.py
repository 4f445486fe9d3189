"""Commands on other machines by the system's ssh, and what it means when one does not start."""

from __future__ import annotations

import shlex
from typing import Sequence

from .safe_text import visible

# The exit code of ssh itself; no training on another machine ends with it (see node.py).
CONNECTION_LOST_EXIT_CODE = 255
# A command is no login: what the user's configuration adds to one has no place there, such as another command, a
# terminal, and what the host could use: ports, the keys of an agent, the screen, a network device.
PLAIN_OPTIONS = (
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=15",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "Tunnel=no",
    "PermitLocalCommand=no",
    # For OpenSSH before 7.6; any other list would take the place of one in the user's configuration.
    "IgnoreUnknown=*",
    "RemoteCommand=none",
)
# A link that is cut for less than two minutes changes nothing. A connection that others share could end with them.
_ATTEMPT_OPTIONS = (*PLAIN_OPTIONS, "ServerAliveCountMax=8", "ControlPath=none")
# What ssh and the shell there say, and what it means.
_ADVICE_BY_MESSAGE = (
    ("Host key verification failed", "Its key is unknown or has changed: log in by hand once, and read what ssh says."),
    ("Permission denied", "ssh asks for a password or knows no key: set up a key (ssh-copy-id), or load it (ssh-add)."),
    ("Could not resolve hostname", "The name is unknown: check it, or add the host to ~/.ssh/config."),
    ("Connection refused", "No ssh server answers there: check the port, and that sshd runs."),
    ("timed out", "The host does not answer: check the network, the VPN, and that it is on."),
    ("python3: command not found", "Install python3 (3.8 or newer) on that host."),
    ("python3: not found", "Install python3 (3.8 or newer) on that host."),
)


def ssh_command(host: str, command: Sequence[str]) -> tuple[str, ...]:
    """Return the words that run a command on a host; a `~/` at its beginning is the home folder there."""
    program = command[0]
    shown = f"~/{shlex.quote(program[2:])}" if program.startswith("~/") else shlex.quote(program)
    line = " ".join(("exec", shown, *map(shlex.quote, command[1:])))
    return ("ssh", "-T", *(word for option in _ATTEMPT_OPTIONS for word in ("-o", option)), "--", host, line)


def failure_advice(stderr: bytes) -> str:
    """Return what to do about what ssh, or the shell at its other end, said last."""
    text = stderr.decode(errors="replace")
    known = next((meaning for part, meaning in _ADVICE_BY_MESSAGE if part in text), "")
    last = (text.strip().splitlines() or ["ssh said nothing"])[-1][:300]
    return f"{known} ({visible(last)})" if known else visible(last)
