"""One start at a time in a run folder, and in an output folder, also where several hosts share them.

The lock is a folder; the file `owner` in it names who made it. An owner on this machine is asked for by its process.
One elsewhere cannot be, so that it touches the file all the time: what was not touched for a while is left behind.
"""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any, Callable, NamedTuple

from . import outside, regular
from .processes import Process, boot_id, process
from .refused import BUSY, CANNOT_WRITE, Refused
from .text import visible

NAME = ".lock"
RESERVE = "reserve"
BEAT = 10.0
# Clocks of a file server may lag, and a host may sleep for a moment.
LEASE = 180.0
# An owner may be about to leave, or, where none is named, about to write its name.
_PATIENCE = 1.0
_HEIR = 5.0
_LONGEST = 30.0
_MOST = 4096


class Owner(NamedTuple):
    """Who holds a lock: a process, where it runs, and the mark of its run; `folder` is that run's."""

    pid: int = 0
    ticks: int = 0
    boot: str = ""
    namespace: int = 0
    machine: str = ""
    host: str = ""
    mark: str = ""
    folder: str = ""

    @property
    def near(self) -> bool:
        """Whether its process can be seen from here: the same boot, and the same numbers of processes."""
        return (self.boot, self.namespace) == (boot_id(), _namespace())

    @property
    def rebooted(self) -> bool:
        """Whether this very machine has booted since, so that it is gone."""
        here = (_machine(), os.uname().nodename)
        return bool(self.machine) and (self.machine, self.host) == here and self.boot != boot_id()

    @property
    def process(self) -> Process:
        """Its process, which says something only where it is near."""
        return Process(self.pid, self.ticks)


_KINDS = {name: type(value) for name, value in Owner._field_defaults.items()}


def myself(mark: str, folder: str) -> Owner:
    """Return this process as an owner."""
    me = process(os.getpid())
    return Owner(me.pid, me.ticks, boot_id(), _namespace(), _machine(), os.uname().nodename, mark, folder)


def owner(at: str) -> Owner | None:
    """Return who a lock names; None where there is no lock, or where it does not say."""
    try:
        values = outside.value(regular.read(os.path.join(at, "owner"), _MOST))
    except (OSError, outside.Unparsable):
        return None
    if not values.keys() >= {"pid", "ticks", "boot", "mark"}:
        return None
    # A later version may say more.
    fields = {name: value for name, value in values.items() if name in _KINDS}
    if any(type(value) is not _KINDS[name] for name, value in fields.items()):
        return None
    return (
        Owner(**fields) if all(regular.is_text(value) for value in fields.values() if isinstance(value, str)) else None
    )


def holds(at: str, who: Owner) -> bool:
    """Tell whether the owner of a lock still works: by its process where that is seen, else by its last touch."""
    if who.near:
        return who.process.alive
    return not who.rebooted and _age(at) < LEASE


def _age(at: str) -> float:
    """Return how many seconds ago a lock was touched, by the clock of the disk it is on."""
    # Not in the lock itself, which its owner empties and removes.
    beside = os.path.dirname(at)
    probe = os.path.join(beside, f".now.{os.uname().nodename}.{os.getpid()}")
    try:
        touched = os.stat(os.path.join(at, "owner")).st_mtime
        ours = os.stat(beside).st_uid == os.geteuid()
    except OSError:
        return LEASE
    try:
        if not ours:
            raise PermissionError
        os.close(os.open(probe, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        now = os.stat(probe).st_mtime
        os.unlink(probe)
    except OSError:
        # Whoever may only read, or looks at somebody else's folder, goes by the own clock.
        now = time.time()
    return max(0.0, now - touched)


class Lock:
    """A lock that this process holds until `release`; `beat` says now and then that it still does."""

    def __init__(self, at: str, me: Owner, words: str, left_by: Callable[[Owner], str]) -> None:
        """`left_by` says in words what still trains of an owner that is gone, empty where nothing does."""
        self.at = at
        self.me = me
        self.words = words
        self.left_by = left_by
        self._beaten = 0.0

    def take(self, interrupted: Callable[[], bool] = lambda: False) -> None:
        """Make the lock, or take over a dead owner's.

        Raises Refused where one lives, where nothing can be written, or where it is no longer wanted (`interrupted`).
        """
        begun = time.monotonic()
        while not self._made():
            waited = time.monotonic() - begun
            if interrupted() or waited >= _LONGEST:
                raise Refused(BUSY, f"{visible(self.at)} cannot be taken over: remove it, if nothing trains there")
            who = owner(self.at)
            if who and holds(self.at, who):
                if waited >= _PATIENCE:
                    raise Refused(BUSY, _busy(self.words, who, self.at))
            elif (who is not None or waited >= _PATIENCE) and self._inherit(who, waited):
                return
            time.sleep(0.1)

    def _made(self) -> bool:
        """Make the lock with its owner in it, at once; false where there is one."""
        beside = f"{self.at}.{os.uname().nodename}.{os.getpid()}"
        try:
            os.mkdir(beside)
            self._own(beside)
            # An empty folder is of one that was about to leave, and gives way.
            os.rename(beside, self.at)
        except OSError as error:
            _remove(os.unlink, os.path.join(beside, "owner"))
            _remove(os.rmdir, beside)
            if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                return False
            raise self._cannot_write(error) from None
        return True

    def _inherit(self, dead: Owner | None, waited: float) -> bool:
        """Take the lock of a dead owner, which only one can; false where another one does."""
        left = self.left_by(dead) if dead else ""
        if left:
            raise Refused(BUSY, left)
        heir = os.path.join(self.at, "heir")
        try:
            os.mkdir(heir)
        except FileExistsError:
            # An heir that died in these few lines would keep the folder shut.
            if waited >= _HEIR:
                _remove(os.rmdir, heir)
            return False
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._cannot_write(error) from None
        try:
            if owner(self.at) != dead:
                return False
            self._own(self.at)
        except OSError as error:
            raise self._cannot_write(error) from None
        finally:
            _remove(os.rmdir, heir)
        return True

    def _own(self, folder: str) -> None:
        regular.write_beside(os.path.join(folder, "owner"), json.dumps(self.me._asdict()).encode())

    def _cannot_write(self, error: OSError) -> Refused:
        why = f"{error.strerror}: choose another folder, or free some space"
        return Refused(CANNOT_WRITE, f"cannot write in {visible(os.path.dirname(self.at))}: {why}")

    def beat(self) -> bool:
        """Say every few seconds that the owner still works; false where another one has taken the lock meanwhile."""
        if time.monotonic() - self._beaten < BEAT:
            return True
        self._beaten = time.monotonic()
        who = owner(self.at)
        try:
            if who is None and not os.path.lexists(self.at):
                # Somebody removed it; where the whole folder was moved, it is there as well.
                return not os.path.isdir(os.path.dirname(self.at)) or self._made()
            if who == self.me:
                os.utime(os.path.join(self.at, "owner"))
        except (OSError, Refused):
            # The disk is away for a moment.
            return True
        return who is None or who == self.me

    def release(self) -> None:
        """Remove the lock where it is still this process's own."""
        if owner(self.at) == self.me:
            for name in _names(self.at):
                _remove(os.unlink, os.path.join(self.at, name))
            _remove(os.rmdir, self.at)


def output_lock(output: str, me: Owner, left_by: Callable[[Owner], str]) -> Lock | None:
    """Return the lock beside an output folder, which keeps other runs out of it; None where none can be made."""
    import zlib

    real = os.path.realpath(output)
    parent = os.path.dirname(real)
    try:
        os.makedirs(parent, exist_ok=True)
    except OSError:
        return None
    if not os.access(parent, os.W_OK):
        return None
    # By its name alone, for hosts may see the folder around it at different paths.
    name = f".tui-train-{zlib.crc32(os.fsencode(os.path.basename(real))):08x}"
    return Lock(os.path.join(parent, name), me, f"a training writes to {visible(output)}", left_by)


def _busy(words: str, who: Owner, at: str) -> str:
    if who.near:
        return f"{words} already (process {who.pid})"
    place = visible(who.host) if who.host != os.uname().nodename else "this machine, out of sight (a container?)"
    remedy = f"stop it there, or, if it is over, wait {LEASE:.0f} s"
    return f"{words} already, on {place} (process {who.pid}): {remedy}, or remove {visible(at)}"


def _names(at: str) -> list[str]:
    try:
        return os.listdir(at)
    except OSError:
        return []


def _remove(how: Any, path: str) -> None:
    try:
        how(path)
    except OSError:
        return


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0


def _machine() -> str:
    try:
        return regular.read("/etc/machine-id", 64).decode("ascii", "replace").strip()
    except OSError:
        return ""
