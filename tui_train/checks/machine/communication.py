"""Checks of how the processes communicate, and of variables without the effect they are set for."""

import time
from collections.abc import Iterator

from tui_train.checks.finding import Finding, error, note, warning
from tui_train.checks.machine.ineffective_variables import (
    REASON_OR_FINDER_BY_VARIABLE,
    VariableReaders,
    mentions_tensor_parallelism,
    why_ineffective,
)
from tui_train.profile import fields
from tui_train.profile.changes import Change, remove_variables_change
from tui_train.setup.machine import overridden_variables
from tui_train.setup.machine.communication import NCCL_WORKAROUNDS, why_gloo_trains_wrongly, why_workaround_ignored
from tui_train.setup.setup import Setup


def unsuitable_backend(setup: Setup) -> Iterator[Finding]:
    """A backend that the device does not have, or that is wrong for the sharding."""
    profile = setup.profile
    key = "communication.backend"
    auto = Change("communication auto", "NCCL on GPUs, Gloo on the CPU", ((key, "auto"),))
    chosen = profile.communication.backend
    if chosen == "nccl" and setup.device == "cpu" and setup.world_size > 1:
        message = "NCCL works on GPUs only, and this trains on the CPU"
        remedy = "Choose auto or gloo (communication.backend)."
        yield error(key, message, remedy, change=auto)
    if chosen != "gloo" or setup.device == "cpu" or setup.world_size < 2:
        return
    if why := why_gloo_refused(setup):
        yield error(key, why, "Choose auto or nccl (communication.backend).", change=auto)
    else:
        message = "Gloo is slow on GPUs: it copies every gradient through main memory, about 0.7 GB a second"
        if profile.trainer.strategy.startswith("zero"):
            message += "; DeepSpeed over Gloo was never tested on GPUs"
        remedy = "Choose auto, which is NCCL. Where NCCL fails, first switch off parts of it (communication.without)."
        yield warning(key, message, remedy, change=auto)


def why_gloo_refused(setup: Setup) -> str:
    """Return why Gloo cannot be chosen for GPUs, empty where it can."""
    sharded, torch = setup.profile.trainer.strategy == "fsdp2", setup.toolchain.torch if setup.toolchain else None
    return setup.trainer.why_gloo_unsupported or why_gloo_trains_wrongly(sharded=sharded, torch=torch)


def failed_communication_test(setup: Setup) -> Iterator[Finding]:
    """A test of this setup since the machine was booted in which the processes did not reach each other."""
    made = setup.facts.communication.get(setup.communication_test_key)
    if made is None or made.result.works:
        return
    change, at = made.proven_fix, time.strftime("%H:%M on %d %b", time.localtime(made.at))
    remedy = made.result.remedy or "Test again: tui-train doctor, or t on Backend."
    if made.works_at_times:
        remedy = "A second test worked: it fails now and then. Test again: tui-train doctor, or t on Backend."
    elif change:
        remedy = f"The test worked with {change.title}: {change.why}."
    message = f"in the test at {at} the processes did not reach each other: {made.result.cause}"
    yield warning("communication.backend", message, remedy, change=change)


def unknown_or_ignored_nccl_workarounds(setup: Setup) -> Iterator[Finding]:
    """Workarounds of NCCL that do not exist, or that the installed versions do not read."""
    key = "communication.without"
    for name in dict.fromkeys(setup.profile.communication.without):
        if name not in NCCL_WORKAROUNDS:
            message = f"NCCL has no option named {name}"
            yield error(key, message, fields.similar_word_remedy(name, tuple(NCCL_WORKAROUNDS)))
        elif setup.communication_backend == "nccl" and (
            why := why_workaround_ignored(NCCL_WORKAROUNDS[name], setup.toolchain)
        ):
            message = f"{NCCL_WORKAROUNDS[name].name} {why}: it is left out"
            remedy = "Take it off the list (communication.without)."
            yield note(key, message, remedy)


def missing_network_interface(setup: Setup) -> Iterator[Finding]:
    """A network interface that this machine does not have, whether the key names it or a variable does."""
    profile = setup.profile
    chosen, existing = profile.communication.interface, setup.facts.machine.interfaces
    # A job trains on nodes that may have others.
    if not existing or setup.is_slurm_job:
        return
    remedy = f"This machine has: {', '.join(existing)}."
    if chosen and chosen not in existing:
        message = f"this machine has no network interface {chosen}"
        yield error("communication.interface", message, remedy, machine=True)
    own = profile.trainer.environment
    for name in overridden_variables.NETWORK_INTERFACE_VARIABLES if setup.communication_backend else ():
        names, exact = overridden_variables.interfaces_and_is_exact(name, own.get(name, ""))
        exists = any(known == named or (not exact and known.startswith(named)) for named in names for known in existing)
        if names and not exists and not why_ineffective(name, _variable_readers(setup)):
            message = f"{name}={own[name]}: this machine has no such network interface"
            yield error(
                "trainer.environment",
                message,
                remedy,
                change=remove_variables_change(profile, (name,), "the interface is found without it"),
                machine=True,
            )


def variables_overriding_chosen_keys(setup: Setup) -> Iterator[Finding]:
    """Variables of the environment that say otherwise than a key that was chosen."""
    for each in overridden_variables.variables_overriding_keys(setup):
        yield error(
            "trainer.environment",
            f"{each.name}={each.value} in your environment overrides {each.key} ({each.value_of_key})",
            f"Remove it from trainer.environment, or leave {each.key} unset.",
            change=remove_variables_change(setup.profile, (each.name,), f"{each.key} is used"),
        )


def _variable_readers(setup: Setup) -> VariableReaders:
    tensor_parallel = setup.nemo_flavour is not None or mentions_tensor_parallelism(setup.profile.trainer.arguments)
    return VariableReaders(setup.toolchain, setup.launcher, setup.communication_backend, tensor_parallel)


def ineffective_variables(setup: Setup) -> Iterator[Finding]:
    """Variables, of the profile or inherited, that have no effect or a bad one here."""
    profile = setup.profile
    run = _variable_readers(setup)
    environment = profile.trainer.environment
    for name in environment:
        if why := why_ineffective(name, run):
            change = remove_variables_change(profile, (name,), why)
            message, remedy = f"{name}: {why}", "Remove it from trainer.environment."
            yield warning("trainer.environment", message, remedy, change=change)
    for variable in setup.facts.variables:
        if variable.problem:
            continue
        if (
            variable.name in REASON_OR_FINDER_BY_VARIABLE
            and variable.name not in environment
            and (why := why_ineffective(variable.name, run))
        ):
            message = f"{variable.name}, set in {variable.source}: {why}"
            yield note("trainer.environment", message, "Remove it there.")
        elif variable.source != "the environment" and setup.communication_backend == "nccl":
            message = f"{variable.source} sets {variable.name} for every training with NCCL on this machine"
            yield note("communication.backend", message, "Check there that this is intended.")
