"""Whether an estimate fits: the memory needed besides tensors, and the limits of the bands."""

from typing import Literal

from msgspec import Struct

from tui_train.memory.types import Estimate, How

Band = Literal["fits", "tight", "will not fit"]

GIB = 2**30
# Memory of the CUDA context of a process, and of the channels of NCCL.
CONTEXT = GIB // 2
NCCL = GIB // 2
# What the allocator reserves beyond the tensors: a share of them, more of it with several processes, whose buckets and
# gathered layers come and go, and a share of the logits, whose blocks are split. Fitted to 95 trainings of which both
# were measured, and 30 of which what was reserved was.
_GAPS, _SEVERAL, _OF_LOGITS = 0.05, 0.10, 0.50
# Shares of the available memory up to which what is reserved fits, and up to which tensors alone are tight: near the
# limit the allocator gives blocks back. The rest is for the error of the estimate.
_FITS, _TIGHT = 0.90, 0.95
# The limit of "fits" if something is not modelled.
_UNSURE = 0.3
# Expandable segments leave fewer gaps.
_GROWING = 0.5


class Verdict(Struct, frozen=True):
    """The band; the bytes of tensors, those that the allocator reserves for them, and those available for both."""

    band: Band
    needed: int
    reserved: int
    left: int


def verdict(estimate: Estimate, free: int, how: How, *, growing: bool = False) -> Verdict:
    """Return whether an estimate fits into the `free` bytes of a GPU; `growing`: with expandable segments."""
    several, needed = how.shards > 1, estimate.peak.total
    held = reserved(estimate, several=several, growing=growing)
    return judge(needed, held, free, several=several, caveats=bool(estimate.caveats))


def reserved(estimate: Estimate, *, several: bool, growing: bool = False) -> int:
    """Return the bytes that the allocator holds at the peak: the tensors and the gaps between them."""
    peak = estimate.peak.total
    logits = max(dict(phase.parts).get("logits", 0) for phase in estimate.phases)
    gaps = peak * (_GAPS + _SEVERAL * several) + logits * _OF_LOGITS
    return int(peak + gaps * (_GROWING if growing else 1))


def on_card(held: int, *, several: bool) -> int:
    """Return the bytes that a card shows as used: what is reserved, the context, and NCCL's channels."""
    return held + CONTEXT + (NCCL if several else 0)


def judge(needed: int, held: int, free: int, *, several: bool, caveats: bool = False) -> Verdict:
    """Return whether tensors fit for which so many bytes are `held`; with `caveats` they must be far below `free`."""
    available = max(0, free - on_card(0, several=several))
    band: Band = "will not fit"
    if (needed <= available * _UNSURE) if caveats else (held <= available * _FITS):
        band = "fits"
    elif needed <= available * _TIGHT:
        band = "tight"
    return Verdict(band, needed, held, available)
