"""The check that compares what a training on GPUs keeps in the host's memory with what is available there."""

from collections.abc import Iterator

from tui_train.base.text import counted, size_text
from tui_train.checks.finding import Finding, warning
from tui_train.checks.machine.each_machine import on_each_machine
from tui_train.memory.host_memory import host_memory_use
from tui_train.setup.machine.training_machines import TrainingMachine
from tui_train.setup.setup import Setup


@on_each_machine
def host_memory_shortage(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Too little of the host's memory for weights while they are loaded, or for what is offloaded."""
    available, use = each.machine.memory_available, host_memory_use(setup)
    if available is None or use is None:
        return
    least, count = 1 - use.error, each.process_count
    has = f"{size_text(available)} of the host's memory are available"
    if use.loaded * count * least > available:
        message = (
            f"{counted(count, 'process', 'processes')} load the model in the host's memory at the same time, "
            f"{size_text(use.loaded)} each, and {has}"
        )
        remedy = "Use fsdp2 (trainer.strategy), which loads it once; or fewer processes, or free some memory."
        yield warning("trainer.model", message, remedy)
    elif use.offloaded * count * least > available:
        message = f"{size_text(use.offloaded * count)} are offloaded to the host's memory, and {has}"
        yield warning("trainer.offload", message, "Turn offload off, use a smaller model, or free some memory.")
