"""The names in a folder, on this machine or on a host, by which a path that is typed is completed."""

import threading
import time

from tui_train.runner.system.paths import names_in_folder

_MAX_NAMES_IN_FOLDER = 2000
_DEADLINE_SECONDS = 15.0
# Seconds for which the names in a folder of a host are kept.
_CACHE_SECONDS = 30.0


def names_in_local_folder(folder: str) -> list[str]:
    """Return the names in a folder of this machine, folders with a slash; none where it is too large or unreadable."""
    return names_in_folder(folder or ".", _MAX_NAMES_IN_FOLDER)


class RemoteFolderNames:
    """The names in the folders of a host, each asked for once in half a minute."""

    def __init__(self, host: str) -> None:
        """Begin with nothing asked of this host."""
        self.host = host
        self._kept: dict[str, tuple[float, list[str]]] = {}
        self._lock = threading.Lock()

    def __call__(self, folder: str) -> list[str]:
        """Return the names in a folder, as names_in_local_folder; waits for the host, so never on a screen's thread."""
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
        from tui_train.base.errors import Unavailable
        from tui_train.channel.session import ask_host
        from tui_train.facts.machine.child_process import CHILDREN_CANCELLED_EVENT

        question = {"do": "names", "folder": folder, "most": _MAX_NAMES_IN_FOLDER}
        try:
            return ask_host(
                self.host, question, list[str], _DEADLINE_SECONDS, is_cancelled=CHILDREN_CANCELLED_EVENT.is_set
            )
        except Unavailable:
            return []
