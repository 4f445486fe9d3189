"""Checks of how the model is sharded, and of several machines."""

from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.channel.ssh import is_host_name
from tui_train.checks.finding import Finding, error, warning
from tui_train.facts.types import Facts
from tui_train.launchers import LAUNCHERS, capable_launchers_text, launchers_supporting
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.setup.machine.strategies import why_strategy_unusable
from tui_train.setup.machine.toolchain import why_python_unusable
from tui_train.setup.recipe.placeholder_values import effective_accumulation
from tui_train.setup.setup import Setup

_USE_DDP_CHANGE = Change("sharding ddp", "each device holds all of the model", (("trainer.strategy", "ddp"),))
_FIRST_UNPRIVILEGED_PORT = 1024


def unusable_sharding_strategy(setup: Setup) -> Iterator[Finding]:
    """A strategy that the devices, the launcher or the trainer cannot follow."""
    profile = setup.profile
    trainer = profile.trainer
    key, strategy = "trainer.strategy", trainer.strategy
    if strategy == "ddp":
        if trainer.offload:
            no_offload = Change(
                "no offload",
                "trainer.offload has no effect: it needs sharding, and ddp does not shard",
                (("trainer.offload", False),),
            )
            message = "CPU offload moves shards, and ddp does not shard"
            remedy = "Choose trainer.strategy=fsdp2, or switch trainer.offload off."
            yield warning("trainer.offload", message, remedy, change=no_offload)
        return
    without_gpus = strategy.startswith("zero") and setup.device != "cuda"
    if not without_gpus and (setup.toolchain is None or why_python_unusable(profile, setup.toolchain)):
        return  # as the check of the Python says
    if strategy.startswith("zero") and effective_accumulation(setup.effective_profile, setup.model_copies) is None:
        message = "DeepSpeed must know the gradient accumulation, and that of the script is not known"
        remedy = "Set the micro batch and the global batch (recipe.micro_batch, recipe.global_batch)."
        yield error("recipe.global_batch", message, remedy)
    if reason := why_strategy_unusable(strategy, setup):
        yield _unusable_strategy_error(setup, reason)
    elif setup.world_size == 1 and not trainer.offload:
        message = f"{strategy} shards the model over processes, and there is only one"
        offload = Change(
            "offload to the host", "one GPU then holds less, but is much slower", (("trainer.offload", True),)
        )
        remedy = "Choose trainer.strategy=ddp, or more GPUs, or trainer.offload (to main memory)."
        yield error(key, message, remedy, change=offload)
    elif not setup.preset.strategies:
        message = f"{strategy} works only if {trainer.script} uses accelerate, which could not be seen in its source"
        remedy = "The script must call Accelerator.prepare, or use the Trainer of transformers or TRL."
        yield warning(key, message, remedy)


def _unusable_strategy_error(setup: Setup, reason: str) -> Finding:
    trainer, change = setup.profile.trainer, _USE_DDP_CHANGE
    launchers = launchers_supporting(trainer.strategy)
    if setup.device == "cuda" and trainer.launcher not in ("auto", *launchers):
        change = Change(
            f"use {launchers[0]}", f"it is what starts {trainer.strategy}", (("trainer.launcher", launchers[0]),)
        )
    elif setup.device == "cuda" and "fsdp2" in setup.preset.strategies:
        change = Change("strategy fsdp2", "the trainer can be sharded by it", (("trainer.strategy", "fsdp2"),))
    message = f"{trainer.strategy} cannot be used: {reason}"
    return error("trainer.strategy", message, f"{change.title.capitalize()}.", change=change)


def invalid_hosts_or_address(setup: Setup) -> Iterator[Finding]:
    """Several machines without an address and a port at which the others reach the first one."""
    profile, facts = setup.profile, setup.facts
    nodes = profile.nodes
    if nodes.hosts:
        yield from _host_errors(profile, facts)
    if nodes.machine_count == 1 or facts.scheduler:
        return
    if not nodes.address and not nodes.hosts:
        message = f"{nodes.machine_count} machines train together, and the address of the first one is missing"
        remedy = "Set nodes.address to its IP address, as the other machines see it."
        yield error("nodes.address", message, remedy)
    elif any(letter.isspace() or not letter.isprintable() for letter in nodes.address):
        message = f"{nodes.address!r} is not an address"
        yield error("nodes.address", message, "Set nodes.address to one IP address or host name.")
    elif nodes.address == "localhost":
        message = "nodes.address is this machine's name for itself (localhost): other machines would not find it"
        yield warning("nodes.address", message, "Set nodes.address to its IP address.")
    if nodes.port < _FIRST_UNPRIVILEGED_PORT:
        message = f"port {nodes.port} can only be opened by root"
        change = Change("port 29500", "PyTorch's own", (("nodes.port", 29500),))
        yield warning("nodes.port", message, "Choose a port from 1024 on (nodes.port).", change=change)


def invalid_uneven_processes(setup: Setup) -> Iterator[Finding]:
    """Processes of each machine that are not one number for each, or differ where nothing can start or train so."""
    profile = setup.profile
    nodes, launcher = profile.nodes, LAUNCHERS[setup.launcher]
    if not nodes.processes or nodes.machine_count == 1:
        return
    change: Change | None = Change("as many on each", "all machines like the first", (("nodes.processes", ()),))
    remedy = "Give one number of processes for each machine, in their order; or leave nodes.processes empty."
    if len(nodes.processes) != nodes.machine_count:
        message = f"nodes.processes has {quantity(len(nodes.processes), 'number')} for {nodes.machine_count} machines"
    elif nodes.processes[0] != setup.first_machine_process_count:
        first_count = quantity(
            setup.first_machine_process_count, *(("GPU",) if setup.device == "cuda" else ("process", "processes"))
        )
        message = f"nodes.processes says {nodes.processes[0]} for the first machine, which trains on {first_count}"
        remedy = "Make both the same: hardware.gpus, or the first number of nodes.processes."
        first = (setup.first_machine_process_count, *nodes.processes[1:])
        change = Change(
            f"{setup.first_machine_process_count} on the first", "what is chosen there", (("nodes.processes", first),)
        )
    elif not nodes.uneven_processes:
        return
    elif setup.facts.scheduler:
        message, remedy = "Slurm starts the same number of processes on each machine", "Leave nodes.processes empty."
    elif not setup.trainer.allows_uneven_processes:
        message = f"{setup.trainer.label} needs the same number of processes on each machine"
        remedy = "Leave nodes.processes empty, and choose as many GPUs as the smallest machine has (hardware.gpus)."
    elif not launcher.allows_uneven_processes:
        message = f"{launcher.label} starts the same number of processes on each machine"
        launchers = capable_launchers_text(lambda other: other.allows_uneven_processes)
        remedy = f"Choose {launchers} (trainer.launcher), which shards nothing, or the same number on each."
        if profile.trainer.strategy == "ddp":
            remedy = f"Choose {launchers} (trainer.launcher), or the same number on each."
            change = Change("launcher auto", f"takes {launchers}", (("trainer.launcher", "auto"),))
    else:
        return
    yield error("nodes.processes", message, remedy, change=change)


def _host_errors(profile: Profile, facts: Facts) -> Iterator[Finding]:
    """Yield what is wrong with the machines that one starts over ssh."""
    nodes = profile.nodes
    no_hosts = Change("no hosts", "each machine is then started by hand, or by Slurm", (("nodes.hosts", ()),))
    if facts.scheduler:
        message = "Slurm chooses the machines itself, so nodes.hosts cannot name them"
        yield error("nodes.hosts", message, "Leave nodes.hosts empty.", change=no_hosts)
    if len(nodes.hosts) == 1:
        message = f"{nodes.hosts[0]} is the only host in nodes.hosts, which is for several machines"
        remedy = "Name the machine that starts the run, then the others; or leave nodes.hosts empty."
        yield error("nodes.hosts", message, remedy, change=no_hosts)
    for host in dict.fromkeys(nodes.hosts):
        if not is_host_name(host):
            message = f"{host} is not a host name"
            remedy = "Name each host as for ssh: HOST or USER@HOST (nodes.hosts)."
            yield error("nodes.hosts", message, remedy)
        elif nodes.hosts.count(host) > 1:
            message, remedy = f"{host} is named twice", "Name each machine once (nodes.hosts)."
            yield error("nodes.hosts", message, remedy)
    if nodes.count not in {1, len(nodes.hosts)}:
        message = f"nodes.count is {nodes.count}, and {len(nodes.hosts)} hosts are named"
        change = Change("as many as hosts", "the number of machines follows from them", (("nodes.count", 1),))
        remedy = "Leave nodes.count unset: it follows from nodes.hosts."
        yield error("nodes.count", message, remedy, change=change)
