"""Which GPUs of a host are free, and who uses the others, since when."""

from collections.abc import Iterator

from tui_train.base.text import duration_text, quantity, size_text, visible
from tui_train.facts.gpus.gpu_sets import card_queue_text, is_busy
from tui_train.facts.types import Facts, Gpu, GpuProcess

_MAX_PROCESSES_SHOWN = 4


def is_card_taken(facts: Facts, gpu: Gpu) -> bool:
    """Return whether something computes on a card, or a run has taken it that has no memory on it yet."""
    return is_busy(gpu) or bool(facts.card_in_queue(gpu.uuid).holder)


def free_cards_summary(facts: Facts) -> str:
    """Return `2 of 8 GPUs free`, and of those that are not who uses them; a line."""
    cards = [gpu for gpu in facts.machine.gpus if not gpu.problem]
    broken = len(facts.machine.gpus) - len(cards)
    if not cards:
        return "no usable GPU" if broken or any(gap.hides for gap in facts.machine.gaps) else "no GPU"
    free = sum(not is_card_taken(facts, gpu) for gpu in cards)
    users = sorted({process.user for gpu in cards if is_busy(gpu) for process in _computing_processes(gpu)} - {""})
    parts = [
        f"{free} of {quantity(len(cards), 'GPU')} free",
        f"in use by {visible(', '.join(users))}" if users else "",
        f"{broken} cannot be used" if broken else "",
    ]
    return ", ".join(filter(None, parts))


def card_and_use_texts(facts: Facts) -> Iterator[tuple[str, str]]:
    """Yield each card with its memory, and whether it is free, else who uses it: user, command, memory, since when."""
    for gpu in facts.machine.gpus:
        name = visible(gpu.name).removeprefix("NVIDIA ") or "?"
        card = f"GPU {gpu.index}  {name}, {size_text(gpu.memory_free)} free of {size_text(gpu.memory_total)}"
        yield card, "; ".join(_card_uses(facts, gpu))


def _card_uses(facts: Facts, gpu: Gpu) -> Iterator[str]:
    if gpu.problem:
        yield visible(gpu.problem)
        return
    if not is_card_taken(facts, gpu):
        yield "free"
    computing = _computing_processes(gpu)
    yield from map(process_use_text, computing[:_MAX_PROCESSES_SHOWN])
    if len(computing) > _MAX_PROCESSES_SHOWN:
        yield f"{len(computing) - _MAX_PROCESSES_SHOWN} more"
    if is_busy(gpu) and not computing:
        yield f"a hidden process, {size_text((gpu.memory_total or 0) - (gpu.memory_free or 0))}"
    if words := card_queue_text(facts.card_in_queue(gpu.uuid)):
        yield words


def process_use_text(process: GpuProcess) -> str:
    """Return who computes with what command, how much memory it holds and since when, as `ann: python train.py, …`."""
    command = process.command or process.name.rpartition("/")[2] or "?"
    memory = "unknown memory" if process.memory is None else size_text(process.memory)
    since = f", for {duration_text(process.seconds)}" if process.seconds is not None else ""
    user = process.user or "unknown user"
    return visible(f"{user}: {command} (pid {process.pid}), {memory}{since}")


def _computing_processes(gpu: Gpu) -> list[GpuProcess]:
    computing = [process for process in gpu.processes if not process.graphics]
    return sorted(computing, key=lambda process: -(process.memory or 0))
