"""The cards of a run: their use, memory, temperature and power now, and over the last minutes."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from textual.content import Content

from tui_train.base.text import sparkline, visible
from tui_train.facts.gpus.samples import CardSample

from ..widgets.text_layout import FAILED_MARK, MUTED, RULE_STYLE, WARNING_MARK, Styled, columns, fit, heading, styled

SECONDS_PER_CURVE_BLOCK = 20.0  # seconds that one block of a curve stands for
_CURVE_WIDTH_BLOCKS = 6
_MIN_HOT_CELSIUS = 83  # °C; most cards slow down a little above
_CURVE_MIN_CELSIUS, _CURVE_MAX_CELSIUS = 20, 95
_MIN_CURVE_WATTS = 100  # W, so that a card at rest draws no peaks
_GIB_BYTES = 2**30


class CardLabel(NamedTuple):
    """Name of a card: its number (empty: unknown), and its name."""

    number: str
    name: str


class CardHistory:
    """The samples of some cards over the last minutes, one for each span of time."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[CardSample]] = {}
        self._spans: dict[str, int] = {}

    def add(self, samples: Sequence[CardSample], seconds: float) -> None:
        """Take what the cards do now, in seconds of any clock; the newest sample of a span stands for it."""
        span = int(seconds / SECONDS_PER_CURVE_BLOCK)
        for sample in samples:
            kept = self._samples.setdefault(sample.uuid, deque(maxlen=_CURVE_WIDTH_BLOCKS))
            if kept and self._spans.get(sample.uuid) == span:
                kept[-1] = sample
            else:
                kept.append(sample)
            self._spans[sample.uuid] = span

    def samples_of(self, uuid: str) -> Sequence[CardSample]:
        """Return a card's samples, the newest last."""
        return self._samples.get(uuid, ())


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
        _card_line(sample, history.samples_of(sample.uuid), labels.get(sample.uuid, unknown), width) for sample in shown
    ]
    if others := ordered[len(shown) :]:
        lines.append(_other_cards_line(others, width))
    return lines


def _card_line(sample: CardSample, earlier_samples: Sequence[CardSample], card_label: CardLabel, width: int) -> Content:
    label = styled(
        (visible(card_label.number), "b"), " " if card_label.number else "", visible(short_card_name(card_label.name))
    )
    if sample.problem:
        return fit(styled(FAILED_MARK, " ", label, "  ", visible(sample.problem)), width)
    total = sample.memory_total or 0
    power = max([_MIN_CURVE_WATTS, *(kept.power or 0 for kept in earlier_samples)])
    use = ("idle", MUTED) if sample.use == 0 else _text_with_unit(sample.use, "%")
    hot = sample.temperature is not None and sample.temperature >= _MIN_HOT_CELSIUS
    heat = (
        styled(WARNING_MARK, f" {sample.temperature} °C") if hot else styled(_text_with_unit(sample.temperature, " °C"))
    )
    cells: list[tuple[Styled, int]] = [
        (label, 13),
        (_curve_in_one_row([kept.use for kept in earlier_samples], (0, 100)), _CURVE_WIDTH_BLOCKS),
        (use, -5),
        ("", 2),
        (_curve_in_one_row([_used_memory(kept) for kept in earlier_samples], (0, total or 1)), _CURVE_WIDTH_BLOCKS),
        (_memory_text(sample), -14),
        ("", 2),
        (
            _curve_in_one_row([kept.temperature for kept in earlier_samples], (_CURVE_MIN_CELSIUS, _CURVE_MAX_CELSIUS)),
            _CURVE_WIDTH_BLOCKS,
        ),
        (heat, -8),
        ("", 2),
        (_curve_in_one_row([kept.power for kept in earlier_samples], (0, power)), _CURVE_WIDTH_BLOCKS),
        (_text_with_unit(sample.power, " W"), -6),
    ]
    while sum(abs(size) for _, size in cells) > width and len(cells) > 3:
        cells = cells[:-3]
    return columns(width, *cells)


def _curve_in_one_row(values: Sequence[int | None], value_range: tuple[float, float]) -> Styled:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    drawn = sparkline(known, len(known), value_range)
    return styled(("·" * (_CURVE_WIDTH_BLOCKS - len(drawn)), RULE_STYLE), (drawn, "$live"))


def _used_memory(sample: CardSample) -> int | None:
    if sample.memory_total is None or sample.memory_free is None:
        return None
    return sample.memory_total - sample.memory_free


def _memory_text(sample: CardSample) -> str:
    used = _used_memory(sample)
    return "" if used is None else f"{used / _GIB_BYTES:.1f}/{(sample.memory_total or 0) / _GIB_BYTES:.0f} GiB"


def _text_with_unit(value: int | None, unit: str) -> str:
    return "" if value is None else f"{value}{unit}"


def _other_cards_line(samples: Sequence[CardSample], width: int) -> Content:
    ranges = (
        _range_text([sample.use for sample in samples], " %"),
        _range_text([sample.temperature for sample in samples], " °C"),
        _range_text([sample.power for sample in samples], " W"),
    )
    fullest = max(samples, key=lambda sample: _used_memory(sample) or 0)
    words = [
        f"{len(samples)} more",
        *filter(None, ranges),
        f"fullest {_memory_text(fullest)}" if _memory_text(fullest) else "",
    ]
    return fit(styled(("   ".join(filter(None, words)), MUTED)), width)


def _range_text(values: Sequence[int | None], unit: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}"


def short_card_name(name: str) -> str:
    """Return a card's name without its maker."""
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")
