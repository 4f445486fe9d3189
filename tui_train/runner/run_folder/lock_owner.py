"""Owner of a lock, and whether its process still works; also for readers that take no lock.

The lock is a folder; the file `owner` in it names who made it. An owner on this machine is asked for by its process.
One elsewhere cannot be, so that it touches the file all the time: what was not touched for a while is left behind.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any, Iterator, Mapping, NamedTuple

from ..system import safe_open, untrusted_json
from ..system.processes import Process, machine_boot_id, machine_id, process_with_pid

# The lock of a run folder, and the file in any lock.
LOCK_FOLDER_NAME = ".lock"
OWNER_FILE_NAME = "owner"
# Clocks of a file server may lag, and a host may sleep for a moment.
LOCK_LEASE_SECONDS = 180.0
_MAX_OWNER_BYTES = 4096


class LockOwner(NamedTuple):
    """Owner of a lock: a process, its machine, and the mark of its run; `folder` is that run's."""

    pid: int = 0
    ticks: int = 0
    boot: str = ""
    namespace: int = 0
    machine: str = ""
    host: str = ""
    mark: str = ""
    folder: str = ""

    @property
    def is_local(self) -> bool:
        """True where its process can be seen from here: the same boot, and the same numbers of processes."""
        return (self.boot, self.namespace) == (machine_boot_id(), _pid_namespace())

    @property
    def has_machine_rebooted_since(self) -> bool:
        """True where this very machine has booted since, so that it is gone."""
        here = (machine_id(), os.uname().nodename)
        return bool(self.machine) and (self.machine, self.host) == here and self.boot != machine_boot_id()

    @property
    def process(self) -> Process:
        """Its process, which says something only where it is near."""
        return Process(self.pid, self.ticks)


_TYPE_BY_OWNER_FIELD = {name: type(value) for name, value in LockOwner._field_defaults.items()}


def this_process_as_owner(run_mark: str, folder: str) -> LockOwner:
    """Return this process as an owner."""
    return process_of_this_machine_as_owner(process_with_pid(os.getpid()), machine_boot_id(), run_mark, folder)


def process_of_this_machine_as_owner(process: Process, boot_id: str, run_mark: str, folder: str = "") -> LockOwner:
    """Return a process of this machine, of this boot or an earlier one, as an owner."""
    here = _pid_namespace(), machine_id(), os.uname().nodename
    return LockOwner(process.pid, process.ticks, boot_id, *here, run_mark, folder)


def read_lock_owner(lock_path: str) -> LockOwner | None:
    """Return who a lock names; None where there is no lock, or where it does not say."""
    try:
        with _open_lock(lock_path) as (folder, _):
            return read_owner_of_open_lock(folder)
    except OSError:
        return None


def read_owner_of_open_lock(lock_descriptor: int) -> LockOwner | None:
    """Return who a lock names, by the descriptor of its folder."""
    try:
        values = untrusted_json.parse_json(safe_open.read_bounded(OWNER_FILE_NAME, _MAX_OWNER_BYTES, lock_descriptor))
    except (OSError, untrusted_json.Unparsable):
        return None
    return parse_owner(values)


def parse_owner(values: Mapping[str, Any]) -> LockOwner | None:
    """Return the owner that data name; None where they do not."""
    if not values.keys() >= {"pid", "ticks", "boot", "mark"}:
        return None
    # A later version may say more.
    fields = {name: value for name, value in values.items() if name in _TYPE_BY_OWNER_FIELD}
    if any(type(value) is not _TYPE_BY_OWNER_FIELD[name] for name, value in fields.items()):
        return None
    return (
        LockOwner(**fields)
        if all(safe_open.is_valid_text(value) for value in fields.values() if isinstance(value, str))
        else None
    )


def is_owner_working(lock_path: str, owner: LockOwner) -> bool:
    """Tell whether the owner of a lock still works: by its process where that is seen, else by its last touch."""
    try:
        with _open_lock(lock_path) as (folder, parent):
            # Whoever only looks at somebody else's folder writes nothing there.
            return is_owner_of_open_lock_working(
                owner, folder, parent, asks_disk=os.fstat(parent).st_uid == os.geteuid()
            )
    except OSError:
        return False


def is_owner_of_open_lock_working(
    owner: LockOwner, lock_descriptor: int, parent_descriptor: int, *, asks_disk: bool
) -> bool:
    """Tell what `is_owner_working` does, by descriptors; `asks_disk` writes beside the lock, for the disk's time."""
    if owner.is_local:
        return owner.process.is_alive
    if owner.has_machine_rebooted_since:
        return False
    try:
        touched = os.stat(OWNER_FILE_NAME, dir_fd=lock_descriptor, follow_symlinks=False).st_mtime
    except OSError:
        return False
    return (_time_by_disk_clock(parent_descriptor) if asks_disk else time.time()) - touched < LOCK_LEASE_SECONDS


def _time_by_disk_clock(folder: int) -> float:
    """Return the time by the clock of the disk that a folder is on; this machine's where nothing can be written."""
    # Not in the lock itself, which its owner empties and removes.
    probe = f".now.{os.urandom(6).hex()}"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=folder))
        now = os.stat(probe, dir_fd=folder, follow_symlinks=False).st_mtime
        os.unlink(probe, dir_fd=folder)
    except OSError:
        return time.time()
    return now


@contextlib.contextmanager
def _open_lock(lock_path: str) -> Iterator[tuple[int, int]]:
    """Yield the descriptors of a lock and of the folder around it."""
    with safe_open.open_folder(os.path.dirname(lock_path) or ".") as parent, safe_open.open_folder(
        os.path.basename(lock_path), parent
    ) as folder:
        yield folder, parent


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
