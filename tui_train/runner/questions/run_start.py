"""Takes a run folder from another machine, starts the run in it, and ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any, Iterator

from .. import events
from ..paths import runs_folder
from ..processes import is_or_descends_from, lasting_identity, start_ticks
from ..stop import stop
from .lines import PIECE_BYTES, NotDoneError, count_starts, existing_run, file_size, read_piece, send_line

_MAX_OUTPUT_BYTES = 4000


def receive_run(question: dict[str, Any]) -> None:
    """Write the files of a tar on the input into a new run folder, whole or not at all.

    Where the sender's own folder, in which there is the file `mark`, is that very folder, nothing is to be written.
    """
    parent = Path(runs_folder())
    mark = parent / question["name"] / question["mark"]
    if mark.is_file():
        # By this the sender sees that it is true.
        mark.rename(f"{mark}-seen")
        send_line(folder=str(mark.parent), shared=True, node=lasting_identity())
        return
    half_made = parent / question["half_made"]
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        half_made = Path(tempfile.mkdtemp(dir=str(parent), prefix=question["half_made"]))
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
            for member in sent:
                _unpack_file(sent, member, half_made)
        half_made.rename(parent / question["name"])
    except (OSError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotDoneError(f"{getattr(error, 'filename', None) or parent}: {reason}") from None
    finally:
        shutil.rmtree(str(half_made), ignore_errors=True)
    send_line(folder=str(parent / question["name"]))


def _unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one regular file, with its mode."""
    path = folder / member.name
    if ".." in path.parts or path == Path(member.name) or not member.isfile():
        raise NotDoneError(f"{member.name!r} is no file of a run")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = archive.extractfile(member)
    with path.open("wb") as file:
        while content is not None and (piece := content.read(PIECE_BYTES)):
            file.write(piece)
    path.chmod(member.mode & 0o755)


def start_run(question: dict[str, Any]) -> None:
    """Start launch.sh in a session of its own, and wait until it has reported itself, or has ended.

    `starts` is the number of starts that whoever asks knows of: asked twice, by a lost answer, it is started once.
    """
    run = existing_run(question)
    with start_lock(run):
        # Another ask may have had it removed while this one waited.
        run = existing_run(question)
        failure = "" if count_starts(run) > question["starts"] else _launch(run, question)
    send_line(started=not failure, said=failure)


def _launch(run: Path, question: dict[str, Any]) -> str:
    """Start launch.sh; return why it did not start, empty where it did."""
    log, before = run / "launch.log", len(events.read(str(run)))
    offset = file_size(log)
    if shutil.which("bash") is None:
        raise NotDoneError("bash was not found")
    words = ["bash", "-c", question["between"], "bash", str(log), str(run / "launch.sh"), *question["options"]]
    child = subprocess.run(
        words, cwd="/", env={"TUI_TRAIN_NODE_RANK": "0", **os.environ}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, check=False, start_new_session=True,
    )  # fmt: skip
    pid = int(child.stdout) if child.stdout.strip().isdigit() else 0
    while True:
        # In this order: it may report itself and end between the two.
        gone = not pid or start_ticks(pid) is None
        new = events.read(str(run))[before:]
        if any(event.event == "run_started" and is_or_descends_from(event.pid, pid) for event in new):
            return ""
        if gone:
            break
        time.sleep(0.05)
    output = read_piece(log, offset, _MAX_OUTPUT_BYTES).decode(errors="replace").strip()
    if not count_starts(run):
        _remove_if_unstarted(run)
    return output or "launch.sh ended without a word"


@contextlib.contextmanager
def start_lock(run: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold the right to start a run; without `wait`, only look whether nobody holds it."""
    folder = os.open(str(run), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        free = True
        try:
            fcntl.flock(folder, fcntl.LOCK_EX if wait else fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            free = False
        except OSError:
            # Some network disks have no locks; the run's own keeps a second start out.
            pass
        yield free
    finally:
        os.close(folder)


def remove_unstarted_run(question: dict[str, Any]) -> None:
    """Remove the folder of a run that was never started."""
    _remove_if_unstarted(existing_run(question))
    send_line(dropped=True)


def _remove_if_unstarted(run: Path) -> None:
    """Remove a run folder, unless something was started in it."""
    if not any((run / name).exists() for name in ("events.jsonl", ".lock")):
        shutil.rmtree(str(run), ignore_errors=True)


def stop_run(question: dict[str, Any]) -> None:
    """End a run, and say so when it has ended."""
    run = existing_run(question)
    with start_lock(run):
        # One that is under way is to be stopped as well.
        pass
    stop(str(run), at_once=question["now"])
    send_line(stopped=True)
