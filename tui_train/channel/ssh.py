"""The command line of ssh to a host: with the user's own configuration, without questions, over one connection."""

import os
import re
import signal
import subprocess
from functools import cache
from pathlib import Path
from stat import S_IWGRP, S_IWOTH

from tui_train.base.app_paths import connections_folder
from tui_train.base.errors import BadInput, Unavailable
from tui_train.base.files import read_regular_file
from tui_train.base.text import visible
from tui_train.runner.machines.ssh import MAX_SOCKET_FOLDER_BYTES, SSH_OPTIONS

_HOST_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*", re.ASCII)
# Seconds for which a connection is kept after its last use: one that needs no questions, and one that somebody opened.
_CONNECTION_KEPT_SECONDS, _LOGIN_KEPT_SECONDS = 60, 12 * 3600
_LOCAL_ANSWER_SECONDS = 5.0
_MAX_CONFIG_BYTES = 1 << 20


def is_host_name(text: str) -> bool:
    """Return whether a text can be a host name for ssh."""
    return bool(_HOST_NAME_PATTERN.fullmatch(text))


def require_host_name(host: str) -> None:
    """Raise BadInput where a text can be no host name for ssh."""
    if not is_host_name(host):
        message = f"{visible(host) or 'an empty text'} is not a host name"
        raise BadInput(message, "Give it as for ssh: HOST, USER@HOST, or a Host of ~/.ssh/config.")


def ssh_command_prefix(host: str) -> list[str]:
    """Return the words that begin a command on a host; BadInput where it is no host name."""
    require_host_name(host)
    sharing = _options_to_share_user_connection(host) or _connection_sharing_options(_CONNECTION_KEPT_SECONDS)
    options = (*SSH_OPTIONS, "ServerAliveCountMax=3", *sharing)
    return ["ssh", "-T", *(word for option in options for word in ("-o", option)), "--", host]


def log_in(host: str) -> int:
    """Have ssh log in on this terminal, asking what it must, and return its exit code.

    What it opens serves all that is asked of the host in the next hours. BadInput where it is no host name, Unavailable
    where no connection can be kept, or there is no ssh.
    """
    usual = ssh_command_prefix(host)
    sharing = _connection_sharing_options(_LOGIN_KEPT_SECONDS)
    if not sharing:
        folder = visible(str(connections_folder()))
        raise Unavailable(f"no connection can be kept in {folder}", "Set XDG_CACHE_HOME to a short path of your own.")
    # Of two values ssh takes the first.
    options = (word for option in ("BatchMode=no", "ConnectTimeout=30", *sharing) for word in ("-o", option))
    # Ctrl-C at its question ends ssh alone; one that is ignored here would be ignored there as well.
    earlier = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(["ssh", *options, *usual[1:], "true"], check=False).returncode
    except OSError as error:
        raise Unavailable(f"ssh cannot be started: {error.strerror}", "Install the client of OpenSSH.") from None
    finally:
        signal.signal(signal.SIGINT, earlier)


def _options_to_share_user_connection(host: str) -> tuple[str, ...]:
    """Return the options that use the user's own connection to a host; none where he has none that answers."""
    option = f"ControlPath={_user_connection_socket(host)}"
    answers = option != "ControlPath=" and b"Master running" in _local_ssh_answer(
        "-O", "check", "-o", option, "--", host
    )
    return ("ControlMaster=no", option) if answers else ()


@cache
def _user_connection_socket(host: str) -> str:
    """Return the path of the user's own shared connection to a host, empty where his configuration names none."""
    try:
        text = read_regular_file(Path("~/.ssh/config").expanduser(), _MAX_CONFIG_BYTES).lower()
    except (OSError, RuntimeError):
        return ""
    if b"controlpath" not in text and b"include" not in text:
        return ""
    lines = _local_ssh_answer("-G", "--", host).decode(errors="replace").splitlines()
    path = next((line.partition(" ")[2] for line in lines if line.startswith("controlpath ")), "none")
    return "" if path == "none" else path


def _local_ssh_answer(*words: str) -> bytes:
    """Return what ssh says on this machine alone, nothing where it does not within some seconds."""
    try:
        return subprocess.run(
            ["ssh", *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=_LOCAL_ANSWER_SECONDS,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return b""


def _connection_sharing_options(kept_seconds: int) -> tuple[str, ...]:
    """Return the options by which commands that follow each other share a connection, kept for some seconds."""
    folder = connections_folder()
    if len(os.fsencode(folder)) > MAX_SOCKET_FOLDER_BYTES:
        return ()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except OSError:
        return ()
    # Whoever may write there could answer in the place of a host.
    if status.st_uid != os.geteuid() or status.st_mode & (S_IWGRP | S_IWOTH):
        return ()
    return ("ControlMaster=auto", f"ControlPath={folder}/%C", f"ControlPersist={kept_seconds}")
