"""The user's presets: one TOML file each in the configuration folder, read strictly; a broken one hides no other."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec

from tui_train.base.app_paths import presets_folder
from tui_train.base.errors import BadInput
from tui_train.base.parse import Unparsable, parse_toml_table, read_file_to_parse, type_prepared_for_msgspec
from tui_train.base.text import display_path, visible
from tui_train.profile import fields
from tui_train.profile.presets import (
    KEY_BY_PLACEHOLDER,
    NAMES_OF_DECLARABLE_DEFAULTS,
    PLACEHOLDER_PATTERN,
    CheckpointConventions,
    GracefulStop,
    Preset,
    Scalar,
    TrainerFile,
    TrainerFileValue,
    UserPreset,
    condition_placeholder,
    nested_texts,
    shipped_presets,
)
from tui_train.profile.presets.log_expression import why_expression_unusable

# Bytes; a preset has some lines, a larger file is not one.
MAX_PRESET_BYTES = 1 << 18
_MODULE_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_YAML_FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.-]*\.ya?ml", re.ASCII)
_LIBRARY_VERSION_PATTERN = re.compile(r"[a-z][\w-]* \d+(\.\d+)*", re.ASCII)
_MAX_GRACE_SECONDS = 3600
# Names of other files in a run folder.
_LAUNCHER_CONFIG_FILE_NAMES = {"accelerate.yaml", "accelerate.yml"}


def user_presets() -> dict[str, UserPreset]:
    """Return the user's presets by name; unusable ones have a problem."""
    return {file.stem: _read_preset_file(file) for file in _preset_files()}


def user_preset_names() -> tuple[str, ...]:
    """Return the names of the user's presets, usable or not."""
    return tuple(sorted(file.stem for file in _preset_files()))


def _preset_files() -> list[Path]:
    try:
        return sorted(presets_folder().glob("*.toml"))
    except OSError:
        return []


def _read_preset_file(file: Path) -> UserPreset:
    path = str(file)
    if file.stem in shipped_presets():
        problem = f"{display_path(path)}: {visible(file.stem)} is the name of a shipped preset: rename the file"
        return UserPreset(path=path, problem=problem)
    try:
        return UserPreset(
            path=path, preset=parse_preset(read_file_to_parse(file, MAX_PRESET_BYTES), display_path(path))
        )
    except BadInput as error:
        return UserPreset(path=path, problem=error.message)
    except Unparsable as error:
        return UserPreset(path=path, problem=f"{display_path(path)} cannot be read: {error}")


def parse_preset(text: bytes | str, source: str) -> Preset:
    """Return the preset in a TOML text; BadInput names `source` and the key that is wrong."""
    try:
        preset = msgspec.convert(parse_toml_table(text), type_prepared_for_msgspec(Preset))
    except msgspec.ValidationError as error:
        raise BadInput(f"{source}: {msgspec_message_with_key_first(str(error))}", "Fix that value.") from None
    except Unparsable as error:
        raise BadInput(f"{source} is not TOML: {error}", "Fix that line.") from None
    for key, problem in _preset_problems(preset):
        raise BadInput(f"{source}: {key}: {visible(problem)}", "Fix that value.")
    return msgspec.structs.replace(preset, defaults=_parse_defaults(preset, source))


def _parse_defaults(preset: Preset, source: str) -> dict[str, Scalar]:
    """Return the defaults as values of the recipe, such as 3.0 for 3 epochs; BadInput for what is none."""
    parsed: dict[str, Scalar] = {}
    for name, value in preset.defaults.items():
        row = msgspec.structs.replace(fields.recipe_field(name), optional=False)
        try:
            parsed[name] = cast("Scalar", fields.parse_value(row, fields.format_value(value)))
        except BadInput as error:
            raise BadInput(f"{source}: defaults.{name} is {value!r}: {error.remedy}", "Fix that value.") from None
    return parsed


def msgspec_message_with_key_first(message: str) -> str:
    """Return an error message of msgspec with the key first."""
    message = message.replace(" | null", "")
    match = re.fullmatch(r"(.*?) - at `\$\.?(.*)`", message, re.DOTALL)
    return visible(f"{match[2]}: {match[1].replace('`', '')}" if match else message)


_Problems = Iterator[tuple[str, str]]


def _preset_problems(preset: Preset) -> _Problems:
    """Yield the key and the problem of each invalid value in a well-formed preset."""
    if not preset.label.strip():
        yield "label", "is empty"
    if preset.module and not _MODULE_NAME_PATTERN.fullmatch(preset.module):
        yield "module", f"{preset.module} is not a module such as package.train"
    yield from _argument_and_variable_problems(preset)
    if preset.file:
        yield from _trainer_file_problems(preset.file)
    if preset.checkpoints:
        yield from _checkpoint_problems(preset.checkpoints, has_file=preset.file is not None)
    yield from _graceful_stop_problems(preset.stop)
    for name in preset.defaults.keys() - NAMES_OF_DECLARABLE_DEFAULTS:
        yield f"defaults.{name}", "is not a value that can have a default"
    for number, expression in enumerate(preset.log):
        if why := why_expression_unusable(expression):
            yield f"log[{number}]", why


def _argument_and_variable_problems(preset: Preset) -> _Problems:
    for number, argument in enumerate(preset.arguments):
        if not argument.words:
            yield f"arguments[{number}].words", "is empty"
        yield from _placeholder_problems(f"arguments[{number}].words", *argument.words)
        yield from _condition_problems(f"arguments[{number}].when", argument.when)
    for number, variable in enumerate(preset.variables):
        if not (variable.name.isidentifier() and variable.name.isascii()):
            yield f"variables[{number}].name", f"{variable.name} is not a variable name"
        yield from _placeholder_problems(f"variables[{number}].value", variable.value)
        if {"output", "config"} & set(PLACEHOLDER_PATTERN.findall(variable.value)):
            why = "a path of the run folder cannot be passed by a variable: pass it as an argument"
            yield f"variables[{number}].value", why
        yield from _condition_problems(f"variables[{number}].when", variable.when)


def _placeholder_problems(key: str, *texts: str, extra_placeholder: str = "") -> _Problems:
    for text in texts:
        for name in PLACEHOLDER_PATTERN.findall(text):
            if name not in {*KEY_BY_PLACEHOLDER, extra_placeholder}:
                yield key, f"{{{name}}} is not a placeholder"
        if "\0" in text:
            yield key, "holds a NUL byte"


def _condition_problems(key: str, condition: str) -> _Problems:
    if condition and ("=" not in condition or condition_placeholder(condition) not in KEY_BY_PLACEHOLDER):
        yield key, f"{condition} is not NAME=VALUE or NAME!=VALUE with a known name"


def _file_value_problems(key: str, values: tuple[TrainerFileValue, ...], extra_placeholder: str = "") -> _Problems:
    for number, value in enumerate(values):
        if not all(value.key.split(".")):
            yield f"{key}[{number}].key", f"{value.key!r} is not a key such as training.batch_size"
        texts = nested_texts(value.value)
        yield from _placeholder_problems(f"{key}[{number}].value", *texts, extra_placeholder=extra_placeholder)
        yield from _condition_problems(f"{key}[{number}].when", value.when)


def _trainer_file_problems(file: TrainerFile) -> _Problems:
    yield from _file_value_problems("file.values", file.values)
    for number, dropped in enumerate(file.without):
        yield from _condition_problems(f"file.without[{number}].when", dropped.when)
    if not _YAML_FILE_NAME_PATTERN.fullmatch(file.path) or file.path in _LAUNCHER_CONFIG_FILE_NAMES:
        yield "file.path", f"{file.path} is not a usable name such as config.yaml"
    if any("{config}" in text for value in file.values for text in nested_texts(value.value)):
        yield "file.values", "a file cannot contain its own path, {config}"


def _checkpoint_problems(checkpoints: CheckpointConventions, *, has_file: bool) -> _Problems:
    yield from _placeholder_problems("checkpoints.resume", *checkpoints.resume, extra_placeholder="checkpoint")
    yield from _file_value_problems("checkpoints.values", checkpoints.values, extra_placeholder="checkpoint")
    if checkpoints.values and not has_file:
        yield "checkpoints.values", "there is no [file] table for them"
    if bool(checkpoints.prefix) == bool(checkpoints.file):
        yield "checkpoints", "give either prefix or file"
    if not checkpoints.resume and not checkpoints.values:
        yield "checkpoints.resume", "is empty: set how a run resumes"
    for key, names in (
        ("prefix", (checkpoints.prefix, checkpoints.suffix)),
        ("file", (checkpoints.file,)),
        ("complete", checkpoints.complete),
    ):
        if any(name in {".", ".."} or "\0" in name or (key != "complete" and "/" in name) for name in names):
            yield f"checkpoints.{key}", "is not a file name in the output folder"


def _graceful_stop_problems(stop: GracefulStop) -> _Problems:
    if "\0" in "".join(stop.arguments):
        yield "stop.arguments", "holds a NUL byte"
    if not 1 <= stop.grace <= _MAX_GRACE_SECONDS:
        yield "stop.grace", f"is not a number of seconds from 1 to {_MAX_GRACE_SECONDS}"
    yield from _condition_problems("stop.when", stop.when)
    if stop.needs and not _LIBRARY_VERSION_PATTERN.fullmatch(stop.needs):
        yield "stop.needs", f"{stop.needs} is not a library and version such as transformers 5.0"
