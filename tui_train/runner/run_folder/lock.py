"""One start at a time in a run folder, and in an output folder, also where several hosts share them.

Other users may write in the folder around a lock. So no link is followed at its name or in it, another user's lock is
never taken over, and only files that a lock has are ever removed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import time
from typing import Callable, Protocol

from ..system import other_programs, safe_open
from ..system.refused import BUSY_RESOURCE_EXIT_CODE, CANNOT_WRITE_EXIT_CODE, Refused
from ..system.safe_text import visible
from . import lock_owner
from .lock_owner import LOCK_LEASE_SECONDS, OWNER_FILE_NAME, LockOwner

_TAKEOVER_FOLDER_NAME = "heir"
_DISK_RESERVE_FILE_NAME = "reserve"
RENEW_INTERVAL_SECONDS = 10.0
# An owner may be about to leave, or, where none is named, about to write its name.
_OWNER_WAIT_SECONDS = 1.0
_MAX_TAKEOVER_SECONDS = 5.0
_MAX_LOCK_WAIT_SECONDS = 30.0
_NAME_TAKEN_ERRNOS = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR)
_FORBIDDEN_ERRNOS = (errno.EPERM, errno.EACCES)


class HeldLock(Protocol):
    """Lock that a start holds until its end."""

    path: str

    def renew(self) -> bool:
        """Show that it is in use; false where another start has it now."""
        raise NotImplementedError

    def release(self) -> None:
        """Give it up."""
        raise NotImplementedError


class FolderLock:
    """A lock that this process holds until `release`; `renew` says now and then that it still does."""

    def __init__(self, path: str, owner: LockOwner, busy_text: str, still_training: Callable[[LockOwner], str]) -> None:
        """`still_training` says in words what still trains of an owner that is gone, empty where nothing does."""
        self.path = path
        self.owner = owner
        self.busy_text = busy_text
        self.still_training = still_training
        self._name = os.path.basename(path)
        # The folder around it, wherever that is moved.
        self._parent = -1
        # Some network disks give what this user makes to another one.
        self._uid = os.geteuid()
        self._renewed_at = 0.0

    def take(self) -> None:
        """Make the lock, or take over a dead owner's.

        Raises Refused where one lives, where it is none of this user's, where nothing can be written, or where it is no
        longer wanted.
        """
        try:
            self._parent = os.open(os.path.dirname(self.path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise self._refusal_of_write_error(error) from None
        try:
            self._take_lock()
        except BaseException:
            self._close_parent_folder()
            raise

    def _take_lock(self) -> None:
        begun = time.monotonic()
        while not self._try_to_create():
            waited = time.monotonic() - begun
            if other_programs.is_interrupted() or waited >= _MAX_LOCK_WAIT_SECONDS:
                raise Refused(
                    BUSY_RESOURCE_EXIT_CODE,
                    f"{visible(self.path)} cannot be taken over: remove it, if nothing trains there",
                )
            if self._try_to_take_over(waited):
                return
            time.sleep(0.1)

    def _try_to_create(self) -> bool:
        """Make the lock with its owner in it, at once; false where there is one."""
        beside = f"{self._name}.{os.urandom(6).hex()}"
        try:
            os.mkdir(beside, 0o755, dir_fd=self._parent)
        except OSError as error:
            raise self._refusal_of_write_error(error) from None
        try:
            with safe_open.open_folder(beside, self._parent) as folder:
                self._uid = self._write_owner_file(folder)
            # An empty folder is of one that was about to leave, and gives way.
            os.rename(beside, self._name, src_dir_fd=self._parent, dst_dir_fd=self._parent)
        except OSError as error:
            self._remove_lock_folder(beside)
            # In a folder like /tmp nobody replaces what is another user's.
            if error.errno in _NAME_TAKEN_ERRNOS or (error.errno in _FORBIDDEN_ERRNOS and self._stat_of_lock()):
                return False
            raise self._refusal_of_write_error(error) from None
        return self._is_held_by_this_process()

    def _try_to_take_over(self, waited_seconds: float) -> bool:
        """Take over the lock that is there; false where that must wait, Refused where it is not to be had."""
        try:
            with safe_open.open_folder(self._name, self._parent) as folder:
                owner = lock_owner.read_owner_of_open_lock(folder)
                works = owner and lock_owner.is_owner_of_open_lock_working(owner, folder, self._parent, asks_disk=True)
                if waited_seconds < _OWNER_WAIT_SECONDS and (works or owner is None):
                    return False
                if owner and works:
                    held = self._lock_held_sentence(owner, self._foreign_user_name_of_lock(folder))
                    raise Refused(BUSY_RESOURCE_EXIT_CODE, held)
                self._require_lock_of_our_user(folder, owner)
                return self._try_to_replace_owner(folder, owner, waited_seconds) and self._is_held_by_this_process()
        except FileNotFoundError:
            return False
        except OSError as error:
            found = self._stat_of_lock()
            if found is None or stat.S_ISDIR(found.st_mode):
                raise self._refusal_of_write_error(error) from None
            stranger = self._foreign_user_name_of_status(found)
            what = safe_open.file_kind_text(found.st_mode) + (f" of {stranger}" if stranger else "")
            raise self._refusal_of_obstacle(f"is {what}, not a lock: ") from None

    def _require_lock_of_our_user(self, folder: int, owner: LockOwner | None) -> None:
        """Refuse to take over another user's lock, and a folder that is none."""
        stranger = self._foreign_user_name_of_lock(folder)
        if stranger:
            raise self._refusal_of_obstacle(f"is a lock of {stranger}: if nothing trains there, ")
        if owner:
            # It is a lock, whatever lies beside its owner: that stays.
            return
        with safe_open.open_folder(".", folder, readable=True) as listed:
            strange = [
                name
                for name in os.listdir(listed)
                if not (_belongs_in_lock_folder(name) or _is_disk_leftover_name(name))
            ]
        if strange:
            raise self._refusal_of_obstacle(f"is not a lock, it holds {visible(min(strange))}: ")

    def _try_to_replace_owner(self, folder: int, dead_owner: LockOwner | None, waited_seconds: float) -> bool:
        """Take the lock of a dead owner, which only one can; false where another one does."""
        left = self.still_training(dead_owner) if dead_owner else ""
        if left:
            raise Refused(BUSY_RESOURCE_EXIT_CODE, left)
        try:
            os.mkdir(_TAKEOVER_FOLDER_NAME, dir_fd=folder)
        except FileExistsError:
            # An heir that died in these few lines would keep the folder shut.
            if waited_seconds >= _MAX_TAKEOVER_SECONDS:
                with contextlib.suppress(OSError):
                    os.rmdir(_TAKEOVER_FOLDER_NAME, dir_fd=folder)
            return False
        try:
            if lock_owner.read_owner_of_open_lock(folder) != dead_owner:
                return False
            self._write_owner_file(folder)
        finally:
            with contextlib.suppress(OSError):
                os.rmdir(_TAKEOVER_FOLDER_NAME, dir_fd=folder)
        return True

    def _write_owner_file(self, folder: int) -> int:
        return safe_open.write_atomically(
            OWNER_FILE_NAME, json.dumps(self.owner._asdict()).encode(), folder_descriptor=folder
        )

    def _is_held_by_this_process(self) -> bool:
        """Tell whether what is at the lock's name is a lock of this process."""
        try:
            with safe_open.open_folder(self._name, self._parent) as folder:
                is_named = lock_owner.read_owner_of_open_lock(folder) == self.owner
                return is_named and not self._foreign_user_name_of_lock(folder)
        except OSError:
            return False

    def _foreign_user_name_of_lock(self, folder: int) -> str:
        """Return the other user who made a lock, or its owner file; empty for this one."""
        owned = [os.fstat(folder)]
        with contextlib.suppress(OSError):
            owned.append(os.stat(OWNER_FILE_NAME, dir_fd=folder, follow_symlinks=False))
        return next(filter(None, map(self._foreign_user_name_of_status, owned)), "")

    def _foreign_user_name_of_status(self, status: os.stat_result | None) -> str:
        """Return the name of the other user that something belongs to, empty for this one."""
        return "" if status is None or self._is_our_user(status.st_uid) else visible(safe_open.user_name(status.st_uid))

    def _is_our_user(self, uid: int) -> bool:
        return uid in (os.geteuid(), self._uid)

    def _stat_of_lock(self) -> os.stat_result | None:
        """Return the status of what is at the lock's name, None where nothing is."""
        try:
            return os.stat(self._name, dir_fd=self._parent, follow_symlinks=False)
        except OSError:
            return None

    def _refusal_of_write_error(self, error: OSError) -> Refused:
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        why = f"{error.strerror}: {'free some space, or ' if is_full else ''}choose another folder"
        return Refused(CANNOT_WRITE_EXIT_CODE, f"cannot write in {visible(os.path.dirname(self.path))}: {why}")

    def _refusal_of_obstacle(self, description: str) -> Refused:
        """Return the refusal for what stays at the lock's name until somebody moves it."""
        around, whose = os.fstat(self._parent), self._foreign_user_name_of_status(self._stat_of_lock())
        # As in /tmp.
        others_stay = around.st_mode & stat.S_ISVTX and not self._is_our_user(around.st_uid)
        remedy = f"have {whose} remove it" if whose and others_stay else "move it away"
        return Refused(BUSY_RESOURCE_EXIT_CODE, f"{visible(self.path)} {description}{remedy}, or choose another folder")

    def _lock_held_sentence(self, owner: LockOwner, foreign_user: str) -> str:
        whose = f"process {owner.pid} of {foreign_user}" if foreign_user else f"process {owner.pid}"
        if owner.is_local:
            return f"{self.busy_text} already ({whose})"
        place = (
            visible(owner.host) if owner.host != os.uname().nodename else "this machine, out of sight (a container?)"
        )
        remedy = f"stop it there, or, if it is over, wait {LOCK_LEASE_SECONDS:.0f} s"
        if not foreign_user:
            remedy += f", or remove {visible(self.path)}"
        return f"{self.busy_text} already, on {place} ({whose}): {remedy}"

    def renew(self) -> bool:
        """Say every few seconds that the owner still works; false where another one has taken the lock meanwhile."""
        if time.monotonic() - self._renewed_at < RENEW_INTERVAL_SECONDS:
            return True
        self._renewed_at = time.monotonic()
        try:
            if self._stat_of_lock() is None:
                # Somebody removed it.
                return self._try_to_create()
            with safe_open.open_folder(self._name, self._parent) as folder:
                owner = lock_owner.read_owner_of_open_lock(folder)
                if owner == self.owner:
                    os.utime(OWNER_FILE_NAME, dir_fd=folder, follow_symlinks=False)
        except (OSError, Refused):
            # The disk is away for a moment, the folder around it is removed, or something else is in its place.
            return True
        return owner is None or owner == self.owner

    def keep_disk_reserve(self, byte_count: int) -> None:
        """Keep some bytes of the disk in it, for `drop_disk_reserve`, where they are to be had."""
        with contextlib.suppress(OSError), safe_open.open_folder(self._name, self._parent) as folder:
            safe_open.write_atomically(_DISK_RESERVE_FILE_NAME, bytes(byte_count), folder_descriptor=folder)

    def release(self) -> None:
        """Remove the lock where it is still this process's own."""
        if self._is_held_by_this_process():
            self._remove_lock_folder(self._name)
        self._close_parent_folder()

    def _remove_lock_folder(self, name: str) -> None:
        """Remove a lock, but nothing of it that is none of a lock's."""
        with contextlib.suppress(OSError), safe_open.open_folder(name, self._parent, readable=True) as folder:
            names = os.listdir(folder)
            ours = set(filter(_belongs_in_lock_folder, names))
            if len(ours) < len(names):
                # The folder stays, as a lock of nobody, which any start takes over.
                left = json.dumps(self.owner._replace(pid=0)._asdict()).encode()
                safe_open.write_atomically(OWNER_FILE_NAME, left, folder_descriptor=folder)
                os.utime(OWNER_FILE_NAME, (0, 0), dir_fd=folder, follow_symlinks=False)
                ours.discard(OWNER_FILE_NAME)
            for each in ours:
                with contextlib.suppress(OSError):
                    os.unlink(each, dir_fd=folder)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=self._parent)

    def _close_parent_folder(self) -> None:
        os.close(self._parent)
        self._parent = -1


def drop_disk_reserve(run_folder: int) -> None:
    """Give up the reserve of a run folder's lock, by the descriptor of that folder."""
    with contextlib.suppress(OSError), safe_open.open_folder(lock_owner.LOCK_FOLDER_NAME, run_folder) as folder:
        os.unlink(_DISK_RESERVE_FILE_NAME, dir_fd=folder)


def _belongs_in_lock_folder(name: str) -> bool:
    return name in (OWNER_FILE_NAME, _TAKEOVER_FOLDER_NAME, _DISK_RESERVE_FILE_NAME) or name.startswith(
        (OWNER_FILE_NAME + safe_open.TEMPORARY_INFIX, _DISK_RESERVE_FILE_NAME + safe_open.TEMPORARY_INFIX)
    )


def _is_disk_leftover_name(name: str) -> bool:
    """Tell whether a name is of what a disk leaves in any folder: an open file that was removed on NFS, macOS's own."""
    return name.startswith(".nfs") or name == ".DS_Store"


def make_output_lock(
    output_folder: str, owner: LockOwner, still_training: Callable[[LockOwner], str]
) -> FolderLock | None:
    """Return the lock beside an output folder, which keeps other runs out of it; None where none can be made."""
    import zlib

    real = os.path.realpath(output_folder)
    parent = os.path.dirname(real)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError:
        return None
    if not os.access(parent, os.W_OK):
        return None
    # By its name alone, for hosts may see the folder around it at different paths.
    name = f".tui-train-{zlib.crc32(os.fsencode(os.path.basename(real))):08x}"
    return FolderLock(
        os.path.join(parent, name), owner, f"a training writes to {visible(output_folder)}", still_training
    )
