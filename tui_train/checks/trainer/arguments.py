"""Checks of the user's own arguments: values that the recipe has as well, and placeholders."""

import re
from collections.abc import Iterable, Iterator, Mapping

from tui_train.checks.finding import Finding, error, warning
from tui_train.checks.trainer.declared_arguments import PROFILE_KEYS_OF_MODEL_AND_DATA
from tui_train.profile import batch, fields
from tui_train.profile.changes import Change
from tui_train.profile.presets import KEY_BY_PLACEHOLDER, PLACEHOLDER_PATTERN, Preset
from tui_train.profile.types import Profile
from tui_train.setup.recipe.options import UserOption, option_names_of_value, script_options, user_options_for_value
from tui_train.setup.setup import Setup


def arguments_setting_recipe_values(setup: Setup) -> Iterator[Finding]:
    """The user's arguments that set a value of the recipe too, or a batch that fallbacks could then not lower."""
    profile = setup.profile
    preset, chosen = setup.preset, set(fields.chosen_keys(profile))
    settings_by_name = {name: user_options_for_value(name, profile, preset) for name in KEY_BY_PLACEHOLDER}
    for name, own_settings in settings_by_name.items():
        key = KEY_BY_PLACEHOLDER[name]
        if not own_settings or not key.startswith("recipe.") or name in batch.BATCH_PLACEHOLDERS or key not in chosen:
            continue
        words = " ".join(dict.fromkeys(" ".join(setting.words) for setting in own_settings))
        change = Change(
            f"without {words}",
            "the value on Recipe is used",
            (("trainer.arguments", _arguments_without_options(profile, own_settings)),),
        )
        yield _set_by_argument_and_recipe_finding(words, fields.get_field(key).label.lower(), preset, change)
    batch_settings = {
        name: own_settings
        for name, own_settings in settings_by_name.items()
        if own_settings and name in batch.BATCH_PLACEHOLDERS
    }
    if not batch_settings:
        return
    words = " ".join(
        dict.fromkeys(" ".join(setting.words) for own_settings in batch_settings.values() for setting in own_settings)
    )
    move_to_recipe = _move_batch_into_recipe_change(setup, batch_settings)
    if any(KEY_BY_PLACEHOLDER[name] in chosen for name in batch_settings):
        yield _set_by_argument_and_recipe_finding(words, "batch", preset, move_to_recipe)
    elif (
        "micro_batch" in profile.ladder.rungs
        and not preset.user_arguments_first
        # Without an accumulation that it takes, it cannot be lowered anyway.
        and setup.ladder_context.accepted_placeholders & batch.BATCH_PLACEHOLDERS != {"micro_batch"}
    ):
        message = f"{words} in your arguments sets the batch: if memory runs out, no smaller one can be tried"
        remedy = "Remove it from trainer.arguments, and set recipe.micro_batch and recipe.global_batch."
        yield warning("trainer.arguments", message, remedy, change=move_to_recipe)


def _set_by_argument_and_recipe_finding(words: str, value_label: str, preset: Preset, change: Change | None) -> Finding:
    """Return the finding that a value is set twice; the later argument wins."""
    recipe_wins = preset.user_arguments_first
    wins = (
        f"has no effect: the {value_label} on Recipe comes after it"
        if recipe_wins
        else f"overrides the {value_label} on Recipe"
    )
    return (warning if recipe_wins else error)(
        "trainer.arguments",
        f"{words} in your arguments {wins}",
        f"Remove it from trainer.arguments, or leave the {value_label} of the recipe unset.",
        change=change,
    )


def _arguments_without_options(profile: Profile, own_settings: Iterable[UserOption]) -> tuple[str, ...]:
    positions = {
        index for setting in own_settings for index in range(setting.position, setting.position + len(setting.words))
    }
    return tuple(word for index, word in enumerate(profile.trainer.arguments) if index not in positions)


def batch_lowered_by_trainer(setup: Setup) -> Iterator[Finding]:
    """A trainer that lowers the batch by itself, which no accumulation makes up for."""
    batch_option = "per_device_train_batch_size" in option_names_of_value("micro_batch", setup.preset)
    if batch_option and script_options(setup.profile, setup.facts.documents).is_on("auto_find_batch_size"):
        yield warning(
            "trainer.arguments",
            "after out of memory auto_find_batch_size lowers the micro batch, and the global batch with it",
            "Remove it from trainer.arguments: the fallbacks here keep the global batch.",
        )


def _move_batch_into_recipe_change(setup: Setup, batch_settings: Mapping[str, tuple[UserOption, ...]]) -> Change | None:
    """Return the change that moves a batch from the arguments into the recipe; None if that is ambiguous."""
    profile = setup.profile
    values = {name: own_settings[-1].value for name, own_settings in batch_settings.items()}
    every_setting = [setting for own_settings in batch_settings.values() for setting in own_settings]
    remaining = _arguments_without_options(profile, every_setting)
    if setup.preset.user_arguments_first:
        return Change(
            f"without {' '.join(sorted(batch_settings))}", "nothing else", (("trainer.arguments", remaining),)
        )
    if batch_settings.keys() - {"micro_batch", "accumulation"} or len(
        {setting.position for setting in every_setting}
    ) < len(every_setting):
        return None
    if not all(re.fullmatch(r"[1-9]\d{0,8}", value) for value in values.values()):
        return None
    recipe = setup.effective_profile.recipe
    micro = int(values.get("micro_batch", recipe.micro_batch or 0))
    unit = micro * setup.model_copies
    steps = values.get("accumulation") or (max(1, recipe.global_batch // unit) if unit and recipe.global_batch else 1)
    total = unit * int(steps)
    edits: dict[str, fields.FieldValue] = {
        "trainer.arguments": remaining,
        "recipe.micro_batch": micro,
        "recipe.global_batch": total,
    }
    return Change(f"micro batch {micro} in the recipe", f"global batch {total}", tuple(edits.items()))


def unknown_or_empty_placeholders(setup: Setup) -> Iterator[Finding]:
    """Placeholders in the arguments that mean nothing, or have no value."""
    profile = setup.profile
    for name in dict.fromkeys(PLACEHOLDER_PATTERN.findall("\n".join(profile.trainer.arguments))):
        key = KEY_BY_PLACEHOLDER.get(name, "")
        if not key and name != "checkpoint":
            yield warning(
                "trainer.arguments",
                f"{{{name}}} is no placeholder: the script gets it as it stands",
                fields.similar_word_remedy(name, tuple(KEY_BY_PLACEHOLDER)),
            )
            continue
        effective = setup.effective_values.get(key.removeprefix("recipe."))
        is_empty = key in PROFILE_KEYS_OF_MODEL_AND_DATA and not fields.get_value(profile, key)
        if is_empty or (effective and effective.value is None):
            message = f"{{{name}}} in trainer.arguments has no value, so the argument would be left out"
            yield error(key, message, f"Set {key}, or remove the argument.")
