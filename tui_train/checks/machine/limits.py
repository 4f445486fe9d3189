"""Checks of the limits that the processes of a training inherit: open files, tasks, locked memory."""

from collections.abc import Iterator

from tui_train.base.text import counted, first_names_text, grouped_digits, size_text, visible
from tui_train.checks.finding import Finding, warning
from tui_train.checks.machine.each_machine import findings_on_each_machine
from tui_train.setup.machine.communication import is_disabled_in_nccl
from tui_train.setup.machine.container import ISOLATING_ENGINES
from tui_train.setup.machine.training_machines import TrainingMachine
from tui_train.setup.setup import Setup

# What a process of torch with CUDA and NCCL has open at least: libraries, devices, sockets, event files.
_OPEN_FILES_PER_PROCESS = 256
# Of each worker: two queues, and a file for each tensor of the batches it prefetches.
_OPEN_FILES_PER_WORKER = 10
# Threads of CUDA, NCCL, autograd, watchdogs and loggers, besides one for each core.
_TASKS_PER_PROCESS = 64
# Buffers of at most 10 MB for each channel and direction. "ulimit -l was only 8192" KiB failed in nccl-tests#206.
_MIN_LOCKED_BYTES = 512 * 2**20
_MAX_NAMED_DEVICES = 2


def process_limits_below_need(setup: Setup) -> Iterator[Finding]:
    """Limits that allow what the processes open, start and lock; a container has limits of its own."""
    if setup.profile.container.engine not in ISOLATING_ENGINES:
        yield from findings_on_each_machine(setup, _low_limits_on_machine)


def _low_limits_on_machine(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    machine, workers = each.machine, setup.trainer_options.integer("data_workers")
    worker_words = f" with {counted(workers, 'DataLoader worker')}" if workers else ""
    files = _OPEN_FILES_PER_PROCESS + _OPEN_FILES_PER_WORKER * workers
    if machine.max_open_files is not None and machine.max_open_files < files:
        message = f"a process may open {machine.max_open_files} files, and needs about {files}{worker_words}"
        remedy = (
            "Run `ulimit -n 65536` in the shell that starts it. Where that is refused: nofile in "
            "/etc/security/limits.conf, LimitNOFILE of a systemd unit, or --ulimit nofile=65536:65536 of a container."
        )
        yield warning("hardware.device", message, remedy)
    tasks = each.process_count * (_TASKS_PER_PROCESS + workers) + machine.cpu_count
    if machine.free_tasks is not None and machine.free_tasks < tasks:
        message = (
            f"{grouped_digits(machine.free_tasks)} more processes and threads may be started, and "
            f"{counted(each.process_count, 'process', 'processes')}{worker_words} need about {grouped_digits(tasks)}"
        )
        remedy = (
            "Raise the limit: `ulimit -u 65536` (nproc in /etc/security/limits.conf), TasksMax of a systemd unit, or "
            "--pids-limit=-1 of a container."
        )
        yield warning("hardware.device", message, remedy)
    yield from _low_locked_memory(setup, each)


def _low_locked_memory(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    machine = each.machine
    uses_rdma = setup.communication_backend == "nccl" and setup.profile.nodes.machine_count > 1
    if not (uses_rdma and machine.rdma_devices) or is_disabled_in_nccl(setup.profile, "ib"):
        return
    if machine.max_locked_bytes is not None and machine.max_locked_bytes < _MIN_LOCKED_BYTES:
        device = visible(first_names_text(machine.rdma_devices, _MAX_NAMED_DEVICES))
        message = (
            f"a process may lock {size_text(machine.max_locked_bytes)} of memory: too little for NCCL over {device}"
        )
        remedy = (
            "Set memlock to unlimited (/etc/security/limits.conf, or LimitMEMLOCK=infinity of sshd and systemd units), "
            "and log in again. communication.without=ib trains over TCP, slower."
        )
        yield warning("communication.backend", message, remedy)
