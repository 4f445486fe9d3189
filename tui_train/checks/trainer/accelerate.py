"""Checks of the user's accelerate config: what of it cannot be kept, and where it would be left unread."""

from collections.abc import Iterator, Mapping
from typing import Any

from tui_train.base.text import display_path, quantity
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.facts.gpus.verdicts import find_gpus_by_identifier
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.profile.changes import Change
from tui_train.profile.types import Strategy
from tui_train.setup.recipe import launcher_config
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field

_STRATEGY_WITHOUT_SHARDING: Strategy = "ddp"
_AFFINITY_VARIABLE = "ACCELERATE_CPU_AFFINITY"


def unusable_accelerate_config(setup: Setup) -> Iterator[Finding]:
    """A config that accelerate itself could not use."""
    profile = setup.profile
    document = launcher_config.launcher_config_document(profile, setup.facts)
    if document is None or not LAUNCHERS[setup.launcher].reads_config:
        return
    named = bool(profile.trainer.accelerate_config)
    why = (
        f"cannot be used: {document.problem}"
        if document.problem
        else accelerate_config.why_config_unusable(document.values)
    )
    if why:
        yield (error if named else warning)(
            "trainer.accelerate_config",
            f"your accelerate config {_displayed_config_path(setup)} {why}"
            + ("" if named else ": no value of it is used"),
            "Write the file again with `accelerate config`, or name another one (trainer.accelerate_config).",
        )


def _displayed_config_path(setup: Setup) -> str:
    return display_path(launcher_config.launcher_config_path(setup.profile, setup.facts))


def unsupported_accelerate_config_keys(setup: Setup) -> Iterator[Finding]:
    """Keys of the config that would change the training, and that the plan cannot follow."""
    for key in accelerate_config.unsupported_keys(setup.launcher_config):
        yield error(
            "trainer.accelerate_config",
            f"{key} in {_displayed_config_path(setup)} is not supported",
            "Remove that line, or name a file without it (trainer.accelerate_config).",
        )


def dropped_accelerate_settings(setup: Setup) -> Iterator[Finding]:
    """Entries of the config that are not used; the rest of it is."""
    strategy = setup.profile.trainer.strategy
    for entry, why in accelerate_config.reason_by_dropped_setting(setup.launcher_config, strategy).items():
        yield warning(
            "trainer.accelerate_config",
            f"{entry} in your accelerate config {_displayed_config_path(setup)} {why}: it is not used",
            "Remove that line, or name a file without it (trainer.accelerate_config). The rest of the file is used.",
        )


def config_precision_unusable_on_cpu(setup: Setup) -> Iterator[Finding]:
    """A precision of a config for GPUs that a plan on the CPU cannot have."""
    profile = setup.profile
    document, config = launcher_config.launcher_config_document(profile, setup.facts), setup.launcher_config
    if document is None or not config or setup.effective_values["precision"].value not in {None, "fp32"}:
        return
    value = launcher_config.recipe_values_of_config(profile, setup.preset, document.values).get("precision")
    if value and not accelerate_config.read_precision(config) and not profile.recipe.precision:
        named = value.other_form_text or value.value
        message = (
            f"your accelerate config sets {named} for GPUs, and this plan trains on the CPU: the config's value "
            "is not used"
        )
        yield note("recipe.precision", message, "Set recipe.precision to choose a precision here.")


def cpu_affinity_unread_from_config(setup: Setup) -> Iterator[Finding]:
    """CPU affinity, which `accelerate launch` reads from its options and the environment only."""
    wanted = accelerate_config.asks_to_bind_cpus(setup.launcher_config)
    environment = setup.profile.trainer.environment
    if not wanted or setup.device != "cuda" or _AFFINITY_VARIABLE in environment:
        return
    edits = (("trainer.environment", {**environment, _AFFINITY_VARIABLE: "1"}),)
    yield note(
        "trainer.environment",
        f"enable_cpu_affinity in {_displayed_config_path(setup)} has no effect: "
        "`accelerate launch` does not read it from a file",
        f"Set {_AFFINITY_VARIABLE}=1 in trainer.environment instead. It needs the package nvidia-ml-py.",
        Change("CPU affinity", "as in your accelerate config", edits),
    )


def config_sharding_differing_from_profile(setup: Setup) -> Iterator[Finding]:
    """A config that shards the model, or keeps its shards in host memory, where the profile does not."""
    config, trainer = setup.launcher_config, setup.profile.trainer
    wanted = accelerate_config.read_strategy(config)
    if wanted == _STRATEGY_WITHOUT_SHARDING or setup.device != "cuda":
        return
    if trainer.strategy == _STRATEGY_WITHOUT_SHARDING:
        edits: tuple[tuple[str, Any], ...] = (("trainer.strategy", wanted),)
        if accelerate_config.offloads_shards(config):
            edits = (*edits, ("trainer.offload", True))
        library = "FSDP" if wanted == "fsdp2" else "DeepSpeed"
        message = f"your accelerate config shards the model ({library}), and this plan keeps all of it on each GPU"
        change = Change(f"sharding {wanted}", "as in your accelerate config", edits)
        yield warning("trainer.strategy", message, f"Set trainer.strategy={wanted}.", change)
    elif trainer.strategy == wanted and accelerate_config.offloads_shards(config) and not trainer.offload:
        message = "your accelerate config offloads shards to host memory, and this plan does not"
        change = Change("CPU offload", "as in your accelerate config", (("trainer.offload", True),))
        yield warning("trainer.offload", message, "Set trainer.offload=yes.", change)


def config_devices_differing_from_plan(setup: Setup) -> Iterator[Finding]:
    """A config that names another device, other GPUs, processes or machines than the plan, where none were chosen."""
    profile = setup.profile
    config, hardware = setup.launcher_config, profile.hardware
    if not config or hardware.gpus or hardware.processes or profile.nodes.machine_count > 1 or setup.is_slurm_job:
        return
    machines = accelerate_config.parse_positive_integer(config.get("num_machines")) or 1
    if machines > 1:
        yield _machine_count_finding(config, machines)
    elif hardware.device == "auto" and accelerate_config.is_config_for_cpu(config) and setup.device == "cuda":
        change = Change("train on the CPU", "as in your accelerate config", (("hardware.device", "cpu"),))
        message = "your accelerate config trains on the CPU, and this plan on GPUs"
        yield note("hardware.device", message, "Set hardware.device=cpu to train there.", change)
    elif setup.device == "cuda":
        yield from _gpu_or_process_count_findings(config, setup)
    elif accelerate_config.is_config_for_cpu(config):
        yield from _process_count_findings(config, setup)


def _machine_count_finding(config: Mapping[str, Any], machine_count: int) -> Finding:
    edits: list[tuple[str, Any]] = [("nodes.count", machine_count)]
    address = config.get("main_process_ip")
    port = accelerate_config.parse_positive_integer(config.get("main_process_port"))
    edits += [("nodes.address", address)] if isinstance(address, str) else []
    edits += [("nodes.port", port)] if port else []
    change = Change(f"{machine_count} machines", "as in your accelerate config", tuple(edits))
    message = f"your accelerate config trains on {machine_count} machines, and this plan on one"
    return warning("nodes.count", message, f"Set nodes.count={machine_count} and nodes.address.", change)


def _gpu_or_process_count_findings(config: Mapping[str, Any], setup: Setup) -> Iterator[Finding]:
    ids, cards = accelerate_config.read_gpu_ids(config), setup.facts.machine.gpus
    named = {
        find_gpus_by_identifier(cards, name)[0].uuid for name in ids if len(find_gpus_by_identifier(cards, name)) == 1
    }
    chosen = {gpu.uuid for gpu in setup.gpus}
    if ids and named != chosen:
        change = Change(f"GPU {', '.join(ids)}", "as in your accelerate config", (("hardware.gpus", ids),))
        message = f"your accelerate config names GPU {', '.join(ids)}, and this plan trains on others"
        remedy = f"Set hardware.gpus={','.join(ids)} to train on those."
        yield note("hardware.gpus", message, remedy, change if len(named) == len(ids) else None)
    elif not ids:
        yield from _process_count_findings(config, setup)


def _process_count_findings(config: Mapping[str, Any], setup: Setup) -> Iterator[Finding]:
    wanted = accelerate_config.parse_positive_integer(config.get("num_processes"))
    if wanted is None or wanted == setup.world_size:
        return
    processes = quantity(wanted, "process", "processes")
    message = f"your accelerate config starts {processes}, and this plan {setup.world_size}"
    on_cpu = setup.device == "cpu"
    change = Change(processes, "as in your accelerate config", (("hardware.processes", wanted),))
    remedy = (
        f"Set hardware.processes={wanted}." if on_cpu else "Choose as many GPUs (hardware.gpus): each gets one process."
    )
    yield note("hardware.processes", message, remedy, change if on_cpu else None)


def config_precision_unread_by_auto_launcher(setup: Setup) -> Iterator[Finding]:
    """A mixed precision that `accelerate launch` would set, and the automatic launcher does not."""
    profile, facts = setup.profile, setup.facts
    document, trainer = launcher_config.launcher_config_document(profile, facts), profile.trainer
    script = facts.sources.get(trainer.script)
    if (
        document is None
        or document.problem
        or trainer.launcher != "auto"
        or not trainer_has_own_field(profile, "trainer.script")
        or LAUNCHERS[setup.launcher].reads_config
        or not (script and script.creates_accelerator)
        or accelerate_config.why_config_unusable(document.values)
    ):
        return
    config = launcher_config.launcher_config_for_device(document.values, setup.device)
    values = launcher_config.recipe_values_of_config(profile, setup.preset, config)
    value = values.get("precision")
    if value is None or value.value in {"fp32", setup.effective_profile.recipe.precision} or profile.recipe.precision:
        return
    launcher = next(name for name, other in LAUNCHERS.items() if other.reads_config)
    yield warning(
        "trainer.launcher",
        f"your accelerate config sets {value.other_form_text or value.value}, which only `accelerate launch` reads",
        f"Set trainer.launcher={launcher} to train with this value, or set recipe.precision.",
        Change(f"launcher {launcher}", "reads your accelerate config", (("trainer.launcher", launcher),)),
    )
