"""The Changes of a profile that fix a failure, by the name that a signature gives."""

import re
from collections.abc import Callable

from tui_train.base.errors import BadInput
from tui_train.checks import find_problems
from tui_train.checks.trainer.module_packages import add_to_pythonpath_change, project_folder_of_module
from tui_train.checks.trainer.script import USE_TORCHRUN_CHANGE, one_process_change
from tui_train.diagnose import refused_arguments
from tui_train.diagnose.broken_loss import stabilizing_change
from tui_train.diagnose.types import Evidence
from tui_train.facts.types import Facts
from tui_train.memory.data_defaults import make_setup
from tui_train.memory.ladder.rungs import get_rung, rung_helps_phase, why_rung_unusable
from tui_train.profile.batch import nearest_global_batches
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.types import Profile
from tui_train.runner.logs.memory_patterns import FALLBACK_PHASES
from tui_train.setup.blocked_fallbacks import LadderContext
from tui_train.setup.machine.communication import disable_in_nccl_change
from tui_train.trainers import trainer_has_own_field

_PORT_STEP_AT_MAXIMUM = 1000
_MISSING_MODULE_PATTERN = re.compile(r"No module named '(\w+)")
# Rungs of the ladder that keep the training the same, the most helpful first.
_MEMORY_SAVING_RUNGS = ("eval_batch", "micro_batch", "activation_checkpointing", "expandable_segments")

# What to do where it is known in which phase the GPU's memory ran out; elsewhere the failure's own remedy holds.
OOM_REMEDY_BY_PHASE = {
    "step": "It ran out in the optimizer step, where a smaller batch does not help: a fused optimizer, sharing the "
    "model out (fsdp2), offload, or an 8-bit optimizer do.",
    "load": "It ran out while the model was loaded: shard it (fsdp2), offload it, or load it in 4 bits.",
    "eval": "It ran out in the evaluation: evaluate less at a time (recipe.eval_batch); the training stays as it is.",
}


def make_named_change(
    change_name: str,
    evidence: Evidence,
    profile: Profile,
    facts: Facts | None = None,
    chosen_profile: Profile | None = None,
) -> Change | None:
    """Return the Change of that name for a profile, None where it has nothing to change or would add an error.

    `chosen_profile` is the profile without the defaults in force, which a Change to another preset does not pass on.
    """
    make_change = _CHANGE_MAKER_BY_NAME.get(change_name)
    change = make_change(profile, evidence) if make_change else None
    if change is None:
        return None
    try:
        changed = apply_change(change, profile)
    except BadInput:
        return None
    if changed == profile:
        return None
    chosen_profile = chosen_profile or profile
    if facts and _error_messages_of_checks(apply_change(change, chosen_profile), facts) - _error_messages_of_checks(
        chosen_profile, facts
    ):
        return None
    return change


def _error_messages_of_checks(profile: Profile, facts: Facts) -> set[str]:
    return {finding.message for finding in find_problems(make_setup(profile, facts)) if finding.level == "error"}


def _use_first_memory_saving_rung(profile: Profile, evidence: Evidence) -> Change | None:
    context = LadderContext(
        world_size=evidence.world_size,
        on_cuda=evidence.on_gpus,
        accepted_placeholders=evidence.accepted_recipe_names,
        loads_model=bool(profile.trainer.model),
        eval_batch=evidence.eval_batch,
    )
    phase = evidence.phase if evidence.phase in FALLBACK_PHASES else "loss"
    useful = (
        name
        for name in _MEMORY_SAVING_RUNGS
        if rung_helps_phase(name, phase, profile, context) and not why_rung_unusable(name, context)
    )
    return next(filter(None, (get_rung(name).next_change(profile, context) for name in useful)), None)


def _change_maker_for_nccl_workaround(workaround: str) -> Callable[[Profile, Evidence], Change]:
    return lambda profile, _evidence: disable_in_nccl_change(profile, workaround)


def _use_host_shared_memory(profile: Profile, _evidence: Evidence) -> Change | None:
    if profile.container.engine == "none":
        return None
    edits = (("container.shared_memory", "host"),)
    return Change("the machine's shared memory", "instead of the container's own", edits)


def _use_another_port(profile: Profile, _evidence: Evidence) -> Change | None:
    # One machine chooses a free port by itself.
    if profile.nodes.machine_count < 2:
        return None
    port = profile.nodes.port + 1 if profile.nodes.port < 65535 else profile.nodes.port - _PORT_STEP_AT_MAXIMUM
    return Change(f"port {port}", f"{profile.nodes.port} is taken", (("nodes.port", port),))


def _use_any_interface(_profile: Profile, _evidence: Evidence) -> Change:
    return Change("any network interface", "NCCL and Gloo choose one themselves", (("communication.interface", ""),))


def _use_fp16_or_fp32(profile: Profile, evidence: Evidence) -> Change | None:
    if "precision" not in evidence.accepted_recipe_names:
        return None
    other = "fp16" if profile.recipe.precision == "bf16" and profile.hardware.device != "cpu" else "fp32"
    return Change(f"precision {other}", "the other is not available on this device", (("recipe.precision", other),))


def _use_bf16_for_fp16(profile: Profile, evidence: Evidence) -> Change | None:
    if "precision" not in evidence.accepted_recipe_names or profile.recipe.precision != "fp16":
        return None
    return Change("precision bf16", "its gradients need no scaling", (("recipe.precision", "bf16"),))


def _use_nearest_global_batch(profile: Profile, evidence: Evidence) -> Change | None:
    micro, global_batch = profile.recipe.micro_batch, profile.recipe.global_batch
    if micro is None or global_batch is None:
        return None
    values = nearest_global_batches(global_batch, micro, evidence.world_size)
    best = min(values, key=lambda value: abs(value - global_batch), default=None)
    return (
        None
        if best is None
        else Change(f"global batch {best}", "the nearest that divides", (("recipe.global_batch", best),))
    )


def _set_wandb_offline(profile: Profile, _evidence: Evidence) -> Change:
    variables = {**profile.trainer.environment, "WANDB_MODE": "offline"}
    return Change("wandb offline", "needs no key; upload later with wandb sync", (("trainer.environment", variables),))


def _turn_off_fused_cross_entropy(profile: Profile, evidence: Evidence) -> Change | None:
    if not profile.recipe.fused_cross_entropy or "fused_cross_entropy" not in evidence.accepted_recipe_names:
        return None
    why = "torch's own kernels need no compiler; they use more memory"
    return Change("no fused cross entropy", why, (("recipe.fused_cross_entropy", False),))


def _turn_off_activation_checkpointing(profile: Profile, evidence: Evidence) -> Change | None:
    if not profile.recipe.activation_checkpointing or "activation_checkpointing" not in evidence.accepted_recipe_names:
        return None
    why = "it cuts off the gradients of a frozen model's adapter; without it activations need more memory"
    return Change("no activation checkpointing", why, (("recipe.activation_checkpointing", False),))


def _replace_zero_by_fsdp2(profile: Profile, _evidence: Evidence) -> Change | None:
    if profile.trainer.strategy not in {"zero1", "zero2", "zero3"}:
        return None
    return Change("FSDP2 instead of ZeRO", "FSDP compiles nothing", (("trainer.strategy", "fsdp2"),))


def _target_all_linear_layers(profile: Profile, _evidence: Evidence) -> Change | None:
    if not trainer_has_own_field(profile, "finetune") or not profile.finetune.targets:
        return None
    return Change("all linear layers", "every model has them, by whatever name", (("finetune.targets", ()),))


def _replace_qlora_by_lora(profile: Profile, _evidence: Evidence) -> Change | None:
    if not trainer_has_own_field(profile, "finetune") or profile.finetune.tuning != "qlora":
        return None
    why = "the weights then have the adapter's dtype; they need about four times the memory"
    return Change("LoRA instead of QLoRA", why, (("finetune.tuning", "lora"),))


def _learn_whole_conversations(profile: Profile, _evidence: Evidence) -> Change | None:
    if not trainer_has_own_field(profile, "finetune") or not profile.finetune.answers_only:
        return None
    return Change("learn from whole conversations", "needs no marks", (("finetune.answers_only", False),))


def _put_project_on_pythonpath(profile: Profile, evidence: Evidence) -> Change | None:
    missing = (match[1] for line in reversed(evidence.lines) if (match := _MISSING_MODULE_PATTERN.search(line.text)))
    name = next(missing, "")
    return add_to_pythonpath_change(profile, name, project_folder_of_module(name, evidence.script_source))


def _use_torchrun(profile: Profile, _evidence: Evidence) -> Change | None:
    return USE_TORCHRUN_CHANGE if trainer_has_own_field(profile, "trainer.script") else None


def _use_one_process(profile: Profile, evidence: Evidence) -> Change | None:
    if not trainer_has_own_field(profile, "trainer.script") or profile.nodes.machine_count > 1:
        return None
    return one_process_change(evidence.gpus, "the script trains by itself") if evidence.world_size > 1 else None


_CHANGE_MAKER_BY_NAME: dict[str, Callable[[Profile, Evidence], Change | None]] = {
    "less_memory": _use_first_memory_saving_rung,
    "no_p2p": _change_maker_for_nccl_workaround("p2p"),
    "no_cumem_host": _change_maker_for_nccl_workaround("cumem_host"),
    "host_shared_memory": _use_host_shared_memory,
    "another_port": _use_another_port,
    "no_interface": _use_any_interface,
    "precision": _use_fp16_or_fp32,
    "bf16": _use_bf16_for_fp16,
    "global_batch": _use_nearest_global_batch,
    "steadier": stabilizing_change,
    "wandb_offline": _set_wandb_offline,
    "no_fused_kernels": _turn_off_fused_cross_entropy,
    "no_activation_checkpointing": _turn_off_activation_checkpointing,
    "no_deepspeed": _replace_zero_by_fsdp2,
    "all_linear_layers": _target_all_linear_layers,
    "no_quantization": _replace_qlora_by_lora,
    "torchrun": _use_torchrun,
    "one_process": _use_one_process,
    "python_path": _put_project_on_pythonpath,
    "whole_conversations": _learn_whole_conversations,
    "leave_out": refused_arguments.refused_arguments_change,
}
