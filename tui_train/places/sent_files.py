"""Files of this machine on the hosts of a training: which are missing there, and their way to the same paths."""

import math
import os
from collections.abc import Callable, Iterator
from contextlib import closing

from msgspec import Struct
from msgspec.structs import astuple

from tui_train.base.errors import BadInput, CannotWrite, NoAnswer, Unavailable
from tui_train.base.files import read_error_reason
from tui_train.base.text import visible
from tui_train.channel.session import Session, ask_host
from tui_train.facts.scripts.project_files import FileSet, SentFile
from tui_train.runner.questions.project_files import COMPLETE_MARK
from tui_train.runner.system.safe_open import open_regular_file

_MAX_ANSWER_SECONDS = 120.0
_PIECE_BYTES = 1 << 18
_CHANGED_MARK = b"-"
_AGAIN_REMEDY = "Run the command again: it goes on where it was."


class HostToSendTo(Struct, frozen=True):
    """A host, and the one from which it is reached, if not from this machine."""

    name: str
    address: str
    asking_host: str | None = None


class FilesToSend(Struct, frozen=True):
    """Files of a folder that a host has not, each with the bytes of it that have come already.

    replaced: names of those that the host has, otherwise; newer: of these, the ones that were changed later there.
    """

    folder: str
    files: tuple[tuple[SentFile, int], ...]
    replaced: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """The bytes that are to be sent."""
        return sum(file.size - kept for file, kept in self.files)


class _MissingAnswer(Struct, frozen=True):
    missing: tuple[tuple[int, int, int], ...]


class _TakenAnswer(Struct, frozen=True):
    taken: int = -1
    error: str = ""


def find_files_to_send(
    host: HostToSendTo, file_set: FileSet, answer_seconds: float = _MAX_ANSWER_SECONDS
) -> FilesToSend:
    """Return the files that a host has not, or not as they are here: by size and time."""
    question = {"do": "missing", "folder": file_set.folder, "files": [astuple(file) for file in file_set.files]}
    answer = ask_host(host.address, question, _MissingAnswer, answer_seconds, asking_host=host.asking_host)
    found = [(file_set.files[at], kept, time) for at, kept, time in answer.missing if 0 <= at < len(file_set.files)]
    return FilesToSend(
        file_set.folder,
        tuple((file, min(max(0, kept), file.size)) for file, kept, _ in found),
        replaced=tuple(file.name for file, _, time in found if time),
        newer=tuple(file.name for file, _, time in found if time // 10**9 > file.mtime // 10**9 and not file.link),
    )


def send_files(
    host: HostToSendTo, missing: FilesToSend, on_progress: Callable[[int], None] = lambda _sent: None
) -> None:
    """Send files to a host; `on_progress` gets the bytes so far. What a cut link leaves is continued by the next call.

    NoAnswer where the link is lost, CannotWrite where the host cannot keep them, BadInput where one changes meanwhile.
    """
    files = [(astuple(file), kept) for file, kept in missing.files]
    question = {"do": "take", "folder": missing.folder, "files": files}
    name, changed = visible(host.name), list[str]()
    session = Session(
        host.address, question, asking_host=host.asking_host, silence_seconds=math.inf,
        stdin_data=_pieces(missing, changed, on_progress),
    )  # fmt: skip
    with closing(session):
        for answer in session.lines(_TakenAnswer):
            if answer.error:
                raise CannotWrite(f"{name}: {visible(answer.error)}", f"Fix that, then: {_AGAIN_REMEDY}")
            if answer.taken == len(files):
                break
        else:
            why = session.failure_text()
            raise NoAnswer(f"not all was sent to {name}: {why}", _AGAIN_REMEDY)
    if changed:
        why = f"{visible(changed[0])} has changed while it was sent to {name}, which keeps what it had"
        raise BadInput(why, _AGAIN_REMEDY)


def _pieces(missing: FilesToSend, changed: list[str], on_progress: Callable[[int], None]) -> Iterator[bytes]:
    """Yield the bytes of all files as they were listed, and of each whether it is complete.

    One that has changed is filled up to its listed size, and noted: the other side drops it.
    """
    sent = 0
    for file, kept in missing.files:
        if file.link:
            continue
        left = file.size - kept
        path = f"{missing.folder}/{file.name}"
        try:
            with open_regular_file(path) as source:
                source.seek(kept)
                while left and (piece := source.read(min(left, _PIECE_BYTES))):
                    yield piece
                    left -= len(piece)
                    sent += len(piece)
                    on_progress(sent)
                status = os.fstat(source.fileno())
        except OSError as error:
            raise Unavailable(f"{visible(path)} cannot be read: {read_error_reason(error)}", _AGAIN_REMEDY) from None
        while left:
            yield bytes(min(left, _PIECE_BYTES))
            left -= min(left, _PIECE_BYTES)
        is_same = (status.st_size, status.st_mtime_ns) == (file.size, file.mtime)
        if not is_same:
            changed.append(path)
        yield COMPLETE_MARK if is_same else _CHANGED_MARK
