"""The value of each setting that a run trains with: the chosen one, else what its plan resolved."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import YamlDocument
from tui_train.profile import fields
from tui_train.profile.presets import KEY_BY_PLACEHOLDER
from tui_train.profile.types import Profile
from tui_train.setup.recipe import launcher_config
from tui_train.setup.recipe.effective_values import effective_values, with_effective_values
from tui_train.setup.recipe.options import user_options_for_value
from tui_train.trainers import field_with_trainer_texts, trainer_has_own_field, trainer_of
from tui_train.trainers.auto_preset import SCRIPT_OWN_VALUE_SOURCE_TEXT
from tui_train.views import choices
from tui_train.views.setting_values import planned_value, shown_profile_value

_DEFAULT_MARK = " (default)"
_NOT_USED_TEXT = "not used"


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
    found = {key: _effective_setting(key, profile, effective, plan, chosen=key in chosen) for key in fields.FIELDS}
    given = _keys_given_as_arguments(profile)
    return {key: replace(each, is_default=each.is_default and key not in given) for key, each in found.items()}


def _keys_given_as_arguments(profile: Profile) -> frozenset[str]:
    """Return the keys of the recipe whose values the user's own arguments set."""
    try:
        preset = trainer_of(profile).preset
    except BadInput:
        return frozenset()
    return frozenset(
        key
        for name, key in KEY_BY_PLACEHOLDER.items()
        if key.startswith("recipe.") and user_options_for_value(name, profile, preset)
    )


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
        return EffectiveSetting(shown_profile_value(key, profile))
    if value := planned_value(key, plan):
        return EffectiveSetting(visible(value), is_default=True)
    return EffectiveSetting(shown_profile_value(key, effective) or _empty_value_text(key, profile), is_default=True)


def _empty_value_text(key: str, profile: Profile) -> str:
    """Return what an empty value means."""
    row = field_with_trainer_texts(key, profile)
    if row.optional and trainer_has_own_field(profile, "trainer.script"):
        return SCRIPT_OWN_VALUE_SOURCE_TEXT
    if row.optional or trainer_has_own_field(profile, "nemo"):
        return "the trainer's own"
    return row.empty or "none"
