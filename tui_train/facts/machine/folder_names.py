"""The names in a folder, on this machine or on a host, by which a path that is typed is completed."""

import os
import threading
import time
from pathlib import Path

_MAX_NAMES = 2000
_DEADLINE_SECONDS = 15.0
# Seconds for which the names in a folder of a host are kept.
_CACHE_SECONDS = 30.0
_LIST_NAMES_PROGRAM = """
import json, os, sys
with os.scandir(os.path.expanduser(sys.argv[1])) as found:
    names = [entry.name + "/" * entry.is_dir() for _, entry in zip(range(int(sys.argv[2])), found)]
print(json.dumps(names))
"""


def local_names(folder: str) -> list[str]:
    """Return the names in a folder of this machine, folders with a slash; none where it is too large or unreadable."""
    try:
        with os.scandir(Path(folder or ".").expanduser()) as entries:
            names = [
                entry.name + "/" * entry.is_dir() for _, entry in zip(range(_MAX_NAMES + 1), entries, strict=False)
            ]
    except (OSError, ValueError, RuntimeError):
        return []
    return names if len(names) <= _MAX_NAMES else []


class RemoteFolderNames:
    """The names in the folders of a host, each asked for once in half a minute."""

    def __init__(self, host: str) -> None:
        """Begin with nothing asked of this host."""
        self.host = host
        self._kept: dict[str, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def __call__(self, folder: str) -> list[str]:
        """Return the names in a folder, as local_names; takes as long as the host, so never on a screen's thread."""
        if not folder.startswith(("/", "~")):
            return []
        # Who types on waits for the answer that is on its way.
        with self._lock:
            read_at, names = self._kept.get(folder, (0.0, []))
            if not read_at or time.monotonic() - read_at > _CACHE_SECONDS:
                names = self._read_names(folder)
                self._kept[folder] = time.monotonic(), names
        return names

    def _read_names(self, folder: str) -> list[str]:
        # The first screen has no use for them.
        import shlex

        from tui_train.base import ssh
        from tui_train.base.parse import Unparsable, json_as
        from tui_train.facts.machine.child_process import run_child

        command = shlex.join(["python3", "-c", _LIST_NAMES_PROGRAM, folder, str(_MAX_NAMES + 1)])
        answer = run_child([*ssh.ssh_command_prefix(self.host), command], _DEADLINE_SECONDS, folder=None)
        try:
            names = json_as(answer.out.splitlines()[-1], list[str]) if answer.code == 0 else []
        except (Unparsable, IndexError):
            return []
        return names if len(names) <= _MAX_NAMES else []
