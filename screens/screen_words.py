"""Texts of checks, diagnoses and errors as a screen says them: fields by their labels, commands as they are typed."""

import re
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from tui_train.base.own_command import PROGRAM_NAME, with_runnable_commands

from . import STEPS, load_step_module

if TYPE_CHECKING:
    from tui_train.checks.finding import Finding
    from tui_train.profile.types import Profile

# What follows is what the user types, word for word.
_WORDS_BEFORE_TYPED_TEXT = "Write it as "
# "Layers (Layers on Recipe)", where the command line has "Layers (recipe.layers)".
_LABEL_TWICE_PATTERN = re.compile(r"(?P<label>[A-Z][^()\n]{1,40}) \((?P=label)(?P<step> on [A-Z]\w+)\)")


def words_on_screen(text: str, profile: "Profile | None" = None) -> str:
    """Return a text that names fields by where they stand, `Learning rate on Recipe` for `recipe.learning_rate`.

    The labels are those of a profile, by default of a new one. What the user is to type keeps its keys.
    """
    named = (
        _profile_key_pattern().sub(lambda match: _label_and_step_text(match, profile), text) if "." in text else text
    )
    return with_runnable_commands(_LABEL_TWICE_PATTERN.sub(r"\g<label>\g<step>", named))


def with_words_for_options(text: str, words_by_option: Mapping[str, str]) -> str:
    """Return the text of a command as a screen says it, with its own words or keys for options of that command."""
    for option, words in words_by_option.items():
        text = text.replace(option, words)
    return text


def finding_on_screen(finding: "Finding", profile: "Profile") -> "Finding":
    """Return a finding in the words of a screen; an installation with its size on disk, unless that is known."""
    from msgspec.structs import replace

    message, remedy, keys = (words_on_screen(text, profile) for text in (finding.message, finding.remedy, finding.keys))
    install = finding.install
    if install and "GB" not in install.title:
        from tui_train.actions.environments import find_package_set

        made = find_package_set(install.set_name)
        smallest = "" if install.with_cuda else f"{made.gigabytes} to "
        install = replace(install, title=f"{install.title} ({smallest}{made.gigabytes_with_cuda} GB)")
    return replace(finding, message=message, remedy=remedy, keys=keys, install=install)


def _label_and_step_text(match: re.Match[str], profile: "Profile | None") -> str:
    from tui_train.profile.types import Profile
    from tui_train.trainers import field_with_trainer_texts

    key, value = match["key"], match["value"]
    step = _step_title_by_key().get(key, "")
    before = match.string[: match.start()]
    is_of_command = match[0].startswith("--set") and f"{PROGRAM_NAME} " in before
    if not step or is_of_command or before.endswith(_WORDS_BEFORE_TYPED_TEXT):
        return match[0]
    return f"{field_with_trainer_texts(key, profile or Profile()).label} on {step}{f' = {value}' if value else ''}"


@cache
def _profile_key_pattern() -> re.Pattern[str]:
    """Return what finds the key of a field, also with a value; no part of a path or of a longer name is one."""
    from tui_train.profile.fields import FIELDS

    keys = "|".join(map(re.escape, sorted((key for key in FIELDS if "." in key), key=len, reverse=True)))
    return re.compile(rf"(?:--set[ =])?(?<![\w./-])(?P<key>{keys})(?![\w-]|\.\w)(?:=(?P<value>[\w.:/-]*\w))?")


@cache
def _step_title_by_key() -> dict[str, str]:
    """Return on which step each field stands; a step is imported only where a text names a field."""
    kinds = [(step.title, load_step_module(step.module).SCREEN) for step in STEPS[:-1]]
    return {key: title for title, kind in kinds for key in kind.field_keys()}


def is_shown_on_recipe_alone(finding: "Finding") -> bool:
    """Return whether a finding only explains a row of Recipe, whose hint it is, and is not repeated elsewhere."""
    explains_row = finding.key in {"finetune.answers_only", "recipe.micro_batch"} and finding.fix is None
    return finding.level == "note" and explains_row
