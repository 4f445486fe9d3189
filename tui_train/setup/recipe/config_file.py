"""The file that a trainer reads: the user's own with the recipe's values put in, another one for each attempt."""

import copy
from collections.abc import Mapping
from typing import Any

from tui_train.base.command import (
    CHECKPOINT_VARIABLE,
    CommandWord,
    ConfigFile,
    PlainData,
    join_pieces,
    word_in_run_dir,
    word_with_placeholders,
)
from tui_train.base.text import display_path
from tui_train.facts.types import Facts
from tui_train.profile.presets import PLACEHOLDER_PATTERN, Preset, PresetArgument, condition_holds, nested_texts
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.fill_config import filled_config_path
from tui_train.setup.recipe.options import get_nested_value
from tui_train.setup.recipe.placeholder_values import (
    PlaceholderValue,
    fill_placeholders,
    first_word_by_placeholder,
    placeholder_words,
)
from tui_train.setup.setup import Setup


def config_file_name(profile: Profile, preset: Preset, attempt_number: int) -> str:
    """Return the name of an attempt's file: config.yaml, config-2.yaml …; empty where none is written."""
    if preset.file is None or not (preset.file.needs_user_file or profile.trainer.config or profile.trainer.data):
        return ""
    stem, dot, ending = preset.file.path.rpartition(".")
    return preset.file.path if attempt_number == 1 else f"{stem}-{attempt_number}{dot}{ending}"


def does_file_hold_run_paths(preset: Preset) -> bool:
    """Return whether the preset's file holds a path that only the running script knows."""
    rule, file = preset.checkpoints, preset.file
    texts = (text for value in (file.values if file else ()) for text in nested_texts(value.value))
    return bool(rule and rule.values) or any("{output}" in text for text in texts)


def config_placeholder_word(profile: Profile, preset: Preset, path: str) -> CommandWord:
    """Return what {config} stands for: the written file, or, where the preset writes none, the user's own."""
    if not path:
        return profile.trainer.config if preset.file is None else ""
    return word_in_run_dir(filled_config_path(path) if does_file_hold_run_paths(preset) else path)


def build_config_file(setup: Setup, values: Mapping[str, PlaceholderValue], path: str) -> ConfigFile | None:
    """Return the file of one attempt, None where the preset writes none; `values` are what placeholders stand for."""
    chosen = setup.preset
    if chosen.file is None or not path:
        return None
    base = setup.profile.trainer.config
    document = setup.facts.documents.get(base) if base else None
    document_values: dict[str, PlainData] = copy.deepcopy(document.values) if document else {}
    rule = chosen.checkpoints
    first_values = first_word_by_placeholder(placeholder_words(values))
    for dropped in chosen.file.without:
        if condition_holds(dropped.when, first_values):
            _remove_nested_value(document_values, dropped.key.split("."))
    for entry in (*chosen.file.values, *(rule.values if rule else ())):
        if condition_holds(entry.when, first_values):
            filled_value, is_set = _filled_template_and_is_set(
                entry.value, {**values, "checkpoint": join_pieces((CHECKPOINT_VARIABLE,))}
            )
            if is_set:
                _set_nested_value(document_values, entry.key.split("."), filled_value)
    source = (
        f"A copy of {display_path(base)} with the chosen values; comments are lost." if base else "The chosen values."
    )
    return ConfigFile(path, source, document_values)


def resume_checkpoint_value_in_user_file(profile: Profile, preset: Preset, facts: Facts) -> PlainData:
    """Return what the user's file says in place of a checkpoint to resume from, None where it says nothing."""
    document, rule = facts.documents.get(profile.trainer.config), preset.checkpoints
    value = get_nested_value(document.values, rule.values[0].key) if document and rule and rule.values else None
    return value if isinstance(value, (str, bool, int, float)) else None


def keys_holding_value_instead_of_table(values: Mapping[str, Any], preset: Preset) -> tuple[str, ...]:
    """Return the keys under which a user's file has a single value, where the preset needs a table."""
    rule = preset.checkpoints
    tables = {}
    for value in (*(preset.file.values if preset.file else ()), *(rule.values if rule else ())):
        *path, _ = value.key.split(".")
        for depth in range(1, len(path) + 1):
            key = ".".join(path[:depth])
            tables[key] = get_nested_value(values, key)
    return tuple(key for key, held in tables.items() if held is not None and not isinstance(held, dict))


def _filled_template_and_is_set(template: PlainData, values: Mapping[str, PlaceholderValue]) -> tuple[PlainData, bool]:
    """Return a value, a list or a table with placeholders filled in; a text that is nothing but one keeps its type."""
    if isinstance(template, list):
        inner = [_filled_template_and_is_set(item, values) for item in template]
        return [item for item, _ in inner], all(is_set for _, is_set in inner)
    if isinstance(template, dict):
        table = {name: _filled_template_and_is_set(item, values) for name, item in template.items()}
        return {name: item for name, (item, _) in table.items()}, all(is_set for _, is_set in table.values())
    if not isinstance(template, str):
        return template, True
    placeholder = PLACEHOLDER_PATTERN.fullmatch(template)
    if placeholder and placeholder[1] in values:
        return _plain_data_and_is_set(values[placeholder[1]])
    filled_in = fill_placeholders(PresetArgument((template,)), placeholder_words(values))
    return (word_with_placeholders(filled_in[0][0]), True) if filled_in else (None, False)


def _plain_data_and_is_set(value: PlaceholderValue) -> tuple[PlainData, bool]:
    if isinstance(value, tuple):
        return [word_with_placeholders(word) for word in value], bool(value)
    if isinstance(value, (bool, int, float)):
        return value, True
    return word_with_placeholders(value), bool(value)


def _set_nested_value(table: dict[str, Any], path: list[str], value: PlainData) -> None:
    *above, last = path
    for name in above:
        if not isinstance(table.get(name), dict):
            table[name] = {}
        table = table[name]
    table[last] = value


def _remove_nested_value(table: dict[str, Any], path: list[str]) -> None:
    *above, last = path
    current: Any = table
    for name in above:
        current = current.get(name) if isinstance(current, dict) else None
    if isinstance(current, dict):
        current.pop(last, None)
