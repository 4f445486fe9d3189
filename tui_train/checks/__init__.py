"""CHECKS: what is wrong with a profile on this machine, and the Change that fixes it; pure functions."""

from collections.abc import Iterator

import msgspec

from tui_train.base.text import visible
from tui_train.checks.finding import Check, Finding, error
from tui_train.checks.machine import communication, conflicts, container, disk, hardware, idle
from tui_train.checks.nemo import nemo, nemo_options
from tui_train.checks.other_machines import cluster, hosts, slurm
from tui_train.checks.recipe import extreme_values, finetune, finetune_options, hub, recipe, unused
from tui_train.checks.trainer import accelerate, declared_arguments, launch, preset, script, tracking, trainer
from tui_train.memory.data_defaults import set_up
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.fields import Value, get_field, get_value, with_value
from tui_train.profile.types import Profile
from tui_train.setup.recipe.effective import is_default
from tui_train.setup.setup import Setup
from tui_train.trainers import takes_field

__all__ = ["CHECKS", "Finding", "find_problems"]


def _only_for(key: str, inner_check: Check) -> Check:
    """Return a check that runs only for trainers that take this key or section."""

    def guarded(setup: Setup) -> Iterator[Finding]:
        if takes_field(setup.profile, key):
            yield from inner_check(setup)

    return guarded


CHECKS: tuple[Check, ...] = (
    # Before what a Python lacks for it.
    _only_for("finetune", finetune.qlora_device),
    _only_for("nemo", nemo.unsupported_uses),
    trainer.training_python,
    container.engine,
    container.image,
    container.shared_memory,
    container.valid_mounts,
    container.hub_cache,
    container.arguments,
    hardware.devices,
    idle.all_cards,
    idle.some_cards,
    idle.all_but_one_card,
    conflicts.cards,
    conflicts.output,
    conflicts.port,
    hardware.unreadable_gpus,
    hardware.processes,
    accelerate.usable_config,
    accelerate.unsupported,
    accelerate.dropped_settings,
    accelerate.precision,
    accelerate.affinity,
    accelerate.sharding,
    accelerate.devices,
    accelerate.unread_precision,
    launch.sharding,
    launch.master_address,
    launch.uneven_processes,
    hosts.differences,
    slurm.valid_job,
    cluster.partition,
    cluster.account,
    cluster.time_limit,
    cluster.nodes,
    unused.unused_values,
    recipe.divisible_batch,
    recipe.whole_numbers,
    recipe.learning_rate_scaling,
    recipe.hidden_size,
    recipe.evaluations,
    hardware.precision,
    trainer.existing_paths,
    trainer.weights,
    hub.folders_only,
    hub.revision,
    hub.tokenizer,
    hub.architecture,
    hub.download,
    communication.backend,
    communication.disabled_features,
    communication.interface,
    trainer.environment_variables,
    communication.overridden_keys,
    communication.ineffective_variables,
    trainer.placeholders,
    trainer.options_set_twice,
    trainer.lowered_batch,
    trainer.secrets_by_value,
    trainer.webhook_elsewhere,
    _only_for("trainer.preset", preset.installed_module),
    _only_for("trainer.preset", preset.config_file),
    _only_for("trainer.preset", preset.data_file_format),
    _only_for("trainer.preset", preset.shadowed_preset),
    _only_for("trainer.preset", preset.accepted_arguments),
    _only_for("trainer.script", script.python_file),
    _only_for("trainer.script", script.launcher_ranks),
    _only_for("trainer.script", script.loads_checkpoint),
    _only_for("trainer.script", script.local_rank),
    _only_for("trainer.progress", script.progress_expression),
    _only_for("trainer.script", declared_arguments.command),
    _only_for("trainer.script", declared_arguments.required_arguments),
    _only_for("trainer.script", declared_arguments.unknown),
    _only_for("trainer.script", declared_arguments.valid_values),
    _only_for("trainer.script", declared_arguments.recipe_lookalikes),
    _only_for("finetune", finetune.model_and_data),
    _only_for("finetune", finetune.targets),
    _only_for("finetune", finetune.data_weights),
    _only_for("finetune", finetune.unread_answers),
    _only_for("finetune", finetune.data_problems),
    _only_for("finetune", finetune.whole_chats),
    _only_for("trainer.allow", extreme_values.sequence_length),
    _only_for("trainer.allow", extreme_values.learning_rate),
    _only_for("finetune", finetune.fallback_rate),
    _only_for("finetune", finetune.steps_or_epochs),
    _only_for("finetune", finetune.micro_batch),
    _only_for("finetune", finetune.undoing_arguments),
    _only_for("finetune", finetune_options.unknown_options),
    _only_for("finetune", finetune_options.ignored_values),
    _only_for("finetune", finetune.evaluations),
    tracking.packages,
    tracking.missing_key,
    recipe.fallbacks,
    recipe.checkpoints,
    recipe.memory,
    disk.checkpoint_space,
    _only_for("nemo", nemo.known_recipe),
    _only_for("nemo", nemo.data),
    _only_for("nemo", nemo.parallel_sizes),
    _only_for("nemo", nemo.warmup),
    _only_for("nemo", nemo.tokenizer),
    _only_for("nemo", nemo_options.lora),
    _only_for("nemo", nemo_options.weights),
    _only_for("nemo", nemo_options.validation_and_test),
    _only_for("nemo", nemo_options.user_settings),
    _only_for("nemo", nemo.replaces_recipes),
    _only_for("nemo", nemo_options.replaces_nemo),
    hardware.logout,
    unused.old_schema,
)


def find_problems(setup: Setup) -> tuple[Finding, ...]:
    """Return all findings: first the errors that forbid a plan, then those that forbid only a start here."""
    if problem := setup.recipe_problem:
        name = Profile().trainer.preset
        change = Change(f"preset {name}", "the chosen one cannot be used", (("trainer.preset", name),))
        key = "trainer.preset"
        return (_with_visible_text(error(key, problem.message, problem.remedy, change=change)),)
    findings = [
        _with_visible_text(_with_defaults_unset(finding, setup)) for run_check in CHECKS for finding in run_check(setup)
    ]
    return tuple(sorted(findings, key=_rank))


def _rank(finding: Finding) -> tuple[bool, int]:
    """Return how far to the end a finding stands: the worst are first."""
    return not finding.forbids_plan, ("error", "warning", "note").index(finding.level)


def _with_defaults_unset(finding: Finding, setup: Setup) -> Finding:
    """Return the finding with a change that unsets what holds by default, so that it follows what is chosen later."""
    change = finding.change
    if change is None:
        return finding
    edits = tuple(
        (key, None if _is_default_afterwards(key, value, change, setup) else value) for key, value in change.edits
    )
    return msgspec.structs.replace(finding, change=msgspec.structs.replace(change, edits=edits))


def _is_default_afterwards(key: str, value: Value, change: Change, setup: Setup) -> bool:
    """Return whether a value that a change would set in the recipe is the default in force after that change."""
    section, _, name = key.partition(".")
    if section != "recipe" or value is None or not get_field(key).optional or get_value(setup.profile, key) is None:
        return False
    changed = set_up(with_value(apply_change(change, setup.profile), key, None), setup.facts)
    value_after = None if changed.recipe_problem else changed.values.get(name)
    return value_after is not None and value_after.value == value and is_default(value_after)


def _with_visible_text(finding: Finding) -> Finding:
    """Return the finding with words that are safe to show, wherever they came from."""
    change = finding.change
    if change:
        change = Change(visible(change.title), visible(change.why), change.edits)
    words = {name: visible(getattr(finding, name)) for name in ("message", "remedy", "keys")}
    return msgspec.structs.replace(finding, change=change, **words)
