"""Sets of cards to train on together, the fastest first, each with its advantage over the others.

In data parallel training all cards wait for the slowest, and each holds the full model. So more cards can be slower,
and the fastest set does not always have the most memory per card.
"""

from collections.abc import Iterable, Sequence

import msgspec

from tui_train.base.text import percent, quantity, size_text, visible
from tui_train.facts.gpus.capability import approximate_teraflops, do_all_support_bf16
from tui_train.facts.types import CardSet, Facts, Gpu, GpuVerdict
from tui_train.runner.queue.listing import CardInQueue

# Cards of the same nominal size report up to 5 % less: reserved by the driver, ECC, or the vendor.
MIN_EQUAL_MEMORY_SHARE = 0.95
MIN_USEFUL_SM_COUNT = 8
_MIN_BUSY_PROCESS_BYTES = 2**30
_MAX_PROCESSES_SHOWN = 3
# A host may send any.
_MAX_RUN_CHARACTERS = 200
# Speed in TFLOPS, smallest memory in bytes (0: unknown), the cards.
_SpeedMemoryAndCards = tuple[float, int, tuple[Gpu, ...]]


def is_busy(gpu: Gpu) -> bool:
    """Return whether another program computes on a card: one with 1 GiB or unknown memory of its memory.

    If the driver hides processes, as in containers, a card with less than half of its memory free counts as busy.
    """
    if any(
        not process.graphics and (process.memory or _MIN_BUSY_PROCESS_BYTES) >= _MIN_BUSY_PROCESS_BYTES
        for process in gpu.processes
    ):
        return True
    if gpu.shares_memory or not gpu.memory_total or gpu.memory_free is None:
        return False
    return gpu.memory_free < gpu.memory_total / 2


def busy_processes_text(gpu: Gpu) -> str:
    """Return the processes that compute on a busy card, with their memory, as text; empty if it is not busy."""
    if not is_busy(gpu):
        return ""
    computing = [process for process in gpu.processes if not process.graphics]
    computing.sort(key=lambda process: -(process.memory or _MIN_BUSY_PROCESS_BYTES))
    words = []
    for process in computing[:_MAX_PROCESSES_SHOWN]:
        name = process.name.rpartition("/")[2] if " " not in process.name else process.name
        amount = "unknown memory" if process.memory is None else f"{process.memory // 2**20} MiB"
        words.append(f"{process.user or 'unknown user'}: {name or '?'} (pid {process.pid}), {amount}")
    if len(computing) > _MAX_PROCESSES_SHOWN:
        words.append(f"{len(computing) - _MAX_PROCESSES_SHOWN} more")
    if words:
        return "; ".join(words)
    used = (gpu.memory_total or 0) - (gpu.memory_free or 0)
    return f"a hidden process: {used // 2**20} MiB"


def card_holder_text(card: CardInQueue) -> str:
    """Return which run has taken a card, also one that has no memory on it yet; empty for none."""
    return f"{visible(card.holder)[:_MAX_RUN_CHARACTERS]} trains" if card.holder else ""


def card_queue_text(card: CardInQueue) -> str:
    """Return which run has taken a card and how many wait for it, with the first of them; empty for none."""
    first = visible(card.first_waiting)[:_MAX_RUN_CHARACTERS]
    waiting = f"{card.waiting} runs wait for it, {first} first" if card.waiting > 1 else f"{first} waits for it"
    return "; ".join(filter(None, (card_holder_text(card), waiting if first else "")))


def are_gpus_in_use(facts: Facts, uuids: Iterable[str]) -> bool:
    """Return whether other programs compute on one of these cards, or another run has taken it."""
    used = {uuid for other in facts.resources_in_use for uuid in other.gpus}
    used |= {card.uuid for card in facts.cards_in_queue if card.holder}
    return not used.union(gpu.uuid for gpu in facts.machine.gpus if is_busy(gpu)).isdisjoint(uuids)


def facts_as_if_gpus_idle(facts: Facts) -> Facts:
    """Return the facts as they are once no other training uses a GPU."""
    gpus = tuple(map(_gpu_without_computing_processes, facts.machine.gpus))
    return msgspec.structs.replace(
        facts,
        machine=msgspec.structs.replace(facts.machine, gpus=gpus),
        resources_in_use=tuple(msgspec.structs.replace(used, gpus=()) for used in facts.resources_in_use),
        cards_in_queue=(),
    )


def _gpu_without_computing_processes(gpu: Gpu) -> Gpu:
    if not is_busy(gpu):
        return gpu
    graphics = tuple(process for process in gpu.processes if process.graphics)
    free = gpu.memory_total and gpu.memory_total - sum(process.memory or 0 for process in graphics)
    return msgspec.structs.replace(gpu, processes=graphics, memory_free=free)


def is_mig_instance(gpu: Gpu) -> bool:
    """Return whether this is a MIG instance; a process can use only one of them."""
    return gpu.uuid.startswith("MIG-")


def has_too_few_sms(gpu: Gpu, usable_gpus: Sequence[Gpu]) -> bool:
    """Return whether a card has fewer than 8 SMs and another `usable_gpus` one has more; unknown is not tiny.

    Source: TensorFlow ignores cards by this rule (`GetDefaultMinGPUMultiprocessorCount`).
    """
    most_sms = max((other.sm_count or 0 for other in usable_gpus), default=0)
    return gpu.sm_count is not None and gpu.sm_count < min(MIN_USEFUL_SM_COUNT, most_sms)


def fastest_set_indices(speeds: Sequence[float]) -> tuple[int, ...]:
    """Return the indices of the cards that are fastest together; n cards are n times as fast as their slowest."""
    order = sorted(range(len(speeds)), key=lambda index: -speeds[index])
    totals = [speeds[index] * count for count, index in enumerate(order, 1)]
    best = totals.index(max(totals)) + 1 if totals else 0
    return tuple(sorted(order[:best]))


def rank_card_sets(gpus: Sequence[Gpu], verdicts: Sequence[GpuVerdict]) -> tuple[CardSet, ...]:
    """Return the sensible sets of the cards that are not blocked, the recommended one first.

    They leave out busy cards if others are free; then one more set includes the busy ones.
    """
    unblocked = [(gpu, verdict) for gpu, verdict in zip(gpus, verdicts, strict=True) if verdict.kind != "blocked"]
    usable = [gpu for gpu, _ in unblocked]
    pool = [(gpu, verdict) for gpu, verdict in unblocked if gpu.uuid and not has_too_few_sms(gpu, usable)]
    whole_cards = [entry for entry in pool if not is_mig_instance(entry[0])]
    if not any(verdict.kind == "use" for _, verdict in whole_cards):
        pool = [entry for entry in pool if is_mig_instance(entry[0])] or whole_cards
    else:
        pool = whole_cards
    free = [entry for entry in pool if not is_busy(entry[0])]
    if not any(verdict.kind == "use" for _, verdict in free):
        return _sets_best_in_speed_or_memory(pool)
    free_sets = _sets_best_in_speed_or_memory(free)
    if len(free) == len(pool):
        return free_sets
    for busy_set in _sets_best_in_speed_or_memory(pool)[:1]:
        if all(set(busy_set.uuids) != set(other.uuids) for other in free_sets):
            gain = f"{busy_set.gain}, once the busy GPUs are free"
            return (*free_sets, msgspec.structs.replace(busy_set, title="with busy GPUs", gain=gain))
    return free_sets


def recommended_uuids(gpus: Sequence[Gpu], verdicts: Sequence[GpuVerdict]) -> tuple[str, ...]:
    """Return the UUIDs of the recommended set, none if no card can train."""
    return next((card_set.uuids for card_set in rank_card_sets(gpus, verdicts)), ())


def _sets_best_in_speed_or_memory(gpus_and_verdicts: Sequence[tuple[Gpu, GpuVerdict]]) -> tuple[CardSet, ...]:
    """Return the sets that no other set beats in both speed and memory, the fastest first."""
    cards = [gpu for gpu, _ in gpus_and_verdicts]
    candidates: list[_SpeedMemoryAndCards]
    if all(is_mig_instance(gpu) for gpu in cards):
        candidates = [(approximate_teraflops(gpu) or 0.0, gpu.memory_total or 0, (gpu,)) for gpu in cards]
    elif all(gpu.memory_total and approximate_teraflops(gpu) for gpu in cards):
        candidates = [_fastest_set_with_memory(cards, gpu.memory_total or 0) for gpu in cards]
    else:
        # Without known speed and memory the verdicts alone decide.
        cards = [gpu for gpu, verdict in gpus_and_verdicts if verdict.kind == "use"]
        memory = min((gpu.memory_total for gpu in cards if gpu.memory_total), default=0)
        candidates = [(0.0, memory, tuple(cards))] if cards else []
    best: list[_SpeedMemoryAndCards] = []
    for speed, memory, chosen in sorted(candidates, key=lambda entry: (-entry[0], -entry[1], -len(entry[2]))):
        if not best or memory * MIN_EQUAL_MEMORY_SHARE > best[-1][1]:
            best.append((speed, memory, chosen))
    return _card_sets_with_texts(best)


def _fastest_set_with_memory(cards: Sequence[Gpu], min_memory: int) -> _SpeedMemoryAndCards:
    """Return the fastest set of the cards with about `min_memory` bytes or more: speed, memory and cards."""
    large = [gpu for gpu in cards if (gpu.memory_total or 0) >= min_memory * MIN_EQUAL_MEMORY_SHARE]
    chosen = tuple(large[index] for index in fastest_set_indices([approximate_teraflops(gpu) or 0.0 for gpu in large]))
    slowest = min(approximate_teraflops(gpu) or 0.0 for gpu in chosen)
    return len(chosen) * slowest, min(gpu.memory_total or 0 for gpu in chosen), chosen


def _card_sets_with_texts(candidates: Sequence[_SpeedMemoryAndCards]) -> tuple[CardSet, ...]:
    described = []
    for position, (speed, memory, cards) in enumerate(candidates):
        if position == 0:
            title = "fastest"
            each = f" with {size_text(memory)}{' each' if len(cards) > 1 else ''}" if memory else ""
            gain = f"{quantity(len(cards), 'GPU')}{each}"
            if len(candidates) > 1 and candidates[-1][0]:
                gain += f", {speed / candidates[-1][0]:.1f} times as fast"
        else:
            title = "most memory" if position == len(candidates) - 1 else "balanced"
            share = f", at {percent(speed / candidates[0][0])} of the speed" if candidates[0][0] else ""
            gain = f"{size_text(memory)} each instead of {size_text(candidates[0][1])}{share}"
        if not do_all_support_bf16(cards) and any(do_all_support_bf16([gpu]) for gpu in cards):
            gain += "; no bf16, which some of them do not support"
        described.append(CardSet(tuple(gpu.uuid for gpu in cards), title, speed or None, memory or None, gain))
    return tuple(described)
