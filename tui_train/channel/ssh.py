"""The command line of ssh to a host: with the user's own configuration, without questions, over one connection."""

import os
import re
from stat import S_IWGRP, S_IWOTH

from tui_train.base.app_paths import connections_folder
from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.runner.ssh import PLAIN_OPTIONS

_HOST_NAME_PATTERN = re.compile(r"[A-Za-z0-9_.@:%\[\]][A-Za-z0-9_.@:%\[\]-]*", re.ASCII)
# A socket's path has at most 108 bytes; ssh adds a hash of 40 and, while it opens it, 17 more.
_MAX_SOCKET_FOLDER_LENGTH = 45


def is_host_name(text: str) -> bool:
    """Return whether a text can be a host name for ssh."""
    return bool(_HOST_NAME_PATTERN.fullmatch(text))


def ssh_command_prefix(host: str) -> list[str]:
    """Return the words that begin a command on a host; BadInput where it is no host name."""
    if not is_host_name(host):
        message = f"{visible(host) or 'an empty text'} is not a host name"
        raise BadInput(message, "Give it as for ssh: HOST, USER@HOST, or a Host of ~/.ssh/config.")
    options = (*PLAIN_OPTIONS, "ServerAliveCountMax=3", *_sharing_options())
    return ["ssh", "-T", *(word for option in options for word in ("-o", option)), "--", host]


def _sharing_options() -> tuple[str, ...]:
    """Return the options by which commands that follow each other share a connection, which closes after a minute."""
    folder = connections_folder()
    if len(str(folder)) > _MAX_SOCKET_FOLDER_LENGTH:
        return ()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except OSError:
        return ()
    # Whoever may write there could answer in the place of a host.
    if status.st_uid != os.geteuid() or status.st_mode & (S_IWGRP | S_IWOTH):
        return ()
    return ("ControlMaster=auto", f"ControlPath={folder}/%C", "ControlPersist=60")
