"""Checks of the shared memory, /dev/shm, through which NCCL and DataLoader workers exchange data."""

from collections.abc import Iterator

from tui_train.base.text import quantity, size_text
from tui_train.checks.finding import Finding, note, warning
from tui_train.checks.machine.each_machine import TrainingMachine, may_exchange_through_host_memory, on_each_machine
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.machine.communication import is_disabled_in_nccl
from tui_train.setup.machine.container import ISOLATING_ENGINES, SHARED_MEMORY_OF_HOST, shared_memory_bytes
from tui_train.setup.setup import Setup

# Between GPUs without direct access NCCL has a buffer of this size for each of the two channels of its ring: "2 coll
# channels" and "size 9637888" in NVIDIA/nccl#1518, where 64 MiB were enough for two GPUs and not for four.
_NCCL_BYTES_PER_PROCESS = 2 * 9_637_888
# The operations of the thread that serves the network, on a training of several machines (ncclProxyOpsPool).
_NCCL_NETWORK_BYTES_PER_PROCESS = 33_030_528
_SHM_FOLDER = "/dev/shm"  # noqa: S108 - only named
_DISK_FILE_SYSTEMS = frozenset({"btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4", "overlay", "xfs", "zfs"})
_ENLARGE_SHARED_MEMORY_REMEDY = (
    "Make it larger: `sudo mount -o remount,size=8G /dev/shm`; in a container --ipc=host or "
    "--shm-size=8g (Kubernetes: an "
    "emptyDir with medium Memory). Or delete what ended programs left: `ls -l /dev/shm`."
)
_REPLACE_SHARED_MEMORY_REMEDY = (
    "Mount /dev/shm: `sudo mount -t tmpfs -o mode=1777 tmpfs /dev/shm`; in a container --ipc=host."
)


@on_each_machine
def unusable_shared_memory(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """A /dev/shm that is missing, is not in memory, or may not be written to, where something needs it."""
    key = "communication.backend"
    if _has_own_shared_memory(setup.profile):
        return
    if _nccl_bytes_on_machine(setup, each):
        user = "NCCL"
    elif workers := setup.trainer_options.integer("data_workers"):
        user = quantity(workers, "DataLoader worker")
    else:
        return
    machine = each.machine
    if machine.shm_problem:
        yield warning(
            key,
            f"{_SHM_FOLDER} {machine.shm_problem}, and {user} cannot start without it",
            _REPLACE_SHARED_MEMORY_REMEDY,
        )
    elif machine.shm_file_system in _DISK_FILE_SYSTEMS:
        kind = machine.shm_file_system
        yield note(
            key, f"{_SHM_FOLDER} is a folder on a disk ({kind}), which slows down {user}", _REPLACE_SHARED_MEMORY_REMEDY
        )


@on_each_machine
def too_small_shared_memory(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Too little room in /dev/shm for what NCCL keeps there, on the machine or in the container."""
    needed, machine = _nccl_bytes_on_machine(setup, each), each.machine
    needs = f"NCCL needs about {size_text(needed)} for {quantity(each.process_count, 'process', 'processes')}"
    if _has_own_shared_memory(setup.profile):
        size = shared_memory_bytes(setup.profile.container)
        if size is not None and size < needed:
            edits = (("container.shared_memory", SHARED_MEMORY_OF_HOST),)
            change = Change("shared memory of the machine", "it is as large as it can be", edits)
            message = f"the container's shared memory ({_SHM_FOLDER}) has {size_text(size)}, and {needs}"
            yield warning(
                "container.shared_memory",
                message,
                "Set container.shared_memory to host, or to a size such as 16g.",
                change=change,
            )
    elif machine.shm_free is not None and not machine.shm_problem and machine.shm_free < needed:
        message = (
            f"shared memory ({_SHM_FOLDER}) has {size_text(machine.shm_free)} free of {size_text(machine.shm_total)}, "
            f"and {needs}"
        )
        yield warning("communication.backend", message, _ENLARGE_SHARED_MEMORY_REMEDY)


def _has_own_shared_memory(profile: Profile) -> bool:
    """Return whether the training has a /dev/shm of its container."""
    chosen = profile.container
    return chosen.engine in ISOLATING_ENGINES and chosen.shared_memory != SHARED_MEMORY_OF_HOST


def _nccl_bytes_on_machine(setup: Setup, each: TrainingMachine) -> int:
    """Return what NCCL allocates in the shared memory of a machine, 0 for nothing."""
    if setup.communication_backend != "nccl" or is_disabled_in_nccl(setup.profile, "shm"):
        return 0
    per_process = 0
    if may_exchange_through_host_memory(setup.profile, each):
        per_process += _NCCL_BYTES_PER_PROCESS
    if setup.profile.nodes.machine_count > 1:
        per_process += _NCCL_NETWORK_BYTES_PER_PROCESS
    return per_process * each.process_count
