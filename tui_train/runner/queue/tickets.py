"""The folder of the queue: a ticket file for each start of all users, and a lock file for each card.

All users may add to it, and only an owner changes a file. So a ticket counts only while a process of its owner has it
locked, and what it says of order is taken from that process; nothing in the folder is followed, waited for, or
believed beyond that. The kernel ends a lock with its process, so that nothing is left to tidy up.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import stat
import time
from typing import Any, Iterator, Sequence

from ..run_folder import lock_owner
from ..system import safe_open, untrusted_json
from ..system.mounts import file_system_of
from ..system.processes import machine_boot_id, process_uid
from ..system.safe_text import visible
from .turns import ResourceRequest, Ticket

QUEUE_FOLDER_VARIABLE = "TUI_TRAIN_QUEUE"
_DEFAULT_QUEUE_FOLDER = "/tmp/tui-train-queue"  # noqa: S108 - all users know it, and it is looked at before it is used
_TICKET_PREFIX, _ORDER_PREFIX, _LOCK_PREFIX, _UNFINISHED_PREFIX = "run-", "order-", "lock-", ".new-"
# Other users read it, whatever the mask of this one is.
_FILE_MODE = 0o644
_CORES_LOCK_NAME = f"{_LOCK_PREFIX}cores"
_MIN_ABANDONED_AGE_SECONDS = 60.0
# Of a file in /tmp that nobody touches for days, systemd-tmpfiles thinks that nobody needs it.
_TOUCH_INTERVAL_SECONDS = 3600.0
_MAX_FILE_BYTES = 1 << 16
_MAX_LISTED_FILES = 10_000
_MAX_JSON_VALUES = 5_000
_MAX_NUMBER = 2**62
_MAX_TICKET_READ_TRIES = 10
# Their locks are those of all machines, or of none.
_NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "fuse.glusterfs", "fuse.sshfs"}
)


def queue_folder_path() -> str:
    """Return where the queue of this machine is."""
    return os.environ.get(QUEUE_FOLDER_VARIABLE) or _DEFAULT_QUEUE_FOLDER


class QueueFolder:
    """The folder of the queue, open; OSError says why it cannot be used."""

    def __init__(self, *, make: bool) -> None:
        """Open it; `make` it where it is missing."""
        self.path = queue_folder_path()
        kind = file_system_of(self.path)
        if kind in _NETWORK_FILE_SYSTEMS:
            why = f"it is on a disk that machines share ({kind}), and each needs one of its own (TUI_TRAIN_QUEUE)"
            raise OSError(errno.ENOLCK, why, self.path)
        if make:
            self._make()
        self._folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        mode = os.fstat(self._folder).st_mode
        if mode & 0o022 and not mode & stat.S_ISVTX:
            self.close()
            raise PermissionError(errno.EACCES, "all may remove each other's files there: chmod 1777 it", self.path)

    def _make(self) -> None:
        """Make it with its mode at once: another start may be about to open it, and this user's mask is not for all."""
        mask = os.umask(0)
        try:
            with contextlib.suppress(FileExistsError):
                os.mkdir(self.path, 0o1777)
        finally:
            os.umask(mask)

    def close(self) -> None:
        """Close it."""
        os.close(self._folder)

    def tickets(self) -> list[Ticket]:
        """Return the tickets of all living starts."""
        read = (self._living_ticket(name) for name in self._file_names(_TICKET_PREFIX))
        return [ticket for ticket in read if ticket]

    def wished_order_by_uid(self) -> dict[int, tuple[str, ...]]:
        """Return the order that each user wants among their own tickets."""
        wishes = {}
        for name in self._file_names(_ORDER_PREFIX):
            with contextlib.suppress(OSError, untrusted_json.Unparsable), self._open_file(name) as file:
                data = _read_bounded_json(file)
                if name == _order_file_name(uid := os.fstat(file).st_uid) and _are_texts(data.get("names")):
                    wishes[uid] = tuple(data["names"])
        return wishes

    def write_wished_order(self, names: Sequence[str]) -> None:
        """Set the order that this user wants; OSError where it cannot be written."""
        name, data = _order_file_name(os.geteuid()), json.dumps({"names": list(names)}).encode()
        safe_open.write_atomically(name, data, folder_descriptor=self._folder)
        os.chmod(name, _FILE_MODE, dir_fd=self._folder)

    def write_ticket(self, ticket: Ticket) -> int:
        """Write a ticket of this process whole, and return the descriptor that keeps it; OSError where it cannot be."""
        fields = {
            "owner": ticket.owner._asdict(), "request": ticket.request._asdict(), "waits": ticket.waits,
            "cards": ticket.cards, "cores": ticket.cores, "why": ticket.why,
        }  # fmt: skip
        beside = f"{_UNFINISHED_PREFIX}{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(beside, flags, _FILE_MODE, dir_fd=self._folder)
        try:
            os.fchmod(file, _FILE_MODE)
            # At its name it is never without its lock.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _write_all_or_raise(file, json.dumps(fields).encode())
            os.rename(beside, ticket.name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            self.remove(beside)
            os.close(file)
            raise
        return file

    def remove(self, name: str) -> None:
        """Remove a file of this user, where it is still there."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self._folder)

    def lock_cards_or_cores(self, cards: Sequence[str]) -> list[int] | None:
        """Lock these cards, or without any the CPU cores, against other starts; None where one of them is locked."""
        locks: list[int] = []
        for name in sorted(map(_card_lock_name, cards)) or [_CORES_LOCK_NAME]:
            lock = self._lock_file(name)
            if lock is None:
                for each in locks:
                    os.close(each)
                return None
            locks.append(lock)
        return locks

    def remove_own_abandoned(self) -> None:
        """Remove what ended starts of this user have left."""
        for name in (*self._file_names(_TICKET_PREFIX), *self._file_names(_UNFINISHED_PREFIX)):
            with contextlib.suppress(OSError), self._open_file(name) as file:
                status = os.fstat(file)
                # One that is about to be locked is new.
                is_old = name.startswith(_TICKET_PREFIX) or time.time() - status.st_mtime > _MIN_ABANDONED_AGE_SECONDS
                if (
                    status.st_uid == os.geteuid()
                    and is_old
                    and not _is_locked(file)
                    and self._is_file_unchanged(name, status)
                ):
                    self.remove(name)

    def _file_names(self, prefix: str) -> list[str]:
        with os.scandir(self._folder) as entries:
            return [entry.name for _, entry in zip(range(_MAX_LISTED_FILES), entries) if entry.name.startswith(prefix)]

    @contextlib.contextmanager
    def _open_file(self, name: str) -> Iterator[int]:
        with safe_open.open_regular_file(name, self._folder) as file:
            yield file.fileno()

    def _living_ticket(self, name: str) -> Ticket | None:
        """Return a ticket that a process of its owner has locked; None for any other."""
        for _ in range(_MAX_TICKET_READ_TRIES):
            try:
                with self._open_file(name) as file:
                    status = os.fstat(file)
                    if _is_locked(file):
                        ticket = _parse_ticket(name, status.st_uid, _read_bounded_json(file))
                        return ticket if ticket and _is_owner_possibly_alive(ticket) else None
                    # Its process may have written another one in its place since it was opened.
                    if self._is_file_unchanged(name, status):
                        return None
            except (OSError, untrusted_json.Unparsable):
                return None
        return None

    def _is_file_unchanged(self, name: str, status: os.stat_result) -> bool:
        now = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        return (now.st_ino, now.st_ctime_ns) == (status.st_ino, status.st_ctime_ns)

    def _lock_file(self, name: str) -> int | None:
        flags = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        for more in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, os.O_RDONLY):
            try:
                # Others' files are never opened to be made: the kernel refuses that in a sticky folder.
                file = os.open(name, flags | more, _FILE_MODE, dir_fd=self._folder)
            except OSError:
                continue
            try:
                if more & os.O_CREAT:
                    os.fchmod(file, _FILE_MODE)
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(file)
                return None
            return file
        return None


class OwnTicket:
    """The ticket of this process, kept until `release`, with the locks of what it has taken."""

    def __init__(self, folder: QueueFolder, ticket: Ticket) -> None:
        """Write it; OSError where it cannot be written."""
        self.ticket = ticket
        self.folder = folder
        self.path = os.path.join(folder.path, ticket.name)
        folder.remove_own_abandoned()
        self._file = folder.write_ticket(ticket)
        self._locks: list[int] = []
        self._touched_at = time.monotonic()

    def change(self, **fields: Any) -> None:
        """Rewrite the ticket with other fields; OSError where it cannot be written."""
        changed = self.ticket._replace(**fields)
        file = self.folder.write_ticket(changed)
        os.close(self._file)
        self.ticket, self._file = changed, file

    def keep_locks(self, locks: Sequence[int]) -> None:
        """Keep the locks of cards as long as the ticket."""
        self._locks += locks

    def renew(self) -> bool:
        """Show now and then that it is in use, and write it again where somebody has removed it."""
        with contextlib.suppress(OSError):
            if not self._is_in_place():
                folder = QueueFolder(make=True)
                self.folder.close()
                self.folder = folder
                self.change()
            elif time.monotonic() - self._touched_at > _TOUCH_INTERVAL_SECONDS:
                self._touched_at = time.monotonic()
                os.utime(self.path, follow_symlinks=False)
        return True

    def _is_in_place(self) -> bool:
        try:
            there = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        own = os.fstat(self._file)
        return (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino)

    def release(self) -> None:
        """Leave the queue, and give back what was taken."""
        self.folder.remove(self.ticket.name)
        for file in (self._file, *self._locks):
            os.close(file)
        self.folder.close()


def ticket_name(mark: str) -> str:
    """Return the name of the ticket of a start by its mark."""
    return _TICKET_PREFIX + re.sub(r"[^0-9A-Za-z-]", "_", mark)


def _order_file_name(uid: int) -> str:
    return f"{_ORDER_PREFIX}{uid}"


def _card_lock_name(card: str) -> str:
    return f"{_LOCK_PREFIX}{re.sub(r'[^0-9A-Za-z-]', '_', card)[:100]}"


def _write_all_or_raise(file: int, data: bytes) -> None:
    if os.write(file, data) < len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    return False


def _is_owner_possibly_alive(ticket: Ticket) -> bool:
    """Tell whether the process that a ticket names may be the one that has it locked, and is its owner's.

    Where processes cannot be seen, in another container or with hidepid, the lock alone has to do.
    """
    owner = ticket.owner
    if owner.boot != machine_boot_id():
        return False
    if not owner.is_local:
        return True
    uid = process_uid(owner.pid)
    if uid is None:
        return not os.path.exists("/proc/1")
    return uid == ticket.uid and owner.process.is_alive


def _read_bounded_json(file: int) -> Any:
    return untrusted_json.parse_json(os.pread(file, _MAX_FILE_BYTES, 0), max_values=_MAX_JSON_VALUES)


def _parse_ticket(name: str, uid: int, data: Any) -> Ticket | None:
    """Return a ticket, None where the data are none."""
    owner, request = data.get("owner"), data.get("request")
    if not (isinstance(owner, dict) and isinstance(request, dict)):
        return None
    known = lock_owner.parse_owner(owner)
    if known is None:
        return None
    numbers = [request.get("card_count"), request.get("memory"), request.get("cores"), data.get("cores")]
    if not all(type(number) is int and 0 <= number < _MAX_NUMBER for number in (*numbers, known.pid, known.ticks)):
        return None
    if not (_are_texts(request.get("cards")) and _are_texts(data.get("cards")) and type(data.get("waits")) is bool):
        return None
    why = data.get("why")
    return Ticket(
        name,
        uid,
        known,
        ResourceRequest(tuple(request["cards"]), *numbers[:3]),
        data["waits"],
        tuple(data["cards"]),
        numbers[3],
        visible(why) if safe_open.is_valid_text(why) else "",
    )


def _are_texts(values: object) -> bool:
    return isinstance(values, list) and all(map(safe_open.is_valid_text, values))
