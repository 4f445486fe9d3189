"""All that is known of one card: why it can train or cannot, what it does now and did before, who uses it, its make."""

from collections.abc import Iterator, Sequence

from textual.content import Content

from tui_train.base.text import quantity, size_text, visible
from tui_train.facts.gpus.gpu_sets import card_queue_text
from tui_train.facts.gpus.samples import CardSample
from tui_train.facts.types import Gpu, GpuProcess, GpuVerdict
from tui_train.runner.queue.listing import CardInQueue
from tui_train.views.plain_text import pci_address

from ..widgets.card_curves import CURVE_BLOCK_COUNT, card_curves, text_with_unit, used_memory
from ..widgets.text_layout import (
    DONE_MARK,
    FAILED_MARK,
    MUTED,
    WARNING_MARK,
    Styled,
    StyledPiece,
    columns,
    heading,
    styled,
)

MARK_BY_VERDICT: dict[str, StyledPiece] = {"use": DONE_MARK, "skip": WARNING_MARK, "blocked": FAILED_MARK}
_WORDS_BY_VERDICT_AND_PICK = {
    ("use", True): "can train",
    ("use", False): "can train; Space picks it",
    ("skip", True): "picked all the same",
    ("skip", False): "left out; Space picks it",
}
_LABEL_WIDTH = 9
_MAX_PROCESSES_SHOWN = 6


def card_panel_lines(  # noqa: PLR0913, PLR0917 - what is known of a card
    gpu: Gpu, verdict: GpuVerdict, samples: Sequence[CardSample], in_queue: CardInQueue, is_picked: bool, width: int
) -> list[Content]:
    """Return the lines about a card; `samples` of the last minutes, the newest last."""
    name = visible(gpu.name).removeprefix("NVIDIA ") or "?"
    lines = [heading(f"GPU {gpu.index}", name, width)]
    words = _WORDS_BY_VERDICT_AND_PICK.get((verdict.kind, is_picked), "cannot train")
    lines += _wrap_beside_mark(MARK_BY_VERDICT[verdict.kind], words, "b", width)
    for reason in dict.fromkeys(filter(None, (gpu.problem, *verdict.reasons))):
        lines += _wrap_beside_mark(" ", reason, "", width)
    lines += [Content(), *_load_curve_lines(samples, width)] if samples else []
    users = [*map(process_memory_text, gpu.processes)]
    queued = card_queue_text(in_queue)
    if users or queued:
        lines.append(Content())
    lines += _wrap_beside_mark("·", queued, "", width) if queued else []
    for user in users[:_MAX_PROCESSES_SHOWN]:
        lines += _wrap_beside_mark("·", user, "", width)
    if len(users) > _MAX_PROCESSES_SHOWN:
        lines.append(styled((f"  and {len(users) - _MAX_PROCESSES_SHOWN} more", MUTED)))
    about = [styled((visible(words), MUTED)) for words in _card_detail_texts(gpu) if words]
    return [*lines, Content(), *(part for line in about for part in line.wrap(max(8, width)))]


def process_memory_text(process: GpuProcess) -> str:
    """Return who holds how much of a card's memory."""
    name, user = process.name.rpartition("/")[2], f"{process.user} " if process.user else ""
    return f"{user}{name} holds {size_text(process.memory)}"


def _load_curve_lines(samples: Sequence[CardSample], width: int) -> list[Content]:
    """Return the curve and the newest value of what a card reports."""
    now = samples[-1]
    curves = card_curves(samples, now.memory_total or 0)
    used = used_memory(now)
    rows: tuple[tuple[str, Styled, str], ...] = (
        ("Use", curves.utilization, text_with_unit(now.utilization, " %")),
        ("Memory", curves.memory, "" if used is None else f"{size_text(used)} of {size_text(now.memory_total)}"),
        ("Heat", curves.temperature, text_with_unit(now.temperature, " °C")),
        ("Power", curves.power, text_with_unit(now.power, " W")),
    )
    return [
        columns(width, ((label, MUTED), _LABEL_WIDTH), (curve, CURVE_BLOCK_COUNT + 1), (value, 0))
        for label, curve, value in rows
        if value
    ]


def _card_detail_texts(gpu: Gpu) -> Iterator[str]:
    """Yield the lines about a card's make and place, as far as its driver reports them."""
    chip = [
        f"compute capability {gpu.compute_capability}" if gpu.compute_capability else "",
        f"{gpu.sm_count} SMs" if gpu.sm_count else "",
        f"up to {gpu.sm_clock_max} MHz" if gpu.sm_clock_max else "",
    ]
    yield ", ".join(filter(None, chip))
    link = gpu.pcie
    if link and link.generation_max and link.width_max:
        yield f"PCIe {link.generation_max} x{link.width or link.width_max}" + (
            f" of x{link.width_max}" if link.width and link.width < link.width_max else ""
        )
    yield quantity(gpu.nvlinks, "NVLink") if gpu.nvlinks else ""
    yield f"direct memory access with GPU {', '.join(map(str, gpu.peers))}" if gpu.peers else ""
    yield f"limited now by {', '.join(gpu.throttled_by)}" if gpu.throttled_by else ""
    flags = ("drives a display" if gpu.display_active else "", "shares the host's memory" if gpu.shares_memory else "")
    yield ", ".join(filter(None, flags))
    yield f"bus {pci_address(gpu)}" if gpu.pci_bus else ""


def _wrap_beside_mark(mark: StyledPiece, words: str, style: str, width: int) -> list[Content]:
    """Return words folded to the right of a mark."""
    folded = styled((visible(words), style)).wrap(max(8, width - 2))
    return [styled(mark if number == 0 else " ", " ", line) for number, line in enumerate(folded)]
