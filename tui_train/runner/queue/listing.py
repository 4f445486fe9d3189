"""The queue as its users see it: who waits, in order, and the places of one's own starts."""

from __future__ import annotations

import contextlib
import os
from itertools import islice
from typing import Iterator, Mapping, NamedTuple, Sequence

from ..system.processes import process_age_seconds
from ..system.safe_open import user_name
from ..system.safe_text import visible
from .reasons import run_and_user_text
from .tickets import QueueFolder
from .turns import Ticket, waiting_in_order

# What others write may be long.
_MAX_NAME_CHARACTERS, _MAX_REASON_CHARACTERS = 100, 400
_MAX_CARDS = 1024


class WaitingStart(NamedTuple):
    """A start that waits for `gpus` of `gpus_to_choose_from`, or for CPU `cores`, and why."""

    run: str
    user: str
    pid: int
    seconds: int
    gpus: int
    gpus_to_choose_from: int
    cores: int
    why: str


class CardInQueue(NamedTuple):
    """A card by its UUID: the start that has it, how many wait for it, and the first of them; empty for none."""

    uuid: str
    holder: str = ""
    waiting: int = 0
    first_waiting: str = ""


def list_waiting_starts() -> tuple[WaitingStart, ...]:
    """Return the starts of all users that wait, the next one first; OSError where the queue cannot be read."""
    # Without a folder nobody has waited yet.
    with contextlib.suppress(FileNotFoundError), contextlib.closing(QueueFolder(make=False)) as queue:
        return tuple(map(_waiting_start, waiting_in_order(queue.tickets(), queue.wished_order_by_uid())))
    return ()


def list_cards_in_queue() -> tuple[CardInQueue, ...]:
    """Return the cards that starts of all users have or could take; none where the queue cannot be read."""
    try:
        with contextlib.closing(QueueFolder(make=False)) as queue:
            return tuple(islice(_cards_in_queue(queue.tickets(), queue.wished_order_by_uid()), _MAX_CARDS))
    except OSError:
        return ()


def _cards_in_queue(tickets: Sequence[Ticket], wishes: Mapping[int, Sequence[str]]) -> Iterator[CardInQueue]:
    holding = sorted((ticket for ticket in tickets if not ticket.waits), key=lambda each: (each.owner.ticks, each.name))
    holders: dict[str, Ticket] = {}
    waiting: dict[str, list[Ticket]] = {}
    for ticket in holding:
        for card in ticket.cards:
            holders.setdefault(card, ticket)
    for ticket in waiting_in_order(tickets, wishes):
        for card in set(ticket.request.cards):
            waiting.setdefault(card, []).append(ticket)
    for card in dict.fromkeys((*holders, *waiting)):
        holder, others = holders.get(card), waiting.get(card, [])
        yield CardInQueue(
            uuid=visible(card),
            holder=run_and_user_text(holder) if holder else "",
            waiting=len(others),
            first_waiting=run_and_user_text(others[0]) if others else "",
        )


def move_in_queue(run_dir: str, *, to_front: bool) -> bool:
    """Move the start of a run before or after all others of this user; False where it does not wait."""
    with contextlib.suppress(FileNotFoundError), contextlib.closing(QueueFolder(make=False)) as queue:
        waiting = waiting_in_order(queue.tickets(), queue.wished_order_by_uid())
        own = [ticket for ticket in waiting if ticket.uid == os.geteuid()]
        moved = [ticket.name for ticket in own if ticket.owner.folder == os.path.realpath(run_dir)]
        others = [ticket.name for ticket in own if ticket.name not in moved]
        if moved:
            queue.write_wished_order([*moved, *others] if to_front else [*others, *moved])
        return bool(moved)
    return False


def _waiting_start(ticket: Ticket) -> WaitingStart:
    request = ticket.request
    return WaitingStart(
        run=visible(os.path.basename(ticket.owner.folder))[:_MAX_NAME_CHARACTERS],
        user=visible(user_name(ticket.uid)),
        pid=ticket.owner.pid,
        seconds=int(process_age_seconds(ticket.owner.ticks)),
        gpus=request.card_count,
        gpus_to_choose_from=len(request.cards),
        cores=request.cores,
        why=ticket.why[:_MAX_REASON_CHARACTERS],
    )
