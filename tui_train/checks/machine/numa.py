"""Checks of the NUMA nodes that the chosen cards are attached to."""

from collections.abc import Iterator

from tui_train.base.text import number_ranges_text
from tui_train.base.versions import is_known_older
from tui_train.checks.finding import Finding, note, warning
from tui_train.checks.machine.each_machine import TrainingMachine, may_exchange_through_host_memory, on_each_machine
from tui_train.facts.types import Gpu, NumaNode
from tui_train.setup.machine.communication import disable_in_nccl_change, is_disabled_in_nccl, nccl_version
from tui_train.setup.machine.container import ISOLATING_ENGINES
from tui_train.setup.setup import Setup

# Since then each process finds out for itself whether it can have cuMem memory of its node, and takes for granted that
# the others found the same: NVIDIA/nccl#2190, pull request 2059. It tries with a driver for this CUDA or a newer one.
_FIRST_NCCL_WITH_PER_PROCESS_CUMEM = "2.26.3"
_FIRST_CUDA_WITH_CUMEM_HOST = "12.6"


@on_each_machine
def numa_nodes_breaking_nccl(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Cards of which some are on NUMA nodes without memory or CPUs, and some not: NCCL fails with them."""
    nccl = nccl_version(setup.toolchain)
    if setup.communication_backend != "nccl" or is_disabled_in_nccl(setup.profile, "cumem_host"):
        return
    # docker and podman deny the calls, to all processes alike.
    if is_known_older(nccl, _FIRST_NCCL_WITH_PER_PROCESS_CUMEM) or setup.profile.container.engine in ISOLATING_ENGINES:
        return
    made = setup.facts.communication.get(setup.communication_test_key)
    has_cumem = not is_known_older(each.machine.driver_cuda, _FIRST_CUDA_WITH_CUMEM_HOST)
    if (made and made.result.works) or not (has_cumem and may_exchange_through_host_memory(setup.profile, each)):
        return
    placed = _gpus_with_nodes(each)
    lacking = [(gpu, node) for gpu, node in placed if not (node.has_memory and node.cpus)]
    if not lacking or len(lacking) == len(placed):
        return
    node = lacking[0][1]
    indices = number_ranges_text(sorted(gpu.index for gpu, other in lacking if other == node))
    lack = "CPUs" if node.has_memory else "memory"
    message = (
        f"NCCL may fail as it starts: GPU {indices} is attached to a part of the machine without {lack} "
        f"(NUMA node {node.number})"
    )
    change = disable_in_nccl_change(setup.profile, "cumem_host")
    yield warning("communication.without", message, f"Use {change.title}, which {change.why}.", change=change)


@on_each_machine
def cards_far_from_cpus(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Cards on NUMA nodes of whose CPUs this process may use none."""
    far = [(gpu, node) for gpu, node in _gpus_with_nodes(each) if node.cpus and not node.usable_cpus]
    # A container of these engines has CPUs of its own.
    if not far or setup.profile.container.engine in ISOLATING_ENGINES:
        return
    indices = number_ranges_text(sorted(gpu.index for gpu, _ in far))
    numbers = number_ranges_text(sorted({node.number for _, node in far}))
    message = f"copies to GPU {indices} are slow: the training may not use the CPUs beside it (NUMA node {numbers})"
    remedy = "Allow CPUs near the GPUs (cpuset, taskset, --cpuset-cpus, or Slurm's --gres-flags=enforce-binding)."
    yield note("hardware.gpus", message, remedy)


def _gpus_with_nodes(each: TrainingMachine) -> list[tuple[Gpu, NumaNode]]:
    """Return the cards whose node is known."""
    nodes = {node.number: node for node in each.machine.numa_nodes}
    return [(gpu, nodes[gpu.numa_node]) for gpu in each.gpus if gpu.numa_node in nodes]
