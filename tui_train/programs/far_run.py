"""Receives a run folder, starts it, and sends what changes in it: each answer is a line of JSON.

Runs on another host, over ssh, in any Python 3.8 or later, standard library only; its text and the question, in JSON,
are passed on the command line. The training itself is kept by the runner that lies in the folder.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PIECE_BYTES = 1 << 18
LOOK_SECONDS = 0.4
HEARTBEAT_SECONDS = 5.0  # something is said so often, so that a reader that is gone is noticed
SENT_FILE_PATTERN = re.compile(r"events\.jsonl|launch\.log|attempt-\d{1,6}\.log")
MAX_OUTPUT_BYTES = 4000
NEAR_LIMIT_FILE = ".limit"  # what slurm.sh leaves where it ends a start near the time limit


class NotDoneError(Exception):
    """Request that cannot be done, in words; `gone` tells that the run folder is not there."""

    def __init__(self, words: str, *, gone: bool = False) -> None:
        super().__init__(words)
        self.gone = gone


def send_line(**fields: Any) -> None:
    """Send one line."""
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def runs_folder() -> Path:
    """Return the folder of the runs, as tui-train has it on this host."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "tui-train" / "runs"


def receive_run(request: dict[str, Any]) -> None:
    """Write the files of a tar on the input into a new run folder, whole or not at all."""
    parent = runs_folder()
    half_made = parent / request["half_made"]
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        half_made = Path(tempfile.mkdtemp(dir=str(parent), prefix=request["half_made"]))
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
            for member in sent:
                unpack_file(sent, member, half_made)
        half_made.rename(parent / request["name"])
    except (OSError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotDoneError(f"{getattr(error, 'filename', None) or parent}: {reason}") from None
    finally:
        shutil.rmtree(str(half_made), ignore_errors=True)
    send_line(folder=str(parent / request["name"]))


def unpack_file(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
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


def start_run(request: dict[str, Any]) -> None:
    """Start launch.sh in a session of its own, and wait until it has reported itself, or has ended.

    `starts` is the number of starts that whoever asks knows of: asked twice, by a lost answer, it is started once.
    """
    run = existing_run(request)
    with start_lock(run):
        # Another ask may have had it removed while this one waited.
        run = existing_run(request)
        failure = "" if count_starts(run) > request["starts"] else launch(run, request)
    send_line(started=not failure, said=failure)


def launch(run: Path, request: dict[str, Any]) -> str:
    """Start launch.sh; return why it did not start, empty where it did."""
    log, before = run / "launch.log", count_starts(run)
    offset = file_size(log)
    if shutil.which("bash") is None:
        raise NotDoneError("bash was not found")
    words = ["bash", "-c", request["between"], "bash", str(log), str(run / "launch.sh"), *request["options"]]
    child = subprocess.run(
        words, cwd="/", env={"TUI_TRAIN_NODE_RANK": "0", **os.environ}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, check=False, start_new_session=True,
    )  # fmt: skip
    pid = int(child.stdout) if child.stdout.strip().isdigit() else 0
    while True:
        # In this order: it may report itself and end between the two.
        gone = not pid or not is_alive(pid)
        if count_starts(run) > before:
            return ""
        if gone:
            break
        time.sleep(0.05)
    output = read_piece(log, offset, MAX_OUTPUT_BYTES).decode(errors="replace").strip()
    if before == 0:
        remove_if_unstarted(run)
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


def remove_unstarted_run(request: dict[str, Any]) -> None:
    """Remove the folder of a run that was never started."""
    remove_if_unstarted(existing_run(request))
    send_line(dropped=True)


def remove_if_unstarted(run: Path) -> None:
    """Remove a run folder, unless something was started in it."""
    if not any((run / name).exists() for name in ("events.jsonl", ".lock")):
        shutil.rmtree(str(run), ignore_errors=True)


def send_status(request: dict[str, Any]) -> None:
    """Send how the run stands."""
    standing, _ = state_reader(existing_run(request))()
    send_line(**standing)


def send_changes(request: dict[str, Any]) -> None:
    """Send what is new in the folder, until the run has ended; `have` says how much of each file is there already."""
    run, sent_bytes, last_sent, last_heartbeat = existing_run(request), dict(request["have"]), "", time.monotonic()
    read_state = state_reader(run)
    while True:
        # What is written between the two looks is sent before the end is told.
        standing, live = read_state()
        more = False
        for name, at, data in changed_pieces(run, sent_bytes):
            send_line(file=name, at=at, data=base64.b64encode(zlib.compress(data, 1)).decode())
            more = True
        if (changed := json.dumps(standing)) != last_sent:
            send_line(**standing)
            last_sent, last_heartbeat = changed, time.monotonic()
        if not more and (request["once"] or not live):
            send_line(end=True)
            return
        if time.monotonic() - last_heartbeat > HEARTBEAT_SECONDS:
            send_line(beat=True)
            last_heartbeat = time.monotonic()
        time.sleep(0 if more else LOOK_SECONDS)


def changed_pieces(run: Path, sent_bytes: dict[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the next piece of each file that has grown, with its name and offset; one that shrank begins again."""
    for name in sorted(path.name for path in run.iterdir() if SENT_FILE_PATTERN.fullmatch(path.name)):
        length, offset = file_size(run / name), sent_bytes.get(name, 0)
        offset = 0 if length < offset else offset
        if length > offset and (data := read_piece(run / name, offset, PIECE_BYTES)):
            yield name, offset, data
            sent_bytes[name] = offset + len(data)


def state_reader(run: Path) -> Callable[[], Any]:
    """Return what tells the state of a run by the supervisor in its folder, and whether it is live or being started."""
    sys.dont_write_bytecode = True
    program = runner_program(run)
    # One of an older version lies there as a folder of modules, which has to be imported by its name.
    zipped = program.suffix == ".pyz"
    sys.path.insert(0, str(program if zipped else run))
    name = "runner" if zipped else program.name
    try:
        checkpoints, planned, state = (
            importlib.import_module(f"{name}.{module}") for module in ("checkpoints", "planned", "state")
        )
    except ImportError as error:
        raise NotDoneError(f"{run} has no {program.name}: {error}") from None

    def read_state() -> Any:
        # Before the state, so that whoever gets both never takes a run that has ended for one that was not started.
        begun, near_limit = count_starts(run), (run / NEAR_LIMIT_FILE).exists()
        with start_lock(run, wait=False) as free:
            starting = not free
        found = state.read(str(run))
        try:
            attempts = planned.read(str(run)).attempts
            position = found.attempts[-1].position if found.attempts else 0
            rule = attempts[position - 1].checkpoints if 0 < position <= len(attempts) else None
            newest = checkpoints.newest(rule, str(run)) if rule else ""
        except Exception:  # noqa: BLE001 - what is wrong with the plan is not asked here
            newest = ""
        standing = {
            "status": found, "checkpoint": newest, "starts": begun, "limit": near_limit, "starting": starting,
        }  # fmt: skip
        return standing, found.live or found.trains_on or starting

    return read_state


def stop_run(request: dict[str, Any]) -> None:
    """End a run by its supervisor, and send how it stands then."""
    run = existing_run(request)
    with start_lock(run):
        # One that is under way is to be stopped as well.
        pass
    words = [sys.executable, str(runner_program(run)), "stop", "--json", *(["--now"] if request["now"] else [])]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise NotDoneError(done.stderr.decode(errors="replace").replace("launch.sh: ", "").strip())
    send_line(stopped=True)


def send_output(request: dict[str, Any]) -> None:
    """Send the regular files of the output folder: their number and bytes, then each after its name and size.

    `without`, where it says something, matches the names that are left out.
    """
    output = existing_run(request) / request["output"]
    if not output.is_dir():
        raise NotDoneError(f"{output} is not there")
    files, left_out, last_heartbeat = [], {"links": 0, "empty": 0, "others": 0}, time.monotonic()
    for path, kind, length in list_output(output, re.compile(request["without"] or r"(?!)")):
        if kind:
            left_out[kind] += 1
        else:
            files.append((path, length))
        if time.monotonic() - last_heartbeat > HEARTBEAT_SECONDS:
            send_line(beat=True)
            last_heartbeat = time.monotonic()
    send_line(files=len(files), total=sum(length for _, length in files), **left_out)
    for path, length in files:
        send_file(output, path, length)
    send_line(end=True)


def list_output(output: Path, excluded: re.Pattern[str]) -> Iterator[tuple[str, str, int]]:
    """Yield what is in a folder, what it is where it is no regular file (links, empty, others), and its size."""
    for top, folders, names in os.walk(str(output)):
        if not folders and not names and top != str(output):
            yield top, "empty", 0
        folders[:] = sorted(name for name in folders if not excluded.fullmatch(name))
        for name in sorted((*names, *folders)):
            path = os.path.join(top, name)  # noqa: PTH118
            with contextlib.suppress(FileNotFoundError):
                file_status = os.lstat(path)
                if stat.S_ISDIR(file_status.st_mode) or excluded.fullmatch(name):
                    continue
                other = "links" if stat.S_ISLNK(file_status.st_mode) else "others"
                yield path, "" if stat.S_ISREG(file_status.st_mode) else other, file_status.st_size


def send_file(output: Path, path: str, size: int) -> None:
    """Send a file as it was listed, without what it has grown by; one that is gone meanwhile is left out."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotDoneError(f"{path}: {error.strerror}") from None
    try:
        size = min(size, os.fstat(file).st_size)
        send_line(name=base64.b64encode(os.fsencode(os.path.relpath(path, str(output)))).decode(), size=size)
        while size:
            piece = os.read(file, min(size, PIECE_BYTES))
            if not piece:
                # In the middle of a file nothing can be said in a line.
                sys.exit(f"{path} has become shorter")
            sys.stdout.buffer.write(piece)
            size -= len(piece)
    finally:
        os.close(file)
    sys.stdout.buffer.flush()


def existing_run(request: dict[str, Any]) -> Path:
    """Return the run folder."""
    run = Path(request["folder"])
    if not (run / "launch.sh").is_file():
        raise NotDoneError(f"{run} is gone", gone=True)
    return run


def runner_program(run: Path) -> Path:
    """Return the program in a run folder that keeps the run, of an older version a folder."""
    return run / ("supervisor" if (run / "supervisor").is_dir() else "runner.pyz")


def count_starts(run: Path) -> int:
    """Return how often the run has reported a start."""
    return read_piece(run / "events.jsonl", 0, 1 << 26).count(b'"event":"run_started"')


def file_size(path: Path) -> int:
    """Return the size of a regular file, 0 where there is none."""
    try:
        return path.lstat().st_size if path.is_file() else 0
    except OSError:
        return 0


def read_piece(path: Path, offset: int, max_bytes: int) -> bytes:
    """Return a piece of a file, empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(max_bytes)
    except OSError:
        return b""


def is_alive(process_id: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "")
    except OSError:
        return False


def main(question: str) -> int:
    """Do what is asked; what cannot be done is said in a line."""
    request = json.loads(question)
    doing = {
        "put": receive_run,
        "start": start_run,
        "feed": send_changes,
        "drop": remove_unstarted_run,
        "stop": stop_run,
        "fetch": send_output,
        "status": send_status,
    }
    try:
        doing[request["do"]](request)
    except NotDoneError as error:
        send_line(error=str(error), gone=error.gone)
        return 69
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
