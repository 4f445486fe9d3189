"""Verdicts on GPUs under a given PyTorch, `use`, `skip` or `blocked`; pure functions on facts.

Two verdicts exclude a card. `blocked` follows from card, driver and PyTorch build; no setting changes it. `skip` is
advice relative to a better card: a single card, however small, is never skipped. Neither depends on the name of a card,
which can be misleading, or on a monitor, which a fast card can have too.
"""

import re
from collections.abc import Sequence
from typing import Literal

from msgspec.structs import replace

from tui_train.base.text import size_text
from tui_train.base.versions import major_version
from tui_train.facts.gpus.capability import any_arch_runs_on, approximate_teraflops, capability_number
from tui_train.facts.gpus.gpu_sets import (
    MIN_EQUAL_MEMORY_SHARE,
    MIN_USEFUL_SM_COUNT,
    busy_processes_text,
    fastest_set_indices,
    has_too_few_sms,
    is_mig_instance,
    recommended_uuids,
)
from tui_train.facts.machine.torch_builds import (
    TorchBuild,
    any_torch_supports,
    choose_torch_build,
    torch_install_advice,
)
from tui_train.facts.types import Gpu, GpuVerdict, Machine, Toolchain

_MAX_DISPLAY_CARD_BYTES = 6 * 2**30
_PCI_ADDRESS_PATTERN = re.compile(r"(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE | re.ASCII)
_UUID_PREFIX_PATTERN = re.compile(r"(?:GPU|MIG)-.", re.IGNORECASE)
_MAX_INDEX_DIGITS = 4


def gpu_verdicts(
    gpus: Sequence[Gpu], toolchain: Toolchain | None = None, driver_cuda: str | None = None
) -> tuple[GpuVerdict, ...]:
    """Return a verdict for each card, in order, under the PyTorch of `toolchain` and the driver's CUDA ("12.8").

    Unknown values (no toolchain, no torch, a field that the driver does not report) never exclude a card.
    """
    blocked = [_why_blocked(gpu, toolchain, driver_cuda) for gpu in gpus]
    usable = [gpu for gpu, why in zip(gpus, blocked, strict=True) if not why]
    kinds = iter(_use_or_skip_kinds_and_reasons(usable))
    unchecked = () if toolchain is not None and toolchain.torch is not None else ("not yet checked with a PyTorch",)
    verdicts = []
    for gpu, why in zip(gpus, blocked, strict=True):
        if why:
            verdicts.append(GpuVerdict("blocked", (why,), busy_processes_text(gpu)))
            continue
        kind, reason = next(kinds)
        reasons = (reason, *unchecked) if reason else unchecked
        verdicts.append(GpuVerdict(kind, reasons, busy_processes_text(gpu)))
    return tuple(verdicts)


def find_gpus_by_identifier(gpus: Sequence[Gpu], identifier: str) -> tuple[Gpu, ...]:
    """Return the cards that match a name: a UUID or a prefix of it, a PCI address, or an index."""
    exact = tuple(gpu for gpu in gpus if gpu.uuid == identifier)
    if exact:
        return exact
    if identifier.isdecimal() and identifier.isascii() and len(identifier) <= _MAX_INDEX_DIGITS:
        return tuple(gpu for gpu in gpus if gpu.index == int(identifier))
    if _PCI_ADDRESS_PATTERN.fullmatch(identifier):
        return tuple(gpu for gpu in gpus if gpu.pci_bus and _address_matches(gpu.pci_bus, identifier))
    return tuple(
        gpu
        for gpu in gpus
        if _UUID_PREFIX_PATTERN.match(identifier) and gpu.uuid.lower().startswith(identifier.lower())
    )


def _address_matches(address: str, named_address: str) -> bool:
    """Return whether a PCI address matches a name whose domain may be shorter or missing."""
    (domain, _, device), (named_domain, colon, named_device) = _split_address(address), _split_address(named_address)
    return device == named_device and (not colon or domain == named_domain)


def _split_address(address: str) -> tuple[str, str, str]:
    """Return the domain without leading zeros, a colon if there is a domain, and the rest, in lower case."""
    before, colon, slot = address.lower().rpartition(":")
    domain, domain_colon, bus = before.rpartition(":")
    return domain.lstrip("0"), domain_colon, f"{bus}{colon}{slot}"


def recommended_torch_build(machine: Machine) -> TorchBuild:
    """Return the build of torch for the recommended cards of a machine; Unavailable if none supports any of them."""
    return choose_torch_build(_gpus_for_torch_advice(machine.gpus), machine.driver_cuda)


def _gpus_for_torch_advice(gpus: Sequence[Gpu]) -> Sequence[Gpu]:
    """Return the cards whose PyTorch is to be advised: a small one beside others decides nothing."""
    chosen = recommended_uuids(gpus, gpu_verdicts(gpus))
    return [gpu for gpu in gpus if gpu.uuid in chosen] or gpus


def all_gpus_blocked_by_torch_sentence(
    gpus: Sequence[Gpu], verdicts: Sequence[GpuVerdict], toolchain: Toolchain | None, driver_cuda: str | None
) -> str:
    """Return that a PyTorch supports none of the cards, as a sentence, empty if that is not what blocks them."""
    opened = [gpu for gpu in gpus if not gpu.problem]
    if (
        toolchain is None
        or toolchain.torch is None
        or not opened
        or any(verdict.kind != "blocked" for verdict in verdicts)
    ):
        return ""
    capabilities = [gpu.compute_capability for gpu in opened if gpu.compute_capability]
    if toolchain.cuda is not None:
        capabilities = [
            name for name in capabilities if toolchain.arch_list and not any_arch_runs_on(toolchain.arch_list, name)
        ]
        if len(capabilities) < len(opened):
            return ""
    consequence = "the GPU cannot be used" if len(opened) == 1 else f"none of the {len(opened)} GPUs can be used"
    if toolchain.cuda is None:
        return f"This Python's PyTorch ({toolchain.torch}) has no CUDA, so {consequence}."
    remedy = torch_install_advice(_gpus_for_torch_advice(gpus), driver_cuda)
    return f"This Python's PyTorch ({toolchain.torch}) supports no such card, so {consequence}: {remedy}."


def verdicts_with_prospects(gpus: Sequence[Gpu], verdicts: Sequence[GpuVerdict]) -> tuple[GpuVerdict, ...]:
    """Return the verdicts of cards that a PyTorch blocks, each with what the right one would make of the card."""
    free = zip(gpus, gpu_verdicts(gpus), strict=True)
    prospects = [_prospect(verdict) if any_torch_supports(gpu) else () for gpu, verdict in free]
    return tuple(
        replace(verdict, reasons=(*verdict.reasons, *prospect))
        for verdict, prospect in zip(verdicts, prospects, strict=True)
    )


def _prospect(verdict: GpuVerdict) -> tuple[str, ...]:
    """Return in words what becomes of a card with the right PyTorch; nothing where it is blocked all the same."""
    if verdict.kind == "skip":
        return (f"left out with the right torch too: {verdict.reasons[0]}",)
    return ("would train with the right torch",) if verdict.kind == "use" else ()


def _why_blocked(gpu: Gpu, toolchain: Toolchain | None, driver_cuda: str | None) -> str:
    """Return why a card cannot train with any settings, empty if it can or that is unknown."""
    if gpu.problem:
        return gpu.problem
    if gpu.compute_mode == "prohibited":
        return f"its compute mode is Prohibited: allow it with `sudo nvidia-smi -i {gpu.index} -c DEFAULT`"
    if gpu.compute_mode == "exclusive" and any(not process.graphics for process in gpu.processes):
        return "its compute mode is Exclusive Process, and another process uses it"
    if toolchain is None or toolchain.torch is None:
        return ""
    return ": ".join(filter(None, why_gpu_unsupported_and_remedy(gpu, toolchain, driver_cuda)))


def why_gpu_unsupported_and_remedy(gpu: Gpu, toolchain: Toolchain, driver_cuda: str | None) -> tuple[str, str]:
    """Return why a PyTorch cannot use a card, and which one can; both empty if it can or that is unknown."""
    capability = gpu.compute_capability
    if toolchain.cuda is None:
        return "this PyTorch has no CUDA", ""
    if (
        capability
        and capability_number(capability)
        and toolchain.arch_list
        and not any_arch_runs_on(toolchain.arch_list, capability)
    ):
        limitation = f"does not support compute capability {capability}"
        return f"this PyTorch ({toolchain.torch}) {limitation}", torch_install_advice((gpu,), driver_cuda)
    needs, has = major_version(toolchain.cuda), major_version(driver_cuda)
    if needs is not None and has is not None and needs > has:
        return (
            f"this PyTorch ({toolchain.torch}) needs a driver for CUDA {needs}, but the driver supports CUDA {has}",
            f"update the driver, or {torch_install_advice((gpu,), driver_cuda)}",
        )
    return "", ""


def why_torch_unusable(gpus: Sequence[Gpu], toolchain: Toolchain, driver_cuda: str | None) -> str:
    """Return why a PyTorch cannot use any of these cards, in a few words, empty if that is not what blocks them."""
    reasons = {why_gpu_unsupported_and_remedy(gpu, toolchain, driver_cuda)[0] for gpu in gpus}
    if not all(reasons) or any(gpu.problem for gpu in gpus):
        return ""
    if toolchain.cuda is None:
        return "torch cannot use GPUs"
    if any("driver" in reason for reason in reasons):
        return f"torch needs CUDA {major_version(toolchain.cuda)}, and the driver supports CUDA {driver_cuda}"
    capabilities = " and ".join(sorted({gpu.compute_capability or "?" for gpu in gpus}))
    return f"torch {toolchain.torch} does not support compute capability {capabilities}"


def _use_or_skip_kinds_and_reasons(usable_gpus: Sequence[Gpu]) -> list[tuple[Literal["use", "skip"], str]]:
    """Return for each usable card whether to use it, and the reason if there is one."""
    comparable = [
        gpu
        for gpu in usable_gpus
        if gpu.memory_total
        and approximate_teraflops(gpu)
        and not has_too_few_sms(gpu, usable_gpus)
        and not is_mig_instance(gpu)
    ]
    speeds = [approximate_teraflops(gpu) or 0.0 for gpu in comparable]
    fastest = [comparable[index] for index in fastest_set_indices(speeds)]
    roomiest = max((gpu.memory_total or 0 for gpu in usable_gpus if not has_too_few_sms(gpu, usable_gpus)), default=0)
    kinds: list[tuple[Literal["use", "skip"], str]] = []
    for gpu in usable_gpus:
        small = gpu.memory_total is not None and gpu.memory_total < roomiest / 2 * MIN_EQUAL_MEMORY_SHARE
        limit = f"would limit the others (memory {size_text(gpu.memory_total)}, not {size_text(roomiest)})"
        if has_too_few_sms(gpu, usable_gpus):
            most_sms = max(other.sm_count or 0 for other in usable_gpus)
            words = f"would slow the others ({gpu.sm_count} multiprocessors, not {most_sms})"
            kinds.append(("skip", _display_card_prefix(gpu) + words))
        elif any(gpu is other for other in fastest):
            kinds.append(("use", limit if small else ""))
        elif any(gpu is other for other in comparable):
            kinds.append(("skip", _display_card_prefix(gpu) + _why_faster_without_gpu(gpu, fastest)))
        elif small:
            kinds.append(("skip", _display_card_prefix(gpu) + limit))
        else:
            kinds.append(("use", ""))
    return kinds


def _display_card_prefix(gpu: Gpu) -> str:
    few = gpu.sm_count is not None and gpu.sm_count < MIN_USEFUL_SM_COUNT
    little = gpu.memory_total is not None and gpu.memory_total < _MAX_DISPLAY_CARD_BYTES * MIN_EQUAL_MEMORY_SHARE
    return "display card: " if few or little else ""


def _why_faster_without_gpu(gpu: Gpu, fastest_gpus: Sequence[Gpu]) -> str:
    """Return the text that the `fastest_gpus` cards are faster without this one."""
    without_tflops = min(approximate_teraflops(other) or 0.0 for other in fastest_gpus) * len(fastest_gpus)
    together_tflops = (approximate_teraflops(gpu) or 0.0) * (len(fastest_gpus) + 1)
    others = f"the other {len(fastest_gpus)}" if len(fastest_gpus) > 1 else "the other GPU"
    return f"slower: {others} alone about {without_tflops:.0f} TFLOPS, with it {together_tflops:.0f}"
