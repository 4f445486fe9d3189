"""Whether an estimate fits: the memory needed besides tensors, and the limits of the bands."""

from typing import Literal

from msgspec import Struct

from tui_train.memory.types import Estimate, How

Band = Literal["fits", "tight", "will not fit"]

GIB = 2**30
# Memory of the CUDA context of a process, and of the channels of NCCL.
CONTEXT = GIB // 2
NCCL = GIB // 2
# Shares of the available memory up to which tensors fit, and up to which they are tight; the rest is for gaps between
# the allocator's blocks, and for the error of the estimate.
_FITS, _TIGHT = 0.80, 0.95
# The limit of "fits" if something is not modelled.
_UNSURE = 0.3
# Expandable segments leave fewer gaps; buckets and gathered layers of several processes leave more.
_GROWING, _SEVERAL = 0.05, -0.05


class Verdict(Struct, frozen=True):
    """The band, the bytes of tensors, and the bytes available for them."""

    band: Band
    needed: int
    left: int


def verdict(estimate: Estimate, free: int, how: How, *, growing: bool = False) -> Verdict:
    """Return whether an estimate fits into the `free` bytes of a GPU; `growing`: with expandable segments."""
    return judge(estimate.peak.total, free, several=how.shards > 1, growing=growing, caveats=bool(estimate.caveats))


def judge(needed: int, free: int, *, several: bool, growing: bool = False, caveats: bool = False) -> Verdict:
    """Return whether that many bytes of tensors fit; with `caveats` they must be far below the free bytes."""
    available = max(0, free - CONTEXT - (NCCL if several else 0))
    band: Band = "will not fit"
    if needed <= available * (_UNSURE if caveats else _FITS + _GROWING * growing + _SEVERAL * several):
        band = "fits"
    elif needed <= available * _TIGHT:
        band = "tight"
    return Verdict(band, needed, available)
