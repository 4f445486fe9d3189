"""Turns in the queue: the order of the starts that wait, and which cards or CPU cores each gets now."""

from __future__ import annotations

from typing import Iterable, Mapping, NamedTuple, Sequence

from ..run_folder.lock_owner import LockOwner

# Whoever looks every few seconds takes what is free at once.
_MAX_UNUSED_TURN_SECONDS = 60.0


class ResourceRequest(NamedTuple):
    """Request of a start: `card_count` of the `cards`, each with `memory` bytes free, or so many CPU `cores`."""

    cards: tuple[str, ...] = ()
    card_count: int = 0
    memory: int = 0
    cores: int = 0


class Ticket(NamedTuple):
    """One start in the queue, of the user `uid`: it waits, or has the `cards` or `cores`."""

    name: str
    uid: int
    owner: LockOwner
    request: ResourceRequest
    waits: bool = False
    cards: tuple[str, ...] = ()
    cores: int = 0
    why: str = ""
    """What it waits for, in words."""


def waiting_in_order(tickets: Iterable[Ticket], wishes: Mapping[int, Sequence[str]]) -> tuple[Ticket, ...]:
    """Return the tickets that wait, first come, first served, by the starts of their processes.

    `wishes` has the names of a user's tickets as that user wants them: they change places among each other only.
    """
    places = sorted((ticket for ticket in tickets if ticket.waits), key=lambda each: (each.owner.ticks, each.name))
    own = {uid: iter(_in_wished_order(places, uid, wishes.get(uid, ()))) for uid in {ticket.uid for ticket in places}}
    return tuple(next(own[ticket.uid]) for ticket in places)


def _in_wished_order(places: Sequence[Ticket], uid: int, names: Sequence[str]) -> list[Ticket]:
    rank = {name: number for number, name in enumerate(names)}
    own = (ticket for ticket in places if ticket.uid == uid)
    # A start that came later than the wish comes after all that it names.
    return sorted(own, key=lambda ticket: rank.get(ticket.name, len(rank)))


def cards_by_ticket_in_turn(
    waiting: Sequence[Ticket], holding: Iterable[Ticket], memory_by_free_card: Mapping[str, int], core_count: int
) -> dict[str, tuple[str, ...]]:
    """Return the cards of each ticket whose turn it is, by its name; none for one that gets CPU cores.

    `waiting` is in order, `holding` has what is taken, `memory_by_free_card` the free bytes of each card that nobody
    computes on. What an earlier ticket can use is kept for it, also while it waits for more.
    """
    holding = tuple(holding)
    taken = {card for ticket in holding for card in ticket.cards}
    free_cards = {card: memory for card, memory in memory_by_free_card.items() if card not in taken}
    free_cores = core_count - sum(ticket.cores for ticket in holding)
    turns: dict[str, tuple[str, ...]] = {}
    for ticket in waiting:
        request = ticket.request
        usable = [card for card in request.cards if free_cards.get(card, -1) >= request.memory][: request.card_count]
        cores = cores_to_take(request, core_count)
        if len(usable) == request.card_count and (cores <= free_cores or not cores):
            turns[ticket.name] = tuple(usable)
        for card in usable:
            del free_cards[card]
        free_cores -= cores
    return turns


class TurnWatch:
    """Watches turns over time: a start that leaves its turn unused, such as a suspended one, is skipped."""

    def __init__(self, own_name: str) -> None:
        """`own_name` is the ticket of the start that watches, which is never passed."""
        self._own_name = own_name
        self._unused_since: dict[str, float] = {}

    def cards_by_ticket_in_turn(
        self,
        waiting: Sequence[Ticket],
        holding: Iterable[Ticket],
        memory_by_free_card: Mapping[str, int],
        core_count: int,
        now: float,
    ) -> dict[str, tuple[str, ...]]:
        """Return what the function of that name does, without those that left their turn unused until `now`."""
        passed = {
            name: since
            for name, since in self._unused_since.items()
            if now - since >= _MAX_UNUSED_TURN_SECONDS and name != self._own_name
        }
        in_line = [ticket for ticket in waiting if ticket.name not in passed]
        turns = cards_by_ticket_in_turn(in_line, holding, memory_by_free_card, core_count)
        self._unused_since = {**passed, **{name: self._unused_since.get(name, now) for name in turns}}
        return turns


def cores_to_take(request: ResourceRequest, core_count: int) -> int:
    """Return the CPU cores that a start takes: all for one that was planned for more than there are."""
    return min(request.cores, core_count)
