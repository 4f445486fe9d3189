"""Waits for GPUs or CPU cores in the queue of this machine, and takes them where it is this start's turn.

`hold` does so for whoever started it, who trains on them several times: nobody gets a turn between.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import sys
import time
from typing import Callable, Mapping

from .attempt import renew_locks_or_stop
from .gpus.card_watch import CARD_WATCH_INTERVAL_SECONDS, MAX_CARD_USAGE_AGE_SECONDS, CardUsage, CardWatch
from .queue.joining import join_queue_to_hold
from .queue.reasons import waiting_reason
from .queue.tickets import OwnTicket
from .queue.turns import Ticket, TurnWatch, cores_to_take, waiting_in_order
from .run_folder.start import RunStart, print_message, record_event
from .run_folder.supervisor_plan import read_plan
from .system.cgroup_limits import cgroup_limits
from .system.host_facts import count_usable_cpus
from .system.signals import StopSignals

# What is in the way may change all the time, and each change is a line of events.jsonl.
_MIN_RECORD_SECONDS = 60.0
_MAX_REASON_CHARACTERS = 400
_HOLDER_RENEW_SECONDS = 60.0


def wait_for_turn(start: RunStart, own: OwnTicket) -> RunStart:
    """Return the start with the cards that it got, or as it was where it is to stop."""

    def report_reason(why: str) -> None:
        record_event(start, "waiting", why=why)
        print_message(f"waits: {why}")

    cards = _wait_for_and_take_turn(own, start.signals, report_reason, lambda: renew_locks_or_stop(start))
    if cards is None:
        return start
    print_message("its turn: begins to train")
    record_event(start, "wait_ended", gpus=",".join(cards))
    return start._replace(cards=cards)


def hold_turn(run_dir: str, folder: str) -> int:
    """Wait for what the plan of a run folder needs, and hold it until the input ends; others see the name of `folder`.

    What is in the way, and the turn, are told in lines of JSON.
    """
    signals = StopSignals()
    own = join_queue_to_hold(read_plan(run_dir), folder)
    try:
        cards = _wait_for_and_take_turn(
            own, signals, lambda why: print(json.dumps({"why": why}), flush=True), lambda: _renew_or_stop(own)
        )
        if cards is not None:
            print(json.dumps({"turn": True}), flush=True)
        while not signals.stop:
            signals.wait(_HOLDER_RENEW_SECONDS, sys.stdin.fileno())
            _renew_or_stop(own)
    finally:
        own.release()
    return signals.code


def _renew_or_stop(own: OwnTicket) -> None:
    own.renew()
    if select.select([sys.stdin], [], [], 0)[0]:
        os.kill(os.getpid(), signal.SIGTERM)


def _wait_for_and_take_turn(
    own: OwnTicket, signals: StopSignals, report_reason: Callable[[str], None], renew: Callable[[], None]
) -> tuple[str, ...] | None:
    """Wait for a ticket's turn, and return the cards that it got, None where it is to stop.

    `report_reason` gets what is in the way, at most once a minute; `renew` is called every few seconds.
    """
    waiting = _WaitForTurn(own, signals, report_reason)
    try:
        while not signals.stop:
            cards = waiting.try_to_take_cards()
            if cards is not None:
                return cards
            waiting.pause()
            renew()
        return None
    finally:
        waiting.close()


class _WaitForTurn:
    """A start that waits for its turn: what it has seen and reported so far."""

    def __init__(self, own: OwnTicket, signals: StopSignals, report_reason: Callable[[str], None]) -> None:
        self._own, self._signals, self._report_reason = own, signals, report_reason
        self._watch = CardWatch(own.ticket.request.cards)
        self._core_count = count_usable_cpus(cgroup_limits().cpus)
        self._began = time.monotonic()
        self._turns = TurnWatch(own.ticket.name)
        self._recorded, self._recorded_at = "", float("-inf")

    def try_to_take_cards(self) -> tuple[str, ...] | None:
        """Take what is this start's by its turn, and return the cards; None while it waits, which it then says why."""
        seen = self._watch.newest_usage_by_card()
        tickets = self._own.folder.tickets()
        cards = self._cards_of_turn(tickets)
        if cards is not None and self._lock_and_take_cards(cards):
            return cards
        self._report_waiting_reason(tickets, seen)
        return None

    def _cards_of_turn(self, tickets: list[Ticket]) -> tuple[str, ...] | None:
        holding = [ticket for ticket in tickets if not ticket.waits]
        waiting = waiting_in_order(tickets, self._own.folder.wished_order_by_uid())
        memory_by_free_card, now = self._watch.memory_by_free_card(), time.monotonic()
        turns = self._turns.cards_by_ticket_in_turn(waiting, holding, memory_by_free_card, self._core_count, now)
        return turns.get(self._own.ticket.name)

    def _lock_and_take_cards(self, cards: tuple[str, ...]) -> bool:
        locks = self._own.folder.lock_cards_or_cores(cards)
        if locks is None:
            return False
        # Another start may have taken them since the tickets were read.
        taken = self._cards_of_turn(self._own.folder.tickets()) == cards
        if taken:
            cores = cores_to_take(self._own.ticket.request, self._core_count)
            try:
                self._own.change(waits=False, cards=cards, cores=cores, why="")
            except OSError as error:
                taken = False
                self._record_reason(f"cannot write in {self._own.folder.path}: {error.strerror}", time.monotonic())
        if taken and cards:
            self._own.keep_locks(locks)
        else:
            for lock in locks:
                os.close(lock)
        return taken

    def _report_waiting_reason(self, tickets: list[Ticket], seen: Mapping[str, CardUsage] | None) -> None:
        own, now = self._own.ticket, time.monotonic()
        if seen is None and now - self._began < MAX_CARD_USAGE_AGE_SECONDS:
            # The driver was asked a moment ago.
            return
        waiting = waiting_in_order(tickets, self._own.folder.wished_order_by_uid())
        earlier = tuple(itertools.takewhile(lambda ticket: ticket.name != own.name, waiting))
        holding = [ticket for ticket in tickets if not ticket.waits]
        why = waiting_reason(own, earlier, holding, seen, self._core_count)[:_MAX_REASON_CHARACTERS]
        if why != own.why:
            with contextlib.suppress(OSError):
                self._own.change(why=why)
        self._record_reason(why, now)

    def _record_reason(self, why: str, now: float) -> None:
        if why != self._recorded and now - self._recorded_at >= _MIN_RECORD_SECONDS:
            self._report_reason(why)
            self._recorded, self._recorded_at = why, now

    def pause(self) -> None:
        """Wait for the next look at the cards, or some seconds; the end of a child also wakes this process."""
        deadline = time.monotonic() + CARD_WATCH_INTERVAL_SECONDS
        while not self._signals.stop and (left := deadline - time.monotonic()) > 0:
            if self._signals.wait(left, self._watch.descriptor):
                return

    def close(self) -> None:
        """Stop watching the cards."""
        self._watch.close()
