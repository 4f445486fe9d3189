"""The user's own config of the launcher: where it is, and the values of the recipe that it sets."""

from collections.abc import Mapping
from typing import Any

from tui_train.facts.types import Facts, YamlDocument
from tui_train.launchers import LAUNCHERS, accelerate_config
from tui_train.profile.presets import Preset
from tui_train.profile.types import LauncherName, Profile, Strategy
from tui_train.setup.recipe.effective_values import EffectiveValue
from tui_train.trainers import trainer_of

CONFIG_SOURCE_TEXT = "from your accelerate config"
_FULL_PRECISION = "fp32"


def launcher_config_path(profile: Profile, facts: Facts) -> str:
    """Return the path of the config that counts, empty where there is none."""
    return profile.trainer.accelerate_config or facts.accelerate_config


def launcher_config_document(profile: Profile, facts: Facts) -> YamlDocument | None:
    """Return its content, None where there is none."""
    path = launcher_config_path(profile, facts)
    return facts.documents.get(path) if path else None


def usable_launcher_config(profile: Profile, facts: Facts, launcher: LauncherName, device: str) -> Mapping[str, Any]:
    """Return what a plan on this device uses of it, empty where this launcher reads none, or it cannot be used."""
    document = launcher_config_document(profile, facts)
    if not LAUNCHERS[launcher].reads_config or document is None or document.problem:
        return {}
    return (
        {}
        if accelerate_config.why_config_unusable(document.values)
        else launcher_config_for_device(document.values, device)
    )


def launcher_config_for_device(config: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """Return what of a config holds on a device."""
    return config if device == "cuda" else accelerate_config.config_without_gpu_only_precision(config)


def launcher_config_in_plan(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config in a run's plan as data, with which its first attempt was started; empty for none."""
    launcher, configs = plan.get("launcher"), plan.get("configs")
    reads = any(name == launcher and known.reads_config for name, known in LAUNCHERS.items())
    if not reads or not isinstance(configs, list):
        return {}
    values = configs[0].get("values") if configs and isinstance(configs[0], dict) else None
    return values if isinstance(values, dict) and not accelerate_config.why_config_unusable(values) else {}


def recipe_values_of_config(profile: Profile, preset: Preset, config: Mapping[str, Any]) -> dict[str, EffectiveValue]:
    """Return the values of the recipe that it sets, by name, where the trainer leaves them to it."""
    if not config:
        return {}
    values: dict[str, EffectiveValue] = {}
    if (named := accelerate_config.read_precision(config)) and _leaves_precision_to_launcher(profile, preset):
        values["precision"] = (
            EffectiveValue(None, CONFIG_SOURCE_TEXT, named)
            if named == "fp8"
            else EffectiveValue(named, CONFIG_SOURCE_TEXT)
        )
    return values | _recipe_values_in_sharding_config(profile.trainer.strategy, config)


def _recipe_values_in_sharding_config(strategy: Strategy, config: Mapping[str, Any]) -> dict[str, EffectiveValue]:
    if strategy == "fsdp2" and accelerate_config.checkpoints_activations(config):
        return {"activation_checkpointing": EffectiveValue(value=True, source=CONFIG_SOURCE_TEXT)}
    steps = accelerate_config.deepspeed_accumulation(config) if strategy.startswith("zero") else None
    return {"accumulation": EffectiveValue(steps, CONFIG_SOURCE_TEXT)} if steps else {}


def _leaves_precision_to_launcher(profile: Profile, preset: Preset) -> bool:
    """Return whether the launcher's precision holds: a library with one of its own, or none known, overrides it."""
    if trainer_of(profile).takes_every_recipe_value:
        return True
    passes = any("precision" in argument.when for argument in preset.arguments)
    passes |= any("precision" in value.when for value in (preset.file.values if preset.file else ()))
    return not passes or preset.defaults.get("precision") == _FULL_PRECISION
