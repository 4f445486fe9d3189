"""Sends the output folder of a run."""

from __future__ import annotations

import base64
import contextlib
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, Iterator

from .answer_lines import PIECE_BYTES, Heartbeat, RequestFailedError, require_run_folder, send_json_line


def send_output_files(question: dict[str, Any]) -> None:
    """Send the regular files of the output folder: their number and bytes, then each after its name and size.

    `without`, where it says something, matches the names that are left out. Of those that whoever asks has already, by
    name in `have` with their size and time, the names alone are sent.
    """
    output = require_run_folder(question) / question["output"]
    if not output.is_dir():
        raise RequestFailedError(f"{output} is not there")
    files, left_out, heartbeat = [], {"links": 0, "empty": 0, "others": 0}, Heartbeat()
    kept: set[str] = set()
    for path, kind, status in _output_entries(output, re.compile(question["without"] or r"(?!)")):
        if kind:
            left_out[kind] += 1
        else:
            name = base64.b64encode(os.fsencode(os.path.relpath(path, str(output)))).decode()
            files.append((path, name, status.st_size))
            if question["have"].get(name) == [status.st_size, status.st_mtime_ns]:
                kept.add(name)
        heartbeat.send_if_due()
    total = sum(size for _, name, size in files if name not in kept)
    send_json_line(files=len(files), total=total, **left_out)
    for path, name, size in files:
        if name in kept:
            send_json_line(name=name, size=size, kept=True)
        else:
            _send_file(path, name, size)
    send_json_line(end=True)


def _output_entries(output: Path, excluded: re.Pattern[str]) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yield what is in a folder, what it is where it is no regular file (links, empty, others), and its status."""
    for top, folders, names in os.walk(str(output)):
        if not folders and not names and top != str(output):
            yield top, "empty", os.lstat(top)
        folders[:] = sorted(name for name in folders if not excluded.fullmatch(name))
        for name in sorted((*names, *folders)):
            path = os.path.join(top, name)
            with contextlib.suppress(FileNotFoundError):
                file_status = os.lstat(path)
                if stat.S_ISDIR(file_status.st_mode) or excluded.fullmatch(name):
                    continue
                other = "links" if stat.S_ISLNK(file_status.st_mode) else "others"
                yield path, "" if stat.S_ISREG(file_status.st_mode) else other, file_status


def _send_file(path: str, name: str, size: int) -> None:
    """Send a file as it was listed, without what it has grown by; one that is gone meanwhile is left out."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RequestFailedError(f"{path}: {error.strerror}") from None
    try:
        status = os.fstat(file)
        size = min(size, status.st_size)
        send_json_line(name=name, size=size, mtime=status.st_mtime_ns)
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
