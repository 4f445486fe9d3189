"""Arguments that a script refused: who passed them, what the script takes, and the Change that leaves them out."""

import re

from tui_train.base.text import visible
from tui_train.checks.preset import AUTOMATIC, several, takes, whole
from tui_train.checks.script_arguments import instead, near
from tui_train.diagnose.types import Evidence
from tui_train.presets import Preset
from tui_train.profile.changes import Change
from tui_train.profile.types import AUTO, Profile
from tui_train.resolve.options import arguments, folded

_REFUSED = re.compile(r"(?:unrecognized arguments?|not used by the HfArgumentParser|[Nn]o such option):? (?P<words>.+)")
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")


def remedy(evidence: Evidence, profile: Profile) -> str:
    """Return what to do about unknown arguments, empty where it is not known who passed them."""
    preset, source = evidence.preset, evidence.source
    takes_words = takes(source) if source and whole(source) else ""
    said = f"; {takes_words}" if takes_words else ""
    if by_preset := _by_preset(evidence):
        label = visible(preset.label) if preset else ""
        remedy = "Choose the preset auto, which passes what the script declares, or custom."
        return f"The preset “{label}” passes {several(by_preset)}{said}. {remedy}"
    if by_user := _by_user(evidence, profile):
        stand = "stands" if len(by_user) == 1 else "stand"
        meant = _meant(evidence, by_user)
        do = f"Did you mean {visible(meant)}?" if meant else "Leave out what it does not take."
        return f"{several(by_user)} {stand} in trainer.arguments{said}. {do}"
    return ""


def change(profile: Profile, evidence: Evidence) -> Change | None:
    """Return the Change to the preset that passes what a script declares, or of what the user typed.

    That is the option which was meant, or else the arguments without what is unknown.
    """
    if _by_preset(evidence):
        return AUTOMATIC if profile.trainer.preset != AUTO else None
    by_user, left = _by_user(evidence, profile), profile.trainer.arguments
    typed = [option for option in arguments(left, bare=False) if option.words[0].partition("=")[0] in by_user]
    if len(typed) == 1 and (meant := _meant(evidence, by_user)):
        return instead(left, typed[0].at, meant)
    for option in reversed(typed):
        left = option.left_out(left)
    title = f"leave out {several(by_user)}"
    return Change(title, "the script does not take it", (("trainer.arguments", left),)) if by_user else None


def _refused(evidence: Evidence) -> tuple[str, ...]:
    """Return the options that the log says are unknown."""
    found = next(filter(None, (_REFUSED.search(line.text) for line in evidence.lines)), None)
    return tuple(dict.fromkeys(_FLAG.findall(found["words"]))) if found else ()


def _by_preset(evidence: Evidence) -> list[str]:
    options = {folded(word.partition("=")[0]) for word in _added(evidence.preset)} if evidence.preset else set()
    return [flag for flag in _refused(evidence) if folded(flag) in options]


def _by_user(evidence: Evidence, profile: Profile) -> list[str]:
    there = {option.words[0].partition("=")[0] for option in arguments(profile.trainer.arguments, bare=False)}
    return [flag for flag in _refused(evidence) if flag in there]


def _meant(evidence: Evidence, by_user: list[str]) -> str:
    """Return the option that the only unknown one is most like, empty for none."""
    source = evidence.source
    return near(source, by_user[0]) if source and whole(source) and len(by_user) == 1 else ""


def _added(preset: Preset) -> list[str]:
    resume = preset.checkpoints.resume if preset.checkpoints else ()
    words = [word for argument in preset.arguments for word in argument.words]
    return [word for word in (*words, *preset.stop.arguments, *resume) if word.startswith("-")]
