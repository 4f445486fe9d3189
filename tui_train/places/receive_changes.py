"""Receives changes of a run from its host: the new pieces of its logs and events, and its state."""

import math
import os
import shutil
import time
import zlib
from collections.abc import Callable
from contextlib import closing

from tui_train.base.errors import CannotWrite, Unavailable
from tui_train.base.files import raising_cannot_write
from tui_train.base.text import size_text, visible
from tui_train.channel.session import Session
from tui_train.places.host_questions import HostMessage, open_session, parse_host_report, refusal_error
from tui_train.runner.questions.answer_lines import SENT_FILE_PATTERN
from tui_train.runs.remote_run import RunLocation, write_host_report
from tui_train.runs.run_folders import RunFolder

# Bytes of a piece once it is inflated; the runner sends a quarter of that.
_MAX_PIECE_BYTES = 1 << 20
# Seconds after which a look goes on without what has not come yet: the next one continues there.
UPDATE_TIMEOUT_SECONDS = 600.0
# Bytes of the disk that what other machines send leaves free.
DISK_BYTES_LEFT_FREE = 64 << 20


def receive_run_changes(
    run: RunFolder,
    run_location: RunLocation,
    *,
    within_seconds: float | None = None,
    on_session: Callable[[Session], object] = lambda _session: None,
    on_answer: Callable[[], object] = lambda: None,
) -> tuple[bool, str]:
    """Take what the host sends until it stops; return whether it answered, and why it stopped, empty at the end.

    That is when the run has ended, or as soon as all is here if that is to be `within_seconds`. `on_session` gets
    what listens, and `on_answer` is called when the host does. Raises CannotWrite where it cannot be kept.
    """
    have = None if run_location.shared else _byte_count_by_file(run)
    question = {"do": "feed", "have": have, "once": within_seconds is not None}
    answered = False

    def note_answer() -> None:
        nonlocal answered
        if not answered:
            answered = True
            on_answer()

    try:
        with closing(open_session(run_location, question, within_seconds=within_seconds or math.inf)) as session:
            on_session(session)
            why = _receive_lines(run, session, run_location, note_answer)
    except Unavailable as error:
        why = error.message
    except _BadPieceError as error:
        why = f"{run_location.host} {error}"
    return answered, why


def _byte_count_by_file(run: RunFolder) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in run.path.iterdir() if SENT_FILE_PATTERN.fullmatch(path.name)}


def _receive_lines(run: RunFolder, session: Session, run_location: RunLocation, on_line: Callable[[], None]) -> str:
    """Take lines until the host has sent all, and return why it stopped before, empty where it did not."""
    wrong = ""
    for sent in session.lines(HostMessage):
        on_line()
        if sent.end:
            return ""
        wrong = refusal_error(run_location, sent).message if sent.error else wrong
        _store_host_line(run, sent, keeps_logs_and_events=not run_location.shared)
    return wrong or session.failure_text()


class _BadPieceError(Exception):
    """A piece of a log that no runner sends."""


def _store_host_line(run: RunFolder, sent: HostMessage, *, keeps_logs_and_events: bool) -> None:
    """Write a piece of a file, or how the run stands."""
    if SENT_FILE_PATTERN.fullmatch(sent.file):
        if keeps_logs_and_events:
            _write_piece(run, sent.file, sent.at, _inflate_piece(sent.data))
    elif report := parse_host_report(sent, time.time()):
        write_host_report(run.path, report)


def _inflate_piece(data: bytes) -> bytes:
    """Return a piece as it was before it was compressed."""
    try:
        piece = zlib.decompressobj().decompress(data, _MAX_PIECE_BYTES + 1)
    except zlib.error:
        raise _BadPieceError("sends a piece of a log that is damaged") from None
    if len(piece) > _MAX_PIECE_BYTES:
        raise _BadPieceError(f"sends a piece of a log that is larger than {size_text(_MAX_PIECE_BYTES)}")
    return piece


def _write_piece(run: RunFolder, name: str, offset: int, data: bytes) -> None:
    """Write bytes at their place in a file that grows; what begins again begins from nothing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if offset == 0 else 0)
    path = run.path / name
    if (free := shutil.disk_usage(run.path).free) < DISK_BYTES_LEFT_FREE:
        raise CannotWrite(
            f"cannot write {visible(str(path))}: this disk has {size_text(free)} left", "Free some space."
        )
    with raising_cannot_write(path):
        opened = os.open(path, flags, 0o644)
        try:
            left = memoryview(data if 0 <= offset <= os.fstat(opened).st_size else b"")
            while left:
                written = os.pwrite(opened, left, offset)
                left, offset = left[written:], offset + written
        finally:
            os.close(opened)
