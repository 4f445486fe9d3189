"""The file that a trainer reads: the user's own with the recipe's values put in, another one for each attempt."""

import copy
from collections.abc import Mapping
from typing import Any

from tui_train.facts.types import Facts
from tui_train.plan.arguments import fill, plain
from tui_train.plan.resolve import Resolved
from tui_train.plan.types import CHECKPOINT, ConfigFile, Plain, Word, filled, in_run_dir, joined, marked
from tui_train.plan.values import Value, words
from tui_train.presets import PLACEHOLDER, Argument, FileValue, Preset, applies
from tui_train.profile.types import Profile
from tui_train.text import home


def path_of(chosen: Preset, number: int) -> str:
    """Return the name of an attempt's file: config.yaml, config-2.yaml …; empty where the preset writes none."""
    if chosen.file is None:
        return ""
    stem, dot, ending = chosen.file.path.rpartition(".")
    return chosen.file.path if number == 1 else f"{stem}-{number}{dot}{ending}"


def holds_paths(chosen: Preset) -> bool:
    """Tell whether the preset's file holds a path that only the running script knows."""
    rule, file = chosen.checkpoints, chosen.file
    return bool(rule and rule.values) or any("{output}" in str(value.value) for value in (file.values if file else ()))


def word_of(profile: Profile, chosen: Preset, path: str) -> Word:
    """Return what {config} stands for: the written file, or, where the preset writes none, the user's own."""
    if not path:
        return profile.trainer.config
    return in_run_dir(filled(path) if holds_paths(chosen) else path)


def config_file(
    profile: Profile, facts: Facts, resolved: Resolved, found: Mapping[str, Value], path: str
) -> ConfigFile | None:
    """Return the file of one attempt, None where the preset writes none; `found` is what placeholders stand for."""
    chosen = resolved.preset
    if chosen.file is None:
        return None
    base = profile.trainer.config
    document = facts.documents.get(base) if base else None
    whole: dict[str, Plain] = copy.deepcopy(document.values) if document else {}
    for key in chosen.file.without:
        _drop(whole, key.split("."))
    rule = chosen.checkpoints
    text = plain(words(found))
    for value in (*chosen.file.values, *(rule.values if rule else ())):
        if applies(value.when, text):
            put, is_there = _value(value, {**found, "checkpoint": joined((CHECKPOINT,))})
            if is_there:
                _put(whole, value.key.split("."), put)
    source = f"A copy of {home(base)} with the recipe put in; comments are lost." if base else "The recipe's values."
    return ConfigFile(path, source, whole)


def clashes(values: Mapping[str, Any], chosen: Preset) -> tuple[str, ...]:
    """Return the keys under which a user's file has a single value, where the preset needs a table."""
    found = []
    rule = chosen.checkpoints
    for value in (*(chosen.file.values if chosen.file else ()), *(rule.values if rule else ())):
        at: Any = values
        *path, _ = value.key.split(".")
        for depth, name in enumerate(path, start=1):
            at = at.get(name, {})
            if at is None:
                break
            if not isinstance(at, dict):
                found.append(".".join(path[:depth]))
                break
    return tuple(dict.fromkeys(found))


def _value(value: FileValue, found: Mapping[str, Value]) -> tuple[Plain, bool]:
    """Return a value with its placeholders filled in, typed where it is nothing but one, and whether it is there."""
    if not isinstance(value.value, str):
        return value.value, True
    whole = PLACEHOLDER.fullmatch(value.value)
    if whole and whole[1] in found:
        return _typed(found[whole[1]])
    filled_in = fill(Argument((value.value,)), words(found))
    return (marked(filled_in[0][0]), True) if filled_in else (None, False)


def _typed(value: Value) -> tuple[Plain, bool]:
    if isinstance(value, tuple):
        return [marked(word) for word in value], bool(value)
    if isinstance(value, (bool, int, float)):
        return value, True
    return marked(value), bool(value)


def _put(whole: dict[str, Any], path: list[str], value: Plain) -> None:
    *above, last = path
    for name in above:
        if not isinstance(whole.get(name), dict):
            whole[name] = {}
        whole = whole[name]
    whole[last] = value


def _drop(whole: dict[str, Any], path: list[str]) -> None:
    *above, last = path
    at: Any = whole
    for name in above:
        at = at.get(name) if isinstance(at, dict) else None
    if isinstance(at, dict):
        at.pop(last, None)
