"""Files that a host sends: taken into a folder of their own, and once all are here moved over fetched ones only.

The host names them, and is believed no more than that: nothing outside, no links, no name twice, no more than it said.
"""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from tui_train.base.errors import AlreadyExists, CannotWrite, NoAnswer, Unavailable
from tui_train.base.files import read_regular, reporting_write_errors, write_atomically
from tui_train.base.text import counted, size, visible
from tui_train.runner.safe_open import open_folder
from tui_train.runs.other_machines.host_lines import HostLine, HostStream, parse_line, refusal_error

_FETCH_FOLDER = ".fetching"
# The files that were fetched, each by its size, its time and its name.
_FETCH_LIST = ".fetched-files"
_MAX_LIST_BYTES = 256 << 20
_MAX_FILES = 1 << 18
_MAX_DEPTH, _MAX_NAME = 64, 4096
_PIECE = 1 << 20
# Bytes of the disk that stay free.
_SPARED_BYTES = 64 << 20


class Announcement(Struct, frozen=True):
    """Announcement of what a host is about to send: files and bytes, and in words what it leaves out."""

    files: int
    total: int
    left_out: str


@contextmanager
def fetch_folder(run: Path) -> Iterator[Path]:
    """Yield an empty folder in a run folder, emptied at the end; Unavailable while another fetch has it."""
    folder = run / _FETCH_FOLDER
    with reporting_write_errors(folder):
        folder.mkdir(exist_ok=True)
        with open_folder(run, readable=True) as parent, open_folder(_FETCH_FOLDER, parent, readable=True) as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unavailable(f"{visible(run.name)} is being fetched", "Wait until that is done.") from None
            except OSError:
                # Some network disks have no locks.
                pass
            # One that was killed left its files.
            _empty(folder)
            try:
                yield folder
            finally:
                # The folder stays: another fetch could otherwise lock one that is not there any more.
                with suppress(OSError):
                    _empty(folder)


def _empty(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def read_announcement(stream: HostStream, host: str, folder: Path) -> Announcement:
    """Return what a host announces; CannotWrite where the disk of a folder has too little space for it."""
    while line := stream.line():
        if (sent := parse_line(line)) and not sent.beat:
            break
    else:
        raise Unavailable(f"nothing was fetched from {host}: {stream.failure_text()}", f"Look there: ssh {host}")
    if sent.error:
        raise refusal_error(host, sent)
    if sent.files is None or not 0 <= sent.files <= _MAX_FILES or sent.total < 0:
        raise _bad_answer(host, f"it announces {sent.files} files" if sent.files else "it announces no files")
    free, inodes = shutil.disk_usage(folder).free, os.statvfs(folder)
    if sent.total + _SPARED_BYTES > free:
        message = f"the results on {host} take {size(sent.total)}, and this disk has {size(free)} free"
        raise CannotWrite(message, f"Free {size(sent.total + _SPARED_BYTES - free)} in {visible(str(folder))}.")
    if inodes.f_files and sent.files > inodes.f_favail:
        message = f"the results on {host} are {sent.files} files, and this disk has room for {inodes.f_favail}"
        raise CannotWrite(message, "Remove files that you do not need.")
    kinds = ((sent.links, "link"), (sent.empty, "empty folder"), (sent.others, "special file"))
    return Announcement(
        sent.files, sent.total, ", ".join(counted(number, kind) for number, kind in kinds if number > 0)
    )


def receive_files(
    stream: HostStream, host: str, expected: Announcement, folder: Path, refuse: Callable[[str], None]
) -> Iterator[int]:
    """Take all files into an empty folder and yield the bytes so far; `refuse` raises for a name that is not wanted."""
    taken, count = 0, 0
    while line := stream.line():
        sent = parse_line(line)
        if sent is None:
            raise _bad_answer(host, "it sends something else than files")
        if sent.error:
            raise refusal_error(host, sent)
        if sent.end:
            return
        name, count = _relative_name(host, sent), count + 1
        if count > expected.files or not 0 <= sent.size <= expected.total - taken:
            raise _bad_answer(host, f"it sends more than the {size(expected.total)} that it announced")
        refuse(name)
        for written in _write(stream, host, folder, name, sent.size):
            taken += written
            yield taken
    raise NoAnswer(f"the connection to {host} was lost", "Fetch again.")


def _relative_name(host: str, sent: HostLine) -> str:
    """Return the name of a file below the output folder."""
    parts = sent.name.split(b"/")
    usual = not {b"", b".", b".."}.intersection(parts) and b"\0" not in sent.name
    if not usual or len(parts) > _MAX_DEPTH or len(sent.name) > _MAX_NAME:
        raise _bad_answer(host, f"it names a file {visible(os.fsdecode(sent.name)[:100])!r}")
    return os.fsdecode(sent.name)


def _write(stream: HostStream, host: str, folder: Path, name: str, left: int) -> Iterator[int]:
    """Write a new file of so many bytes, and yield those of each piece."""
    path = folder / name
    with reporting_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            raise _bad_answer(host, f"it sends {visible(name)} twice, or as another spelling of one name") from None
        with os.fdopen(file, "wb", buffering=0) as written:
            while left:
                if not (piece := stream.piece(min(left, _PIECE))):
                    raise NoAnswer(f"the connection to {host} was lost", "Fetch again.")
                written.write(piece)
                left -= len(piece)
                yield len(piece)


def _bad_answer(host: str, what: str) -> Unavailable:
    return Unavailable(f"nothing was fetched from {host}: {what}", f"Look there: ssh {host}")


# Into place


def move_fetched(run: Path, folder: Path, target: Path) -> None:
    """Move all files of a folder below `target`, where they take the place of fetched ones."""
    names = [os.path.relpath(path, folder) for path in _file_paths(folder)]
    earlier = _read_list(run)
    arrived = {name: _list_entry(folder / name, name) for name in names}
    # What is moved is known as fetched before and after, wherever this is ended.
    _write_list(run, {*earlier, *arrived.values()})
    for name in names:
        with reporting_write_errors(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).replace(target / name)
    kept = {entry for entry in earlier if os.fsdecode(entry.split(b" ", 2)[2]) not in arrived}
    _write_list(run, {*kept, *arrived.values()})


def has_fetch_list(run: Path) -> bool:
    """Tell whether it is known which files of a run were fetched."""
    return os.path.lexists(run / _FETCH_LIST)


def overwrite_guard(run: Path, target: Path) -> Callable[[str], None]:
    """Return what raises AlreadyExists for a name below `target` where something is that no fetch has left there."""
    known = _read_list(run)

    def refuse(name: str) -> None:
        path = target
        for part in ("", *Path(name).parts[:-1]):
            path /= part
            if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
                raise _not_fetched_error(path)
        path /= Path(name).name
        if os.path.lexists(path) and _list_entry(path, name) not in known:
            raise _not_fetched_error(path)

    return refuse


def _not_fetched_error(path: Path) -> AlreadyExists:
    message = f"{visible(str(path))} was not fetched, or was changed since: it is not replaced"
    return AlreadyExists(message, "Move it away, then fetch again.")


def _file_paths(folder: Path) -> Iterator[str]:
    for top, _, names in os.walk(folder):
        yield from (f"{top}/{name}" for name in names)


def _list_entry(path: Path, name: str) -> bytes:
    """Return how a fetched file is listed, empty for what is no regular file."""
    status = path.lstat()
    return b"%d %d %s" % (status.st_size, status.st_mtime_ns, os.fsencode(name)) if S_ISREG(status.st_mode) else b""


def _read_list(run: Path) -> set[bytes]:
    with suppress(OSError):
        return {
            entry for entry in read_regular(run / _FETCH_LIST, _MAX_LIST_BYTES).split(b"\0") if entry.count(b" ") >= 2
        }
    return set()


def _write_list(run: Path, entries: set[bytes]) -> None:
    with reporting_write_errors(run / _FETCH_LIST):
        write_atomically(run / _FETCH_LIST, b"\0".join(sorted(entries)))
