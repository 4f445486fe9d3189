"""The memory of a GPU as it is estimated: a bar of textures against what is free, its key, and what would change it."""

from collections.abc import Sequence

from textual.content import Content

from tui_train.base.text import percent, size, typeset, visible
from tui_train.memory.predict import Effect, Prediction
from tui_train.memory.trace import ERROR, Counted
from tui_train.memory.types import Phase

from .ink import DONE, FAILED, MUTED, WARNING, Ink, Piece, fit, heading, ink, stack

_MOST_EFFECTS = 2
_SHORTEST = 20
# What a part of a phase is drawn as.
_SHARES = (
    ("weights", "█", "$primary", ("weights", "buckets")),
    ("optimizer", "▓", "$live", ("optimizer states", "gradients")),
    ("activations", "▒", "$success", ("activations", "logits")),
    ("other", "░", "$muted", ()),
)
_MARKS = {"fits": DONE, "tight": WARNING, "will not fit": FAILED}


def memory_lines(  # noqa: PLR0913 - each is a thing of its own
    found: Prediction,
    effects: Sequence[Effect],
    counted: Counted | None,
    *,
    note: Ink,
    width: int,
    sound: bool = True,
) -> list[Content]:
    """Return heading, bar and key; where nothing can be estimated, the reason.

    Of values that are not `sound`, which an error forbids, it is not said that they fit.
    """
    if counted and not counted.problem:
        note = f"traced {size(counted.peak[1])} ±{percent(ERROR)}"
    elif counted:
        note = f"no trace: {visible(counted.problem)}"
    if found.estimate is None:
        return _no_estimate(f"cannot be estimated: {visible(found.why_not)}", width)
    peak, error = found.estimate.peak, found.estimate.error
    shares = _shares(peak)
    keys: list[Piece] = []
    for held, texture, style, name in shares:
        keys += [(texture, style), (f" {name} {size(held)}   ", MUTED)]
    if not found.places:
        title = heading("Memory", note, width)
        return [title, ink((f"{size(peak.total)}", "b"), f" ±{percent(error)} in {peak.name}"), ink(*keys)]
    place, verdict = found.places[0]
    saving = [effect for effect in effects if effect.difference < 0][:_MOST_EFFECTS]
    if verdict.band != "fits" and saving:
        note = _effects(saving)
    title = heading("Memory per GPU" if place.cuda else "Memory", note, width)
    amount = ink((size(peak.total), "b"), f" of {size(verdict.left)} ±{percent(error)}  ")
    band = ink(_MARKS.get(verdict.band, WARNING), f" {verdict.band}") if sound else ink(WARNING, " see the error")
    beside = amount.cell_length + band.cell_length + 2
    gauge = stack(
        [(part, texture, style) for part, texture, style, _ in shares],
        max(verdict.left, peak.total),
        max(8, width - beside),
    )
    return [title, ink(gauge, "  ", amount, band), ink(*keys)]


def unread_memory(label: str, width: int) -> list[Content]:
    """Return the lines while the value of a field cannot be read."""
    return _no_estimate(f"not estimated while “{visible(label)}” cannot be read", width)


def _no_estimate(reason: str, width: int) -> list[Content]:
    """Return heading and reason, in as many lines as an estimate has."""
    first, *rest = Content(reason).wrap(max(_SHORTEST, width))
    second = Content(" ").join(rest) if rest else Content()
    return [heading("Memory", "", width), *(fit(line, width).stylize_before(MUTED) for line in (first, second))]


def _effects(saving: Sequence[Effect]) -> Content:
    parts = [f"{typeset(effect.change.title)} -{size(-effect.difference)}" for effect in saving]
    return Content(", ".join(parts))


def _shares(phase: Phase) -> list[tuple[int, str, str, str]]:
    left = dict(phase.parts)
    shares = []
    for name, texture, style, parts in _SHARES:
        amount = sum(left.pop(part, 0) for part in parts) if parts else sum(left.values())
        if amount:
            shares.append((amount, texture, style, name))
    return shares
