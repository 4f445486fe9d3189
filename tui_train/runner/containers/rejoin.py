"""A container whose client is gone: its log goes on from where it broke off, and it ends with the container's code."""

from __future__ import annotations

import os
import select
import time
from typing import NamedTuple

from ..logs.already_logged import ByteSource, LoggedTailFilter, skip_already_logged
from ..system import other_programs, runner_command
from ..system.processes import MARK_VARIABLE, Process
from ..system.safe_text import visible
from ..system.transport import LocalTransport, NodeCommand
from . import container

# What an engine's own client ends with when it fails.
_ENGINE_FAILED_EXIT_CODE = 125
_PIECE_BYTES = 1 << 16


def rejoin_container(transport: LocalTransport, engine: str, name: str, log: str, run_mark: str) -> Process:
    """Start what writes down the rest of a container's output, and ends as it does."""
    words = runner_command.runner_command("rejoin", engine, name, log)
    return transport.start(NodeCommand(words, {**os.environ, MARK_VARIABLE: run_mark}, log))


def main(engine: str, name: str, log: str) -> int:
    """Append to a log what it lacks of a container's output, until that ends; return its exit code.

    125 says that the engine does not answer: whoever asked looks whether the container lives, and asks again.
    """
    descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    while True:
        seen = _logged_part_of_output(engine, name, log)
        if isinstance(seen, str):
            if not _container_exists(engine, name):
                return _ENGINE_FAILED_EXIT_CODE
            words = f"\nlaunch.sh: what the container said without its client cannot be read: {visible(seen)}\n"
            _append_to_log(descriptor, words.encode())
            waited = other_programs.run_program((engine, "wait", name), float("inf")).out.strip()
            return int(waited) if waited.isdigit() else _ENGINE_FAILED_EXIT_CODE
        passed = _append_new_output((engine, "logs", "--follow", name), descriptor, seen.lengths, seen.partial_line)
        # What it said last may come after the end of what follows it.
        code = container.container_exit_code(engine, name)
        if code is not None:
            _append_new_output((engine, "logs", name), descriptor, passed, b"")
            return code
        if not _container_exists(engine, name):
            return _ENGINE_FAILED_EXIT_CODE
        time.sleep(0.5)


def _container_exists(engine: str, name: str) -> bool:
    return other_programs.run_program((engine, "container", "inspect", name), 60.0).code == 0


class _LoggedPart(NamedTuple):
    """Part of a container's output that a log has: bytes of each of its streams, and the beginning of a line of one."""

    lengths: tuple[int, int]
    partial_line: bytes


def _logged_part_of_output(engine: str, name: str, log: str) -> _LoggedPart | str:
    """Return what a log has already; or, where the engine does not tell the container's output, why."""
    try:
        pid, *ends = other_programs.spawn_program((engine, "logs", name), os.environ)
    except OSError as error:
        return str(error)
    own = os.open(log, os.O_RDONLY | os.O_CLOEXEC)
    streams = [ByteSource(end) for end in ends]
    for stream in streams:
        stream.together = streams
    begun = skip_already_logged(ByteSource(own), streams)
    passed = (streams[0].passed, streams[1].passed)
    last = b""
    for stream in streams:
        while stream.fill_to(1):
            last = stream.peek(0, _PIECE_BYTES)
            stream.skip(len(last))
    for end in (own, *ends):
        os.close(end)
    code = other_programs.shell_exit_code(os.waitpid(pid, 0)[1])
    if code != 0:
        return last.decode(errors="replace").strip() or f"{engine} logs ended with exit code {code}"
    return _LoggedPart(passed, begun)


def _append_new_output(
    words: tuple[str, ...], log: int, logged_lengths: tuple[int, int], partial_line: bytes
) -> tuple[int, int]:
    """Append what the engine tells beyond these bytes of each stream; return how many it has told of each.

    `partial_line` is in the log as well: the beginning of the next line of either.
    """
    try:
        pid, *ends = other_programs.spawn_program(words, os.environ)
    except OSError:
        return logged_lengths
    ahead = LoggedTailFilter(partial_line)
    counts = {ends[0]: 0, ends[1]: 0}
    skip = {ends[0]: logged_lengths[0], ends[1]: logged_lengths[1]}
    unread = list(ends)
    while unread:
        for end in select.select(unread, [], [])[0]:
            piece = os.read(end, _PIECE_BYTES)
            if not piece:
                unread.remove(end)
                continue
            new = piece[max(0, skip[end] - counts[end]) :]
            counts[end] += len(piece)
            _append_to_log(log, ahead.new_bytes(end, new))
    for end in ends:
        os.close(end)
    os.waitpid(pid, 0)
    return max(logged_lengths[0], counts[ends[0]]), max(logged_lengths[1], counts[ends[1]])


def _append_to_log(log: int, text: bytes) -> None:
    """Append to a log; what a full disk does not take is lost, and the training goes on."""
    while text:
        try:
            text = text[os.write(log, text) :]
        except OSError:
            return
