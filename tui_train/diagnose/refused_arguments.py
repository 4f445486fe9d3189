"""Arguments that a script refused: who passed them, what the script takes, and the Change that leaves them out."""

import re

from tui_train.base.text import visible
from tui_train.checks.trainer.declared_arguments import most_similar_declared_option, replace_option_change
from tui_train.checks.trainer.preset import (
    USE_AUTO_PRESET_CHANGE,
    are_arguments_fully_known,
    declared_arguments_text,
    flag_list_text,
)
from tui_train.diagnose.types import Evidence
from tui_train.profile.changes import Change
from tui_train.profile.presets import Preset
from tui_train.profile.types import AUTO_PRESET, Profile
from tui_train.setup.recipe.options import given_options, normalized_option

_REFUSED_PATTERN = re.compile(
    r"(?:unrecognized arguments?|not used by the HfArgumentParser|[Nn]o such option|Could not consume arg"
    r"|remaining_argv|(?:[Uu]nknown|[Uu]nexpected|[Uu]nused) arg\w*):? "
    # What may have been meant is not refused.
    r"(?P<words>.+?)(?:Did you mean|\(Possible options|$)"
)
_FLAG_PATTERN = re.compile(r"(?<![\w-])--?[A-Za-z](?:[\w.-]*\w)?")


def refused_arguments_remedy(evidence: Evidence, profile: Profile) -> str:
    """Return what to do about unknown arguments, empty where it is not known who passed them."""
    preset, source = evidence.preset, evidence.script_source
    takes_words = declared_arguments_text(source) if source and are_arguments_fully_known(source) else ""
    takes_text = f"; {takes_words}" if takes_words else ""
    if by_preset := _refused_options_passed_by_preset(evidence):
        label = visible(preset.label) if preset else ""
        remedy = "Choose the preset auto, which passes what the script declares, or custom."
        return f"The preset “{label}” passes {flag_list_text(by_preset)}{takes_text}. {remedy}"
    if by_user := _refused_options_typed_by_user(evidence, profile):
        stand = "stands" if len(by_user) == 1 else "stand"
        meant = _likely_meant_option(evidence, by_user)
        do = f"Did you mean {visible(meant)}?" if meant else "Leave out what it does not take."
        return f"{flag_list_text(by_user)} {stand} in trainer.arguments{takes_text}. {do}"
    return ""


def refused_arguments_change(profile: Profile, evidence: Evidence) -> Change | None:
    """Return the Change to the preset that passes what a script declares, or of what the user typed.

    That is the option which was meant, or else the arguments without what is unknown.
    """
    if _refused_options_passed_by_preset(evidence):
        return USE_AUTO_PRESET_CHANGE if profile.trainer.preset != AUTO_PRESET else None
    by_user, left = _refused_options_typed_by_user(evidence, profile), profile.trainer.arguments
    typed = [
        option
        for option in given_options(left, accept_without_dashes=False)
        if option.words[0].partition("=")[0] in by_user
    ]
    if len(typed) == 1 and (meant := _likely_meant_option(evidence, by_user)):
        return replace_option_change(left, typed[0].position, meant)
    for option in reversed(typed):
        left = option.arguments_without_it(left)
    title = f"leave out {flag_list_text(by_user)}"
    return Change(title, "the script does not take it", (("trainer.arguments", left),)) if by_user else None


def _refused_options(evidence: Evidence) -> tuple[str, ...]:
    """Return the options that the log says are unknown."""
    match = next(filter(None, (_REFUSED_PATTERN.search(line.text) for line in evidence.lines)), None)
    return tuple(dict.fromkeys(_FLAG_PATTERN.findall(match["words"]))) if match else ()


def _refused_options_passed_by_preset(evidence: Evidence) -> list[str]:
    options = (
        {normalized_option(word.partition("=")[0]) for word in _options_of_preset(evidence.preset)}
        if evidence.preset
        else set()
    )
    return [flag for flag in _refused_options(evidence) if normalized_option(flag) in options]


def _refused_options_typed_by_user(evidence: Evidence, profile: Profile) -> list[str]:
    user_options = {
        option.words[0].partition("=")[0]
        for option in given_options(profile.trainer.arguments, accept_without_dashes=False)
    }
    return [flag for flag in _refused_options(evidence) if flag in user_options]


def _likely_meant_option(evidence: Evidence, refused: list[str]) -> str:
    """Return the option that the only unknown one is most like, empty for none."""
    source = evidence.script_source
    return (
        most_similar_declared_option(source, refused[0])
        if source and are_arguments_fully_known(source) and len(refused) == 1
        else ""
    )


def _options_of_preset(preset: Preset) -> list[str]:
    resume = preset.checkpoints.resume if preset.checkpoints else ()
    words = [word for argument in preset.arguments for word in argument.words]
    return [word for word in (*words, *preset.stop.arguments, *resume) if word.startswith("-")]
