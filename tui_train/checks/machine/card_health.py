"""Checks of the chosen cards' state: memory errors, slowed clocks, a low power limit, missing lanes."""

from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, note, warning
from tui_train.checks.machine.each_machine import TrainingMachine, on_each_machine
from tui_train.facts.types import Gpu
from tui_train.setup.setup import Setup

# Names in runner/gpus/nvml_card.py: each halves the clock at least. A hardware slowdown without such a reason may be no
# more than a change of the clock (NVML: "may be also reported during PState or clock change").
_HARDWARE_SLOWDOWNS = frozenset({"overheating", "the power supply"})
# Lower limits are common, for less noise and heat: down to here they cost little speed.
_MIN_POWER_SHARE = 0.6


@on_each_machine
def damaged_cards(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Cards with memory errors that could not be corrected, or repaired."""
    is_first = each.machine is setup.facts.machine
    leave_out = "leave it out (hardware.gpus)" if is_first else "leave the host out (nodes.hosts)"
    for gpu in each.gpus:
        reset = f"`sudo nvidia-smi --gpu-reset -i {gpu.index}`, with nothing running on it, or a reboot"
        if gpu.repair == "failed":
            message = f"{_card_text(gpu)}: its memory is faulty and could not be repaired, so trainings on it may crash"
            remedy = f"{leave_out[0].upper()}{leave_out[1:]}, {'and' if is_first else 'or'} have the card replaced."
            yield warning("hardware.gpus", message, remedy)
        elif gpu.uncorrected_errors:
            errors = quantity(gpu.uncorrected_errors, "memory error")
            message = f"{_card_text(gpu)} had {errors} that ECC could not correct, since the driver was loaded"
            yield warning(
                "hardware.gpus",
                message,
                f"Reset the card: {reset}. If the errors return, {leave_out}.",
            )
        elif gpu.repair == "pending":
            yield note(
                "hardware.gpus",
                f"{_card_text(gpu)}: faulty memory is replaced by spare memory at its next reset",
                f"Reset the card: {reset}.",
            )


@on_each_machine
def slowed_cards(_: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Cards whose hardware slows them down now, or that may use far less power than by default."""
    for gpu in each.gpus:
        if reasons := [words for words in gpu.throttled_by if words in _HARDWARE_SLOWDOWNS]:
            message = f"{_card_text(gpu)} is slowed down now by {' and '.join(reasons)}, to half its speed or less"
            details = f"`nvidia-smi -i {gpu.index} -q -d PERFORMANCE,TEMPERATURE,POWER`"
            yield warning(
                "hardware.gpus", message, f"Check its fans, the air flow and its power cables; {details} shows more."
            )
        limit, default = gpu.power_limit, gpu.power_limit_default
        if limit and default and limit < default * _MIN_POWER_SHARE:
            message = f"{_card_text(gpu)} is limited to {limit} W (its default is {default} W), so it trains slower"
            yield note("hardware.gpus", message, f"To raise it: `sudo nvidia-smi -i {gpu.index} -pl {default}`.")


@on_each_machine
def cards_with_missing_lanes(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Cards with fewer PCIe lanes than they and their slots could have, where much goes over these."""
    exchanges = setup.communication_backend == "nccl" and each.process_count > 1
    for gpu in each.gpus:
        link = gpu.pcie
        if not link or not link.width or not (setup.profile.trainer.offload or (exchanges and not gpu.nvlinks)):
            continue
        # A slot that shares its lanes with another one could not have more.
        possible = min(link.width_max or 0, link.slot_width_max or 0)
        if link.width < possible:
            message = f"{_card_text(gpu)} uses {link.width} of {possible} PCIe lanes, so copies to and from it are slow"
            yield note("hardware.gpus", message, "Reseat the card, and check its riser cable and the BIOS.")


def _card_text(gpu: Gpu) -> str:
    return f"GPU {gpu.index} {gpu.name}"
