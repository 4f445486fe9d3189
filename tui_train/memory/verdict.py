"""Verdict on an estimate: memory besides tensors, and the limits of the bands."""

from typing import Literal

from msgspec import Struct

from tui_train.memory.types import MemoryEstimate

FitBand = Literal["fits", "tight", "will not fit"]

GIB = 2**30
# Memory of the CUDA context of a process, and of the channels of NCCL.
CUDA_CONTEXT_BYTES = GIB // 2
NCCL_CHANNEL_BYTES = GIB // 2
# Shares of the available memory up to which what is reserved fits, and up to which tensors alone are tight: near the
# limit the allocator gives blocks back. The rest is for the error of the estimate.
_MAX_FITTING_SHARE, _MAX_TIGHT_SHARE = 0.90, 0.95
# The limit of "fits" if something is not modelled.
_MAX_FITTING_SHARE_WITH_CAVEATS = 0.3
# Expandable segments leave fewer gaps.
_GAP_FACTOR_OF_EXPANDABLE_SEGMENTS = 0.5


class ReservedBeyondTensorsShares(Struct, frozen=True):
    """Memory reserved beyond the tensors: shares of them, and one of the logits, whose blocks are split.

    Fitted to 95 trainings of which both were measured, and 30 of which what was reserved was.
    """

    tensors: float = 0.05
    several_processes: float = 0.10
    """Of the tensors besides with several processes, whose buckets and gathered layers come and go."""
    logits: float = 0.50


_GAP_SHARES = ReservedBeyondTensorsShares()


class MemoryVerdict(Struct, frozen=True):
    """The band; the bytes of tensors, those that the allocator reserves for them, and those available for both."""

    band: FitBand
    tensor_bytes: int
    reserved_bytes: int
    available_bytes: int


def reserved_bytes(
    estimate: MemoryEstimate,
    *,
    several_processes: bool,
    expandable: bool = False,
    shares: ReservedBeyondTensorsShares = _GAP_SHARES,
) -> int:
    """Return the bytes that the allocator holds at the peak: the tensors and the gaps between them."""
    peak = estimate.peak_phase.total_bytes
    logits = max(dict(phase.parts).get("logits", 0) for phase in estimate.phases)
    gaps = peak * (shares.tensors + shares.several_processes * several_processes) + logits * shares.logits
    return int(peak + gaps * (_GAP_FACTOR_OF_EXPANDABLE_SEGMENTS if expandable else 1))


def used_bytes_on_card(reserved_total_bytes: int, *, several_processes: bool) -> int:
    """Return the bytes that a card shows as used: what is reserved, the context, and NCCL's channels."""
    return reserved_total_bytes + CUDA_CONTEXT_BYTES + (NCCL_CHANNEL_BYTES if several_processes else 0)


def judge_memory(
    tensor_bytes: int, reserved_total_bytes: int, free: int, *, several_processes: bool, has_caveats: bool = False
) -> MemoryVerdict:
    """Return whether `reserved_total_bytes` bytes fit; with `has_caveats` the tensors must be far below `free`."""
    available = max(0, free - used_bytes_on_card(0, several_processes=several_processes))
    fits = (
        tensor_bytes <= available * _MAX_FITTING_SHARE_WITH_CAVEATS
        if has_caveats
        else reserved_total_bytes <= available * _MAX_FITTING_SHARE
    )
    band: FitBand = "fits" if fits else "tight" if tensor_bytes <= available * _MAX_TIGHT_SHARE else "will not fit"
    return MemoryVerdict(band, tensor_bytes, reserved_total_bytes, available)
