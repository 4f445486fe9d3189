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

PIECE = 1 << 18
LOOK = 0.4
BEAT = 5.0  # seconds after which something is said, so that a reader that is gone is noticed
SENT = re.compile(r"events\.jsonl|launch\.log|attempt-\d{1,6}\.log")
SAID = 4000
LIMIT = ".limit"  # what slurm.sh leaves where it ends a start near the time limit


class NotDoneError(Exception):
    """Request that cannot be done, in words; `gone` tells that the run folder is not there."""

    def __init__(self, words: str, *, gone: bool = False) -> None:
        super().__init__(words)
        self.gone = gone


def say(**what: Any) -> None:
    """Send one line."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def runs_folder() -> Path:
    """Return the folder of the runs, as tui-train has it on this host."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    return (state if state.is_absolute() else Path("~/.local/state").expanduser()) / "tui-train" / "runs"


def put(asked: dict[str, Any]) -> None:
    """Write the files of a tar on the input into a new run folder, whole or not at all."""
    parent = runs_folder()
    beside = parent / asked["half_made"]
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = Path(tempfile.mkdtemp(dir=str(parent), prefix=asked["half_made"]))
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
            for member in sent:
                unpack(sent, member, beside)
        beside.rename(parent / asked["name"])
    except (OSError, tarfile.TarError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise NotDoneError(f"{getattr(error, 'filename', None) or parent}: {reason}") from None
    finally:
        shutil.rmtree(str(beside), ignore_errors=True)
    say(folder=str(parent / asked["name"]))


def unpack(sent: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one regular file, with its mode."""
    path = folder / member.name
    if ".." in path.parts or path == Path(member.name) or not member.isfile():
        raise NotDoneError(f"{member.name!r} is no file of a run")
    path.parent.mkdir(parents=True, exist_ok=True)
    content = sent.extractfile(member)
    with path.open("wb") as file:
        while content is not None and (piece := content.read(PIECE)):
            file.write(piece)
    path.chmod(member.mode & 0o755)


def start(asked: dict[str, Any]) -> None:
    """Start launch.sh in a session of its own, and wait until it has reported itself, or has ended.

    `starts` is the number of starts that whoever asks knows of: asked twice, by a lost answer, it is started once.
    """
    run = existing(asked)
    with one_start(run):
        # Another ask may have had it removed while this one waited.
        run = existing(asked)
        failure = "" if starts(run) > asked["starts"] else launched(run, asked)
    say(started=not failure, said=failure)


def launched(run: Path, asked: dict[str, Any]) -> str:
    """Start launch.sh; return why it did not start, empty where it did."""
    log, before = run / "launch.log", starts(run)
    offset = size(log)
    if shutil.which("bash") is None:
        raise NotDoneError("bash was not found")
    words = ["bash", "-c", asked["between"], "bash", str(log), str(run / "launch.sh"), *asked["options"]]
    child = subprocess.run(
        words, cwd="/", env={"TUI_TRAIN_NODE_RANK": "0", **os.environ}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, check=False, start_new_session=True,
    )  # fmt: skip
    pid = int(child.stdout) if child.stdout.strip().isdigit() else 0
    while True:
        # In this order: it may report itself and end between the two.
        gone = not pid or not alive(pid)
        if starts(run) > before:
            return ""
        if gone:
            break
        time.sleep(0.05)
    output = part(log, offset, SAID).decode(errors="replace").strip()
    if before == 0:
        discard(run)
    return output or "launch.sh ended without a word"


@contextlib.contextmanager
def one_start(run: Path, *, wait: bool = True) -> Iterator[bool]:
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


def drop(asked: dict[str, Any]) -> None:
    """Remove the folder of a run that was never started."""
    discard(existing(asked))
    say(dropped=True)


def discard(run: Path) -> None:
    """Remove a run folder, unless something was started in it."""
    if not any((run / name).exists() for name in ("events.jsonl", ".lock")):
        shutil.rmtree(str(run), ignore_errors=True)


def status(asked: dict[str, Any]) -> None:
    """Send how the run stands."""
    standing, _ = reader(existing(asked))()
    say(**standing)


def feed(asked: dict[str, Any]) -> None:
    """Send what is new in the folder, until the run has ended; `have` says how much of each file is there already."""
    run, have, last_sent, beat = existing(asked), dict(asked["have"]), "", time.monotonic()
    now = reader(run)
    while True:
        # What is written between the two looks is sent before the end is told.
        standing, live = now()
        more = False
        for name, at, data in news(run, have):
            say(file=name, at=at, data=base64.b64encode(zlib.compress(data, 1)).decode())
            more = True
        if (changed := json.dumps(standing)) != last_sent:
            say(**standing)
            last_sent, beat = changed, time.monotonic()
        if not more and (asked["once"] or not live):
            say(end=True)
            return
        if time.monotonic() - beat > BEAT:
            say(beat=True)
            beat = time.monotonic()
        time.sleep(0 if more else LOOK)


def news(run: Path, have: dict[str, int]) -> Iterator[tuple[str, int, bytes]]:
    """Yield the next piece of each file that has grown, with its name and offset; one that shrank begins again."""
    for name in sorted(path.name for path in run.iterdir() if SENT.fullmatch(path.name)):
        there, at = size(run / name), have.get(name, 0)
        at = 0 if there < at else at
        if there > at and (data := part(run / name, at, PIECE)):
            yield name, at, data
            have[name] = at + len(data)


def reader(run: Path) -> Callable[[], Any]:
    """Return what tells the state of a run by the supervisor in its folder, and whether it is live or being started."""
    sys.dont_write_bytecode = True
    program = runner(run)
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

    def now() -> Any:
        # Before the state, so that whoever gets both never takes a run that has ended for one that was not started.
        begun, near_limit = starts(run), (run / LIMIT).exists()
        with one_start(run, wait=False) as free:
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

    return now


def stop(asked: dict[str, Any]) -> None:
    """End a run by its supervisor, and send how it stands then."""
    run = existing(asked)
    with one_start(run):
        # One that is under way is to be stopped as well.
        pass
    words = [sys.executable, str(runner(run)), "stop", "--json", *(["--now"] if asked["now"] else [])]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        raise NotDoneError(done.stderr.decode(errors="replace").replace("launch.sh: ", "").strip())
    say(stopped=True)


def fetch(asked: dict[str, Any]) -> None:
    """Send the regular files of the output folder: their number and bytes, then each after its name and size.

    `without`, where it says something, matches the names that are left out.
    """
    output = existing(asked) / asked["output"]
    if not output.is_dir():
        raise NotDoneError(f"{output} is not there")
    files, left_out, beat = [], {"links": 0, "empty": 0, "others": 0}, time.monotonic()
    for path, kind, length in listed(output, re.compile(asked["without"] or r"(?!)")):
        if kind:
            left_out[kind] += 1
        else:
            files.append((path, length))
        if time.monotonic() - beat > BEAT:
            say(beat=True)
            beat = time.monotonic()
    say(files=len(files), total=sum(length for _, length in files), **left_out)
    for path, length in files:
        send(output, path, length)
    say(end=True)


def listed(output: Path, without: re.Pattern[str]) -> Iterator[tuple[str, str, int]]:
    """Yield what is in a folder, what it is where it is no regular file (links, empty, others), and its size."""
    for top, folders, names in os.walk(str(output)):
        if not folders and not names and top != str(output):
            yield top, "empty", 0
        folders[:] = sorted(name for name in folders if not without.fullmatch(name))
        for name in sorted((*names, *folders)):
            path = os.path.join(top, name)  # noqa: PTH118
            with contextlib.suppress(FileNotFoundError):
                file_status = os.lstat(path)
                if stat.S_ISDIR(file_status.st_mode) or without.fullmatch(name):
                    continue
                other = "links" if stat.S_ISLNK(file_status.st_mode) else "others"
                yield path, "" if stat.S_ISREG(file_status.st_mode) else other, file_status.st_size


def send(output: Path, path: str, length: int) -> None:
    """Send a file as it was listed, without what it has grown by; one that is gone meanwhile is left out."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise NotDoneError(f"{path}: {error.strerror}") from None
    try:
        length = min(length, os.fstat(file).st_size)
        say(name=base64.b64encode(os.fsencode(os.path.relpath(path, str(output)))).decode(), size=length)
        while length:
            piece = os.read(file, min(length, PIECE))
            if not piece:
                # In the middle of a file nothing can be said in a line.
                sys.exit(f"{path} has become shorter")
            sys.stdout.buffer.write(piece)
            length -= len(piece)
    finally:
        os.close(file)
    sys.stdout.buffer.flush()


def existing(asked: dict[str, Any]) -> Path:
    """Return the run folder."""
    run = Path(asked["folder"])
    if not (run / "launch.sh").is_file():
        raise NotDoneError(f"{run} is gone", gone=True)
    return run


def runner(run: Path) -> Path:
    """Return the program in a run folder that keeps the run, of an older version a folder."""
    return run / ("supervisor" if (run / "supervisor").is_dir() else "runner.pyz")


def starts(run: Path) -> int:
    """Return how often the run has reported a start."""
    return part(run / "events.jsonl", 0, 1 << 26).count(b'"event":"run_started"')


def size(path: Path) -> int:
    """Return the size of a regular file, 0 where there is none."""
    try:
        return path.lstat().st_size if path.is_file() else 0
    except OSError:
        return 0


def part(path: Path, at: int, most: int) -> bytes:
    """Return a piece of a file, empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read(most)
    except OSError:
        return b""


def alive(pid: int) -> bool:
    """Tell whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1] not in ("Z", "")
    except OSError:
        return False


def main(question: str) -> int:
    """Do what is asked; what cannot be done is said in a line."""
    request = json.loads(question)
    doing = {"put": put, "start": start, "feed": feed, "drop": drop, "stop": stop, "fetch": fetch, "status": status}
    try:
        doing[request["do"]](request)
    except NotDoneError as error:
        say(error=str(error), gone=error.gone)
        return 69
    except BrokenPipeError:
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
