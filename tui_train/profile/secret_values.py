"""The values of a profile that look like secrets, wherever they stand in it."""

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tui_train.base import secrets, webhook
from tui_train.profile import fields
from tui_train.profile.types import Profile

ENVIRONMENT_PROFILE_KEY = "trainer.environment"
# Those of variables, which name secrets.
_SECRETS_PROFILE_KEY = "trainer.secrets"
# Its address is kept in a file, and the profile names that.
WEBHOOK_PROFILE_KEY = "notify.webhook"
_NOTIFY_COMMAND_PROFILE_KEY = "notify.command"


class SecretPosition(NamedTuple):
    """Position of a value that looks like a secret: its key, and its variable or argument (empty: none).

    `certain`: its format or its name proves it; it is saved nowhere. `word_indexes` are its words in a list; none: all
    of them.
    """

    key: str
    name: str
    certain: bool
    word_indexes: tuple[int, ...] = ()

    @property
    def description(self) -> str:
        """The place in words."""
        return self.name or ("an argument" if self.key == "trainer.arguments" else self.key)


def find_secret_positions(profile: Profile) -> Iterator[SecretPosition]:
    """Yield the values of a profile that look like secrets."""
    for key in fields.chosen_keys(profile):
        value = fields.get_value(profile, key)
        if isinstance(value, dict):
            yield from _secrets_in_table(key, value)
        elif isinstance(value, tuple):
            words = tuple(map(str, value))
            yield from (
                _secrets_in_names(key, words) if key == _SECRETS_PROFILE_KEY else _secret_positions_in_words(key, words)
            )
        elif isinstance(value, str) and key != WEBHOOK_PROFILE_KEY and secrets.has_secret_format(value):
            yield SecretPosition(key, "", secrets.has_surely_secret_format(value))


def profile_without_secrets(profile: Profile) -> tuple[Profile, tuple[SecretPosition, ...]]:
    """Return a profile without the values that surely are secrets, and those."""
    removed = tuple(found for found in find_secret_positions(profile) if found.certain)
    for key in dict.fromkeys(secret.key for secret in removed):
        of_key = [secret for secret in removed if secret.key == key]
        profile = fields.profile_with_value(
            profile, key, _value_without_secrets(key, fields.get_value(profile, key), of_key)
        )
    return profile, removed


def _value_without_secrets(
    key: str, value: fields.FieldValue, found_secrets: list[SecretPosition]
) -> fields.FieldValue:
    """Return what is left of a value; half a command would be another one."""
    if isinstance(value, dict):
        names = {secret.name for secret in found_secrets}
        return {name: text for name, text in value.items() if name not in names}
    if isinstance(value, tuple) and all(secret.word_indexes for secret in found_secrets):
        places = {at for secret in found_secrets for at in secret.word_indexes}
        return tuple(str(word) for at, word in enumerate(value) if at not in places)
    return fields.get_value(Profile(), key)


def displayed_value(profile: Profile, key: str) -> str:
    """Return the value of a key as it would be typed, without what looks like a secret."""
    value = fields.get_value(profile, key)
    if isinstance(value, dict):
        hidden = {secret.name for secret in _secrets_in_table(key, value)}
        return fields.format_value({name: "…" if name in hidden else text for name, text in value.items()})
    if key == WEBHOOK_PROFILE_KEY:
        return webhook.displayed_webhook(str(value))
    text = fields.format_value(value)
    return secrets.mask_secrets(text)[0] if isinstance(value, (str, tuple)) else text  # a number is no secret


def _secrets_in_table(key: str, table: dict[str, str]) -> Iterator[SecretPosition]:
    for name, value in table.items():
        if secrets.has_surely_secret_format(value) or (
            key == ENVIRONMENT_PROFILE_KEY and fields.is_secret_variable(name)
        ):
            yield SecretPosition(key, name, certain=True)
        elif secrets.has_secret_format(value) or (
            key != ENVIRONMENT_PROFILE_KEY and secrets.is_secret_name(name) and not secrets.is_harmless_value(value)
        ):
            yield SecretPosition(key, name, certain=False)


def _secrets_in_names(key: str, names: tuple[str, ...]) -> Iterator[SecretPosition]:
    places = tuple(at for at, name in enumerate(names) if secrets.has_secret_format(name))
    if places:
        yield SecretPosition(key, "", certain=True, word_indexes=places)


def _secret_positions_in_words(key: str, words: tuple[str, ...]) -> Iterator[SecretPosition]:
    command = key == _NOTIFY_COMMAND_PROFILE_KEY
    found = [
        SecretPosition(key, secret.name, secret.certain, () if command else secret.word_indexes)
        for secret in secrets.find_possible_secret_arguments(words, is_command=command)
    ]
    yield from found
    # A password of a command, such as curl -u, shows only beside the words before it.
    line = shlex.join(words)
    sure = command and secrets.has_surely_secret_format(line, is_command=True)
    if (sure and not any(secret.certain for secret in found)) or (not found and secrets.has_secret_format(line)):
        yield SecretPosition(key, "", sure)
