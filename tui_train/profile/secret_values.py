"""The values of a profile that look like secrets, wherever they stand in it."""

import shlex
from collections.abc import Iterator
from typing import NamedTuple

from tui_train.base import secrets, webhook
from tui_train.profile import fields
from tui_train.profile.types import Profile

ENVIRONMENT = "trainer.environment"
# Those of variables, which name secrets.
_NAMES = "trainer.secrets"
# Its address is kept in a file, and the profile names that.
_WEBHOOK = "notify.webhook"


class SecretValue(NamedTuple):
    """Where a value that looks like a secret is: its key, and the name of its variable or argument, empty for none.

    `sure`: its format or its name proves it; it is saved nowhere.
    """

    key: str
    name: str
    sure: bool

    @property
    def words(self) -> str:
        """The place in words."""
        return self.name or ("an argument" if self.key == "trainer.arguments" else self.key)


def secret_values(profile: Profile) -> Iterator[SecretValue]:
    """Yield the values of a profile that look like secrets."""
    for key in fields.chosen(profile):
        value = fields.get(profile, key)
        if isinstance(value, dict):
            yield from _in_table(key, value)
        elif isinstance(value, tuple):
            words = tuple(map(str, value))
            yield from _in_names(key, words) if key == _NAMES else _in_words(key, words)
        elif isinstance(value, str) and key != _WEBHOOK and secrets.formed(value):
            yield SecretValue(key, "", sure=True)


def without(profile: Profile) -> Profile:
    """Return a profile without the values that surely are secrets."""
    for secret in [found for found in secret_values(profile) if found.sure]:
        value = fields.get(profile, secret.key)
        if isinstance(value, dict):
            rest = {name: text for name, text in value.items() if name != secret.name}
            profile = fields.put(profile, secret.key, rest)
        else:
            profile = fields.put(profile, secret.key, fields.get(Profile(), secret.key))
    return profile


def displayed(profile: Profile, key: str) -> str:
    """Return the value of a key as it would be typed, without what looks like a secret."""
    value = fields.get(profile, key)
    if isinstance(value, dict):
        hidden = {secret.name for secret in _in_table(key, value)}
        return fields.show({name: "…" if name in hidden else text for name, text in value.items()})
    if key == _WEBHOOK:
        return webhook.shown(str(value))
    return secrets.mask(fields.show(value))[0]


def _in_table(key: str, table: dict[str, str]) -> Iterator[SecretValue]:
    for name, value in table.items():
        if secrets.formed(value) or (key == ENVIRONMENT and fields.looks_secret(name)):
            yield SecretValue(key, name, sure=True)
        elif key != ENVIRONMENT and secrets.named(name) and not secrets.is_plain(value):
            yield SecretValue(key, name, sure=False)


def _in_names(key: str, names: tuple[str, ...]) -> Iterator[SecretValue]:
    if any(map(secrets.formed, names)):
        yield SecretValue(key, "", sure=True)


def _in_words(key: str, words: tuple[str, ...]) -> Iterator[SecretValue]:
    found = [SecretValue(key, name, sure) for name, _, sure in secrets.in_words(words)]
    yield from found
    # A password of a command, such as curl -u, shows only beside the words before it.
    if not any(secret.sure for secret in found) and secrets.formed(shlex.join(words)):
        yield SecretValue(key, "", sure=True)
