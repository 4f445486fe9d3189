"""Commands on other machines by the system's ssh, and what it means when one does not start."""

from __future__ import annotations

import os
import re
import shlex
from typing import Mapping, Sequence

from ..system.safe_text import visible

# The exit code of ssh itself; no training on another machine ends with it (see node.py).
CONNECTION_LOST_EXIT_CODE = 255
# A command is no login: what the user's configuration adds to one has no place there, such as another command, a
# terminal, and what the host could use: ports, the keys of an agent, the screen, a network device.
SSH_OPTIONS = (
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
# A link that is cut for less than two minutes changes nothing.
_SSH_OPTIONS_OF_ATTEMPT = (*SSH_OPTIONS, "ServerAliveCountMax=8", "ControlMaster=no")
# Opens a connection that asks for what no program may answer.
LOGIN_COMMAND = "tui-train hosts login"
# What ssh and the shell there say, and what it means.
_ADVICE_BY_MESSAGE = (
    (
        "REMOTE HOST IDENTIFICATION HAS CHANGED",
        "It has another key than before: find out why; somebody may answer in its place.",
    ),
    ("Host key verification failed", "Its key is not known {where} yet."),
    (
        "Permission denied (",
        "It asks for a password or a code, or knows no key of yours.",
    ),
    ("Could not resolve hostname", "The name is unknown: check it, or add the host to ~/.ssh/config."),
    ("Connection refused", "No ssh server answers there: check the port, and that sshd runs."),
    ("timed out", "The host does not answer: check the network, the VPN, and that it is on."),
    ("No space left on device", "Its disk is full, or that of the home folder there."),
)
# A socket's path has at most 108 bytes; ssh adds a hash of 40 and, while it opens it, 17 more.
MAX_SOCKET_FOLDER_BYTES = 45
_NO_PYTHON_PATTERN = re.compile(r"python3\W.*not found|not found: python3|unknown command:? '?python3", re.IGNORECASE)
_NO_PYTHON_ADVICE = "Install python3 (3.8 or newer) on that host."


def ssh_command(host: str, command: Sequence[str], shared_connection: str = "none") -> tuple[str, ...]:
    """Return the words that run a command on a host; a `~/` at its beginning is the home folder there.

    A connection that others share could end with them: it is for hosts to which there is no other way.
    """
    options = (
        word for option in (*_SSH_OPTIONS_OF_ATTEMPT, f"ControlPath={shared_connection}") for word in ("-o", option)
    )
    return ("ssh", "-T", *options, "--", host, remote_shell_line(command))


def remote_shell_line(command: Sequence[str]) -> str:
    """Return what the login shell of a host is given to run a command in its place."""
    program = command[0]
    shown = f"~/{shlex.quote(program[2:])}" if program.startswith("~/") else shlex.quote(program)
    return " ".join(("exec", shown, *map(shlex.quote, command[1:])))


def login_control_path_pattern(environment: Mapping[str, str]) -> str:
    """Return what ssh takes as the connection that somebody opened to a host, if there is one: see `LOGIN_COMMAND`.

    It is "none" where no socket can have so long a path.
    """
    cache = environment.get("XDG_CACHE_HOME") or os.path.join(environment.get("HOME") or "~", ".cache")
    folder = os.path.join(cache, "tui-train", "ssh")
    return os.path.join(folder, "%C") if len(os.fsencode(folder)) <= MAX_SOCKET_FOLDER_BYTES else "none"


def login_would_help(stderr: bytes) -> bool:
    """Tell whether ssh failed for what a login by hand would settle."""
    asks = b"Permission denied (" in stderr or b"Host key verification failed" in stderr
    return asks and b"IDENTIFICATION HAS CHANGED" not in stderr


def login_advice(host: str, stderr: bytes, asking_host: str = "") -> str:
    """Return what to do about what ssh said last, here or on an asking host, and whether to log in by hand."""
    where = f"on {visible(asking_host)}" if asking_host else "here"
    login = f"Log in there: ssh {visible(host)}" if asking_host else f"To log in: {LOGIN_COMMAND} {visible(host)}"
    return f"{ssh_failure_advice(stderr, where)}{f' {login}' if login_would_help(stderr) else ''}"


def ssh_failure_advice(stderr: bytes, where: str = "here") -> str:
    """Return what to do about what ssh, or the shell at its other end, said last; `where` it runs is named."""
    text = stderr.decode(errors="replace")
    known = next((meaning for part, meaning in _ADVICE_BY_MESSAGE if part in text), "")
    if not known and _NO_PYTHON_PATTERN.search(text):
        known = _NO_PYTHON_ADVICE
    last = (text.strip().splitlines() or ["ssh said nothing"])[-1][:300]
    return f"{known.replace('{where}', where)} ({visible(last).rstrip('.')})" if known else visible(last)
