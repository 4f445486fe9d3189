"""Watches who computes on cards: a child asks their driver every few seconds, for a driver may hang.

`watch PARENT UUID …` prints what it sees as a line of JSON, again and again; it also ends with its parent, by its pid.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from typing import Any, Mapping, NamedTuple, Sequence

from ..system import other_programs, runner_command, untrusted_json
from ..system.processes import Process, command_text, end_with_parent, process_age_seconds, process_start_ticks
from ..system.safe_text import visible

CARD_WATCH_INTERVAL_SECONDS = 4.0
# A look that is older says nothing about now: the driver hangs, or this machine was asleep.
MAX_CARD_USAGE_AGE_SECONDS = 3 * CARD_WATCH_INTERVAL_SECONDS
_MAX_LINE_BYTES = 1 << 20
_MPS_SERVER_NAME = "nvidia-cuda-mps-server"
# A card that shares the memory of its machine does not say how much is free: it may be enough.
_UNKNOWN_MEMORY = 2**62


class ProcessOnCard(NamedTuple):
    """A process that computes on a card: who started it, its first words, and when it began, in seconds since 1970."""

    pid: int
    user: str = ""
    command: str = ""
    since: float = 0.0


class CardUsage(NamedTuple):
    """A card as it was seen: its number, its memory in bytes (None: not known), and who computes on it."""

    number: int | None
    total: int | None
    free: int | None
    users: tuple[ProcessOnCard, ...] = ()

    @property
    def memory_if_free(self) -> int | None:
        """The free bytes of a card that nobody uses, None while a program does.

        Where processes cannot be seen, as in containers, a card with less than half of its memory free is used.
        """
        if self.users:
            return None
        if self.total is None or self.free is None:
            return _UNKNOWN_MEMORY
        return self.free if self.free >= self.total / 2 else None


class _TimedCardUsage(NamedTuple):
    """All cards as they were seen at a time of the monotonic clock."""

    at: float
    cards: Mapping[str, CardUsage]

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.at <= MAX_CARD_USAGE_AGE_SECONDS


_NO_CARD_USAGE = _TimedCardUsage(float("-inf"), {})


class CardWatch:
    """A child that watches these cards, started again where it has ended."""

    def __init__(self, cards: Sequence[str]) -> None:
        self._cards = tuple(cards)
        self._child = 0
        self._answer = -1
        self._unread = b""
        self._newest = self._before = _NO_CARD_USAGE
        self._started_at = float("-inf")

    @property
    def descriptor(self) -> int:
        """Descriptor on which the next usage arrives, -1 while there is no child."""
        return self._answer

    def newest_usage_by_card(self) -> Mapping[str, CardUsage] | None:
        """Return the newest usage of each card that the driver has; None where it does not answer."""
        if not self._cards:
            return {}
        if self._answer < 0 and time.monotonic() - self._started_at >= CARD_WATCH_INTERVAL_SECONDS:
            self._start_child()
        self._receive_usage_from_child()
        return self._newest.cards if self._newest.is_fresh else None

    def memory_by_free_card(self) -> dict[str, int]:
        """Return the free bytes of the cards that were free at the last two looks: a driver may need a moment."""
        if not self._newest.is_fresh:
            return {}
        before = {uuid for uuid, card in self._before.cards.items() if card.memory_if_free is not None}
        free = {uuid: card.memory_if_free for uuid, card in self._newest.cards.items() if uuid in before}
        return {uuid: memory for uuid, memory in free.items() if memory is not None}

    def close(self) -> None:
        """End the child; one that hangs in a driver is left behind."""
        if self._answer >= 0:
            os.close(self._answer)
            self._answer = -1
            other_programs.kill_process_group(self._child)

    def _start_child(self) -> None:
        self._started_at = time.monotonic()
        words = runner_command.runner_command("watch", str(os.getpid()), *self._cards)
        try:
            self._child, self._answer, errors = other_programs.spawn_program(words, os.environ)
        except OSError:
            return
        os.close(errors)
        os.set_blocking(self._answer, False)
        self._unread = b""

    def _receive_usage_from_child(self) -> None:
        if self._answer < 0:
            return
        with contextlib.suppress(BlockingIOError):
            while piece := os.read(self._answer, 1 << 16):
                self._unread = (self._unread + piece)[-_MAX_LINE_BYTES:]
            # It has ended.
            self.close()
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            self._before, self._newest = self._newest, _parse_card_usage(line)


def _parse_card_usage(line: bytes) -> _TimedCardUsage:
    try:
        seen = untrusted_json.parse_json(line)
    except untrusted_json.Unparsable:
        # The beginning of a line that was too long.
        return _NO_CARD_USAGE
    cards = {
        uuid: CardUsage(
            card["number"], card["total"], card["free"], tuple(ProcessOnCard(*user) for user in card["users"])
        )
        for uuid, card in seen["cards"].items()
    }
    return _TimedCardUsage(seen["at"], cards)


def main(parent_pid: int, uuids: Sequence[str]) -> None:
    """Print the usage of these cards again and again until the parent ends; nothing where there is no driver."""
    end_with_parent()
    from .nvml_card import MALFORMED_ANSWER_ERRORS, pynvml

    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, *MALFORMED_ANSWER_ERRORS):
        return
    known: dict[Process, ProcessOnCard | None] = {}
    while os.getppid() == parent_pid:
        at, before, known = time.monotonic(), known, {}
        seen = {uuid: card for uuid in uuids for card in (_query_card_usage(uuid, before, known),) if card}
        os.write(1, json.dumps({"at": at, "cards": seen}).encode() + b"\n")
        time.sleep(CARD_WATCH_INTERVAL_SECONDS)


def _query_card_usage(
    uuid: str, before: Mapping[Process, ProcessOnCard | None], known: dict[Process, ProcessOnCard | None]
) -> dict[str, Any] | None:
    """Return the usage of a card as the driver reports it now, None where it has none.

    Processes that were seen `before` are not asked for their names again; all seen now are added to `known`.
    """
    from .nvml_card import NvmlCardCalls, pynvml, read_memory_and_graphics_pids, read_total_and_free_memory

    handle = NvmlCardCalls()(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return None
    query = NvmlCardCalls(handle)
    total, free = read_total_and_free_memory(query)
    memory, graphics_pids = read_memory_and_graphics_pids(query)
    if query.problem:
        # Such as one that has to be reset.
        return None
    users = []
    for pid in sorted(memory.keys() - graphics_pids):
        process = Process(pid, process_start_ticks(pid) or 0)
        known[process] = before[process] if process in before else _process_on_card(process)
        users.append(known[process])
    return {"number": query(pynvml.nvmlDeviceGetIndex), "total": total, "free": free, "users": [*filter(None, users)]}


def _process_on_card(process: Process) -> ProcessOnCard | None:
    """Return who computes on a card; None for a server that passes on what others do, who are listed as well."""
    from .nvml_card import process_and_user_name

    names = process_and_user_name(process.pid)
    if names["name"] == _MPS_SERVER_NAME:
        return None
    since = time.time() - process_age_seconds(process.ticks) if process.ticks else 0.0
    return ProcessOnCard(process.pid, names["user"], command_text(process.pid) or visible(names["name"]), since)
