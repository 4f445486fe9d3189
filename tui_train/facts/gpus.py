"""Which cards can train with a given PyTorch, which should, and why not: pure functions on facts.

Two verdicts leave a card out. `blocked` is a property of card, driver and PyTorch build, and no setting changes it.
`spare` is advice, and always relative to a better card: a lone card, however small, is never spare. Neither asks for a
card's name or for a monitor: names lie, and a good card may drive a monitor.
"""

import re
from collections.abc import Iterable, Sequence

from tui_train.facts.types import Gpu, Toolchain, Verdict
from tui_train.text import size

_ARCH = re.compile(r"(sm|compute)_(\d+)([af]?)")
# Integrated chips: only code made for them runs on them, and it runs on nothing else. 10.1 was renamed to 11.0.
_TEGRA = {53: {53}, 62: {62}, 72: {72}, 87: {87}, 101: {101, 110}}
# A 6 GB card may report 3 % less than 6 GiB, and one half of another card's memory is seldom exact.
_SLACK = 0.95
_DISPLAY_MEMORY = 6 * 2**30
_FEW_SMS = 8
_BUSY_MEMORY = 2**30


def runs(arch_list: Iterable[str], compute_capability: str) -> bool:
    """Return whether code for `arch_list`, entries like "sm_86" or "compute_120", runs on a card of "8.9" or so.

    Source: `torch.cuda.DEVICE_REQUIREMENT`; the CUDA programming guide for PTX and for the suffixes `a` and `f`.
    """
    device = _number(compute_capability)
    return device is not None and any(_entry_runs(entry, device) for entry in arch_list)


def _entry_runs(entry: str, device: int) -> bool:
    match = _ARCH.fullmatch(entry)
    if match is None:
        return False
    kind, code, suffix = match[1], int(match[2]), match[3]
    if suffix == "a":
        return device == code
    if kind == "compute" and not suffix:
        return device >= code
    if code in _TEGRA:
        return device in _TEGRA[code]
    return device // 10 == code // 10 and device >= code and device not in _TEGRA


def judge(
    gpus: Sequence[Gpu], toolchain: Toolchain | None = None, driver_cuda: str | None = None
) -> tuple[Verdict, ...]:
    """Return a verdict for each card, in order, under the PyTorch of `toolchain` and the driver's CUDA ("12.8").

    What is not known (no toolchain, no torch in it, a field that the driver does not tell) never leaves a card out.
    """
    blocked = [_why_blocked(gpu, toolchain, driver_cuda) for gpu in gpus]
    usable = [gpu for gpu, why in zip(gpus, blocked, strict=True) if not why]
    unchecked = () if toolchain is not None and toolchain.torch is not None else ("not checked against a PyTorch yet",)
    verdicts = []
    for gpu, why in zip(gpus, blocked, strict=True):
        spare = "" if why else _why_spare(gpu, usable)
        if why:
            verdicts.append(Verdict("blocked", (why,)))
        elif spare:
            verdicts.append(Verdict("spare", (spare, *unchecked)))
        else:
            verdicts.append(Verdict("use", unchecked))
    return tuple(verdicts)


def recommended(gpus: Sequence[Gpu], verdicts: Sequence[Verdict]) -> tuple[str, ...]:
    """Return the UUIDs to select at first: the cards to use that nobody computes on, or all of them if none is free.

    A process can use one MIG instance only, so of these the roomiest is taken, and only where there is no whole card.
    """
    use = [gpu for gpu, verdict in zip(gpus, verdicts, strict=True) if verdict.kind == "use" and gpu.uuid]
    whole = [gpu for gpu in use if not gpu.uuid.startswith("MIG-")]
    pool = whole or use
    chosen = [gpu for gpu in pool if not busy(gpu)] or pool
    if chosen and not whole:
        chosen = [max(chosen, key=lambda gpu: gpu.memory_total or 0)]
    return tuple(gpu.uuid for gpu in chosen)


def busy(gpu: Gpu) -> bool:
    """Return whether another program computes on a card: one that holds 1 GiB or an unknown amount of its memory.

    Where the driver hides processes, as in containers, less than half of the memory free says the same.
    """
    if any(not process.graphics and (process.memory or _BUSY_MEMORY) >= _BUSY_MEMORY for process in gpu.processes):
        return True
    return bool(gpu.memory_total and gpu.memory_free is not None and gpu.memory_free < gpu.memory_total / 2)


def supports_bf16(gpus: Iterable[Gpu]) -> bool:
    """Return whether every card has bfloat16 units, compute capability 8.0 or later; unknown counts as no."""
    numbers = [_number(gpu.compute_capability) for gpu in gpus]
    return bool(numbers) and all(number is not None and number >= 80 for number in numbers)


def _why_blocked(gpu: Gpu, toolchain: Toolchain | None, driver_cuda: str | None) -> str:
    """Return why a card cannot train whatever the user chooses, empty where it can or where that is not known."""
    if gpu.problem:
        return gpu.problem
    if gpu.compute_mode == "prohibited":
        return f"its compute mode is Prohibited: `sudo nvidia-smi -i {gpu.index} -c DEFAULT` allows it"
    if gpu.compute_mode == "exclusive" and any(not process.graphics for process in gpu.processes):
        return "its compute mode is Exclusive Process, and a process holds it"
    if toolchain is None or toolchain.torch is None:
        return ""
    return _why_no_code(gpu.compute_capability, toolchain, driver_cuda)


def _why_no_code(capability: str | None, toolchain: Toolchain, driver_cuda: str | None) -> str:
    if toolchain.cuda is None:
        return "this PyTorch was built without CUDA"
    needs, has = _major(toolchain.cuda), _major(driver_cuda)
    if needs is not None and has is not None and needs > has:
        return (
            f"this PyTorch ({toolchain.torch}) needs a driver for CUDA {needs}, this one is for CUDA {has}: "
            f"update the driver, or install a PyTorch for CUDA {has}"
        )
    if capability is None or not toolchain.arch_list or runs(toolchain.arch_list, capability):
        return ""
    return f"this PyTorch ({toolchain.torch}) has no code for compute capability {capability}: {_wheel_for(capability)}"


def _wheel_for(capability: str) -> str:
    """Return in words which official PyTorch wheel has code for a card, from the tables of the releases up to 2.15."""
    device = _number(capability) or 0
    if device in _TEGRA or device == 110:
        return "take NVIDIA's own PyTorch for Jetson"
    if device < 50:
        return "torch 2.5 for CUDA 11.8 was the last that had it" if device == 37 else "no official wheel has it"
    if device <= 70:
        return "a wheel for CUDA 12.6 (cu126) has it, up to torch 2.14"
    if device < 100:
        return "every official wheel for CUDA 12.6 or later has it"
    return "a wheel for CUDA 12.8 (cu128) or later has it, from torch 2.7 on"


def _why_spare(gpu: Gpu, usable: Sequence[Gpu]) -> str:
    """Return why a card that could train would hold back the best of the `usable` ones, empty where it would not."""
    sms = max((other.sm_count or 0 for other in usable), default=0)
    memory = max((other.memory_total or 0 for other in usable), default=0)
    slow = gpu.sm_count is not None and gpu.sm_count < min(_FEW_SMS, sms)
    small = gpu.memory_total is not None and gpu.memory_total < memory / 2 * _SLACK
    if not slow and not small:
        return ""
    display = (gpu.sm_count is not None and gpu.sm_count < _FEW_SMS) or (
        gpu.memory_total is not None and gpu.memory_total < _DISPLAY_MEMORY * _SLACK
    )
    label = "display card: " if display else ""
    if slow:
        return f"{label}{gpu.sm_count} multiprocessors beside {sms}, and the slowest card sets the pace"
    return f"{label}{size(gpu.memory_total)} beside {size(memory)}, and the smallest card sets the limit"


def _number(capability: str | None) -> int | None:
    """Return "8.6" as 86 and "12.0" as 120, None where it is neither."""
    major, _, minor = (capability or "").partition(".")
    return int(major) * 10 + int(minor) if major.isdecimal() and minor.isdecimal() else None


def _major(version: str | None) -> int | None:
    major = (version or "").partition(".")[0]
    return int(major) if major.isdecimal() else None
