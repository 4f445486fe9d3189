"""Profiles on disk: strict reading, and saving that never overwrites unasked."""

import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import tomli_w

from tui_train.base import webhook
from tui_train.base.app_paths import expand_home, profiles_folder
from tui_train.base.errors import AlreadyExists, BadInput, NotFound
from tui_train.base.files import PRIVATE_FILE_MODE, raising_cannot_write, write_atomically, write_if_absent
from tui_train.base.parse import (
    MissingFile,
    Unparsable,
    parse_toml_table,
    read_file_to_parse,
    type_prepared_for_msgspec,
)
from tui_train.base.text import visible
from tui_train.profile import fields
from tui_train.profile.presets import shipped_presets
from tui_train.profile.presets.user_presets import msgspec_message_with_key_first, user_preset_names
from tui_train.profile.secret_values import WEBHOOK_PROFILE_KEY, find_secret_positions
from tui_train.profile.types import AUTO_PRESET, SCHEMA_VERSION, Profile

# A profile has some hundred lines at most.
_MAX_PROFILE_FILE_BYTES = 1 << 20
_TRAINING_FILE_SUFFIXES = (".py", ".sh", ".yaml", ".yml")
_PROFILE_NAME_PATTERN = re.compile(r"(?!.*\.toml$)[^\W_][\w .+-]{0,79}")
# The line with the name at the top of a file, before its sections.
_NAME_LINE_PATTERN = re.compile(r"(?<![^\n])name\s*=[^\n]*")
# The built-in trainer's own preset: no script is passed anything by it.
_BUILTIN_TRAINER_PRESET = "builtin"


def profile_to_toml(profile: Profile) -> str:
    """Return what was chosen as TOML; read back it is equal, but for the address of a webhook: it names its file."""
    data: dict[str, Any] = {"schema": SCHEMA_VERSION, "name": profile.name}
    for key in fields.chosen_keys(profile):
        section, _, name = key.partition(".")
        value = fields.get_value(profile, key)
        stored = webhook.webhook_file_or_name(str(value)) if key == WEBHOOK_PROFILE_KEY else value
        data.setdefault(section, {})[name] = msgspec.to_builtins(stored)
    return tomli_w.dumps(data)


def profile_from_toml(text: bytes | str, source: str = "the profile", folder: Path | None = None) -> Profile:
    """Return the profile in a TOML text; relative paths are taken from `folder`, `source` names it in a BadInput."""
    try:
        data = parse_toml_table(text)
    except Unparsable as error:
        remedy = "Fix that line of the file." if "line" in str(error) else "Give a TOML profile."
        raise BadInput(f"{source} is not TOML: {error}", remedy) from None
    schema = data.get("schema", SCHEMA_VERSION)
    if isinstance(schema, int) and schema > SCHEMA_VERSION:
        raise BadInput(
            f"{source} has schema {schema}, this program knows {SCHEMA_VERSION}", "Install a newer tui-train."
        )
    _refuse_unknown_keys(data, source)
    try:
        profile = msgspec.convert(data, type_prepared_for_msgspec(Profile), strict=True)
    except msgspec.ValidationError as error:
        raise BadInput(
            f"{source}: {msgspec_message_with_key_first(str(error))}", "Fix that value in the file."
        ) from None
    try:
        for row in fields.FIELDS.values():
            value = fields.value_with_absolute_paths(row, fields.get_value(profile, row.key), folder)
            profile = fields.profile_with_value(profile, row.key, value)
        require_known_preset(profile)
    except BadInput as error:
        raise BadInput(f"{source}: {error.message}", error.remedy) from None
    return profile


def load_profile_file(reference: str) -> Profile:
    """Return the profile of a path or of a saved name; NotFound lists the saved ones."""
    path = profile_path(reference)
    is_saved = "/" not in reference and path.is_file()
    if reference.endswith(_TRAINING_FILE_SUFFIXES) and Path(reference).is_file() and not is_saved:
        command = [*(["python"] if reference.endswith(".py") else []), reference]
        remedy = f"Make a profile of it: tui-train import {visible(shlex.join(command))}"
        raise BadInput(f"{visible(reference)} is no profile but a file to train with", remedy)
    try:
        text = read_file_to_parse(path, _MAX_PROFILE_FILE_BYTES)
    except MissingFile:
        saved = visible(", ".join(saved_profile_names())) or "none yet"
        raise NotFound(f"there is no profile {visible(reference)}", f"Saved profiles: {saved}.") from None
    except Unparsable as error:
        raise BadInput(
            f"cannot read {visible(str(path))}: {error}", "Name a TOML file that exists and that you may read."
        ) from None
    return profile_from_toml(text, visible(str(path)), path.parent.absolute())


def profile_path(reference: str) -> Path:
    """Return the file of a profile: a path when it looks like one, else the saved profile of that name."""
    if "/" in reference or reference.endswith(".toml"):
        return expand_home(reference)
    return profiles_folder() / f"{reference}.toml"


def saved_profile_names() -> tuple[str, ...]:
    """Return the names of the saved profiles, sorted."""
    try:
        return tuple(sorted(path.stem for path in profiles_folder().glob("*.toml")))
    except OSError:
        return ()


def save_profile(profile: Profile, *, overwrite: bool = False) -> Path:
    """Save a profile under its name; CannotWrite if there is one, else as `require_savable_profile`."""
    require_savable_profile(profile)
    return _write_profile(profile, profile_to_toml(store_webhook_of_profile(profile)), overwrite=overwrite)


def require_savable_profile(profile: Profile) -> None:
    """Raise BadInput for a name that is no file name, an unknown preset, and a value that is a secret."""
    require_usable_profile_name(profile.name)
    require_known_preset(profile)
    for secret in find_secret_positions(profile):
        if secret.certain:
            remedy = "Name the variable under trainer.secrets, and export it where you start the run."
            message = f"{visible(secret.description)} looks like a secret, and profiles are files: it is not saved"
            raise BadInput(message, remedy)


def store_webhook_of_profile(profile: Profile) -> Profile:
    """Write the address of a webhook to its file, and return the profile that names that; CannotWrite if it fails."""
    return fields.profile_with_value(profile, WEBHOOK_PROFILE_KEY, webhook.store_webhook(profile.notify.webhook))


def require_usable_profile_name(name: str) -> None:
    """Raise BadInput for what cannot be the name of a file, or means a run."""
    if name == "last":
        raise BadInput("a profile cannot be called last: that is the newest run", "Give it another name.")
    if not _PROFILE_NAME_PATTERN.fullmatch(name):
        raise BadInput(
            f"{visible(name)!r} cannot be a profile's name",
            "Use letters, digits, spaces and . + - _ only, begin with a letter or digit, and leave .toml away.",
        )


def refuse_to_replace_profile(name: str) -> None:
    """Raise AlreadyExists where a saved profile has that name."""
    if name in saved_profile_names():
        raise _already_exists_error(name)


def _already_exists_error(name: str) -> AlreadyExists:
    message = f"a profile named {name} already exists"
    change = f"tui-train profiles change {name} --set KEY=VALUE"
    return AlreadyExists(message, f"Change it ({change}), choose another name, or replace all of it (--force).")


def _write_profile(profile: Profile, text: str, *, overwrite: bool = False) -> Path:
    path = profiles_folder() / f"{profile.name}.toml"
    if overwrite:
        write_atomically(path, text, PRIVATE_FILE_MODE)
    elif not write_if_absent(path, text, PRIVATE_FILE_MODE):
        raise _already_exists_error(profile.name)
    return path


def remove_profile(name: str) -> None:
    """Remove a saved profile; NotFound where there is none of that name."""
    path = saved_profile_path(name)
    with raising_cannot_write(path):
        path.unlink()


def rename_profile(name: str, new_name: str) -> Path:
    """Give a saved profile another name; its runs keep the one they were started under."""
    copied = duplicate_profile(name, new_name)
    remove_profile(name)
    return copied


def duplicate_profile(name: str, new_name: str) -> Path:
    """Save a saved profile once more under another name, its comments included; AlreadyExists where that is taken."""
    path_for_copy(name, new_name)
    path = saved_profile_path(name)
    copied = fields.profile_with_value(load_profile_file(name), "name", new_name)
    text, count = _NAME_LINE_PATTERN.subn(
        lambda _: f"name = {_toml_string_literal(new_name)}",
        read_file_to_parse(path, _MAX_PROFILE_FILE_BYTES).decode("utf-8-sig"),
        1,
    )
    try:
        reads_back = count == 1 and profile_from_toml(text, folder=path.parent) == copied
    except BadInput:
        reads_back = False
    return _write_profile(copied, text if reads_back else profile_to_toml(copied))


def path_for_copy(name: str, new_name: str) -> Path:
    """Return the file of a saved profile's copy; the errors are those of `duplicate_profile`."""
    saved_profile_path(name)
    require_usable_profile_name(new_name)
    refuse_to_replace_profile(new_name)
    return profiles_folder() / f"{new_name}.toml"


def _toml_string_literal(name: str) -> str:
    return tomli_w.dumps({"name": name}).partition(" = ")[2].strip()


def saved_profile_path(name: str) -> Path:
    """Return the file of a saved profile; NotFound lists those that there are."""
    if name in saved_profile_names():
        return profiles_folder() / f"{name}.toml"
    existing = visible(", ".join(saved_profile_names())) or "none yet"
    raise NotFound(f"there is no saved profile {visible(name)}", f"Saved profiles: {existing}.")


def require_known_preset(profile: Profile) -> None:
    """Raise BadInput where the profile names no preset that there is, or the built-in trainer's for a script."""
    trainer = profile.trainer
    names = dict.fromkeys((AUTO_PRESET, *shipped_presets(), *user_preset_names()))
    known = tuple(name for name in names if name != _BUILTIN_TRAINER_PRESET)
    if trainer.preset not in known and not trainer.preset == trainer.kind == _BUILTIN_TRAINER_PRESET:
        raise BadInput(
            f"trainer.preset is {visible(trainer.preset)!r}", fields.similar_word_remedy(trainer.preset, known)
        )


def _refuse_unknown_keys(data: dict[str, Any], source: str) -> None:
    known = ("schema", *dict.fromkeys(key.partition(".")[0] for key in fields.FIELDS))
    for name, value in data.items():
        is_section = name in known and isinstance(value, dict)
        for key in [f"{name}.{each}" for each in value] if is_section else [name]:
            if key not in fields.FIELDS and key not in known:
                by_name = fields.similar_word_remedy(key, known)
                remedy = fields.similar_key_remedy(key) if "." in key else by_name
                raise BadInput(f"{source}: {visible(key)} is not a key", remedy)
