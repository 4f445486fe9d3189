"""Properties that follow from a compute capability: supported code, bfloat16, approximate speed."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from tui_train.facts.types import Gpu

_ARCH_PATTERN = re.compile(r"(sm|compute)_(\d{2,4})([af]?)", re.ASCII)
_CAPABILITY_PATTERN = re.compile(r"(\d{1,3})\.(\d)", re.ASCII)
# Integrated chips run only code that was built for them. 10.1 was renamed to 11.0.
CAPABILITIES_BY_TEGRA_ARCH = {53: {53}, 62: {62}, 72: {72}, 87: {87}, 101: {101, 110}}
# GB10 uses host memory too, but runs the code of its generation.
INTEGRATED_GPU_CAPABILITIES = frozenset({*CAPABILITIES_BY_TEGRA_ARCH, 110, 121})


class ChipGeneration(NamedTuple):
    """A chip generation: cores per SM, and dense fp16 operations per SM and cycle (0: unknown).

    With tensor cores these accumulate in fp16 (in fp32 at the same rate on data center cards), otherwise two per core.
    """

    cores_per_sm: int
    operations_per_cycle: int


CHIP_BY_CAPABILITY = {
    **dict.fromkeys((30, 32, 35, 37), ChipGeneration(192, 384)),
    **dict.fromkeys((50, 52, 53), ChipGeneration(128, 256)),
    60: ChipGeneration(64, 128),
    **dict.fromkeys((61, 62), ChipGeneration(128, 256)),
    70: ChipGeneration(64, 1024),
    72: ChipGeneration(64, 512),
    75: ChipGeneration(64, 1024),
    80: ChipGeneration(64, 2048),
    **dict.fromkeys((86, 87, 89), ChipGeneration(128, 1024)),
    90: ChipGeneration(128, 4096),
    100: ChipGeneration(128, 8192),
    101: ChipGeneration(128, 0),
    103: ChipGeneration(128, 8192),
    110: ChipGeneration(128, 0),
    120: ChipGeneration(128, 1024),
    121: ChipGeneration(128, 0),
}
# GPUs of 7.5 without tensor cores: GTX 16, and the T series except the T4.
_TURING_WITH_TENSOR_CORES_PATTERN = re.compile(r"RTX|\bT4G?\b")


def capability_number(capability: str | None) -> int | None:
    """Return "8.6" as 86 and "12.0" as 120, None if it is not a compute capability."""
    match = _CAPABILITY_PATTERN.fullmatch(capability or "")
    return int(match[1]) * 10 + int(match[2]) if match else None


def any_arch_runs_on(arch_list: Iterable[str], compute_capability: str) -> bool:
    """Return whether code for `arch_list`, entries like "sm_86" or "compute_120", runs on a card, such as "8.9".

    Source: `torch.cuda.DEVICE_REQUIREMENT`; the CUDA programming guide for PTX and for the suffixes `a` and `f`.
    """
    device = capability_number(compute_capability)
    return device is not None and any(_arch_runs_on(entry, device) for entry in arch_list)


def _arch_runs_on(arch: str, device_capability: int) -> bool:
    match = _ARCH_PATTERN.fullmatch(arch)
    if match is None:
        return False
    kind, code, suffix = match[1], int(match[2]), match[3]
    if suffix == "a":
        return device_capability == code
    if kind == "compute" and not suffix:
        return device_capability >= code
    if code in CAPABILITIES_BY_TEGRA_ARCH:
        return device_capability in CAPABILITIES_BY_TEGRA_ARCH[code]
    return (
        device_capability // 10 == code // 10
        and device_capability >= code
        and device_capability not in CAPABILITIES_BY_TEGRA_ARCH
    )


def do_all_support_bf16(gpus: Iterable[Gpu]) -> bool:
    """Return whether all cards support bfloat16 (compute capability 8.0 or higher); unknown counts as no."""
    numbers = [capability_number(gpu.compute_capability) for gpu in gpus]
    return bool(numbers) and all(value is not None and value >= 80 for value in numbers)


def approximate_teraflops(gpu: Gpu) -> float | None:
    """Return the approximate speed of a card in 10^12 operations per second, None if unknown.

    This is the dense fp16 rate at the maximum clock, more than a card reaches; it is used only to rank cards.
    Source: NVIDIA's architecture white papers. GeForce cards accumulate in fp32 at half the rate.
    """
    device = capability_number(gpu.compute_capability)
    if device is None or not gpu.sm_count or not gpu.sm_clock_max:
        return None
    operations_per_sm = CHIP_BY_CAPABILITY[device].operations_per_cycle if device in CHIP_BY_CAPABILITY else 0
    if device == 75 and not _TURING_WITH_TENSOR_CORES_PATTERN.search(gpu.name):
        operations_per_sm = 2 * CHIP_BY_CAPABILITY[device].cores_per_sm
    elif device >= 75 and device not in {80, 90} and "GeForce" in gpu.name:
        operations_per_sm //= 2
    return gpu.sm_count * gpu.sm_clock_max * operations_per_sm / 1e6 or None
