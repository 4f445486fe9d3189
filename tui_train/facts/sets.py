"""Which cards to train on together: the sensible sets, the fastest first, and what each gains over the others.

In a data parallel training all cards wait for the slowest, and each holds the whole model. So more cards may be slower,
and the fastest set is not always the one with the most memory on each card.
"""

from collections.abc import Sequence

from tui_train.base.text import counted, size
from tui_train.facts.capability import supports_bf16, teraflops
from tui_train.facts.types import CardSet, Gpu, Verdict

# Cards of one nominal size report up to 5 % less: the driver's reserve, error correction, another maker.
SLACK = 0.95
_FEW_SMS = 8
_BUSY_MEMORY = 2**30
_MOST_PROCESSES = 3
# Speed in TFLOPS, the least memory in bytes, the cards; 0 is unknown.
_Candidate = tuple[float, int, tuple[Gpu, ...]]


def busy(gpu: Gpu) -> bool:
    """Return whether another program computes on a card: one that holds 1 GiB or an unknown amount of its memory.

    Where the driver hides processes, as in containers, less than half of the memory free says the same.
    """
    if any(not process.graphics and (process.memory or _BUSY_MEMORY) >= _BUSY_MEMORY for process in gpu.processes):
        return True
    if gpu.shares_memory or not gpu.memory_total or gpu.memory_free is None:
        return False
    return gpu.memory_free < gpu.memory_total / 2


def who(gpu: Gpu) -> str:
    """Return who computes on a busy card and with how much memory, empty for one that is not busy."""
    if not busy(gpu):
        return ""
    computing = [process for process in gpu.processes if not process.graphics]
    computing.sort(key=lambda process: -(process.memory or _BUSY_MEMORY))
    words = []
    for process in computing[:_MOST_PROCESSES]:
        name = process.name.rpartition("/")[2] if " " not in process.name else process.name
        amount = "an unknown amount" if process.memory is None else f"{process.memory // 2**20} MiB"
        words.append(f"{process.user or 'somebody'}: {name or '?'} (pid {process.pid}), {amount}")
    if len(computing) > _MOST_PROCESSES:
        words.append(f"{len(computing) - _MOST_PROCESSES} more")
    if words:
        return "; ".join(words)
    used = (gpu.memory_total or 0) - (gpu.memory_free or 0)
    return f"a program that is not shown here: {used // 2**20} MiB"


def divided(gpu: Gpu) -> bool:
    """Return whether this is an instance of a card that MIG divides; a process can use only one of them."""
    return gpu.uuid.startswith("MIG-")


def tiny(gpu: Gpu, usable: Sequence[Gpu]) -> bool:
    """Return whether a card has fewer than 8 multiprocessors and a `usable` one has more; unknown is not tiny.

    Source: TensorFlow ignores cards by this rule (`GetDefaultMinGPUMultiprocessorCount`).
    """
    most = max((other.sm_count or 0 for other in usable), default=0)
    return gpu.sm_count is not None and gpu.sm_count < min(_FEW_SMS, most)


def in_step(speeds: Sequence[float]) -> tuple[int, ...]:
    """Return the positions of the cards that are fastest together, where n of them do n times what the slowest does."""
    order = sorted(range(len(speeds)), key=lambda at: -speeds[at])
    totals = [speeds[at] * count for count, at in enumerate(order, 1)]
    best = totals.index(max(totals)) + 1 if totals else 0
    return tuple(sorted(order[:best]))


def sets(gpus: Sequence[Gpu], verdicts: Sequence[Verdict]) -> tuple[CardSet, ...]:
    """Return the sensible sets of the cards that are not blocked, the one to take at first leading.

    Busy cards are left out of them where others are free to use; then one more set has them all.
    """
    able = [(gpu, verdict) for gpu, verdict in zip(gpus, verdicts, strict=True) if verdict.kind != "blocked"]
    usable = [gpu for gpu, _ in able]
    pool = [(gpu, verdict) for gpu, verdict in able if gpu.uuid and not tiny(gpu, usable)]
    whole = [entry for entry in pool if not divided(entry[0])]
    pool = whole if any(verdict.kind == "use" for _, verdict in whole) else [e for e in pool if divided(e[0])] or whole
    free = [entry for entry in pool if not busy(entry[0])]
    if not any(verdict.kind == "use" for _, verdict in free):
        return _sets(pool)
    found = _sets(free)
    if len(free) == len(pool):
        return found
    known = {frozenset(one.uuids) for one in found}
    more = [one for one in _sets(pool)[:1] if frozenset(one.uuids) not in known]
    waiting = "as soon as the busy cards are free"
    return (*found, *(CardSet(o.uuids, "with busy cards", o.speed, o.memory, f"{o.gain}, {waiting}") for o in more))


def recommended(gpus: Sequence[Gpu], verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the UUIDs to select at first, those of the first of the `sets`; none where no card can train."""
    return next((found.uuids for found in sets(gpus, verdicts)), ())


def _sets(pool: Sequence[tuple[Gpu, Verdict]]) -> tuple[CardSet, ...]:
    """Return the sets of these cards that no other set beats in both speed and memory, the fastest first."""
    cards = [gpu for gpu, _ in pool]
    candidates: list[_Candidate]
    if all(divided(gpu) for gpu in cards):
        candidates = [(teraflops(gpu) or 0.0, gpu.memory_total or 0, (gpu,)) for gpu in cards]
    elif all(gpu.memory_total and teraflops(gpu) for gpu in cards):
        candidates = [_candidate(cards, gpu.memory_total or 0) for gpu in cards]
    else:
        # What cannot be compared is not weighed: the verdicts alone decide.
        cards = [gpu for gpu, verdict in pool if verdict.kind == "use"]
        memory = min((gpu.memory_total for gpu in cards if gpu.memory_total), default=0)
        candidates = [(0.0, memory, tuple(cards))] if cards else []
    kept: list[_Candidate] = []
    for speed, memory, chosen in sorted(candidates, key=lambda found: (-found[0], -found[1], -len(found[2]))):
        if not kept or memory * SLACK > kept[-1][1]:
            kept.append((speed, memory, chosen))
    return _described(kept)


def _candidate(cards: Sequence[Gpu], memory: int) -> _Candidate:
    """Return the fastest set of the cards with at least about `memory` bytes: its speed, least memory and cards."""
    large = [gpu for gpu in cards if (gpu.memory_total or 0) >= memory * SLACK]
    chosen = tuple(large[at] for at in in_step([teraflops(gpu) or 0.0 for gpu in large]))
    slowest = min(teraflops(gpu) or 0.0 for gpu in chosen)
    return len(chosen) * slowest, min(gpu.memory_total or 0 for gpu in chosen), chosen


def _described(kept: Sequence[_Candidate]) -> tuple[CardSet, ...]:
    found = []
    for at, (speed, memory, cards) in enumerate(kept):
        if at == 0:
            title = "fastest"
            each = f" with {size(memory)}{' each' if len(cards) > 1 else ''}" if memory else ""
            gain = f"{counted(len(cards), 'card')}{each}"
            if len(kept) > 1:
                gain += f", {speed / kept[-1][0]:.1f} times as fast" if kept[-1][0] else ""
        else:
            title = "roomiest" if at == len(kept) - 1 else "in between"
            share = f", at {speed / kept[0][0]:.0%} of the speed" if kept[0][0] else ""
            gain = f"{size(memory)} each instead of {size(kept[0][1])}{share}"
        if not supports_bf16(cards) and any(supports_bf16([gpu]) for gpu in cards):
            gain += "; without bfloat16, which not all of them have"
        found.append(CardSet(tuple(gpu.uuid for gpu in cards), title, speed or None, memory or None, gain))
    return tuple(found)
