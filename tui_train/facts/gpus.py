"""Which cards can train with a given PyTorch, which should, and why not: pure functions on facts.

Two verdicts leave a card out. `blocked` is a property of card, driver and PyTorch build, and no setting changes it.
`spare` is advice, and always relative to a better card: a lone card, however small, is never spare. Neither asks for a
card's name or for a monitor: names lie, and a good card may drive a monitor.
"""

import re
from collections.abc import Sequence
from typing import Literal

from tui_train.base.text import size
from tui_train.base.versions import major
from tui_train.facts.capability import TEGRA, number, runs, supports_bf16, teraflops
from tui_train.facts.sets import SLACK, busy, divided, in_step, recommended, sets, tiny, who
from tui_train.facts.types import Gpu, Toolchain, Verdict

__all__ = [
    "all_blocked",
    "busy",
    "called",
    "ever_had_code",
    "judge",
    "recommended",
    "runs",
    "sets",
    "supports_bf16",
    "why_no_code",
]

_DISPLAY_MEMORY = 6 * 2**30
_DISPLAY_SMS = 8
_ADDRESS = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII)
_KIND = re.compile(r"(?:GPU|MIG)-.", re.IGNORECASE)
# Digits of no card's number.
_LONG = 5
_LAST_OF_KEPLER = 37


def judge(
    gpus: Sequence[Gpu], toolchain: Toolchain | None = None, driver_cuda: str | None = None
) -> tuple[Verdict, ...]:
    """Return a verdict for each card, in order, under the PyTorch of `toolchain` and the driver's CUDA ("12.8").

    What is not known (no toolchain, no torch in it, a field that the driver does not tell) never leaves a card out.
    """
    blocked = [_why_blocked(gpu, toolchain, driver_cuda) for gpu in gpus]
    usable = [gpu for gpu, why in zip(gpus, blocked, strict=True) if not why]
    spare = iter(_why_spare(usable))
    unchecked = () if toolchain is not None and toolchain.torch is not None else ("not checked against a PyTorch yet",)
    verdicts = []
    for gpu, why in zip(gpus, blocked, strict=True):
        if why:
            verdicts.append(Verdict("blocked", (why,), who(gpu)))
            continue
        kind, reason = next(spare)
        reasons = (reason, *unchecked) if reason else unchecked
        verdicts.append(Verdict(kind, reasons, who(gpu)))
    return tuple(verdicts)


def called(gpus: Sequence[Gpu], name: str) -> tuple[Gpu, ...]:
    """Return the cards that a name means: a UUID or its beginning, a PCI address, or a number; one, if it is plain."""
    exact = tuple(gpu for gpu in gpus if gpu.uuid == name)
    if exact:
        return exact
    if name.isdecimal() and name.isascii() and len(name) < _LONG:
        return tuple(gpu for gpu in gpus if gpu.index == int(name))
    if _ADDRESS.fullmatch(name):
        return tuple(gpu for gpu in gpus if gpu.pci_bus and _at(gpu.pci_bus, name))
    return tuple(gpu for gpu in gpus if _KIND.match(name) and gpu.uuid.lower().startswith(name.lower()))


def _at(address: str, name: str) -> bool:
    """Return whether a PCI address is the one of a name, whose domain may be shorter or missing."""
    (domain, _, rest), (wanted, colon, short) = _split(address), _split(name)
    return rest == short and (not colon or domain == wanted)


def _split(address: str) -> tuple[str, str, str]:
    """Return domain without its first zeros, a colon where there is a domain, and the rest, all in lower case."""
    before, colon, rest = address.lower().rpartition(":")
    domain, found, bus = before.rpartition(":")
    return domain.lstrip("0"), found, f"{bus}{colon}{rest}"


def all_blocked(gpus: Sequence[Gpu], verdicts: Sequence[Verdict], toolchain: Toolchain | None) -> str:
    """Return which PyTorch would run the cards where this one has code for none, empty where that is not the cause."""
    opened = [gpu for gpu in gpus if not gpu.problem]
    if toolchain is None or toolchain.torch is None or not opened or any(found.kind != "blocked" for found in verdicts):
        return ""
    capabilities = [gpu.compute_capability for gpu in opened if gpu.compute_capability]
    if toolchain.cuda is not None:
        capabilities = [found for found in capabilities if toolchain.arch_list and not runs(toolchain.arch_list, found)]
        if len(capabilities) < len(opened):
            return ""
    wheels: dict[str, list[str]] = {}
    for capability in sorted(set(capabilities), key=lambda found: number(found) or 0):
        wheels.setdefault(_wheel_for(capability), []).append(capability)
    remedies = [f"for compute capability {' and '.join(found)} {wheel}" for wheel, found in wheels.items()]
    lack = "was built without CUDA" if toolchain.cuda is None else "has code for none of these cards"
    return ": ".join([f"This PyTorch ({toolchain.torch}) {lack}", *filter(None, ["; ".join(remedies)])])


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
    return ": ".join(filter(None, why_no_code(gpu, toolchain, driver_cuda)))


def why_no_code(gpu: Gpu, toolchain: Toolchain, driver_cuda: str | None) -> tuple[str, str]:
    """Return why a PyTorch cannot use a card, and what could; both empty where it can, or where that is not known."""
    capability = gpu.compute_capability
    if toolchain.cuda is None:
        return "this PyTorch was built without CUDA", _wheel_for(capability) if capability else ""
    if capability and number(capability) and toolchain.arch_list and not runs(toolchain.arch_list, capability):
        lack = f"has no code for compute capability {capability}"
        return f"this PyTorch ({toolchain.torch}) {lack}", _wheel_for(capability)
    needs, has = major(toolchain.cuda), major(driver_cuda)
    if needs is not None and has is not None and needs > has:
        return (
            f"this PyTorch ({toolchain.torch}) needs a driver for CUDA {needs}, this one is for CUDA {has}",
            f"update the driver, or install a PyTorch for CUDA {has}",
        )
    return "", ""


def ever_had_code(gpu: Gpu) -> bool:
    """Return whether any PyTorch has, or had, code for a card; where its compute capability is not known, yes."""
    device = number(gpu.compute_capability)
    return device is None or device >= 50 or device == _LAST_OF_KEPLER


def _wheel_for(capability: str) -> str:
    """Return in words which official PyTorch wheel has code for a card, from the tables of the releases up to 2.15."""
    device = number(capability) or 0
    if device in TEGRA or device == 110:
        return "take NVIDIA's own PyTorch for Jetson"
    if device == _LAST_OF_KEPLER:
        return "torch 2.5 for CUDA 11.8 was the last that had it"
    if device < 50:
        return "no official wheel has it"
    if device <= 70:
        return "a wheel for CUDA 12.6 (cu126) has it, up to torch 2.14"
    if device < 100:
        return "every official wheel for CUDA 12.6 or later has it"
    return "a wheel for CUDA 12.8 (cu128) or later has it, from torch 2.7 on"


def _why_spare(usable: Sequence[Gpu]) -> list[tuple[Literal["use", "spare"], str]]:
    """Return for each card that could train whether it belongs to the fastest set, and a reason, if there is one."""
    compared = [
        gpu for gpu in usable if gpu.memory_total and teraflops(gpu) and not tiny(gpu, usable) and not divided(gpu)
    ]
    speeds = [teraflops(gpu) or 0.0 for gpu in compared]
    kept = [compared[at] for at in in_step(speeds)]
    roomiest = max((gpu.memory_total or 0 for gpu in usable if not tiny(gpu, usable)), default=0)
    found: list[tuple[Literal["use", "spare"], str]] = []
    for gpu in usable:
        small = gpu.memory_total is not None and gpu.memory_total < roomiest / 2 * SLACK
        limit = f"{size(gpu.memory_total)} beside {size(roomiest)}, and the smallest card sets the limit"
        if tiny(gpu, usable):
            most = max(other.sm_count or 0 for other in usable)
            words = f"{gpu.sm_count} multiprocessors beside {most}, and the slowest card sets the pace"
            found.append(("spare", _label(gpu) + words))
        elif any(gpu is other for other in kept):
            found.append(("use", limit if small else ""))
        elif any(gpu is other for other in compared):
            found.append(("spare", _label(gpu) + _slower(gpu, kept)))
        elif small:
            found.append(("spare", _label(gpu) + limit))
        else:
            found.append(("use", ""))
    return found


def _label(gpu: Gpu) -> str:
    few = gpu.sm_count is not None and gpu.sm_count < _DISPLAY_SMS
    little = gpu.memory_total is not None and gpu.memory_total < _DISPLAY_MEMORY * SLACK
    return "display card: " if few or little else ""


def _slower(gpu: Gpu, kept: Sequence[Gpu]) -> str:
    """Return in words that the `kept` cards do more without this one than with it."""
    alone = min(teraflops(other) or 0.0 for other in kept) * len(kept)
    together = (teraflops(gpu) or 0.0) * (len(kept) + 1)
    without = f"{len(kept)} without it do" if len(kept) > 1 else "the other alone does"
    return f"{without} about {alone:.0f} TFLOPS, {len(kept) + 1} with it {together:.0f}: the slowest card sets the pace"
