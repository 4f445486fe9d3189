"""The check that compares what a training on GPUs keeps in the host's memory with what is available there."""

from collections.abc import Iterator

from tui_train.base.text import quantity, size_text
from tui_train.checks.finding import Finding, warning
from tui_train.checks.machine.each_machine import TrainingMachine, on_each_machine
from tui_train.memory.host_memory import host_memory_per_process
from tui_train.setup.setup import Setup


@on_each_machine
def host_memory_shortage(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Too little of the host's memory for weights while they are loaded, or for what is offloaded."""
    available, use = each.machine.memory_available, host_memory_per_process(setup)
    if available is None or use is None:
        return
    least, count = 1 - use.relative_error, each.process_count
    has = f"{size_text(available)} of main memory are available"
    if use.loaded_bytes * count * least > available:
        message = (
            f"{quantity(count, 'process', 'processes')} load the model into the machine's main memory at the same "
            f"time, {size_text(use.loaded_bytes)} each, and {has}"
        )
        remedy = "Choose fsdp2 (trainer.strategy), which loads the model once; or fewer processes, or free some memory."
        yield warning("trainer.model", message, remedy)
    elif use.offloaded_bytes * count * least > available:
        message = (
            f"{size_text(use.offloaded_bytes * count)} of the model are to be kept in the machine's main memory "
            f"(offload), and {has}"
        )
        yield warning(
            "trainer.offload", message, "Turn trainer.offload off, choose a smaller model, or free some memory."
        )
