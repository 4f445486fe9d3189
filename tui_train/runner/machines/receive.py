"""The program that is sent to another machine, to take files there; it imports nothing of ours, which may be absent."""

from __future__ import annotations

import json
import os
import sys
import tarfile
import time

_PIECE_BYTES = 1 << 20


def main() -> int:
    """Take what is asked for on stdin where this machine lacks it; a run folder is then asked how it can train here."""
    request = json.loads(sys.stdin.buffer.readline())
    folder = request["folder"]
    run = request["what"] == "run"
    present = (
        _is_folder_of_asking_machine(folder, request["mark"]) if run else _has_same_files(folder, request["files"])
    )
    problem = "" if present else _why_folder_unusable(folder, must_be_run=run)
    print(json.dumps({"there": present, "clock": time.time(), "problem": problem}), flush=True)
    if problem or request.get("only_look"):
        return 0
    try:
        if not present:
            _unpack_tar_from_stdin(folder)
    except OSError as error:
        print(json.dumps({"problem": f"cannot write {folder}: {error.strerror}"}), flush=True)
        return 0
    if run:
        question = json.dumps({**request, "shared": present})
        program = [sys.executable, "-I", "-S", "-X", "utf8", os.path.join(folder, "runner.pyz")]
        os.execv(program[0], [*program, "look", question])  # noqa: S606
    print(json.dumps({"taken": True}), flush=True)
    return 0


def _is_folder_of_asking_machine(folder: str, run_mark: str) -> bool:
    """Tell whether this is the folder of the machine that asks: its lock bears the mark of its start."""
    try:
        # Nobody who writes to a pipe is waited for.
        file = os.open(os.path.join(folder, ".lock", "owner"), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with open(file, "rb", buffering=0) as lock:
            return run_mark.encode() in (lock.read(4096) or b"")
    except OSError:
        return False


def _has_same_files(folder: str, files: dict[str, list[int]]) -> bool:
    """Tell whether a folder has all these files, each with its size and time."""
    for name, expected in files.items():
        try:
            status = os.stat(os.path.join(folder, name))
        except OSError:
            return False
        if [status.st_size, int(status.st_mtime)] != expected:
            return False
    return True


def _why_folder_unusable(folder: str, *, must_be_run: bool) -> str:
    """Return why a folder cannot take files, empty where it can: nothing but a run is replaced by a run."""
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot read {folder}: {error.strerror}"
    if must_be_run and names and "plan.json" not in names:
        return f"{folder} is there already, and is no run: move it away"
    if not _is_owned_by_user(folder):
        return f"{folder} belongs to another user, who could change what is brought there: move it away"
    return ""


def _is_owned_by_user(folder: str) -> bool:
    """Tell whether a folder belongs to this user, also on a disk that gives what he makes to another one."""
    owner = os.stat(folder).st_uid
    if owner == os.geteuid():
        return True
    probe = os.path.join(folder, f".{os.urandom(8).hex()}")
    try:
        os.mkdir(probe, 0o700)
        ours = os.lstat(probe).st_uid
        os.rmdir(probe)
    except OSError:
        return False
    return ours == owner


def _unpack_tar_from_stdin(folder: str) -> None:
    """Write the files of the tar on stdin into a folder; what leads elsewhere is left out."""
    os.makedirs(folder, exist_ok=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
        for member in sent:
            content = sent.extractfile(member) if member.isfile() else None
            parts = member.name.split("/")
            if content is None or os.path.isabs(member.name) or ".." in parts:
                continue
            path = os.path.join(folder, *parts)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            beside = f"{path}.new.{os.urandom(6).hex()}"
            with open(beside, "xb") as file:
                while True:
                    piece = content.read(_PIECE_BYTES)
                    if not piece:
                        break
                    file.write(piece)
            os.chmod(beside, member.mode & 0o755)
            os.utime(beside, (member.mtime, member.mtime))
            os.replace(beside, path)


if __name__ == "__main__":
    sys.exit(main())
