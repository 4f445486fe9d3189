"""CHECKS: what is wrong with a profile on this machine, and the Change that fixes it; pure functions.

They write names, paths and answers into their texts as these are: `find_problems` makes all texts safe to show.
"""

from collections.abc import Callable, Iterator
from functools import wraps

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.checks.finding import CheckFunction, Finding, error, severity_sort_key
from tui_train.checks.machine import (
    card_health,
    communication,
    conflicts,
    container,
    disk,
    hardware,
    host_memory,
    idle_cards,
    limits,
    misread_variables,
    numa,
    shared_memory,
)
from tui_train.checks.nemo import nemo, nemo_options
from tui_train.checks.other_machines import cluster, hosts, slurm
from tui_train.checks.recipe import (
    extreme_values,
    finetune,
    finetune_options,
    hub,
    images,
    kernels,
    recipe,
    rewards,
    unused_values,
)
from tui_train.checks.trainer import (
    accelerate,
    arguments,
    declared_arguments,
    paths,
    preset,
    script,
    script_python,
    sharding_and_hosts,
    tracking,
    training_python,
    variables,
)
from tui_train.facts.other_machines.host_commands import text_for_host
from tui_train.memory.data_defaults import make_setup
from tui_train.profile.changes import Change, apply_change
from tui_train.profile.fields import FieldValue, get_field, get_value, profile_with_value
from tui_train.profile.types import Profile
from tui_train.setup.recipe.effective_values import is_unset_by_user
from tui_train.setup.setup import Setup
from tui_train.trainers import trainer_has_own_field

__all__ = ["CHECKS", "Finding", "find_problems"]


def _checks_where(applies: Callable[[Setup], bool], *checks: CheckFunction) -> Iterator[CheckFunction]:
    """Yield checks that run only for setups of some kind."""

    def limit(check: CheckFunction) -> CheckFunction:
        @wraps(check)
        def check_if_applicable(setup: Setup) -> Iterator[Finding]:
            return check(setup) if applies(setup) else iter(())

        return check_if_applicable

    return map(limit, checks)


def _checks_for_trainers_with(key_or_section: str, *checks: CheckFunction) -> Iterator[CheckFunction]:
    """Yield checks that run only for trainers that take this key or section."""
    return _checks_where(lambda setup: trainer_has_own_field(setup.profile, key_or_section), *checks)


def _is_in_container(setup: Setup) -> bool:
    return setup.profile.container.engine != "none"


CHECKS: tuple[CheckFunction, ...] = (
    # Before what a Python lacks for it.
    *_checks_for_trainers_with("finetune", finetune.qlora_on_cpu),
    *_checks_for_trainers_with("nemo", nemo.settings_unsupported_by_nemo),
    training_python.unusable_training_python,
    *_checks_where(
        _is_in_container,
        container.unusable_engine,
        container.unusable_image,
        container.invalid_shared_memory_size,
        container.invalid_mounts,
        container.unmounted_hub_cache,
        container.unmounted_paths,
        container.unmounted_images,
    ),
    hardware.unsuitable_or_busy_gpus,
    idle_cards.all_cards_idle_while_cpu_trains,
    idle_cards.cards_idle_without_torch_code,
    idle_cards.cards_idle_under_single_process_launcher,
    conflicts.cards_used_by_other_run,
    conflicts.output_used_by_other_run,
    conflicts.script_output_used_by_other_run,
    conflicts.script_output_saved_by_earlier_run,
    conflicts.port_used_by_other_run,
    hardware.gpus_blocking_nccl,
    card_health.damaged_cards,
    card_health.slowed_cards,
    card_health.cards_with_missing_lanes,
    hardware.process_count_unfit_for_launcher_or_gpus,
    accelerate.unusable_accelerate_config,
    accelerate.unsupported_accelerate_config_keys,
    accelerate.dropped_accelerate_settings,
    accelerate.config_precision_unusable_on_cpu,
    accelerate.cpu_affinity_unread_from_config,
    accelerate.config_sharding_differing_from_profile,
    accelerate.config_devices_differing_from_plan,
    accelerate.config_precision_unread_by_auto_launcher,
    sharding_and_hosts.unusable_sharding_strategy,
    sharding_and_hosts.invalid_hosts_or_address,
    sharding_and_hosts.invalid_uneven_processes,
    hosts.host_differences,
    slurm.invalid_slurm_job,
    cluster.unavailable_partition,
    cluster.unknown_account,
    cluster.unknown_qos,
    cluster.unknown_reservation,
    cluster.time_limit_above_partition_limit,
    cluster.unavailable_nodes,
    unused_values.unused_values,
    recipe.indivisible_batch,
    recipe.fractional_warmup_or_epochs,
    recipe.unscalable_learning_rate,
    recipe.indivisible_hidden_size,
    recipe.pretraining_evaluations_without_data,
    hardware.unsupported_precision,
    paths.unusable_paths,
    paths.damaged_weights,
    hub.hub_id_instead_of_folder,
    hub.invalid_revision,
    hub.tokenizer_taken_from_main_revision,
    hub.non_causal_model,
    hub.model_download_requirements,
    communication.unsuitable_backend,
    communication.failed_communication_test,
    communication.unknown_or_ignored_nccl_workarounds,
    communication.missing_network_interface,
    shared_memory.unusable_shared_memory,
    shared_memory.too_small_shared_memory,
    numa.numa_nodes_breaking_nccl,
    numa.cards_far_from_cpus,
    limits.process_limits_below_need,
    variables.refused_environment_variables,
    communication.variables_overriding_chosen_keys,
    communication.ineffective_variables,
    misread_variables.misread_variables,
    misread_variables.overridden_visible_gpus,
    arguments.unknown_or_empty_placeholders,
    arguments.arguments_setting_recipe_values,
    arguments.batch_lowered_by_trainer,
    variables.secret_values_in_profile,
    variables.webhook_file_missing_on_other_machine,
    *_checks_for_trainers_with(
        "trainer.preset",
        preset.missing_preset_package,
        preset.unusable_trainer_config_file,
        preset.unknown_data_format,
        preset.user_preset_named_as_shipped_preset,
        preset.preset_arguments_refused_by_script,
    ),
    *_checks_for_trainers_with(
        "trainer.script",
        script.non_python_script,
        script_python.script_newer_than_python,
        script_python.missing_imports,
        script.script_without_train_switch,
        script.missing_input_paths,
        script.ranks_unset_by_launcher,
        script.several_processes_without_process_group,
        script.script_ignoring_checkpoint,
        script.unpassed_local_rank,
    ),
    *_checks_for_trainers_with("trainer.progress", script.invalid_progress_expression),
    *_checks_for_trainers_with(
        "trainer.script",
        declared_arguments.missing_subcommand,
        declared_arguments.missing_required_arguments,
        declared_arguments.undeclared_options,
        declared_arguments.undeclared_options_of_fire_script,
        declared_arguments.invalid_argument_values,
        extreme_values.learning_rate_far_above_scripts_default,
        declared_arguments.arguments_resembling_recipe_values,
    ),
    *_checks_for_trainers_with(
        "finetune",
        finetune.missing_model_or_data,
        rewards.missing_or_misnamed_rewards,
        rewards.generations_not_dividing_batch,
        finetune.unknown_lora_targets,
        finetune.invalid_data_weights,
        finetune.answers_only_for_unread_data,
        finetune.problems_of_read_data,
        images.images_that_cannot_be_trained_on,
        images.packed_images,
        images.vision_options_without_effect,
        rewards.rewards_failing_on_rows,
        finetune.chats_learned_whole,
    ),
    *_checks_for_trainers_with(
        "trainer.allow",
        extreme_values.excessive_sequence_length,
        extreme_values.extreme_learning_rate,
    ),
    *_checks_for_trainers_with(
        "finetune",
        finetune.lora_fallback_with_own_learning_rate,
        finetune.both_steps_and_epochs,
        finetune.too_small_micro_batch,
        kernels.samples_not_kept_apart,
        finetune.arguments_overriding_plan,
        finetune_options.unknown_trl_options,
        finetune_options.config_file_values_ignored_by_trl,
        finetune.evaluations_without_data_or_checkpoint,
    ),
    kernels.libraries_missing_for_choices,
    tracking.missing_tracker_packages,
    tracking.trackio_unknown_to_library,
    tracking.more_trackers_than_script_takes,
    tracking.missing_wandb_key,
    recipe.invalid_fallbacks,
    recipe.no_checkpoint_before_end,
    recipe.predicted_memory_shortage,
    host_memory.host_memory_shortage,
    disk.checkpoint_disk_shortage,
    disk.unusable_temporary_folder,
    *_checks_for_trainers_with(
        "nemo",
        nemo.missing_or_unusable_recipe,
        nemo.missing_or_mock_data,
        nemo.impossible_model_split,
        nemo.recipe_warmup_longer_than_training,
        nemo.unsuitable_tokenizer,
        nemo_options.lora_without_transformer_engine,
        nemo_options.unsuitable_weights,
        nemo_options.unused_validation_and_test_data,
        nemo_options.invalid_recipe_settings,
        nemo_options.automodel_instead_of_recipes,
        nemo_options.bridge_instead_of_recipes,
    ),
    hardware.logout_effects_on_training,
)


def find_problems(setup: Setup) -> tuple[Finding, ...]:
    """Return all findings: first the errors that forbid a plan, then those that forbid only a start here."""
    if problem := setup.preset_error:
        name = Profile().trainer.preset
        change = Change(f"preset {name}", "the chosen one cannot be used", (("trainer.preset", name),))
        key = "trainer.preset"
        return (_with_text_safe_to_show(error(key, problem.message, problem.remedy, change=change)),)
    findings = [
        _with_text_safe_to_show(_with_commands_for_host(_with_default_values_left_unset(finding, setup), setup))
        for run_check in CHECKS
        for finding in run_check(setup)
    ]
    return tuple(sorted(findings, key=severity_sort_key))


def _with_default_values_left_unset(finding: Finding, setup: Setup) -> Finding:
    """Return the finding with a change that unsets what holds by default, so that it follows what is chosen later.

    A change is left out where a value that it computes is outside its limits.
    """
    if finding.change is None:
        return finding
    try:
        changed = apply_change(finding.change, setup.profile)
    except BadInput:
        return msgspec.structs.replace(finding, change=None)
    edits = tuple(
        (key, None if _is_default_after_change(key, value, changed, setup) else value)
        for key, value in finding.change.edits
    )
    return msgspec.structs.replace(finding, change=msgspec.structs.replace(finding.change, edits=edits))


def _is_default_after_change(key: str, value: FieldValue, changed: Profile, setup: Setup) -> bool:
    """Return whether a value that a change set in the recipe is the default in force after that change."""
    section, _, name = key.partition(".")
    if section != "recipe" or value is None or not get_field(key).optional or get_value(setup.profile, key) is None:
        return False
    without = make_setup(profile_with_value(changed, key, None), setup.facts)
    value_after = None if without.preset_error else without.effective_values.get(name)
    return value_after is not None and value_after.value == value and is_unset_by_user(value_after)


def _with_commands_for_host(finding: Finding, setup: Setup) -> Finding:
    """Return the finding with a remedy that installs on the host where it trains what is missing there."""
    remedy, keys = (text_for_host(text, setup.facts.host) for text in (finding.remedy, finding.keys))
    return msgspec.structs.replace(finding, remedy=remedy, keys=keys)


def _with_text_safe_to_show(finding: Finding) -> Finding:
    """Return the finding with words that are safe to show, wherever they came from."""
    change = finding.change
    if change:
        change = Change(visible(change.title), visible(change.why), change.edits)
    words = {name: visible(getattr(finding, name)) for name in ("message", "remedy", "keys")}
    details = tuple(map(visible, finding.details))
    return msgspec.structs.replace(finding, change=change, details=details, **words)
