"""The memory of a GPU as it is estimated: a bar of textures against what is free, its key, and what would change it."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from tui_train.base.text import percent, size, typeset, visible
from tui_train.memory.predict import Effect, Prediction
from tui_train.memory.trace import ERROR, Counted
from tui_train.memory.types import Phase
from tui_train.memory.verdict import Verdict

from .ink import DONE, FAILED, MUTED, WARNING, Ink, fit, heading, ink, stack

_MOST_EFFECTS = 2
_SHORTEST = 20
# From so many cells on it is said that the figure is what is reserved.
_WIDE = 70
# What the parts of a phase are drawn as, and called; the last takes all others.
_SHARES: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("█", "$primary", {"weights": "weights"}),
    ("▓", "$live", {"gradients": "gradients", "buckets": "gradients", "optimizer states": "optimizer"}),
    ("▒", "$success", {"activations": "activations", "logits": "activations"}),
    ("░", "$muted", {}),
)
_GAPS = "gaps"
_LAST = {_GAPS: _GAPS}
_MARKS = {"fits": DONE, "tight": WARNING, "will not fit": FAILED}


def memory_lines(  # noqa: PLR0913 - each is a thing of its own
    found: Prediction,
    effects: Sequence[Effect],
    counted: Counted | None,
    *,
    note: Ink,
    width: int,
    sound: bool = True,
    remedy: str = "",
) -> list[Content]:
    """Return heading, bar and key; where nothing can be estimated, the reason, and beside the heading the `remedy`.

    Of values that are not `sound`, which an error forbids, it is not said that they fit.
    """
    if counted and not counted.problem:
        note = f"estimated; traced {size(counted.peak[1])} ±{percent(ERROR)}"
    elif counted:
        note = f"no trace: {visible(counted.problem)}"
    if found.estimate is None:
        return _no_estimate(f"cannot be estimated: {visible(found.why_not)}", width, remedy)
    peak, error = found.estimate.peak, found.estimate.error
    if not found.places:
        title = heading("Memory", note, width)
        needed = ink((size(peak.total), "b"), f" allocated ±{percent(error)} in {peak.name}")
        return [title, needed, _key(_shares(dict(peak.parts)), width)]
    place, verdict = found.places[0]
    shares = _shares(_held(peak, verdict))
    saving = [effect for effect in effects if effect.difference < 0][:_MOST_EFFECTS]
    if verdict.band != "fits" and saving:
        note = _effects(saving)
    title = heading("Memory per GPU" if place.cuda else "Memory", note, width)
    word = " reserved" if width >= _WIDE else ""
    needed = ink((size(verdict.reserved), "b"), f" of {size(verdict.left)}{word} ±{percent(error)}  ")
    band = ink(_MARKS.get(verdict.band, WARNING), f" {verdict.band}") if sound else ink(WARNING, " see the error")
    beside = needed.cell_length + band.cell_length + 2
    gauge = stack(
        [(part, texture, style) for part, texture, style, _ in shares],
        max(verdict.left, verdict.reserved),
        max(8, width - beside),
    )
    return [title, ink(gauge, "  ", needed, band), _key(shares, width)]


def unread_memory(label: str, width: int) -> list[Content]:
    """Return the lines while the value of a field cannot be read."""
    return _no_estimate(f"not estimated while “{visible(label)}” cannot be read", width)


def _no_estimate(reason: str, width: int, remedy: str = "") -> list[Content]:
    """Return heading and reason, in as many lines as an estimate has."""
    first, *rest = Content(reason).wrap(max(_SHORTEST, width))
    second = Content(" ").join(rest) if rest else Content()
    return [heading("Memory", remedy, width), *(fit(line, width).stylize_before(MUTED) for line in (first, second))]


def _effects(saving: Sequence[Effect]) -> Content:
    parts = [f"{typeset(effect.change.title)} -{size(-effect.difference)}" for effect in saving]
    return Content(", ".join(parts))


def _held(peak: Phase, verdict: Verdict) -> dict[str, int]:
    """Return the bytes of each part for all processes at the place, and of what is reserved between them."""
    processes = max(1, round(verdict.needed / max(1, peak.total)))
    return {part: held * processes for part, held in peak.parts} | {_GAPS: verdict.reserved - verdict.needed}


def _shares(left: dict[str, int]) -> list[tuple[int, str, str, str]]:
    shares = []
    for texture, style, names in _SHARES:
        held = {part: left.pop(part, 0) for part in names or tuple(left)}
        called = dict.fromkeys(names.get(part, _LAST.get(part, "other")) for part, size_of in held.items() if size_of)
        if called:
            shares.append((sum(held.values()), texture, style, ", ".join(called)))
    return shares


def _key(shares: Sequence[tuple[int, str, str, str]], width: int) -> Content:
    """Return what each texture is; where not all fits, a texture has the last of its names, and the last ones none."""
    for between, words in (("   ", str), ("  ", lambda name: name.rpartition(" ")[2])):
        parts = [
            ink((texture, style), (f" {words(name)} {size(held)}", MUTED)) for held, texture, style, name in shares
        ]
        key = Content(between).join(parts)
        if key.cell_length <= width:
            return key
    while parts and Content("  ").join(parts).cell_length > width:
        parts.pop()
    return Content("  ").join(parts)
