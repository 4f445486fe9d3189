"""The GPUs of a machine in a few words: how many can train, and how many are busy."""

from tui_train.base.text import quantity
from tui_train.facts.gpus.verdicts import gpu_verdicts
from tui_train.facts.types import Facts
from tui_train.setup.machine.toolchain import toolchain_to_judge_cards
from tui_train.views.host_cards import is_card_taken


def gpus_line(facts: Facts) -> str:
    """Return `2 of 3 GPUs can train, 1 busy`, or `… recommended` where one that can would slow or limit the others.

    Before a Python with torch is known it says only how many there are.
    """
    machine = facts.machine
    if not machine.gpus:
        return "no usable GPU" if any(gap.hides for gap in machine.gaps) else "no GPU: the CPU trains"
    toolchain, count = toolchain_to_judge_cards(facts), quantity(len(machine.gpus), "GPU")
    verdicts = gpu_verdicts(machine.gpus, toolchain, machine.driver_cuda)
    usable = sum(verdict.kind == "use" for verdict in verdicts)
    busy = sum(is_card_taken(facts, gpu) for gpu in machine.gpus)
    few = f"{usable} of " if usable < len(verdicts) else ""
    claim = "recommended" if any(verdict.kind == "skip" for verdict in verdicts) else "can train"
    words = f"{few}{count} {claim}" if toolchain else count
    if len(verdicts) == 1 and not usable:
        words = "the GPU cannot train"
    return f"{words}, {busy} busy" if busy else words
