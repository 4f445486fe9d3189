"""Presets: how the recipe is passed to a trainer, as arguments or in its file, and how the trainer resumes."""

import functools
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from tui_train.base.errors import BadInput
from tui_train.base.parse import type_prepared_for_msgspec
from tui_train.base.text import visible
from tui_train.profile.types import Recipe

# The label of what `auto` makes of a script: no name that could be quoted.
SCRIPT_LABEL = "the script"
PLACEHOLDER_PATTERN = re.compile(r"\{([a-z][a-z0-9_]*)\}")

# They become part of other values, or of the environment.
_RECIPE_FIELDS_WITHOUT_PLACEHOLDER = frozenset({"lr_scaling", "lr_base_batch", "expandable_segments"})
# The placeholders, each with the profile key that sets it; the recipe's own have its names.
KEY_BY_PLACEHOLDER = {
    "output": "trainer.output",
    "data": "trainer.data",
    "data_format": "trainer.data",
    "validation_data": "trainer.validation_data",
    "test_data": "trainer.test_data",
    "model": "trainer.model",
    "revision": "trainer.revision",
    "config": "trainer.config",
    **{name: f"recipe.{name}" for name in Recipe.__struct_fields__ if name not in _RECIPE_FIELDS_WITHOUT_PLACEHOLDER},
    # What TrainingArguments calls so: steps, or since transformers 5 a share; a share before that.
    "warmup_steps": "recipe.warmup",
    "warmup_ratio": "recipe.warmup",
    # Whole numbers for scripts that take no others.
    "num_warmup_steps": "recipe.warmup",
    "whole_epochs": "recipe.epochs",
    "total_batch": "recipe.micro_batch",
    "accumulation": "recipe.global_batch",
    "total_accumulation": "recipe.global_batch",
    "world_size": "hardware.processes",
    "device": "hardware.device",
    "backend": "communication.backend",
    "generations": "finetune.generations",
    "completion_length": "finetune.completion_length",
    "completions": "finetune.completions",
    "tensorboard": "tracking.tensorboard",
    "wandb": "tracking.wandb",
    "trackio": "tracking.trackio",
    # The chosen trackers: as a list, as one word with commas, and as one name, "all" for several.
    "trackers": "tracking.wandb",
    "report_to": "tracking.wandb",
    "log_with": "tracking.wandb",
    # That of Trackio, where the trainer's library takes it as an argument.
    "trackio_project": "tracking.project",
}
# Placeholders that stand for a value of the recipe in another form.
OTHER_FORM_PLACEHOLDERS_BY_NAME = {
    "warmup": ("warmup_steps", "warmup_ratio", "num_warmup_steps"),
    "epochs": ("whole_epochs",),
}
MODEL_SIZE_PLACEHOLDERS = frozenset({"layers", "hidden_size", "ffn_hidden_size", "heads"})

# Values whose defaults a preset may declare: those that may be left to the trainer.
NAMES_OF_DECLARABLE_DEFAULTS = frozenset(
    {"accumulation", *(key for key in Recipe.__struct_fields__ if getattr(Recipe(), key) is None)}
)

Scalar = str | int | float | bool


class PresetArgument(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments passed together if `when` (NAME=VALUE or NAME!=VALUE) holds and no placeholder in them is empty.

    `after`: they belong to this subcommand among the user's arguments, and follow it. `also`: other spellings of the
    option, by which the user may give it.
    """

    words: tuple[str, ...]
    when: str = ""
    after: str = ""
    also: tuple[str, ...] = ()


class PresetVariable(Struct, frozen=True, forbid_unknown_fields=True):
    """An environment variable of the training."""

    name: str
    value: str
    when: str = ""


class TrainerFileValue(Struct, frozen=True, forbid_unknown_fields=True):
    """A value in the trainer's file at the dotted `key`; a value that is a single placeholder keeps its type.

    Lists and tables may contain placeholders; the value is left out if one of them is empty.
    """

    key: str
    value: Scalar | list[Any] | dict[str, Any]
    when: str = ""


class DroppedFileKey(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to remove from the user's file, because the trainer rejects it together with the value in `when`."""

    key: str
    when: str = ""


class TrainerFile(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The YAML file that the trainer reads: a copy of the user's file with `values` set and the keys `without` removed.

    `needs_user_file`: the user must name a file. `required` are values without which the trainer does not train.
    """

    path: str = "config.yaml"
    needs_user_file: bool = True
    values: tuple[TrainerFileValue, ...]
    without: tuple[DroppedFileKey, ...] = ()
    required: dict[str, Scalar] = {}


class CheckpointConventions(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Names of checkpoints in the output folder (PREFIX + step + SUFFIX, or always `file`), and how a run resumes.

    `complete` are files that only a complete checkpoint has. `resume` are arguments, `values` are set in the file.
    """

    prefix: str = ""
    suffix: str = ""
    file: str = ""
    complete: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()
    values: tuple[TrainerFileValue, ...] = ()


class GracefulStop(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Saving on SIGTERM, within `grace` seconds.

    `arguments` turn this on; they are passed if `when` holds, as for a PresetArgument, and the library in `needs`
    ("transformers 5.0") is installed in that version or a newer one.
    """

    grace: int = 20
    arguments: tuple[str, ...] = ()
    when: str = ""
    needs: str = ""


class Preset(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Rules by which one trainer takes the recipe."""

    label: str
    about: str
    module: str = ""
    """The module that is started if there is no script."""
    accepts_script: bool = False
    """A script can replace the module."""
    user_arguments_first: bool = False
    """The user's arguments come before those of the preset."""
    eval_batch: Annotated[int, msgspec.Meta(ge=0)] = 0
    """The trainer's default evaluation batch; 0: the micro batch."""
    defaults: dict[str, Scalar] = {}
    """Other defaults of the trainer, by placeholder."""
    arguments: tuple[PresetArgument, ...] = ()
    variables: tuple[PresetVariable, ...] = ()
    file: TrainerFile | None = None
    checkpoints: CheckpointConventions | None = None
    stop: GracefulStop = GracefulStop()
    strategies: tuple[str, ...] = ()
    """Those besides ddp, empty if not known."""
    log: tuple[str, ...] = ()
    """Regular expressions with the groups step, steps, loss, lr and tokens_per_second."""

    @property
    def name_in_sentence(self) -> str:
        """Its name in a sentence; safe to show."""
        return self.label if self.label == SCRIPT_LABEL else f"“{visible(self.label)}”"

    @property
    def can_start_script(self) -> bool:
        """Return whether it can start a script of the user."""
        return self.accepts_script or not self.module


class UserPreset(Struct, frozen=True, kw_only=True):
    """A preset that the user wrote in the file `path`; `preset` is None if it has a `problem`."""

    path: str
    preset: Preset | None = None
    problem: str = ""


UserPresetByName = Mapping[str, UserPreset]


def accepted_placeholders(preset: Preset, arguments: tuple[str, ...] = ()) -> frozenset[str]:
    """Return the placeholder names that reach the trainer, by the preset and by the user's `arguments`."""
    return (
        frozenset(PLACEHOLDER_PATTERN.findall("\n".join([*_texts_with_placeholders(preset), *arguments])))
        & KEY_BY_PLACEHOLDER.keys()
    )


def _texts_with_placeholders(preset: Preset) -> Iterator[str]:
    """Yield all texts of a preset that may contain placeholders, conditions included."""
    for argument in preset.arguments:
        yield from (*argument.words, f"{{{condition_placeholder(argument.when)}}}")
    for variable in preset.variables:
        yield from (variable.value, f"{{{condition_placeholder(variable.when)}}}")
    for value in preset.file.values if preset.file else ():
        yield from (*nested_texts(value.value), f"{{{condition_placeholder(value.when)}}}")


def nested_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value of a file, however deep."""
    if isinstance(value, dict):
        yield from (text for inner in value.values() for text in nested_texts(inner))
    elif isinstance(value, list):
        yield from (text for inner in value for text in nested_texts(inner))
    else:
        yield str(value)


@functools.cache
def shipped_presets() -> dict[str, Preset]:
    """Return the shipped presets by name; `builtin` belongs to the built-in trainer."""
    return {
        name: msgspec.toml.decode(text, type=type_prepared_for_msgspec(Preset))
        for name, text in shipped_preset_texts().items()
    }


@functools.cache
def shipped_preset_texts() -> dict[str, str]:
    """Return the text of each shipped preset."""
    files = [file for file in resources.files(__name__).iterdir() if file.name.endswith(".toml")]
    return dict(sorted((file.name.removesuffix(".toml"), file.read_text("utf-8")) for file in files))


def get_preset(name: str, user_presets: UserPresetByName | None = None) -> Preset:
    """Return a shipped preset or one of the user's by name; BadInput lists the known ones."""
    users = user_presets or {}
    if name in shipped_presets():
        return shipped_presets()[name]
    if name in users:
        if chosen := users[name].preset:
            return chosen
        message = f"the preset {visible(name)} cannot be used: {users[name].problem}"
        raise BadInput(message, "Fix that file, or choose another preset.")
    usable = [other for other, entry in users.items() if entry.preset and other not in shipped_presets()]
    remedy = f"Available: {visible(', '.join([*shipped_presets(), *usable]))}."
    raise BadInput(f"there is no preset {visible(name)}", remedy)


def condition_placeholder(condition: str) -> str:
    """Return the placeholder that a condition tests."""
    return condition.partition("=")[0].removesuffix("!")


def condition_holds(condition: str, values: Mapping[str, str]) -> bool:
    """Return whether a condition holds; an empty condition does, NAME!=VALUE does not if NAME has no value."""
    if not condition:
        return True
    name, _, expected = condition.partition("=")
    value = values[name.removesuffix("!")]
    return bool(value) and value != expected if name.endswith("!") else value == expected
