"""Values of settings, of a profile or of a run's plan, as text that is safe to show, and that a filter searches."""

from collections.abc import Mapping
from typing import Any

from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.secret_values import displayed_value
from tui_train.profile.types import Profile

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


def searchable_settings_text(profile: Profile | None, plan: Mapping[str, Any]) -> str:
    """Return the settings that were chosen, and those that a plan resolved, each as `key=value` in a line."""
    planned = {key: text for key in _PLAN_KEY_BY_SETTING if (text := planned_value(key, plan))}
    chosen = {key: shown_profile_value(key, profile) for key in fields.chosen_keys(profile)} if profile else {}
    return "\n".join(f"{key}={value}" for key, value in {**planned, **chosen}.items())


def shown_profile_value(key: str, profile: Profile) -> str:
    """Return the value of a profile's setting, without what looks like a secret."""
    return visible(displayed_value(profile, key))


def planned_value(key: str, plan: Mapping[str, Any]) -> str:
    """Return the value that a plan, as data, resolved a setting to; empty where it says none."""
    value = plan.get(_PLAN_KEY_BY_SETTING.get(key, ""))
    if key == "hardware.processes":
        world, nodes, uneven = plan.get("world_size"), plan.get("nodes"), plan.get("uneven")
        value = world // nodes if isinstance(world, int) and isinstance(nodes, int) and nodes > 0 else None
        value = uneven[0] if isinstance(uneven, list) and uneven else value
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    return fields.format_value(value) if isinstance(value, (str, int, float)) and value else ""
