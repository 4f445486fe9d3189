"""The cards of a run: their use, memory, temperature and power now, and over the last minutes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import visible
from tui_train.facts.gpus.samples import CardSample

from ..widgets.card_curves import CURVE_BLOCK_COUNT, CardHistory, card_curves, text_with_unit, used_memory
from ..widgets.text_layout import FAILED_MARK, MUTED, WARNING_MARK, Styled, columns, fit, heading, styled

_MIN_HOT_CELSIUS = 83  # °C; most cards slow down a little above
_GIB_BYTES = 2**30


class CardLabel(NamedTuple):
    """Name of a card: its number (empty: unknown), and its name."""

    number: str
    name: str


def card_lines(
    samples: Sequence[CardSample], history: CardHistory, labels: Mapping[str, CardLabel], max_lines: int, width: int
) -> list[Content]:
    """Return a title and a line for each card; where `max_lines` are too few, the last is for the others."""
    if not samples:
        return []
    ordered = sorted(samples, key=lambda sample: not sample.problem)
    shown = ordered if len(ordered) <= max_lines else ordered[: max_lines - 1]
    lines = [heading("GPUs", "use, memory, temperature, power", width)]
    unknown = CardLabel("", "GPU")
    lines += [
        _card_line(sample, history.samples_of_card(sample.uuid), labels.get(sample.uuid, unknown), width)
        for sample in shown
    ]
    if others := ordered[len(shown) :]:
        lines.append(_hidden_cards_line(others, width))
    return lines


def _card_line(sample: CardSample, earlier_samples: Sequence[CardSample], card_label: CardLabel, width: int) -> Content:
    label = styled(
        (visible(card_label.number), "b"), " " if card_label.number else "", visible(short_card_name(card_label.name))
    )
    if sample.problem:
        return fit(styled(FAILED_MARK, " ", label, "  ", visible(sample.problem)), width)
    total = sample.memory_total or 0
    curves = card_curves(earlier_samples, total)
    load = ("idle", MUTED) if sample.utilization == 0 else text_with_unit(sample.utilization, "%")
    hot = sample.temperature is not None and sample.temperature >= _MIN_HOT_CELSIUS
    heat = (
        styled(WARNING_MARK, f" {sample.temperature} °C") if hot else styled(text_with_unit(sample.temperature, " °C"))
    )
    cells: list[tuple[Styled, int]] = [
        (label, 13),
        (curves.utilization, CURVE_BLOCK_COUNT),
        (load, -5),
        ("", 2),
        (curves.memory, CURVE_BLOCK_COUNT),
        (_memory_text(sample), -14),
        ("", 2),
        (curves.temperature, CURVE_BLOCK_COUNT),
        (heat, -8),
        ("", 2),
        (curves.power, CURVE_BLOCK_COUNT),
        (text_with_unit(sample.power, " W"), -6),
    ]
    while sum(abs(size) for _, size in cells) > width and len(cells) > 3:
        cells = cells[:-3]
    return columns(width, *cells)


def _memory_text(sample: CardSample) -> str:
    used = used_memory(sample)
    return "" if used is None else f"{used / _GIB_BYTES:.1f}/{(sample.memory_total or 0) / _GIB_BYTES:.0f} GiB"


def _hidden_cards_line(samples: Sequence[CardSample], width: int) -> Content:
    ranges = (
        _value_range_text([sample.utilization for sample in samples], " %"),
        _value_range_text([sample.temperature for sample in samples], " °C"),
        _value_range_text([sample.power for sample in samples], " W"),
    )
    fullest = max(samples, key=lambda sample: used_memory(sample) or 0)
    words = [
        f"{len(samples)} more",
        *filter(None, ranges),
        f"fullest {_memory_text(fullest)}" if _memory_text(fullest) else "",
    ]
    return fit(styled(("   ".join(filter(None, words)), MUTED)), width)


def _value_range_text(values: Sequence[int | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def short_card_name(name: str) -> str:
    """Return a card's name without its maker."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
