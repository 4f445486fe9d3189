"""Presets of the user's own: one TOML each in the configuration folder, read strictly; a broken one hides no other."""

import re
from pathlib import Path

import msgspec

from tui_train.base.errors import BadInput
from tui_train.base.files import read_regular, reason
from tui_train.base.parse import Unparsable, built, toml_table
from tui_train.base.places import presets_folder
from tui_train.base.text import home, visible
from tui_train.presets import (
    OWN,
    PLACEHOLDER,
    PLACEHOLDERS,
    Checkpoints,
    FileValue,
    OwnPreset,
    Preset,
    Stop,
    TrainerFile,
    condition,
    presets,
    texts_in,
)

# A preset is some lines; more than this is something else.
MOST = 1 << 18
_GROUPS = {"step", "steps", "loss", "lr", "tokens_per_second"}
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
_FILE = re.compile(r"[A-Za-z0-9][\w.-]*\.ya?ml", re.ASCII)
_NEEDS = re.compile(r"[a-z][\w-]* \d+(\.\d+)*", re.ASCII)
_LONGEST = 3600
# Files of a run folder that bear such names already.
_TAKEN = {"accelerate.yaml", "accelerate.yml"}


def own_presets() -> dict[str, OwnPreset]:
    """Return the user's presets by name, the unusable ones with their problem."""
    try:
        files = sorted(presets_folder().glob("*.toml"))
    except OSError:
        return {}
    return {file.stem: _own(file) for file in files}


def own_names() -> tuple[str, ...]:
    """Return the names of the user's presets, usable or not."""
    try:
        return tuple(sorted(file.stem for file in presets_folder().glob("*.toml")))
    except OSError:
        return ()


def _own(file: Path) -> OwnPreset:
    path = str(file)
    if file.stem in presets():
        problem = f"{home(path)}: {visible(file.stem)} is the name of a shipped preset, which stays: rename the file"
        return OwnPreset(path=path, problem=problem)
    try:
        return OwnPreset(path=path, preset=read(read_regular(file, MOST).decode("utf-8-sig"), home(path)))
    except BadInput as error:
        return OwnPreset(path=path, problem=error.message)
    except UnicodeDecodeError:
        return OwnPreset(path=path, problem=f"{home(path)} is not UTF-8 text")
    except OSError as error:
        return OwnPreset(path=path, problem=f"{home(path)} cannot be read: {reason(error)}")


def read(text: str, source: str) -> Preset:
    """Return the preset in a TOML text; BadInput names `source` and the key that is wrong."""
    try:
        found = msgspec.convert(toml_table(text), built(Preset))
    except msgspec.ValidationError as error:
        raise BadInput(f"{source}: {plain(str(error))}", "Fix that value.") from None
    except Unparsable as error:
        raise BadInput(f"{source} is not TOML: {error}", "Fix that line.") from None
    for key, problem in _problems(found):
        raise BadInput(f"{source}: {key}: {visible(problem)}", "Fix that value.")
    return found


def plain(message: str) -> str:
    """Return what msgspec says of a value with its key first."""
    message = message.replace(" | null", "")
    found = re.fullmatch(r"(.*?) - at `\$\.?(.*)`", message, re.DOTALL)
    return visible(f"{found[2]}: {found[1].replace('`', '')}" if found else message)


def _problems(found: Preset) -> list[tuple[str, str]]:
    """Return what is wrong with a preset that has the right form, by key."""
    told: list[tuple[str, str]] = []
    if not found.label.strip():
        told.append(("label", "is empty"))
    if found.module and not _MODULE.fullmatch(found.module):
        told.append(("module", f"{found.module} is no module such as package.train"))
    for number, argument in enumerate(found.arguments):
        told += _texts(f"arguments[{number}].words", *argument.words)
        told += _when(f"arguments[{number}].when", argument.when)
    for number, variable in enumerate(found.variables):
        if not (variable.name.isidentifier() and variable.name.isascii()):
            told.append((f"variables[{number}].name", f"{variable.name} is no variable name"))
        told += _texts(f"variables[{number}].value", variable.value)
        if {"output", "config"} & set(PLACEHOLDER.findall(variable.value)):
            told.append(
                (f"variables[{number}].value", "a path of the run cannot be a variable: pass it as an argument")
            )
        told += _when(f"variables[{number}].when", variable.when)
    if found.file:
        told += _file(found.file)
    if found.checkpoints:
        told += _checkpoints(found.checkpoints, has_file=found.file is not None)
    told += _stop(found.stop)
    told += [(f"own.{name}", "is no value that a trainer has by default") for name in found.own.keys() - OWN]
    for number, expression in enumerate(found.log):
        told += _expression(f"log[{number}]", expression)
    return told


def _texts(key: str, *texts: str, also: str = "") -> list[tuple[str, str]]:
    unknown = [name for text in texts for name in PLACEHOLDER.findall(text) if name not in {*PLACEHOLDERS, also}]
    told = [(key, f"there is no {{{name}}} to fill in") for name in unknown]
    return told + [(key, "holds a NUL byte") for text in texts if "\0" in text]


def _when(key: str, when: str) -> list[tuple[str, str]]:
    if when and ("=" not in when or condition(when) not in PLACEHOLDERS):
        return [(key, f"{when} is not NAME=VALUE or NAME!=VALUE with a known name")]
    return []


def _values(key: str, values: tuple[FileValue, ...], also: str = "") -> list[tuple[str, str]]:
    told = []
    for number, value in enumerate(values):
        if not all(value.key.split(".")):
            told.append((f"{key}[{number}].key", f"{value.key!r} is no key such as training.batch_size"))
        told += _texts(f"{key}[{number}].value", *texts_in(value.value), also=also)
        told += _when(f"{key}[{number}].when", value.when)
    return told


def _file(found: TrainerFile) -> list[tuple[str, str]]:
    told = _values("file.values", found.values)
    for number, dropped in enumerate(found.without):
        told += _when(f"file.without[{number}].when", dropped.when)
    if not _FILE.fullmatch(found.path) or found.path in _TAKEN:
        told.append(("file.path", f"{found.path} is no free name such as config.yaml"))
    if any("{config}" in text for value in found.values for text in texts_in(value.value)):
        told.append(("file.values", "a file cannot hold its own path, {config}"))
    return told


def _checkpoints(found: Checkpoints, *, has_file: bool) -> list[tuple[str, str]]:
    told = _texts("checkpoints.resume", *found.resume, also="checkpoint")
    told += _values("checkpoints.values", found.values, also="checkpoint")
    if found.values and not has_file:
        told.append(("checkpoints.values", "there is no [file] to put them in"))
    if bool(found.prefix) == bool(found.file):
        told.append(("checkpoints", "give either prefix or file"))
    if not found.resume and not found.values:
        told.append(("checkpoints.resume", "is empty: say how a run resumes"))
    for key, names in (("prefix", (found.prefix, found.suffix)), ("file", (found.file,)), ("complete", found.complete)):
        if any(name in {".", ".."} or "\0" in name or (key != "complete" and "/" in name) for name in names):
            told.append((f"checkpoints.{key}", "is no name in the output folder"))
    return told


def _stop(found: Stop) -> list[tuple[str, str]]:
    told = [("stop.arguments", "holds a NUL byte") for word in found.arguments if "\0" in word]
    if not 1 <= found.grace <= _LONGEST:
        told.append(("stop.grace", f"is no number of seconds from 1 to {_LONGEST}"))
    told += _when("stop.when", found.when)
    if found.needs and not _NEEDS.fullmatch(found.needs):
        told.append(("stop.needs", f"{found.needs} is not a library and its version, such as transformers 5.0"))
    return told


def _expression(key: str, expression: str) -> list[tuple[str, str]]:
    try:
        groups = set(re.compile(expression).groupindex)
    except (re.error, RecursionError, OverflowError) as error:
        return [(key, f"is no regular expression: {error}")]
    if not groups or groups - _GROUPS:
        return [(key, f"name its groups as some of {', '.join(sorted(_GROUPS))}")]
    return []
