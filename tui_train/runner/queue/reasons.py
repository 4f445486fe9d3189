"""Reasons why a start waits, in words that stay the same as long as the reason does."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Iterable, Mapping, Sequence

from ..system.safe_open import user_name
from ..system.safe_text import visible
from .turns import Ticket, cores_to_take

if TYPE_CHECKING:
    from ..gpus.card_watch import CardUsage, ProcessOnCard

_MAX_SHOWN_REASONS = 3
HAS_CARD_TEXT = "has one of these GPUs; --when-free waits for it"
# What ends a name in a reason is shown as an escape in the name itself.
_SEPARATOR_PATTERN = re.compile("[():;]")
_RUN_AND_USER_PATTERN = re.compile(r"(?:^|: |; )([^():;]+) \(([^()]+)\)")
# What others write may be long.
_MAX_NAME_CHARACTERS = 100
_USER_PATTERN = re.compile(r"pid \d+, ([^,;]+), |\(([^()]+)\)")


def waiting_reason(
    ticket: Ticket,
    earlier: Sequence[Ticket],
    holding: Iterable[Ticket],
    cards: Mapping[str, CardUsage] | None,
    core_count: int,
) -> str:
    """Return what is in the way of a ticket: `earlier` ones wait before it, `holding` ones train, `cards` are seen."""
    holding = tuple(holding)
    request = ticket.request
    if request.cores:
        return _cores_reason(ticket, earlier, holding, core_count)
    if cards is None:
        return "the NVIDIA driver does not answer"
    reasons = [_card_reason(card, request.memory, earlier, holding, cards.get(card)) for card in request.cards]
    in_the_way = [reason for reason in reasons if reason]
    if len(reasons) - len(in_the_way) >= request.card_count:
        return "free GPUs are watched for some seconds"
    shown = _first_texts_joined(in_the_way)
    return (
        f"{request.card_count} of {len(request.cards)} GPUs: {shown}"
        if request.card_count < len(request.cards)
        else shown
    )


def users_in_reason(reason: str) -> tuple[str, ...]:
    """Return the names of users in a reason."""
    return tuple(match[1] or match[2] for match in _USER_PATTERN.finditer(reason))


def runs_and_users_in_reason(reason: str) -> tuple[tuple[str, str], ...]:
    """Return the names of runs in a reason, each with that of its user."""
    return tuple(_RUN_AND_USER_PATTERN.findall(reason))


def _card_reason(
    uuid: str, memory: int, earlier: Sequence[Ticket], holding: Sequence[Ticket], card: CardUsage | None
) -> str:
    """Return why a card cannot be taken, empty where it can."""
    title = visible(uuid) if card is None or card.number is None else f"GPU {card.number}"
    holder = next((other for other in holding if uuid in other.cards), None)
    if holder:
        return f"{title}: {run_and_user_text(holder)}"
    if card is None:
        return f"{title}: not there"
    if card.users:
        more = f" and {len(card.users) - 1} more" if card.users[1:] else ""
        return f"{title}: {_process_on_card_text(card.users[0])}{more}"
    if card.memory_if_free is None or card.memory_if_free < memory:
        needs = f", {_gigabytes_text(memory)} needed" if memory else ""
        return f"{title}: {_gigabytes_text(card.free or 0)} of {_gigabytes_text(card.total or 0)} free{needs}"
    before = next((other for other in earlier if uuid in other.request.cards), None)
    return f"{title}: {run_and_user_text(before)} is before it" if before else ""


def _cores_reason(ticket: Ticket, earlier: Sequence[Ticket], holding: Sequence[Ticket], core_count: int) -> str:
    needed = cores_to_take(ticket.request, core_count)
    train = [other for other in holding if other.cores]
    taken = sum(other.cores for other in train)
    if needed > core_count - taken:
        runs = _first_texts_joined([run_and_user_text(other) for other in train])
        return f"{needed} CPU cores, {max(0, core_count - taken)} of {core_count} free: {runs}"
    before = next((other for other in earlier if other.request.cores), None)
    return f"{run_and_user_text(before)} is before it" if before else "its turn is next"


def run_and_user_text(ticket: Ticket) -> str:
    """Return the run of a ticket, and its user."""
    name = visible(os.path.basename(ticket.owner.folder))[:_MAX_NAME_CHARACTERS]
    escaped = _SEPARATOR_PATTERN.sub(lambda match: f"\\x{ord(match.group()):02x}", name)
    return f"{escaped} ({visible(user_name(ticket.uid))})"


def _process_on_card_text(user: ProcessOnCard) -> str:
    return ", ".join(filter(None, (f"pid {user.pid}", user.user, user.command, since_text(user.since))))


def since_text(since: float) -> str:
    """Return since when, which is the same words at any time of a day."""
    if not since:
        return ""
    then, now = time.localtime(since), time.localtime()
    is_today = (then.tm_year, then.tm_yday) == (now.tm_year, now.tm_yday)
    return time.strftime("since %H:%M" if is_today else "since %m-%d %H:%M", then)


def _gigabytes_text(size: int) -> str:
    return f"{size / 2**30:.1f} GB"


def _first_texts_joined(texts: Sequence[str]) -> str:
    more = f"; {len(texts) - _MAX_SHOWN_REASONS} more" if texts[_MAX_SHOWN_REASONS:] else ""
    return "; ".join(texts[:_MAX_SHOWN_REASONS]) + more
