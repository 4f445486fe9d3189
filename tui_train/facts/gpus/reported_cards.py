"""The cards of a machine as its runner reads them from the driver, as typed facts."""

from typing import Any

import msgspec

from tui_train.facts.gpus.capability import CHIP_BY_CAPABILITY, INTEGRATED_GPU_CAPABILITIES, capability_number
from tui_train.facts.types import FactGap, Gpu, Machine


class GpuWithCudaCores(Gpu, frozen=True, kw_only=True):
    """A card with its number of CUDA cores, None if the driver does not report it."""

    cores: int | None = None


class CardReport(msgspec.Struct, frozen=True, kw_only=True):
    """A driver's report: its cards with gaps, its version and its CUDA version."""

    gpus: tuple[GpuWithCudaCores, ...] = ()
    gaps: tuple[FactGap, ...] = ()
    driver_version: str | None = None
    driver_cuda: str | None = None


def machine_with_cards(machine: Machine, report: CardReport) -> Machine:
    """Return a machine with the cards of its driver."""
    return msgspec.structs.replace(
        machine,
        gpus=tuple(_gpu_with_derived_fields(gpu, machine) for gpu in report.gpus),
        gaps=report.gaps,
        driver_version=report.driver_version,
        driver_cuda=report.driver_cuda,
    )


def _gpu_with_derived_fields(gpu: GpuWithCudaCores, machine: Machine) -> Gpu:
    """Return a card with its SMs; an integrated one, whose memory the driver does not report, with the host's."""
    fields: dict[str, Any] = {name: getattr(gpu, name) for name in Gpu.__struct_fields__}
    number = capability_number(gpu.compute_capability)
    chip = CHIP_BY_CAPABILITY.get(number) if number is not None else None
    if gpu.sm_count is None and gpu.cores and chip:
        # Source: CUDA programming guide, "Compute Capabilities".
        fields["sm_count"] = gpu.cores // chip.cores_per_sm
    if gpu.memory_total is None and not gpu.problem and number in INTEGRATED_GPU_CAPABILITIES:
        fields.update(shares_memory=True, memory_total=machine.memory_total, memory_free=machine.memory_available)
    return Gpu(**fields)
