"""Checks of the limits that the processes of a training inherit: open files, tasks, locked memory."""

from collections.abc import Iterator

from tui_train.base.text import grouped_digits, names_text, quantity, size_text
from tui_train.checks.finding import Finding, warning
from tui_train.checks.machine.each_machine import TrainingMachine, on_each_machine
from tui_train.setup.machine.communication import is_disabled_in_nccl
from tui_train.setup.machine.container import ISOLATING_ENGINES
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


@on_each_machine
def process_limits_below_need(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    """Limits below what the processes open, start and lock; a container has limits of its own."""
    if setup.profile.container.engine not in ISOLATING_ENGINES:
        yield from _open_file_limit_findings(setup, each)
        yield from _task_limit_findings(setup, each)
        yield from _locked_memory_limit_findings(setup, each)


def _open_file_limit_findings(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    limit, workers = each.machine.max_open_files, setup.trainer_options.integer("data_workers")
    needed = _OPEN_FILES_PER_PROCESS + _OPEN_FILES_PER_WORKER * workers
    if limit is not None and limit < needed:
        message = f"a process may open {limit} files, and needs about {needed}{_worker_count_clause(workers)}"
        remedy = (
            "Run `ulimit -n 65536` in the shell that starts the training. Where that is refused, raise nofile in "
            "/etc/security/limits.conf, LimitNOFILE of a systemd unit, or --ulimit nofile=65536:65536 of a container."
        )
        yield warning("hardware.device", message, remedy)


def _task_limit_findings(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    free, workers = each.machine.free_tasks, setup.trainer_options.integer("data_workers")
    needed = each.process_count * (_TASKS_PER_PROCESS + workers) + each.machine.cpu_count
    if free is not None and free < needed:
        processes = quantity(each.process_count, "process", "processes") + _worker_count_clause(workers)
        message = (
            f"{grouped_digits(free)} more processes and threads may be started, and {processes} need about "
            f"{grouped_digits(needed)}"
        )
        remedy = (
            "Raise the limit: `ulimit -u 65536` (nproc in /etc/security/limits.conf), TasksMax of a systemd unit, or "
            "--pids-limit=-1 of a container."
        )
        yield warning("hardware.device", message, remedy)


def _worker_count_clause(workers: int) -> str:
    return f" with {quantity(workers, 'DataLoader worker')}" if workers else ""


def _locked_memory_limit_findings(setup: Setup, each: TrainingMachine) -> Iterator[Finding]:
    machine = each.machine
    uses_rdma = setup.communication_backend == "nccl" and setup.profile.nodes.machine_count > 1
    if not (uses_rdma and machine.rdma_devices) or is_disabled_in_nccl(setup.profile, "ib"):
        return
    if machine.max_locked_bytes is not None and machine.max_locked_bytes < _MIN_LOCKED_BYTES:
        device = names_text(machine.rdma_devices, _MAX_NAMED_DEVICES)
        message = (
            f"a process may lock {size_text(machine.max_locked_bytes)} of memory: too little for NCCL over {device}"
        )
        remedy = (
            "Set memlock to unlimited (/etc/security/limits.conf, or LimitMEMLOCK=infinity of sshd and systemd units), "
            "and log in again. communication.without=ib trains over TCP, slower."
        )
        yield warning("communication.backend", message, remedy)
