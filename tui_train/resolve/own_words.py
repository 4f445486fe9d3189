"""What the user's own arguments set, and by which options and keys a preset sets the same."""

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from tui_train.presets import PLACEHOLDER, Preset
from tui_train.profile import batch
from tui_train.profile.types import Profile

# What begins so behind an option is another one; a negative number is its value.
_OPTION = re.compile(r"--|-[A-Za-z]")


class Said(NamedTuple):
    """An argument in one word or two, from `at` on: its option without dashes, and its value, "true" of a switch."""

    at: int
    words: tuple[str, ...]
    option: str
    value: str


class Rule(NamedTuple):
    """How a preset says a value: by an option or key alone, or, where it has `wanted`, by this value of it.

    One that is not `whole` says more than the value, and cannot be read back.
    """

    name: str
    option: str
    wanted: object = None
    stands_for: str = ""
    whole: bool = True


def arguments(words: tuple[str, ...], *, bare: bool = True) -> Iterator[Said]:
    """Yield what arguments set; `bare`: some trainers take OPTION=VALUE without dashes."""
    for place, (word, after) in enumerate(pairwise((*words, "--"))):
        option, equals, value = word.partition("=")
        if not (option.startswith("-") or (equals and bare)):
            continue
        split = not equals and not _OPTION.match(after)
        yield Said(place, (word, after) if split else (word,), folded(option), after if split else value or "true")


def rules(preset: Preset) -> Iterator[Rule]:
    """Yield how a preset says values, by its arguments and by its file."""
    for argument in preset.arguments:
        name, equals, meant = argument.when.partition("=")
        if equals and not name.endswith("!"):
            option, _, value = argument.words[0].partition("=")
            yield Rule(name, folded(option), value or "true", meant)
        for before, word in pairwise(("", *argument.words)):
            option, _, value = word.partition("=") if "=" in word else (before, "", word)
            for name in PLACEHOLDER.findall(value) if option else ():
                yield Rule(name, folded(option), whole=value == f"{{{name}}}")
    conditions: set[str] = set()
    for entry in preset.file.values if preset.file else ():
        name, equals, meant = entry.when.partition("=")
        if equals and not name.endswith("!") and entry.when not in conditions:
            # The first key of a condition says it; those beside it are what else it takes.
            conditions.add(entry.when)
            yield Rule(name, entry.key, entry.value, meant)
        elif isinstance(entry.value, str) and (whole := PLACEHOLDER.fullmatch(entry.value)):
            yield Rule(whole[1], entry.key)


def options(name: str, preset: Preset) -> frozenset[str]:
    """Return the options and keys by which a preset says a value, without dashes.

    What depends on a batch does not say it.
    """
    matching = (rule for rule in rules(preset) if rule.name == name)
    return frozenset(rule.option for rule in matching if rule.wanted is None or name not in batch.TAKEN)


def own_arguments(name: str, profile: Profile, preset: Preset) -> tuple[Said, ...]:
    """Return the user's own arguments that say what the preset says by a placeholder."""
    names = options(name, preset)
    own: list[Said] = []
    for argument in arguments(profile.trainer.arguments) if names else ():
        if argument.option not in names:
            continue
        if f"{{{name}}}" in argument.value:
            # The last one holds.
            own.clear()
        else:
            own.append(argument)
    return tuple(own)


def own_batch(profile: Profile, preset: Preset) -> tuple[Said, ...]:
    """Return the user's own arguments that set the batch."""
    return tuple(argument for name in sorted(batch.TAKEN) for argument in own_arguments(name, profile, preset))


def folded(option: str) -> str:
    """Return an option as it is spelled in files."""
    return option.lstrip("-+").replace("-", "_")


def at(values: Mapping[str, Any], key: str) -> Any:
    """Return the value at a key with dots between levels, None where there is none."""
    value: Any = values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
