"""The memory of a GPU as it is estimated: a bar of textures against what is free, its key, and what would change it."""

from collections.abc import Mapping, Sequence

from textual.content import Content

from tui_train.base.text import percent, size_text, typeset_ascii, visible
from tui_train.memory.predict import Prediction, RungEffect
from tui_train.memory.trace import TRACE_RELATIVE_ERROR, CountedMemory
from tui_train.memory.types import PhaseMemory
from tui_train.memory.verdict import MemoryVerdict

from .text_layout import DONE_MARK, FAILED_MARK, MUTED, WARNING_MARK, Styled, columns, fit, heading, stacked_bar, styled

_MAX_EFFECTS_SHOWN = 2
_MIN_REASON_WIDTH = 20
_PHASE_NAME_WIDTH, _PHASE_SIZE_WIDTH = 18, 10
# From so many cells on it is said that the first figure is what it needs, and the second what is free.
_MIN_WIDE_WIDTH = 70
# What the parts of a phase are drawn as, and called; the last takes all others.
_TEXTURES_STYLES_AND_PARTS: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("█", "$weights", {"weights": "weights"}),
    ("▓", "$optimizer", {"gradients": "gradients", "buckets": "gradients", "optimizer states": "optimizer"}),
    ("▒", "$activations", {"activations": "activations", "logits": "activations"}),
    ("░", "$muted", {}),
)
_FRAGMENTATION_PART = "fragments"
_MARK_BY_BAND = {"fits": DONE_MARK, "tight": WARNING_MARK, "will not fit": FAILED_MARK}


def memory_lines(  # noqa: PLR0913 - each is a thing of its own
    prediction: Prediction,
    effects: Sequence[RungEffect],
    traced: CountedMemory | None,
    *,
    note: Styled,
    width: int,
    is_allowed: bool = True,
    remedy: str = "",
) -> list[Content]:
    """Return heading, bar and key; where nothing can be estimated, the reason, and beside the heading the `remedy`.

    Of values that an error forbids it is not said that they fit.
    """
    if traced and traced.problem:
        note = f"no second estimate: {visible(traced.problem)}"
    if prediction.estimate is None:
        return _no_estimate_lines(f"cannot be estimated: {visible(prediction.why_no_estimate)}", width, remedy)
    peak, error = prediction.estimate.peak_phase, prediction.estimate.relative_error
    if traced and not traced.problem:
        note = _counted_text(traced, peak.total_bytes)
    if not prediction.place_verdicts:
        title = heading("Memory", note, width)
        needed = styled((size_text(peak.total_bytes), "b"), f" allocated ±{percent(error)} in {peak.name}")
        return [title, needed, *_legend_lines(_texture_shares(dict(peak.parts)), width)]
    place, verdict = prediction.place_verdicts[0]
    shares = _texture_shares(_bytes_by_part_of_all_processes(peak, verdict))
    saving = [effect for effect in effects if effect.peak_difference_bytes < 0][:_MAX_EFFECTS_SHOWN]
    if verdict.band != "fits" and saving:
        note = _effects_text(saving)
    title = heading("Memory per GPU" if place.is_gpu else "Memory", note, width)
    before, after = ("needs ", " free") if width >= _MIN_WIDE_WIDTH else ("", "")
    needed = styled(
        before,
        (size_text(verdict.reserved_bytes), "b"),
        f" ±{percent(error)} of {size_text(verdict.available_bytes)}{after}  ",
    )
    band = (
        styled(_MARK_BY_BAND.get(verdict.band, WARNING_MARK), f" {verdict.band}")
        if is_allowed
        else styled(WARNING_MARK, " see the ✗ error")
    )
    beside = needed.cell_length + band.cell_length + 2
    gauge = stacked_bar(
        [(part, texture, style) for part, texture, style, _ in shares],
        max(verdict.available_bytes, verdict.reserved_bytes),
        max(8, width - beside),
    )
    return [title, styled(gauge, "  ", needed, band), *_legend_lines(shares, width)]


def _counted_text(counted: CountedMemory, estimated_bytes: int) -> str:
    """Return what the model's code needs, and which of it and the estimate is the one to go by."""
    size = counted.peak_phase_and_bytes[1]
    figure = f"{size_text(size)} ±{percent(TRACE_RELATIVE_ERROR)}"
    if size > estimated_bytes:
        return f"a second estimate (F3) is more: {figure}"
    return f"a second estimate (F3): {figure}; judged by the first"


def phase_lines(prediction: Prediction, width: int) -> list[Content]:
    """Return the memory of each phase of a step as bars against the highest; nothing where it is not estimated."""
    if prediction.estimate is None:
        return []
    peak = prediction.estimate.peak_phase
    bar_width = max(8, width - _PHASE_NAME_WIDTH - _PHASE_SIZE_WIDTH - 1)
    lines = [heading("Memory by phase", f"the highest is {peak.name}", width)]
    for phase in prediction.estimate.phases:
        shares = [(part, texture, style) for part, texture, style, _ in _texture_shares(dict(phase.parts))]
        size = (size_text(phase.total_bytes), "b" if phase == peak else MUTED)
        bar = stacked_bar(shares, peak.total_bytes, bar_width)
        cells = (phase.name, _PHASE_NAME_WIDTH), (bar, bar_width), (size, -_PHASE_SIZE_WIDTH)
        lines.append(columns(width, *cells))
    return lines


def memory_lines_of_unparsable_field(label: str, width: int) -> list[Content]:
    """Return the lines while the value of a field cannot be read."""
    return _no_estimate_lines(f"not estimated while “{visible(label)}” cannot be read", width)


def _no_estimate_lines(reason: str, width: int, remedy: str = "") -> list[Content]:
    """Return heading and reason, in as many lines as an estimate has."""
    first, *rest = Content(reason).wrap(max(_MIN_REASON_WIDTH, width))
    second = Content(" ").join(rest) if rest else Content()
    return [heading("Memory", remedy, width), *(fit(line, width).stylize_before(MUTED) for line in (first, second))]


def _effects_text(saving: Sequence[RungEffect]) -> Content:
    parts = [f"{typeset_ascii(effect.change.title)} -{size_text(-effect.peak_difference_bytes)}" for effect in saving]
    return Content(", ".join(parts))


def _bytes_by_part_of_all_processes(peak: PhaseMemory, verdict: MemoryVerdict) -> dict[str, int]:
    """Return the bytes of each part for all processes at the place, and of what is reserved between them."""
    processes = max(1, round(verdict.tensor_bytes / max(1, peak.total_bytes)))
    return {
        _FRAGMENTATION_PART: verdict.reserved_bytes - verdict.tensor_bytes,
        **{part: held * processes for part, held in peak.parts},
    }


def _texture_shares(bytes_by_part: dict[str, int]) -> list[tuple[int, str, str, str]]:
    shares = []
    for texture, style, names in _TEXTURES_STYLES_AND_PARTS:
        held = {part: bytes_by_part.pop(part, 0) for part in names or tuple(bytes_by_part)}
        called = dict.fromkeys(
            names.get(part, part if part == _FRAGMENTATION_PART else "other") for part, size in held.items() if size
        )
        if called:
            shares.append((sum(held.values()), texture, style, ", ".join(called)))
    return shares


def _legend_lines(shares: Sequence[tuple[int, str, str, str]], width: int) -> list[Content]:
    """Return what each texture is: in a line, of each the last of its names where not all fit, or in several lines."""
    parts = [
        (texture, style, f" {name} {size_text(held)}", f" {name.rpartition(' ')[2]} {size_text(held)}")
        for held, texture, style, name in shares
    ]
    whole = [styled((texture, style), (words, MUTED)) for texture, style, words, _ in parts]
    short = [styled((texture, style), (words, MUTED)) for texture, style, _, words in parts]
    for key in (Content("   ").join(whole), Content("  ").join(short)):
        if key.cell_length <= width:
            return [key]
    lines = whole[:1]
    for part in whole[1:]:
        longer = styled(lines[-1], "  ", part)
        lines = [*lines[:-1], longer] if longer.cell_length <= width else [*lines, part]
    return lines
