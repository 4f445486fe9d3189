"""Joins the queue: each start shows all users what it has taken, or what it waits for."""

from __future__ import annotations

import contextlib
import itertools
import os

from ..run_folder.lock_owner import this_process_as_owner
from ..run_folder.start import RunStart, print_message
from ..run_folder.supervisor_plan import SupervisorPlan
from ..system.refused import UNAVAILABLE_EXIT_CODE, USAGE_EXIT_CODE, Refused
from ..system.safe_text import visible
from .reasons import HAS_CARD_TEXT, run_and_user_text
from .tickets import OwnTicket, QueueFolder, queue_folder_path, ticket_name
from .turns import ResourceRequest, Ticket

ANY_GPUS = "any"
_MAX_NAMED_HOLDERS = 3


def require_can_wait(planned: SupervisorPlan) -> None:
    """Refuse (64) to wait with a training whose cards are not all on this machine."""
    if planned.slurm:
        raise Refused(USAGE_EXIT_CODE, "--when-free: Slurm has a queue of its own")
    if planned.nodes > 1:
        why = "each machine has a queue of its own, so that a training on several cannot wait for their GPUs"
        raise Refused(USAGE_EXIT_CODE, f"--when-free: {why}; start it when all are free, or let Slurm start it")


def join_queue(start: RunStart, when_free: str) -> OwnTicket | None:
    """Show all users what this start has taken or, with `when_free`, waits for; None where that is not possible.

    A start that does not wait takes its cards as it always did: where others hold them, that is said.
    """
    if start.planned.slurm:
        return None
    is_any = when_free == ANY_GPUS and not start.are_cards_overridden
    request = _make_resource_request(start.planned, start.cards, start.node_rank, is_any=is_any)
    ticket = _waiting_ticket(start.mark, start.own_dir, request)
    if when_free:
        return _write_waiting_ticket(ticket)
    try:
        taken = ticket._replace(waits=False, cards=start.cards, cores=request.cores)
        own = OwnTicket(QueueFolder(make=True), taken)
    except OSError as error:
        print_message(f"{_queue_unusable_text(error)}; other users do not see what this training takes")
        return None
    with contextlib.suppress(OSError):
        _take_cards_at_once(own)
    return own


def join_queue_to_hold(planned: SupervisorPlan, folder: str) -> OwnTicket:
    """Show all users that this process waits for the cards or CPU cores of a plan, by the name of a folder."""
    require_can_wait(planned)
    request = _make_resource_request(planned, planned.gpus, 0, is_any=False)
    return _write_waiting_ticket(_waiting_ticket(f"{os.path.basename(folder)[:100]}-{os.getpid()}", folder, request))


def _waiting_ticket(mark: str, folder: str, request: ResourceRequest) -> Ticket:
    owner = this_process_as_owner(mark, os.path.realpath(folder))
    return Ticket(ticket_name(mark), os.geteuid(), owner, request, waits=True)


def _write_waiting_ticket(ticket: Ticket) -> OwnTicket:
    try:
        return OwnTicket(QueueFolder(make=True), ticket)
    except OSError as error:
        raise Refused(UNAVAILABLE_EXIT_CODE, f"--when-free: {_queue_unusable_text(error)}") from None


def _queue_unusable_text(error: OSError) -> str:
    return f"cannot use the queue {visible(queue_folder_path())}: {error.strerror}"


def _make_resource_request(
    planned: SupervisorPlan, cards: tuple[str, ...], node_rank: int, *, is_any: bool
) -> ResourceRequest:
    if not cards:
        return ResourceRequest(cores=planned.process_count(node_rank) * planned.threads)
    return ResourceRequest((is_any and planned.gpu_pool) or cards, len(cards), planned.gpu_memory)


def _take_cards_at_once(own: OwnTicket) -> None:
    for card in own.ticket.cards:
        own.keep_locks(own.folder.lock_cards_or_cores([card]) or ())
    others = (ticket for ticket in own.folder.tickets() if not ticket.waits and ticket.name != own.ticket.name)
    on_same_cards = (ticket for ticket in others if set(ticket.cards) & set(own.ticket.cards))
    for ticket in itertools.islice(on_same_cards, _MAX_NAMED_HOLDERS):
        print_message(f"{run_and_user_text(ticket)} {HAS_CARD_TEXT}")
