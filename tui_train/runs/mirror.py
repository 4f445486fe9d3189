"""Keeps the copy of a run's folder as new as the run on its host, for as long as somebody looks."""

import base64
import contextlib
import json
import os
import re
import subprocess
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from tui_train.base.errors import TuiTrainError
from tui_train.base.files import write_beside
from tui_train.runs.far import words
from tui_train.runs.place import HEARD, Heard, Place, place_of
from tui_train.runs.queue import job_of, refresh
from tui_train.runs.rundir import RunDir
from tui_train.supervisor.ssh import lost
from tui_train.supervisor.state import Status

_SENT = re.compile(r"events\.jsonl|launch\.log|attempt-\d{1,6}\.log", re.ASCII)
_WAITS = (1.0, 2.0, 5.0, 10.0, 30.0)  # seconds before a lost connection is made again
_QUEUE = 5.0  # seconds between two questions to Slurm
_MOST = 8 << 20  # bytes of one piece


class Mirror:
    """A copy that is kept in a thread until `close`, or until the run has ended; `told` is called with what is wrong.

    It is told an empty text once the host answers again.
    """

    def __init__(self, run: RunDir, told: Callable[[str], object] = str, *, follow: bool = True) -> None:
        """Begin to `follow` where the run is on another host."""
        self._run, self._told = run, told
        self._place = place_of(run.path)
        self._closed = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, daemon=True)
        if follow and (self._place or job_of(run.path)):
            self._thread.start()

    def close(self) -> None:
        """Look no more."""
        self._closed.set()
        if self._child:
            self._child.kill()

    def wait(self) -> None:
        """Wait until the run has ended and all of it is here."""
        if self._thread.is_alive():
            self._thread.join()

    def _keep(self) -> None:
        if self._place is None:
            self._ask_slurm()
            return
        failures, problem = 0, ""
        while not self._closed.is_set():
            heard, why, ended = self._listen(self._place, once=False)
            if ended or self._closed.is_set():
                return
            failures = 0 if heard else failures + 1
            problem = why
            self._told(f"{self._place.host} does not answer: {problem}")
            self._closed.wait(_WAITS[min(failures, len(_WAITS) - 1)])

    def _ask_slurm(self) -> None:
        """Ask squeue for the run's job until it has left the queue."""
        while not self._closed.is_set():
            self._told(self.once())
            job = job_of(self._run.path)
            if job is None or not job.state:
                return
            self._closed.wait(_QUEUE)

    def _listen(self, place: Place, *, once: bool) -> tuple[bool, str, bool]:
        """Take what the host sends until it stops; return whether it answered, why it stopped, and whether it was done.

        With `once` it is done as soon as all is here.
        """
        have = {path.name: path.stat().st_size for path in self._run.path.iterdir() if _SENT.fullmatch(path.name)}
        question = {"do": "feed", "folder": place.folder, "have": have, "once": once}
        answered, wrong = False, ""
        try:
            child = subprocess.Popen(
                words(place.host, question), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            return False, str(error.strerror), False
        self._child = child
        if self._closed.is_set():
            child.kill()
        assert child.stdout is not None  # noqa: S101 - for the type
        assert child.stderr is not None  # noqa: S101
        with child:
            while line := child.stdout.readline(_MOST):
                told = _parsed(line)
                if told is None:
                    continue
                if not answered:
                    answered = True
                    self._told("")
                wrong = str(told["error"]) if "error" in told else wrong
                if told.get("end"):
                    return True, "", True
                self._take(told)
            said = child.stderr.read(1 << 16)
        return answered, wrong or lost(said), False

    def _take(self, told: dict[str, Any]) -> None:
        """Write a piece of a file, or how the run stands."""
        with contextlib.suppress(KeyError, TypeError, ValueError, zlib.error, OSError, msgspec.MsgspecError):
            if "file" in told and _SENT.fullmatch(told["file"]):
                _write(self._run, told["file"], int(told["at"]), zlib.decompress(base64.b64decode(told["data"])))
            elif "status" in told:
                standing = msgspec.convert(told["status"], Status)
                heard = Heard(at=time.time(), status=standing, checkpoint=str(told.get("checkpoint", "")))
                write_beside(self._run.path / HEARD, msgspec.json.encode(heard))

    def once(self) -> str:
        """Bring the copy up to date now; return why that was not possible, empty where it was."""
        if self._place is None:
            try:
                refresh([self._run])
            except TuiTrainError as error:
                return f"Slurm does not answer: {error.message}"
            return ""
        _, why, done = self._listen(self._place, once=True)
        return "" if done else why


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        told = json.loads(line)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _write(run: RunDir, name: str, at: int, data: bytes) -> None:
    """Write bytes at their place in a file that grows; what begins again begins from nothing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if at == 0 else 0)
    opened = os.open(run.path / name, flags, 0o644)
    try:
        if os.fstat(opened).st_size >= at:
            os.pwrite(opened, data, at)
    finally:
        os.close(opened)
