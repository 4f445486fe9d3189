"""Samples of cards over the last minutes, and one-row curves of their values."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from tui_train.base.text import sparkline
from tui_train.facts.gpus.samples import CardSample

from .text_layout import RULE_STYLE, Styled, styled

SECONDS_PER_CURVE_BLOCK = 20.0  # seconds that one block of a curve stands for
CURVE_BLOCK_COUNT = 6
_MIN_CURVE_CELSIUS, _MAX_CURVE_CELSIUS = 20, 95
_MIN_CURVE_TOP_WATTS = 100  # W, so that a card at rest draws no peaks


class CardHistory:
    """The samples of some cards over the last minutes, one for each span of time."""

    def __init__(self) -> None:
        self._samples: dict[str, deque[CardSample]] = {}
        self._spans: dict[str, int] = {}

    def add(self, samples: Sequence[CardSample], seconds: float) -> None:
        """Add samples at a time in seconds of any clock; of a span only the newest is kept."""
        span = int(seconds / SECONDS_PER_CURVE_BLOCK)
        for sample in samples:
            kept = self._samples.setdefault(sample.uuid, deque(maxlen=CURVE_BLOCK_COUNT))
            if kept and self._spans.get(sample.uuid) == span:
                kept[-1] = sample
            else:
                kept.append(sample)
            self._spans[sample.uuid] = span

    def samples_of_card(self, uuid: str) -> Sequence[CardSample]:
        """Return a card's samples, the newest last."""
        return self._samples.get(uuid, ())


class CardCurves(NamedTuple):
    """The curves of a card's values, each one row of `CURVE_BLOCK_COUNT` cells; empty where nothing is reported."""

    utilization: Styled
    memory: Styled
    temperature: Styled
    power: Styled


def card_curves(samples: Sequence[CardSample], memory_total: int) -> CardCurves:
    """Return the curves of a card's samples, the newest last; `memory_total` in bytes."""
    power = max([_MIN_CURVE_TOP_WATTS, *(sample.power or 0 for sample in samples)])
    return CardCurves(
        utilization=_curve_in_one_row([sample.utilization for sample in samples], (0, 100)),
        memory=_curve_in_one_row([used_memory(sample) for sample in samples], (0, memory_total or 1)),
        temperature=_curve_in_one_row(
            [sample.temperature for sample in samples], (_MIN_CURVE_CELSIUS, _MAX_CURVE_CELSIUS)
        ),
        power=_curve_in_one_row([sample.power for sample in samples], (0, power)),
    )


def _curve_in_one_row(values: Sequence[int | None], value_range: tuple[float, float]) -> Styled:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    drawn = sparkline(known, len(known), value_range)
    return styled(("·" * (CURVE_BLOCK_COUNT - len(drawn)), RULE_STYLE), (drawn, "$live"))


def used_memory(sample: CardSample) -> int | None:
    """Return the bytes of a card's memory that are in use, None where it does not report them."""
    if sample.memory_total is None or sample.memory_free is None:
        return None
    return sample.memory_total - sample.memory_free


def text_with_unit(value: int | None, unit: str) -> str:
    """Return a value with its unit, empty where it is not reported."""
    return "" if value is None else f"{value}{unit}"
