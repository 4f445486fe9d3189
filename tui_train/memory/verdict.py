"""Whether what is predicted fits on a card: what is needed besides tensors, and bands against what is free."""

from typing import Literal

from msgspec import Struct

from tui_train.memory.types import Estimate, How

Band = Literal["fits", "tight", "will not fit"]

GIB = 2**30
# What CUDA and its libraries hold of a card as soon as a process uses it, and NCCL for its channels.
CONTEXT = GIB // 2
NCCL = GIB // 2
# Of what is left, the part that tensors may take before they only may fit, and before they do not: the rest is lost in
# gaps between the allocator's blocks, and to what the sums are off by.
_FITS, _TIGHT = 0.80, 0.95
# With something that is not modelled it fits where three times as much nearly would.
_UNSURE = 0.3
# Blocks that grow leave fewer gaps; among several processes buckets or whole layers come and go, and leave more.
_GROWING, _SEVERAL = 0.05, -0.05


class Verdict(Struct, frozen=True):
    """The band, the bytes of tensors, and what of the card is left for them."""

    band: Band
    needed: int
    left: int


def verdict(found: Estimate, free: int, how: How, *, growing: bool = False) -> Verdict:
    """Return whether an estimate fits into the `free` bytes of a card; `growing`: with expandable segments."""
    return judge(found.peak.total, free, several=how.shards > 1, growing=growing, caveats=bool(found.caveats))


def judge(needed: int, free: int, *, several: bool, growing: bool = False, caveats: bool = False) -> Verdict:
    """Return whether so many bytes of tensors fit into the free bytes; with `caveats`, there must be far more room."""
    left = max(0, free - CONTEXT - (NCCL if several else 0))
    band: Band = "will not fit"
    if needed <= left * (_UNSURE if caveats else _FITS + _GROWING * growing + _SEVERAL * several):
        band = "fits"
    elif needed <= left * _TIGHT:
        band = "tight"
    return Verdict(band, needed, left)
