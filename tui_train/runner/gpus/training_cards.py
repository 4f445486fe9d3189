"""The cards of a training: which it gets, whether they are present, and which processes compute on them."""

from __future__ import annotations

import re
import time
from typing import Collection, NamedTuple, Sequence

from ..run_folder.start import print_message
from ..run_folder.supervisor_plan import SupervisorPlan
from ..system import other_programs
from ..system.refused import UNAVAILABLE_EXIT_CODE, USAGE_EXIT_CODE, Refused
from ..system.safe_text import visible

# A driver that wakes up takes its time; one that hangs never answers.
_NVIDIA_SMI_ANSWER_SECONDS = 30.0
_GPU_OR_MIG_UUID_PATTERN = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]+", re.ASCII)
_LISTED_CARD_PATTERN = re.compile(r"\s*(.*?): (.*?)\s*\(UUID: ([^)]+)\)")


class ListedCard(NamedTuple):
    """A card as nvidia-smi lists it; a part of one (MIG) has its UUID as `parent_uuid`, and no card of its own."""

    uuid: str
    title: str
    name: str
    parent_uuid: str = ""


def list_cards() -> tuple[ListedCard, ...] | None:
    """Return the cards of this machine; None where nvidia-smi does not answer."""
    answer = other_programs.run_program(("nvidia-smi", "-L"), _NVIDIA_SMI_ANSWER_SECONDS)
    if answer.code != 0:
        return None
    cards: list[ListedCard] = []
    parent_uuid = ""
    for line in answer.out.splitlines():
        match = _LISTED_CARD_PATTERN.match(line)
        if match and line.startswith("GPU "):
            parent_uuid = match.group(3)
            cards.append(ListedCard(parent_uuid, visible(f"{match.group(1)} {match.group(2)}"), match.group(2)))
        elif match:
            cards.append(ListedCard(match.group(3), visible(match.group(1)), match.group(1), parent_uuid))
    return tuple(cards)


def choose_cards(planned: SupervisorPlan, gpus_option: str, node_rank: int) -> tuple[str, ...]:
    """Return the UUIDs of the cards to train on: those of --gpus, else the plan's, else all of another machine.

    Where another machine no longer has those of the plan, or the plan knows none, and it has more, such as one for the
    display, they are those of the kinds that the first machine trains on.
    Raises Refused (64) where --gpus does not name as many as the plan has, by their UUIDs; (69) where another machine
    has another number of cards.
    """
    wanted = planned.process_count(node_rank)
    if gpus_option:
        return _cards_named_by_option(planned, gpus_option, wanted)
    if not planned.gpus or node_rank == 0:
        return planned.gpus
    chosen = planned.others[node_rank - 1] if planned.others else ()
    present = list_cards()
    if present is None and chosen:
        return chosen
    if present is None:
        raise Refused(UNAVAILABLE_EXIT_CODE, "nvidia-smi does not answer: name the GPUs with --gpus=UUID,…")
    split_uuids = {card.parent_uuid for card in present}
    whole_cards = [card for card in present if not card.parent_uuid and card.uuid not in split_uuids]
    if chosen and {card.uuid for card in whole_cards}.issuperset(chosen):
        return chosen
    same_model = [card for card in whole_cards if card.name in planned.gpu_names]
    cards = same_model if len(same_model) == wanted else whole_cards
    if len(cards) != wanted:
        trains = "this machine trains" if planned.uneven else "each machine trains"
        words = "%s on %d GPU%s, and this machine has: %s; choose with --gpus=UUID,…"
        raise Refused(UNAVAILABLE_EXIT_CODE, words % (trains, wanted, "s" * (wanted != 1), _listed_cards_text(present)))
    return tuple(card.uuid for card in cards)


def _cards_named_by_option(planned: SupervisorPlan, gpus_option: str, wanted_count: int) -> tuple[str, ...]:
    shown = f"--gpus={visible(gpus_option)}"
    if not planned.gpus:
        raise Refused(USAGE_EXIT_CODE, f"{shown}: this trains on the CPU")
    cards = tuple(gpus_option.split(","))
    if any(not card or re.search(r"\s", card) for card in cards):
        raise Refused(USAGE_EXIT_CODE, f"{shown} names a GPU that is empty or has a space")
    for card in cards:
        if not _GPU_OR_MIG_UUID_PATTERN.fullmatch(card):
            listed_gpus = list_cards()
            present = "see nvidia-smi -L" if listed_gpus is None else f"there are {_listed_cards_text(listed_gpus)}"
            why = f"{visible(card)} is no UUID (GPU-… or MIG-…), and a number means another GPU to other programs"
            raise Refused(USAGE_EXIT_CODE, f"{shown}: {why}: {present}")
        if cards.count(card) > 1:
            raise Refused(USAGE_EXIT_CODE, f"{shown} names {card} twice")
    if len(cards) != wanted_count:
        each = "each machine" if planned.nodes > 1 and not planned.uneven else "this"
        raise Refused(USAGE_EXIT_CODE, f"--gpus names {len(cards)}, and {each} trains on {wanted_count}")
    return cards


def require_cards_present(planned: SupervisorPlan, cards: Sequence[str]) -> None:
    """Refuse (69) where a card is not there: it may have been lost since the plan, which may be another machine's.

    Where nvidia-smi does not answer, that is said, and the training goes on.
    """
    if not cards:
        return
    present = list_cards()
    if present is None:
        if not other_programs.is_interrupted():
            print_message("nvidia-smi does not answer: the GPUs are not looked at first")
        return
    names = dict(zip(planned.gpus, planned.gpu_names))
    uuids = {card.uuid for card in present}
    for card in cards:
        if card not in uuids:
            words = "the GPU %s (%s) is not there: this machine has %s. Take others with --gpus=UUID,…"
            raise Refused(
                UNAVAILABLE_EXIT_CODE,
                words % (visible(card), visible(names.get(card, "chosen here")), _listed_cards_text(present)),
            )


def _listed_cards_text(cards: Sequence[ListedCard]) -> str:
    return ", ".join(f"{card.title} {visible(card.uuid)}" for card in cards) or "none"


def pids_computing_on(cards: Sequence[str]) -> tuple[int, ...] | None:
    """Return the processes that compute on these cards; None where nvidia-smi does not answer."""
    if not cards:
        return ()
    asked = ("nvidia-smi", "--query-compute-apps=gpu_uuid,pid", "--format=csv,noheader")
    answer = other_programs.run_program(asked, _NVIDIA_SMI_ANSWER_SECONDS)
    if answer.code != 0:
        return None
    pairs = (line.partition(",") for line in answer.out.splitlines())
    return tuple(int(pid) for uuid, _, pid in pairs if uuid.strip() in cards and pid.strip().isdigit())


def wait_until_cards_free(cards: Sequence[str], neighbour_pids: Collection[int], timeout_seconds: float) -> None:
    """Wait until nobody computes on the cards but the `neighbour_pids`, who did so before.

    The driver may hold the memory of a process for a while after its end. After so many seconds, or where nvidia-smi
    does not answer, that is said, and the training goes on.
    """
    deadline = time.monotonic() + timeout_seconds
    while cards and not other_programs.is_interrupted():
        busy = pids_computing_on(cards)
        if busy is None:
            if not other_programs.is_interrupted():
                print_message("nvidia-smi does not answer: goes on without a look whether the GPUs are empty")
            return
        left = [str(pid) for pid in busy if pid not in neighbour_pids]
        if not left:
            return
        if time.monotonic() >= deadline:
            words = "a GPU is not empty after %d s (process %s): goes on all the same"
            print_message(words % (timeout_seconds, " ".join(left)))
            return
        time.sleep(0.5)
