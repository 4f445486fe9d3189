"""The value of each setting that a run trains with: the chosen one, else what its plan resolved."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import YamlDocument
from tui_train.profile import fields
from tui_train.profile.secret_values import displayed_value
from tui_train.profile.types import Profile
from tui_train.setup.recipe import launcher_config
from tui_train.setup.recipe.effective_values import effective_values, with_effective_values
from tui_train.trainers import field_with_trainer_texts, trainer_has_own_field, trainer_of
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT
from tui_train.views import choices

_DEFAULT_MARK = " (default)"
_NOT_USED_TEXT = "not used"
# What plan.json calls the values of some settings.
_PLAN_KEY_BY_SETTING = {
    "recipe.micro_batch": "micro_batch",
    "recipe.global_batch": "global_batch",
    "recipe.learning_rate": "learning_rate",
    "recipe.steps": "steps",
    "hardware.device": "device",
    "hardware.gpus": "gpu_names",
    "trainer.launcher": "launcher",
    "trainer.python": "python",
    "communication.backend": "backend",
}


class EffectiveSetting(Struct, frozen=True):
    """A setting in effect: its value in words that are safe to show, and whether nobody chose it."""

    value: str
    is_default: bool = False

    @property
    def text(self) -> str:
        """The value, marked where it is a default."""
        return (
            f"{self.value}{_DEFAULT_MARK}"
            if self.is_default and self.value != SCRIPT_OWN_VALUE_SOURCE_TEXT
            else self.value
        )


def effective_settings(
    profile: Profile, plan: Mapping[str, Any], document: YamlDocument | None = None
) -> dict[str, EffectiveSetting]:
    """Return the settings in effect by their keys; `plan` is a run's plan as data, empty where there is none.

    `document` is the trainer's own configuration file, as far as it was read.
    """
    effective, chosen = _effective_profile(profile, plan, document), {*fields.chosen_keys(profile)}
    return {key: _effective_setting(key, profile, effective, plan, chosen=key in chosen) for key in fields.FIELDS}


def searchable_settings_text(profile: Profile | None, plan: Mapping[str, Any]) -> str:
    """Return the settings that were chosen, and those that a plan resolved, each as `key=value` in a line."""
    planned = {key: text for key in _PLAN_KEY_BY_SETTING if (text := _planned_value(key, plan))}
    chosen = {key: _shown_profile_value(key, profile) for key in fields.chosen_keys(profile)} if profile else {}
    return "\n".join(f"{key}={value}" for key, value in {**planned, **chosen}.items())


def shortened_setting_text(text: str, max_width: int) -> str:
    """Return words that fit: without the mark of a default, then their beginning, of a path its end."""
    shorter = text if len(text) <= max_width else text.removesuffix(_DEFAULT_MARK)
    if len(shorter) <= max_width:
        return shorter
    return f"…{shorter[1 - max_width :]}" if "/" in shorter else f"{shorter[: max_width - 1]}…"


def _effective_profile(profile: Profile, plan: Mapping[str, Any], document: YamlDocument | None) -> Profile:
    try:
        trainer = trainer_of(profile)
        preset = trainer.preset
    except BadInput:
        return profile
    world_size = plan.get("world_size") or profile.nodes.world_size(profile.hardware.processes)
    copies = trainer.data_parallel_copy_count(max(1, world_size if isinstance(world_size, int) else 1))
    by_launcher = launcher_config.recipe_values_of_config(
        profile, preset, launcher_config.launcher_config_in_plan(plan)
    )
    return with_effective_values(profile, effective_values(trainer, preset, document, max(1, copies), by_launcher))


def _effective_setting(
    key: str, profile: Profile, effective: Profile, plan: Mapping[str, Any], *, chosen: bool
) -> EffectiveSetting:
    if not choices.is_field_shown(key, profile):
        return EffectiveSetting(_NOT_USED_TEXT)
    if chosen:
        return EffectiveSetting(_shown_profile_value(key, profile))
    if value := _planned_value(key, plan):
        return EffectiveSetting(visible(value), is_default=True)
    return EffectiveSetting(_shown_profile_value(key, effective) or _empty_value_text(key, profile), is_default=True)


def _shown_profile_value(key: str, profile: Profile) -> str:
    return visible(displayed_value(profile, key))


def _planned_value(key: str, plan: Mapping[str, Any]) -> str:
    value = plan.get(_PLAN_KEY_BY_SETTING.get(key, ""))
    if key == "hardware.processes":
        world, nodes, uneven = plan.get("world_size"), plan.get("nodes"), plan.get("uneven")
        value = world // nodes if isinstance(world, int) and isinstance(nodes, int) and nodes > 0 else None
        value = uneven[0] if isinstance(uneven, list) and uneven else value
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    return fields.format_value(value) if isinstance(value, (str, int, float)) and value else ""


def _empty_value_text(key: str, profile: Profile) -> str:
    """Return what an empty value means."""
    row = field_with_trainer_texts(key, profile)
    if row.optional and trainer_has_own_field(profile, "trainer.script"):
        return SCRIPT_OWN_VALUE_SOURCE_TEXT
    if row.optional or trainer_has_own_field(profile, "nemo"):
        return "the trainer's own"
    return row.empty or "none"
