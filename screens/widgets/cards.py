"""The cards of a run: their use, memory, temperature and power now, and over the last minutes."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import sparkline, visible
from tui_train.facts.samples import Sample

from .ink import FAILED, MUTED, RULE, WARNING, Ink, columns, fit, heading, ink

SPAN = 20.0  # seconds that one block of a curve stands for
_BLOCKS = 6
_HOT = 83  # °C; most cards slow down a little above
_COOL, _BURNING = 20, 95
_LEAST_POWER = 100  # W, so that a card at rest draws no peaks
_GIB = 2**30


class Card(NamedTuple):
    """What a card is called: its number (empty: unknown), and its name."""

    number: str
    name: str


class History:
    """The samples of some cards over the last minutes, one for each span of time."""

    def __init__(self) -> None:
        """Know none yet."""
        self._kept: dict[str, deque[Sample]] = {}
        self._spans: dict[str, int] = {}

    def add(self, samples: Sequence[Sample], now: float) -> None:
        """Take what the cards do now, in seconds of any clock; the newest sample of a span stands for it."""
        span = int(now / SPAN)
        for sample in samples:
            kept = self._kept.setdefault(sample.uuid, deque(maxlen=_BLOCKS))
            if kept and self._spans.get(sample.uuid) == span:
                kept[-1] = sample
            else:
                kept.append(sample)
            self._spans[sample.uuid] = span

    def of(self, uuid: str) -> Sequence[Sample]:
        """Return a card's samples, the newest last."""
        return self._kept.get(uuid, ())


def card_lines(
    samples: Sequence[Sample], history: History, cards: Mapping[str, Card], most: int, width: int
) -> list[Content]:
    """Return a title and a line for each card; where there are more than `most`, the last one is for the others."""
    if not samples:
        return []
    ordered = sorted(samples, key=lambda sample: not sample.problem)
    shown = ordered if len(ordered) <= most else ordered[: most - 1]
    lines = [heading("GPUs", "use, memory, temperature, power", width)]
    unknown = Card("", "GPU")
    lines += [_line(sample, history.of(sample.uuid), cards.get(sample.uuid, unknown), width) for sample in shown]
    if others := ordered[len(shown) :]:
        lines.append(_others(others, width))
    return lines


def _line(sample: Sample, before: Sequence[Sample], card: Card, width: int) -> Content:
    called = ink((visible(card.number), "b"), " " if card.number else "", visible(short_name(card.name)))
    if sample.problem:
        return fit(ink(FAILED, " ", called, "  ", visible(sample.problem)), width)
    total = sample.memory_total or 0
    power = max([_LEAST_POWER, *(kept.power or 0 for kept in before)])
    use = ("idle", MUTED) if sample.use == 0 else _unit(sample.use, "%")
    hot = sample.temperature is not None and sample.temperature >= _HOT
    heat = ink(WARNING, f" {sample.temperature} °C") if hot else ink(_unit(sample.temperature, " °C"))
    cells: list[tuple[Ink, int]] = [
        (called, 13),
        (_spark([kept.use for kept in before], (0, 100)), _BLOCKS),
        (use, -5),
        ("", 2),
        (_spark([_used(kept) for kept in before], (0, total or 1)), _BLOCKS),
        (_memory(sample), -14),
        ("", 2),
        (_spark([kept.temperature for kept in before], (_COOL, _BURNING)), _BLOCKS),
        (heat, -8),
        ("", 2),
        (_spark([kept.power for kept in before], (0, power)), _BLOCKS),
        (_unit(sample.power, " W"), -6),
    ]
    while sum(abs(size) for _, size in cells) > width and len(cells) > 3:
        cells = cells[:-3]
    return columns(width, *cells)


def _spark(values: Sequence[int | None], scale: tuple[float, float]) -> Ink:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    drawn = sparkline(known, len(known), scale)
    return ink(("·" * (_BLOCKS - len(drawn)), RULE), (drawn, "$live"))


def _used(sample: Sample) -> int | None:
    if sample.memory_total is None or sample.memory_free is None:
        return None
    return sample.memory_total - sample.memory_free


def _memory(sample: Sample) -> str:
    used = _used(sample)
    return "" if used is None else f"{used / _GIB:.1f}/{(sample.memory_total or 0) / _GIB:.0f} GiB"


def _unit(value: int | None, unit: str) -> str:
    return "" if value is None else f"{value}{unit}"


def _others(samples: Sequence[Sample], width: int) -> Content:
    ranges = (
        _range([sample.use for sample in samples], " %"),
        _range([sample.temperature for sample in samples], " °C"),
        _range([sample.power for sample in samples], " W"),
    )
    fullest = max(samples, key=lambda sample: _used(sample) or 0)
    words = [f"{len(samples)} more", *filter(None, ranges), f"fullest {_memory(fullest)}" if _memory(fullest) else ""]
    return fit(ink(("   ".join(filter(None, words)), MUTED)), width)


def _range(values: Sequence[int | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def short_name(name: str) -> str:
    """Return a card's name without its maker."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
