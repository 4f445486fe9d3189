"""Reasons why a choice has no effect on the training, for screens and checks alike."""

from tui_train.base.text import visible
from tui_train.launchers import LAUNCHERS
from tui_train.profile.presets import (
    KEY_BY_PLACEHOLDER,
    MODEL_SIZE_PLACEHOLDERS,
    SCRIPT_LABEL,
    condition_holds,
    condition_placeholder,
)
from tui_train.profile.types import AUTO_PRESET, FinetuneMethod, FinetuneSettings, Profile, Tracking
from tui_train.setup.setup import Setup
from tui_train.trainers import hub_model_id, trainer_has_own_field, trainer_of, trainers_with_own_field
from tui_train.trainers.auto_preset import argument_file_given_alone
from tui_train.trainers.finetune import LABEL_BY_METHOD

_SEVERAL_MACHINES_KEYS = frozenset({"nodes.processes", "nodes.address", "nodes.port"})
_CONTAINER_KEYS = frozenset({"container.image", "container.mounts", "container.shared_memory"})
_ADAPTER_SETTINGS = frozenset({"rank", "alpha", "dropout", "targets"})
_METHODS_BY_SETTING: dict[str, tuple[FinetuneMethod, ...]] = {
    "packing": ("sft",),
    "answers_only": ("sft",),
    "beta": ("dpo", "kto", "grpo", "rloo"),
    "rewards": ("grpo", "rloo"),
    "generations": ("grpo", "rloo"),
    "completion_length": ("grpo", "rloo"),
    "completions": ("grpo", "rloo"),
}
# They become part of other values, or of the environment.
_ALWAYS_EFFECTIVE_KEYS = frozenset({"recipe.lr_base_batch"})


def why_no_effect(key: str, setup_or_profile: Setup | Profile) -> str:
    """Return why a value has no effect on the training, empty when it has; of a profile alone as far as is known."""
    setup = setup_or_profile if isinstance(setup_or_profile, Setup) else None
    profile = setup_or_profile.profile if isinstance(setup_or_profile, Setup) else setup_or_profile
    section = key.partition(".")[0]
    if section == "communication":
        return _why_backend_ignores(key, setup.communication_backend) if setup else ""
    if section == "tracking":
        return _why_tracking_not_passed(key, profile.tracking, setup)
    if section == "recipe":
        return _why_recipe_value_not_passed(key, setup) if setup and key not in _ALWAYS_EFFECTIVE_KEYS else ""
    return _why_other_choices_exclude(key, profile) or _why_trainer_ignores(key, profile, setup)


def _why_tracking_not_passed(key: str, tracking: Tracking, setup: Setup | None) -> str:
    """Return why the training cannot be passed its loggers."""
    name = key.partition(".")[2]
    for_all = {"trackers", "report_to", "log_with"}
    passing = {name, *for_all}
    if name == "project":
        if not (tracking.wandb or tracking.trackio):
            return "only for Weights & Biases and Trackio"
        # A variable tells W&B.
        passing = {"wandb", *for_all} if tracking.wandb else {"trackio_project"}
    if setup is None or passing & setup.ladder_context.accepted_placeholders:
        return ""
    if setup.nemo_flavour:
        return "NeMo has loggers of its own, which the recipe settings choose"
    return f"{setup.preset.name_in_sentence} has no argument for it"


def _why_other_choices_exclude(key: str, profile: Profile) -> str:
    """Return why a value has no effect with the machines, the container or the strategy that are chosen."""
    if key == "trainer.offload" and profile.trainer.strategy == "ddp":
        return "only a sharded model is offloaded, and ddp shards nothing"
    if key in _SEVERAL_MACHINES_KEYS and profile.nodes.machine_count == 1:
        return "only for several machines"
    if key in _CONTAINER_KEYS and profile.container.engine == "none":
        return "no container is chosen"
    if key == "trainer.revision" and not hub_model_id(profile):
        return "only a model of the Hub has revisions"
    if key == "trainer.python" and profile.container.engine != "none":
        return "the image has its own Python"
    return ""


def _launcher_reads_config(profile: Profile, setup: Setup | None) -> bool:
    """Return whether the launcher reads the user's accelerate config, as far as it is known which one starts."""
    name = setup.launcher if setup else profile.trainer.launcher
    return name != "auto" and LAUNCHERS[name].reads_config


def _why_trainer_ignores(key: str, profile: Profile, setup: Setup | None) -> str:
    """Return why what trains, or what starts it, does not take a value."""
    if key == "trainer.accelerate_config":
        return "" if _launcher_reads_config(profile, setup) else "only accelerate launch reads it"
    trainers, trainer = trainers_with_own_field(key), trainer_of(profile)
    if trainers and not trainer_has_own_field(profile, key):
        return f"only {trainers[0].label} takes it" if len(trainers) == 1 else f"{trainer.label} takes none"
    if key.startswith("finetune."):
        return _why_method_ignores(key.partition(".")[2], profile.finetune)
    if key == "nemo.peft" and profile.nemo.task != "finetune":
        return "only a finetune takes it"
    return _why_preset_ignores(key, setup) if setup else ""


def _why_method_ignores(name: str, finetune: FinetuneSettings) -> str:
    """Return why a setting of a fine-tuning has no effect with its method or tuning."""
    if name in _ADAPTER_SETTINGS and finetune.tuning == "full":
        return "all weights are trained, without an adapter"
    if name in _METHODS_BY_SETTING and finetune.method not in _METHODS_BY_SETTING[name]:
        *others, last = (LABEL_BY_METHOD[method] for method in _METHODS_BY_SETTING[name])
        return f"only for {', '.join(others)}{' and ' * bool(others)}{last}"
    return ""


def _why_preset_ignores(key: str, setup: Setup) -> str:
    preset = setup.preset
    if key == "trainer.script" and not preset.can_start_script:
        return f"{preset.name_in_sentence} starts a module of its own"
    # Model, data, config and output are called so by presets; a trainer has them only where it is passed them.
    placeholder = key.removeprefix("trainer.")
    if (
        KEY_BY_PLACEHOLDER.get(placeholder) != key
        or placeholder in setup.ladder_context.accepted_placeholders
        or (placeholder == "config" and preset.file)
    ):
        return ""
    return f"{preset.name_in_sentence} does not take it"


def _why_backend_ignores(key: str, backend: str) -> str:
    if not backend:
        return "not needed for one process"
    return f"these processes communicate over {backend}" if key == "communication.debug" and backend != "nccl" else ""


def file_replacing_script_options(setup: Setup) -> str:
    """Return the file, safe to show, from which the script reads all values, beside which it takes no options."""
    profile = setup.profile
    source = setup.facts.sources.get(profile.trainer.script)
    if source is None or profile.trainer.preset != AUTO_PRESET or setup.preset.label != SCRIPT_LABEL:
        return ""
    return visible(argument_file_given_alone(source, profile.trainer.arguments))


def _does_script_refuse_precision(precision: str | None, setup: Setup) -> bool:
    """Return whether none of the precisions that a script is passed, by its own choices, is this one."""
    preset = setup.preset
    whens = (*(argument.when for argument in preset.arguments), *(variable.when for variable in preset.variables))
    conditions = [when for when in whens if condition_placeholder(when) == "precision"]
    if preset.label != SCRIPT_LABEL or not precision or not conditions:
        return False
    return not any(condition_holds(each, {"precision": precision}) for each in conditions)


def _why_recipe_value_not_passed(key: str, setup: Setup) -> str:
    profile = setup.profile
    if key == "recipe.expandable_segments":
        return "" if setup.device == "cuda" else "only for GPUs"
    source_key = "recipe.learning_rate" if key == "recipe.lr_scaling" else key
    names = {name for name, field_key in KEY_BY_PLACEHOLDER.items() if field_key == source_key}
    if setup.ladder_context.loads_model and MODEL_SIZE_PLACEHOLDERS & names:
        return "the model folder decides"
    if not setup.ladder_context.accepted_placeholders.isdisjoint(names):
        refused = key == "recipe.precision" and _does_script_refuse_precision(profile.recipe.precision, setup)
        return f"the script does not take {profile.recipe.precision}" if refused else ""
    if setup.nemo_flavour and MODEL_SIZE_PLACEHOLDERS & names:
        return "follows from the type of the weights"
    return _not_taken_by_trainer_text(setup)


def _not_taken_by_trainer_text(setup: Setup) -> str:
    if not trainer_has_own_field(setup.profile, "trainer.preset"):
        return f"{trainer_of(setup.profile).label} does not take it"
    if file := file_replacing_script_options(setup):
        return f"the script reads its values from {file}"
    return "this preset does not pass it" if setup.preset.label != SCRIPT_LABEL else "the script does not take it"
