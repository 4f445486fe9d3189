"""The values that hold where the user chose none: those of arguments, the trainer's file, its defaults, or ours."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.facts.types import YamlDocument
from tui_train.profile import batch, fields
from tui_train.profile.fields import FieldValue
from tui_train.profile.presets import (
    NAMES_OF_DECLARABLE_DEFAULTS,
    OTHER_FORM_PLACEHOLDERS_BY_NAME,
    PLACEHOLDER_PATTERN,
    Preset,
    condition_placeholder,
)
from tui_train.profile.types import Profile
from tui_train.setup.recipe.options import PresetPassingRule, get_nested_value, given_options, preset_passing_rules
from tui_train.trainers import trainer_has_own_field, trainer_of
from tui_train.trainers.script import do_preset_defaults_apply
from tui_train.trainers.trainer import Trainer

# Trainers without a number of steps may have a number of epochs.
_EPOCH_OPTION_NAMES = ("num_train_epochs", "num_epochs", "max_epochs")
# Placeholders that stand for a value of all processes.
_TOTAL_PLACEHOLDER_BY_NAME = {"micro_batch": "total_batch", "accumulation": "total_accumulation"}
_FALSE_WORDS = {"false", "no", "off", "0"}
_ZERO_WORDS = {"0", "0.0"}


class EffectiveValue(Struct, frozen=True):
    """A value that holds, None where it is not known, and its source; `other_form_text` describes one of another form.

    An empty source is the user's choice. `indivisible_total` is one of all processes that their number does not divide,
    under the name `option`.
    """

    value: FieldValue = None
    source: str = ""
    other_form_text: str = ""
    indivisible_total: int = 0
    option: str = ""

    @property
    def text(self) -> str:
        """The value as a profile has it, or in its other form; empty where it is not known."""
        return self.other_form_text or fields.format_value(self.value)


_ValueGetter = Callable[[str], Any]


def effective_values(
    trainer: Trainer,
    preset: Preset,
    document: YamlDocument | None,
    copies: int,
    by_launcher: Mapping[str, EffectiveValue] | None = None,
) -> dict[str, EffectiveValue]:
    """Return what holds for each value of the recipe that may be left to the trainer, by its name in the recipe.

    `preset` is the trainer's, with the defaults on these cards; `copies` are those of the model, which share out a
    global batch; `by_launcher` are values of the launcher's own config.
    """
    profile = trainer.profile
    user_values = {**(by_launcher or {}), **_values_set_by_user(profile, preset, document, copies)}
    default = f"{preset.label}'s default" if trainer_has_own_field(profile, "trainer.preset") else "default"
    defaults = (
        _preset_defaults_unless_file_decides(preset, document) if do_preset_defaults_apply(profile, preset) else {}
    )
    sources = trainer.own_default_source_by_name()
    by_default = {name: EffectiveValue(value, sources.get(name, default)) for name, value in defaults.items()}
    known = {**by_default, **user_values}
    unset = EffectiveValue(None, trainer.unset_value_text())
    values: dict[str, EffectiveValue] = {}
    for name in NAMES_OF_DECLARABLE_DEFAULTS - {"accumulation"}:
        chosen = getattr(profile.recipe, name)
        values[name] = known.get(name, unset) if chosen is None else EffectiveValue(chosen)
    values["micro_batch"] = _effective_micro_batch(trainer, values, copies, default)
    steps = known.get("accumulation")
    global_batch = _effective_global_batch(values["global_batch"], values["micro_batch"], steps, copies, default)
    return {**values, "global_batch": global_batch}


def is_unset_by_user(value: EffectiveValue) -> bool:
    """Return whether neither the user nor a file or argument of the user set a value."""
    return bool(value.source) and not value.source.startswith("from ")


def with_effective_values(profile: Profile, values: Mapping[str, EffectiveValue]) -> Profile:
    """Return the profile with the values in force in its recipe; what is not known stays None."""
    recipe = msgspec.structs.replace(profile.recipe, **{name: value.value for name, value in values.items()})
    return msgspec.structs.replace(profile, recipe=recipe)


def global_batch_change_sentence(
    trainer: Trainer, preset: Preset, document: YamlDocument | None, model_copies: int
) -> str:
    """Return in words that the trainer's own global batch is another one than the chosen micro batch leads to.

    Empty where it is the same, is not known, or was chosen.
    """
    profile, recipe = trainer.profile, trainer.profile.recipe
    if recipe.micro_batch is None or recipe.global_batch is not None:
        return ""
    unset = msgspec.structs.replace(profile, recipe=msgspec.structs.replace(recipe, micro_batch=None))
    without = trainer_of(unset, trainer.toolchain, trainer.facts)
    without_choice = effective_values(without, preset, document, model_copies)["global_batch"]
    current = effective_values(trainer, preset, document, model_copies)["global_batch"]
    both = (without_choice.value, current.value)
    is_from_user = without_choice.source.startswith("from ")
    if not is_from_user or both[0] == both[1] or not all(isinstance(value, int) for value in both):
        return ""
    before = f"{without_choice.value} ({visible(without_choice.source)})"
    return f"The global batch is {current.value}, no longer {before}: only the micro batch was chosen."


def working_folder(profile: Profile, preset: Preset) -> str:
    """Return the folder in which a script starts, empty for the run folder."""
    trainer = profile.trainer
    if trainer.working_directory:
        return trainer.working_directory
    file = trainer.script if preset.can_start_script and trainer.script else trainer.config
    return file.rpartition("/")[0] or "/" if file and trainer_has_own_field(profile, "trainer.script") else ""


def user_output_folder(profile: Profile, preset: Preset, document: YamlDocument | None) -> str:
    """Return the output folder that the user's own arguments or file name, empty where they name none."""
    if not trainer_has_own_field(profile, "trainer.arguments"):
        return ""
    options = [rule.option for rule in preset_passing_rules(preset) if rule.name == "output"]
    set_paths = (
        look_up(option) for look_up, _ in _value_getters_with_source(profile, preset, document) for option in options
    )
    path = next((value for value in set_paths if isinstance(value, str) and value), "")
    return fields.absolute_path(path, Path(working_folder(profile, preset) or "/"))


def _preset_defaults_unless_file_decides(preset: Preset, document: YamlDocument | None) -> dict[str, Any]:
    """Return the preset's defaults but for those that the user's file decides in another way, by a key of its own."""
    without = preset.file.without if preset.file and document else ()
    values = document.values if document else {}
    decided = {
        condition_placeholder(dropped.when) for dropped in without if get_nested_value(values, dropped.key) is not None
    }
    return {name: value for name, value in preset.defaults.items() if name not in decided}


def _effective_micro_batch(
    trainer: Trainer, values: Mapping[str, EffectiveValue], model_copies: int, default: str
) -> EffectiveValue:
    """Return the micro batch: a default of this package follows a global batch that it does not divide."""
    micro, global_batch = values["micro_batch"], values["global_batch"].value
    if not trainer.takes_every_recipe_value or micro.source != default or values["global_batch"].source:
        return micro
    if not (isinstance(micro.value, int) and isinstance(global_batch, int)):
        return micro
    min_micro = trainer.min_micro_batch()
    return EffectiveValue(
        batch.largest_micro_batch(global_batch, micro.value, model_copies, min_micro) or micro.value, default
    )


def _effective_global_batch(
    global_batch: EffectiveValue, micro: EffectiveValue, steps: EffectiveValue | None, model_copies: int, default: str
) -> EffectiveValue:
    """Return the global batch: what is chosen or said, else micro batch x accumulation x copies."""
    if not isinstance(micro.value, int) or (global_batch.value is not None and global_batch.source != default):
        return global_batch
    unit = micro.value * model_copies
    if isinstance(global_batch.value, int):
        # The default follows what was chosen.
        return EffectiveValue(-(-global_batch.value // unit) * unit, default)
    if steps is None or not isinstance(steps.value, int):
        return steps if steps and steps.indivisible_total else global_batch
    sources = dict.fromkeys(filter(None, (micro.source, steps.source)))
    return EffectiveValue(unit * steps.value, next((source for source in sources if source != default), default))


def _values_set_by_user(
    profile: Profile, preset: Preset, document: YamlDocument | None, model_copies: int
) -> dict[str, EffectiveValue]:
    """Return the values that the user's own arguments and file set, by name."""
    if not trainer_has_own_field(profile, "trainer.arguments"):
        return {}
    preset_rules = list(preset_passing_rules(preset))
    sources = _value_getters_with_source(profile, preset, document)
    user_values: dict[str, EffectiveValue] = {}
    for name in sorted(NAMES_OF_DECLARABLE_DEFAULTS):
        for look_up, source in sources:
            if name not in user_values and (
                value := _value_from_source(name, preset_rules, look_up, source, model_copies)
            ):
                user_values[name] = value
    for look_up, source in sources:
        if "steps" not in user_values and (epochs := next(filter(None, map(look_up, _EPOCH_OPTION_NAMES)), None)):
            user_values["steps"] = EffectiveValue(None, source, f"{str(epochs)[:20]} epochs")
    return user_values


def _value_getters_with_source(
    profile: Profile, preset: Preset, document: YamlDocument | None
) -> list[tuple[_ValueGetter, str]]:
    """Return what finds the value of an option or key in the arguments, then in the file, each with its name."""
    user_options = given_options(profile.trainer.arguments, accept_without_dashes=preset.file is not None)
    values = {
        argument.option: argument.value for argument in user_options if not PLACEHOLDER_PATTERN.search(argument.value)
    }
    sources: list[tuple[_ValueGetter, str]] = [(values.get, "from your arguments")]
    if document and preset.file:
        document_values = document.values
        sources.append(
            (lambda key: get_nested_value(document_values, key), f"from {profile.trainer.config.rpartition('/')[2]}")
        )
    return sources


def _value_from_source(
    name: str, preset_rules: list[PresetPassingRule], get_value: _ValueGetter, source: str, model_copies: int
) -> EffectiveValue | None:
    """Return a value of the recipe as one source says it, None where it does not."""
    matches = [
        (rule, value) for rule in preset_rules if rule.readable_back and (value := get_value(rule.option)) is not None
    ]
    direct = [
        value
        for rule, value in matches
        if rule.name in {name, *OTHER_FORM_PLACEHOLDERS_BY_NAME.get(name, ())} and rule.fixed_value is None
    ]
    if direct:
        # Of two forms the one that is not 0 counts.
        return _parse_value(name, next((value for value in direct if str(value) not in _ZERO_WORDS), direct[0]), source)
    total = [(rule.option, value) for rule, value in matches if rule.name == _TOTAL_PLACEHOLDER_BY_NAME.get(name)]
    if total:
        return _share_of_model_copy(name, *total[0], source, model_copies)
    switches = [(rule, value) for rule, value in matches if rule.name == name]
    for rule, value in switches:
        if str(value).lower() == str(rule.fixed_value).lower():
            return _parse_value(name, rule.stands_for, source)
    if name != "precision" or not switches:
        return None
    other = next((str(value) for _, value in switches if str(value).lower() not in _FALSE_WORDS), "")
    return EffectiveValue(None, source, other[:20]) if other else EffectiveValue("fp32", source)


def _share_of_model_copy(
    name: str, option: str, value: object, source: str, model_copies: int
) -> EffectiveValue | None:
    """Return each process's share of a value that one source gives for all of them."""
    total = _parse_value(name, value, source)
    if total is None or not isinstance(total.value, int):
        return total
    share, rest = divmod(total.value, model_copies)
    if share and not rest:
        return EffectiveValue(share, source)
    return EffectiveValue(None, source, f"{total.value} in all", indivisible_total=total.value, option=option)


def _parse_value(name: str, value: object, source: str) -> EffectiveValue | None:
    """Return what was found as a value of the recipe's field; as mere words where it is not of its form."""
    if name == "steps" and str(value).startswith(("-", "0")):
        return None  # transformers' way to leave the steps to the epochs
    try:
        parsed = fields.parse_value(fields.recipe_field(name), str(value))
    except BadInput:
        return EffectiveValue(None, source, str(value)[:20])
    return EffectiveValue(parsed, source)
