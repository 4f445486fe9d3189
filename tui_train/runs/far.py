"""What is asked of a host over ssh about the runs on it: take one, start it, stop it, give its files."""

import io
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, cast

import msgspec

from tui_train.base import ssh
from tui_train.base.errors import Unavailable
from tui_train.base.files import writing
from tui_train.base.text import visible
from tui_train.render import SCRIPT, File
from tui_train.runs.leftovers import HALF_MADE
from tui_train.runs.place import Place
from tui_train.supervisor.ssh import lost

_MOST = 1 << 20
_PATIENCE = 60.0


def put(host: str, name: str, files: Sequence[File]) -> Place:
    """Write files into a new run folder on a host, whole or not at all."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for file in files:
            data = file.text.encode()
            info = tarfile.TarInfo(file.path)
            info.size, info.mode = len(data), 0o755 if file.path == SCRIPT else 0o644
            tar.addfile(info, io.BytesIO(data))
    answer = _answer(host, {"do": "put", "name": name, "half_made": HALF_MADE}, packed.getvalue())
    return Place(host, str(answer.get("folder", "")))


def start(place: Place, between: str, options: Sequence[str]) -> str:
    """Start a run on its host; return why it did not start, empty where it did."""
    answer = _answer(place.host, {"do": "start", "folder": place.folder, "between": between, "options": options})
    return "" if answer.get("started") else visible(str(answer.get("said") or "launch.sh ended without a word"))


def drop(place: Place) -> None:
    """Remove the folder of a run that was never started from its host."""
    _answer(place.host, {"do": "drop", "folder": place.folder})


def stop(place: Place, *, at_once: bool, grace: float) -> None:
    """End a run on its host, and wait until it has saved."""
    _answer(place.host, {"do": "stop", "folder": place.folder, "now": at_once}, deadline=_PATIENCE + grace)


def fetch(
    place: Place, output: str, folder: Path, *, without: str = "", progress: Callable[[int], None] = lambda _taken: None
) -> int:
    """Copy the output folder of a run from its host into a folder here; return the bytes. `without` matches names.

    `progress` is called with the bytes that were taken so far.
    """
    question = {"do": "fetch", "folder": place.folder, "output": output, "without": without}
    child = subprocess.Popen(
        words(place.host, question), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with child:
        assert child.stderr is not None  # noqa: S101 - for the type
        sent_bytes = cast("io.BufferedReader", child.stdout)
        if sent_bytes.peek(1)[:1] in {b"{", b""}:
            answer = _parsed(sent_bytes.readline(_MOST))
            why = str(answer.get("error", "")) if isinstance(answer, dict) else lost(child.stderr.read(_MOST))
            raise Unavailable(f"nothing was fetched from {place.host}: {visible(why)}", f"Look there: ssh {place.host}")
        try:
            with tarfile.open(fileobj=_Counted(sent_bytes, progress), mode="r|") as sent:
                taken = _unpack(sent, folder)
        except tarfile.TarError:
            raise Unavailable(f"the connection to {place.host} was lost", "Run the command again.") from None
    if child.returncode:
        raise Unavailable(f"the connection to {place.host} was lost", "Run the command again.")
    return taken


class _Counted(io.RawIOBase):
    """A stream that tells how much was read of it."""

    def __init__(self, stream: io.BufferedReader, progress: Callable[[int], None]) -> None:
        self._stream, self._progress, self._taken = stream, progress, 0

    def read(self, size: int = -1) -> bytes:
        piece = self._stream.read(size)
        self._taken += len(piece)
        self._progress(self._taken)
        return piece


def _unpack(sent: tarfile.TarFile, folder: Path) -> int:
    """Write the regular files of a tar inside a folder, and return their bytes; what leads elsewhere is left out."""
    taken = 0
    for member in sent:
        name = Path(member.name)
        content = sent.extractfile(member) if member.isfile() and ".." not in name.parts else None
        if content is None or name.is_absolute():
            continue
        with writing(folder / name):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            # A connection may be lost in the middle of a file.
            part = (folder / name).with_name(f"{name.name}.part")
            with part.open("wb") as file:
                shutil.copyfileobj(content, file, _MOST)
            part.replace(folder / name)
        taken += member.size
    return taken


@cache
def _program() -> str:
    return resources.files("tui_train.target").joinpath("far_run.py").read_text(encoding="utf-8")


def words(host: str, question: dict[str, Any]) -> list[str]:
    """Return the command that has a host answer a question about a run."""
    return ssh.python(host, _program(), question)


def _answer(host: str, question: dict[str, Any], given: bytes = b"", deadline: float = _PATIENCE) -> dict[str, Any]:
    """Return the line with which a host answers; Unavailable where it does not, or says what it cannot do."""
    try:
        done = subprocess.run(
            words(host, question),
            input=given, capture_output=True, timeout=deadline, check=False, start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{host} gave no answer in {deadline:.0f} s", f"Check `ssh {host} true`.") from None
    except OSError as error:
        raise Unavailable(f"ssh cannot be started: {error.strerror}", "Install the client of OpenSSH.") from None
    for line in reversed(done.stdout.splitlines()):
        if line.startswith(b"{") and isinstance(answer := _parsed(line), dict):
            if "error" in answer:
                raise Unavailable(f"{host}: {visible(str(answer['error']))}", f"Look at it there: ssh {host}")
            return answer
    raise Unavailable(f"{host} did not answer", lost(done.stderr))


def _parsed(line: bytes) -> object:
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError:
        return None
