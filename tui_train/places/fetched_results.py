"""The results of a run on a host: where they are on this machine, and their way there.

They are taken into a folder of their own, and once all are here moved over fetched ones only. Where the connection is
lost, those that came whole stay in that folder, and do not come again. The host names them, and is believed no more
than that: nothing outside, no links, no name twice, no more than it said.
"""

import base64
import fcntl
import os
import shutil
from collections.abc import Callable, Container, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from stat import S_ISREG

from msgspec import Struct

from tui_train.base.errors import AlreadyExists, BadInput, CannotWrite, NoAnswer, Unavailable
from tui_train.base.files import raising_cannot_write, read_regular_file, write_atomically
from tui_train.base.parse import Unparsable, parse_json_as
from tui_train.base.text import quantity, size_text, visible
from tui_train.channel.session import Session
from tui_train.places.host_questions import (
    HostMessage,
    first_host_message,
    open_session,
    refusal_error,
    unreachable_remedy,
)
from tui_train.places.receive_changes import DISK_BYTES_LEFT_FREE
from tui_train.places.run_mirror import update_local_copy
from tui_train.plan.run_files import (
    LAUNCH_SCRIPT_FILE_NAME,
    PLAN_JSON_FILE_NAME,
    PROFILE_FILE_NAME,
    RUNNER_ZIP_FILE_NAME,
)
from tui_train.runner.system.safe_open import open_folder
from tui_train.runs.remote_run import (
    HOST_REPORT_FILE_NAME,
    PLACE_FILE_NAME,
    UNCONFIRMED_START_FILE_NAME,
    RunLocation,
    is_output_in_shared_run_folder,
    local_output_folder,
    read_remote_location,
)
from tui_train.runs.results.resuming import FETCH_MARK_FILE
from tui_train.runs.run_folders import RunFolder
from tui_train.runs.status import read_status

_CHECKPOINT_NAME_PATTERN = r"checkpoint-\d+"
# What a run folder has of its own, by names that an output folder of the user's may have as well.
_RESERVED_FILE_NAMES = frozenset({
    LAUNCH_SCRIPT_FILE_NAME, PLAN_JSON_FILE_NAME, PROFILE_FILE_NAME, PLACE_FILE_NAME, HOST_REPORT_FILE_NAME,
    UNCONFIRMED_START_FILE_NAME, FETCH_MARK_FILE, RUNNER_ZIP_FILE_NAME, "supervisor",
})  # fmt: skip
# Files that are named as known: the others come again.
_MAX_FILES_NAMED_AS_KNOWN = 1 << 14
# The runs that this process fetches now.
_RUN_FOLDERS_BEING_FETCHED: set[Path] = set()
_FETCH_FOLDER_NAME = ".fetching"
# The file that is being written, beside that folder.
_PART_FILE_NAME = ".fetching-part"
# The files that were fetched, each by its size, its time and its name.
_FETCH_LIST_FILE = ".fetched-files"
_MAX_FETCH_LIST_BYTES = 256 << 20
_MAX_SENT_FILES = 1 << 18
_MAX_MODIFICATION_TIME_NS = (1 << 63) - 1
_MAX_FOLDER_DEPTH, _MAX_NAME_BYTES = 64, 4096
_PIECE_BYTES = 1 << 20


class _AnnouncedOutput(Struct, frozen=True):
    """Announcement of what a host is about to send: files and bytes, and in words what it leaves out."""

    files: int
    total: int
    left_out: str


class FetchResult(Struct, frozen=True):
    """Result of a fetch: its bytes, and in words what is there besides and was left out."""

    size: int
    left_out: str


def fetch_results(
    run: RunFolder, *, with_checkpoints: bool = False, on_progress: Callable[[int], None] = lambda _taken: None
) -> FetchResult:
    """Copy a run's output folder from its host; `on_progress` is called with the bytes so far.

    What a live run has made so far is copied as well, but not taken for its results.
    """
    place = require_place_to_fetch_from(run)
    if run.path in _RUN_FOLDERS_BEING_FETCHED:
        raise Unavailable(f"{visible(run.name)} is being fetched", "Wait until the other fetch is done.")
    _RUN_FOLDERS_BEING_FETCHED.add(run.path)
    try:
        return _update_and_fetch(run, place, with_checkpoints=with_checkpoints, on_progress=on_progress)
    finally:
        _RUN_FOLDERS_BEING_FETCHED.discard(run.path)


def require_place_to_fetch_from(run: RunFolder) -> RunLocation:
    """Return where a run is; BadInput for this machine."""
    place = read_remote_location(run.path)
    if place is None:
        raise BadInput(f"{visible(run.name)} is on this machine", f"Its files are in {visible(str(run.path))}.")
    return place


def _update_and_fetch(
    run: RunFolder, run_location: RunLocation, *, with_checkpoints: bool, on_progress: Callable[[int], None]
) -> FetchResult:
    # How it stands is heard with its results.
    if why := update_local_copy(run):
        raise Unavailable(why, unreachable_remedy(run_location))
    status = read_status(run)
    output = str(run.plan().get("output") or "output")
    if is_output_in_shared_run_folder(run_location, output):
        raise BadInput(
            f"{visible(run_location.host)} has its results on this very disk",
            f"They are in {visible(str(run.path / output))}.",
        )
    try:
        result = _copy_output(
            run,
            run_location,
            output,
            without_pattern="" if with_checkpoints else _CHECKPOINT_NAME_PATTERN,
            on_progress=on_progress,
        )
    except Unavailable as error:
        if not status.is_live:
            raise
        raise Unavailable(error.message, "The run still trains: fetch again when it has ended.") from None
    _mark_fetched(run, "live" if status.is_live else str(len(status.attempts)))
    return result


def _copy_output(
    run: RunFolder, run_location: RunLocation, output: str, *, without_pattern: str, on_progress: Callable[[int], None]
) -> FetchResult:
    """Copy the output folder from its host; what was fetched before stays until all is here."""
    target, taken = local_output_folder(run.path, output), 0
    if target.name in _RESERVED_FILE_NAMES or (
        os.path.lexists(target) and not os.path.lexists(run.path / FETCH_MARK_FILE)
    ):
        message = f"{visible(str(target))} is there already, and was not fetched"
        raise AlreadyExists(message, "Move that file or folder away, then fetch again.")
    if os.path.lexists(target) and not os.path.lexists(run.path / _FETCH_LIST_FILE):
        # Nothing tells its files from what was changed since.
        message = f"{visible(str(target))} was fetched by an earlier version: it is not replaced"
        raise AlreadyExists(message, "Move that file or folder away, then fetch again.")
    question = {"do": "fetch", "output": output, "without": without_pattern}
    with _lock_fetch_folder(run.path) as folder:
        here = _files_already_here(run.path, folder, target)
        known = dict(list(here.items())[:_MAX_FILES_NAMED_AS_KNOWN])
        known = {base64.b64encode(os.fsencode(name)).decode(): status for name, status in known.items()}
        with closing(open_session(run_location, {**question, "have": known})) as session:
            expected = _read_announcement(session, run_location, folder)
            for taken in _receive_files(session, expected, folder, here, _make_overwrite_guard(run.path, target)):
                on_progress(taken)
        _mark_fetched(run, "live")
        _move_fetched(run.path, folder, target)
    return FetchResult(taken, expected.left_out)


def _mark_fetched(run: RunFolder, mark: str) -> None:
    with raising_cannot_write(run.path / FETCH_MARK_FILE):
        write_atomically(run.path / FETCH_MARK_FILE, mark.encode())


# The way here


@contextmanager
def _lock_fetch_folder(run_folder: Path) -> Iterator[Path]:
    """Yield the folder for what comes, emptied unless the link is lost; Unavailable while another fetch has it."""
    folder = run_folder / _FETCH_FOLDER_NAME
    with raising_cannot_write(folder):
        folder.mkdir(exist_ok=True)
        with (
            open_folder(run_folder, readable=True) as parent,
            open_folder(_FETCH_FOLDER_NAME, parent, readable=True) as held,
        ):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Unavailable(
                    (f"{visible(run_folder.name)} is being fetched"), "Wait until the other fetch is done."
                ) from None
            except OSError:
                # Some network disks have no locks.
                pass
            keeps = True
            try:
                yield folder
                keeps = False
            except AlreadyExists:
                raise
            except (_BadAnswerError, CannotWrite):
                keeps = False
                raise
            finally:
                (run_folder / _PART_FILE_NAME).unlink(missing_ok=True)
                # The folder stays: another fetch could otherwise lock one that is not there any more.
                if not keeps:
                    with suppress(OSError):
                        _empty_folder(folder)


def _empty_folder(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _read_announcement(session: Session, place: RunLocation, folder: Path) -> _AnnouncedOutput:
    """Return what a host announces; CannotWrite where the disk of a folder has too little space for it."""
    host, sent = place.host, first_host_message(session)
    if sent.error:
        raise refusal_error(place, sent)
    if sent.files is None or not 0 <= sent.files <= _MAX_SENT_FILES or sent.total < 0:
        raise _bad_answer_error(host, f"it announces {sent.files} files" if sent.files else "it announces no files")
    free, inodes = shutil.disk_usage(folder).free, os.statvfs(folder)
    if sent.total + DISK_BYTES_LEFT_FREE > free:
        message = f"the results on {host} take {size_text(sent.total)}, and this disk has {size_text(free)} free"
        raise CannotWrite(
            message, f"Free {size_text(sent.total + DISK_BYTES_LEFT_FREE - free)} in {visible(str(folder))}."
        )
    if inodes.f_files and sent.files > inodes.f_favail:
        message = f"the results on {host} are {sent.files} files, and this disk has room for {inodes.f_favail}"
        raise CannotWrite(message, "Remove files that you do not need.")
    kinds = ((sent.links, "link"), (sent.empty, "empty folder"), (sent.others, "special file"))
    return _AnnouncedOutput(
        sent.files, sent.total, ", ".join(quantity(number, kind) for number, kind in kinds if number > 0)
    )


def _files_already_here(run_folder: Path, folder: Path, target: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of what need not come again, by its name: from a fetch that was cut, or an earlier one."""
    found = {os.path.relpath(path, folder): path for path in map(Path, _file_paths(folder))}
    for entry in _read_fetch_list(run_folder):
        name = os.fsdecode(entry.split(b" ", 2)[2])
        with suppress(OSError):
            if name not in found and _fetch_list_entry(target / name, name) == entry:
                found[name] = target / name
    statuses = ((name, path.lstat()) for name, path in found.items())
    return {name: (status.st_size, status.st_mtime_ns) for name, status in statuses}


def _receive_files(
    session: Session,
    expected: _AnnouncedOutput,
    folder: Path,
    here: Container[str],
    refuse_name: Callable[[str], None],
) -> Iterator[int]:
    """Take all files into a folder and yield the bytes so far; `refuse_name` raises for an unwanted name.

    Those that are `here` need not come again; what is in the folder and the host has no more is removed.
    """
    taken, named, host = 0, set[str](), session.host
    while line := session.read_line():
        try:
            sent = parse_json_as(line, HostMessage)
        except Unparsable:
            raise _bad_answer_error(host, "it sends something else than files") from None
        if sent.error:
            raise refusal_error(RunLocation(host, ""), sent)
        if sent.end:
            _remove_all_but(folder, named)
            return
        name = _checked_file_name(host, sent)
        if name in named:
            raise _bad_answer_error(host, f"it sends {visible(name)} twice")
        named.add(name)
        if sent.kept and name in here:
            refuse_name(name)
            continue
        if sent.kept or len(named) > expected.files or not 0 <= sent.size <= expected.total - taken:
            raise _bad_answer_error(host, f"it sends more than the {size_text(expected.total)} that it announced")
        refuse_name(name)
        if os.path.lexists(folder / name) and name not in here:
            raise _bad_answer_error(host, f"it sends {visible(name)} as another spelling of one name")
        for written in _write_sent_file(session, folder, name, sent):
            taken += written
            yield taken
    raise NoAnswer(f"the connection to {host} was lost", "Fetch again.")


def _checked_file_name(host: str, sent: HostMessage) -> str:
    """Return the name of a file below the output folder."""
    parts = sent.name.split(b"/")
    usual = not {b"", b".", b".."}.intersection(parts) and b"\0" not in sent.name
    if not usual or len(parts) > _MAX_FOLDER_DEPTH or len(sent.name) > _MAX_NAME_BYTES:
        raise _bad_answer_error(host, f"it names a file {visible(os.fsdecode(sent.name)[:100])!r}")
    return os.fsdecode(sent.name)


def _write_sent_file(session: Session, folder: Path, name: str, sent: HostMessage) -> Iterator[int]:
    """Write a file, which has its name and its time once it is whole, and yield the bytes of each piece."""
    path, part, byte_count = folder / name, folder.parent / _PART_FILE_NAME, sent.size
    with raising_cannot_write(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.unlink(missing_ok=True)
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(file, "wb", buffering=0) as written:
            while byte_count:
                if not (piece := session.read_piece(min(byte_count, _PIECE_BYTES))):
                    raise NoAnswer(f"the connection to {session.host} was lost", "Fetch again.")
                written.write(piece)
                byte_count -= len(piece)
                yield len(piece)
        changed_at = max(0, min(sent.mtime, _MAX_MODIFICATION_TIME_NS))
        os.utime(part, ns=(changed_at, changed_at))
        part.replace(path)


def _remove_all_but(folder: Path, names: Container[str]) -> None:
    """Remove what an earlier fetch left in the folder and the host has no more."""
    for path in list(_file_paths(folder)):
        if os.path.relpath(path, folder) not in names:
            Path(path).unlink()


class _BadAnswerError(Unavailable):
    """The host sends what no honest one does."""


def _bad_answer_error(host: str, reason: str) -> Unavailable:
    return _BadAnswerError(f"nothing was fetched from {host}: {reason}", f"Look there: ssh {host}")


# Into place


def _move_fetched(run_folder: Path, folder: Path, target: Path) -> None:
    """Move all files of a folder below `target`, where they take the place of fetched ones."""
    names = [os.path.relpath(path, folder) for path in _file_paths(folder)]
    earlier = _read_fetch_list(run_folder)
    arrived = {name: _fetch_list_entry(folder / name, name) for name in names}
    # What is moved is known as fetched before and after, wherever this is ended.
    _write_fetch_list(run_folder, {*earlier, *arrived.values()})
    for name in names:
        with raising_cannot_write(target / name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).replace(target / name)
    kept = {entry for entry in earlier if os.fsdecode(entry.split(b" ", 2)[2]) not in arrived}
    _write_fetch_list(run_folder, {*kept, *arrived.values()})


def _make_overwrite_guard(run_folder: Path, target: Path) -> Callable[[str], None]:
    """Return what raises AlreadyExists for a name below `target` where something is that no fetch has left there."""
    known = _read_fetch_list(run_folder)

    def refuse(name: str) -> None:
        path = target
        for part in ("", *Path(name).parts[:-1]):
            path /= part
            if os.path.lexists(path) and (path.is_symlink() or not path.is_dir()):
                raise _overwrite_refused_error(path)
        path /= Path(name).name
        if os.path.lexists(path) and _fetch_list_entry(path, name) not in known:
            raise _overwrite_refused_error(path)

    return refuse


def _overwrite_refused_error(path: Path) -> AlreadyExists:
    message = f"{visible(str(path))} was not fetched, or was changed since: it is not replaced"
    return AlreadyExists(message, "Move that file or folder away, then fetch again.")


def _file_paths(folder: Path) -> Iterator[str]:
    for top, _, names in os.walk(folder):
        yield from (f"{top}/{name}" for name in names)


def _fetch_list_entry(path: Path, name: str) -> bytes:
    """Return how a fetched file is listed, empty for what is no regular file."""
    status = path.lstat()
    return b"%d %d %s" % (status.st_size, status.st_mtime_ns, os.fsencode(name)) if S_ISREG(status.st_mode) else b""


def _read_fetch_list(run_folder: Path) -> set[bytes]:
    with suppress(OSError):
        return {
            entry
            for entry in read_regular_file(run_folder / _FETCH_LIST_FILE, _MAX_FETCH_LIST_BYTES).split(b"\0")
            if entry.count(b" ") >= 2
        }
    return set()


def _write_fetch_list(run_folder: Path, entries: set[bytes]) -> None:
    with raising_cannot_write(run_folder / _FETCH_LIST_FILE):
        write_atomically(run_folder / _FETCH_LIST_FILE, b"\0".join(sorted(entries)))
