"""Values of settings, of a profile or of a run's plan, as text that is safe to show, and that a filter searches."""

import shlex
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from tui_train.base.text import truncated_text, visible
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
_ARGUMENTS_KEY = "trainer.arguments"
# What two runs of one training have otherwise by themselves, or without any effect on it.
_KEYS_LEFT_OUT_OF_CHANGES = frozenset(
    {"name", "hardware.gpus", "trainer.output", "notify.command", "notify.webhook", "tracking.project"}
)
_SHORT_NAME_BY_SETTING = {"recipe.learning_rate": "rate"}
_UNSET_TEXT = "default"
_MIN_NAME_LETTERS = 3  # of a name that is cut


def searchable_settings_text(profile: Profile | None, plan: Mapping[str, Any]) -> str:
    """Return the settings that were chosen, and those that a plan resolved, each as `key=value` in a line."""
    planned = {key: text for key in _PLAN_KEY_BY_SETTING if (text := planned_value(key, plan))}
    chosen = {key: shown_profile_value(key, profile) for key in fields.chosen_keys(profile)} if profile else {}
    return "\n".join(f"{key}={value}" for key, value in {**planned, **chosen}.items())


@lru_cache(maxsize=2048)  # of a thousand runs at every key of a filter
def changed_settings(text_before: str, text: str) -> tuple[str, ...]:
    """Return what differs between two texts of settings, as `name=value` of the second, of arguments each its own."""
    before, now = (dict(_named_values(each)) for each in (text_before, text))
    changed = []
    for key in now | before:
        value, old = now.get(key, _UNSET_TEXT), before.get(key, _UNSET_TEXT)
        if value != old:
            # Of a path its last part, where that differs.
            own, own_before = (each.rstrip("/").rpartition("/")[2] for each in (value, old))
            name = _SHORT_NAME_BY_SETTING.get(key, key.rpartition(".")[2].lstrip("-"))
            changed.append(f"{name}={own if own and own != own_before else value}")
    return tuple(changed)


def changed_settings_text(changed: tuple[str, ...], width: int) -> str:
    """Return as many of some changes as have room, and how many more there are; the first keeps its value or goes.

    A name is cut only where letters of it stay that tell what it is: a value alone tells nothing.
    """
    for count in range(len(changed), 0, -1):
        more = len(changed) - count
        text = ", ".join((*changed[:count], *((f"+{more}",) if more else ())))
        if len(text) <= width:
            return text
    if not changed:
        return ""
    if len(changed[0]) + 2 <= width:
        return f"{changed[0]} …"
    value = changed[0].partition("=")[2]
    for rest in (f", +{len(changed) - 1}", " …") if changed[1:] else ("",):
        if (room := width - len(rest)) >= len(value) + _MIN_NAME_LETTERS + len("…="):
            return f"{truncated_text(changed[0], room)}{rest}"
    return ""


def _named_values(settings_text: str) -> Iterator[tuple[str, str]]:
    """Yield the settings of a text, with each argument of a script as one."""
    for line in settings_text.split("\n"):
        key, _, value = line.partition("=")
        if key == _ARGUMENTS_KEY:
            yield from _argument_values(value)
        elif key and key not in _KEYS_LEFT_OUT_OF_CHANGES:
            yield key, value


def _argument_values(command_text: str) -> Iterator[tuple[str, str]]:
    """Yield the options of a script's arguments with their values, but for those that are of the recipe."""
    try:
        words = shlex.split(command_text)
    except ValueError:
        words = command_text.split()
    name, values = "arguments", list[str]()
    for word in (*words, "--"):
        if word.startswith("--"):
            if values and "{" not in values[0]:
                yield name, " ".join(values)
            name, equals, value = word.partition("=")
            values = [value] if equals else ["on"] if word != "--" else []
        else:
            values = [*([] if values == ["on"] else values), word]


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
