"""Checks that the options of a fine-tuning are options of TRL's program, which ends at an unknown one."""

import difflib
from collections.abc import Iterator

from tui_train.base.text import quantity
from tui_train.checks.finding import Finding, error, note, warning
from tui_train.checks.recipe.finetune import PROFILE_KEY_BY_PLAN_OPTION
from tui_train.facts.types import Toolchain
from tui_train.profile.changes import Change
from tui_train.profile.types import FinetuneMethod, Profile
from tui_train.setup.recipe import options
from tui_train.setup.recipe.options import UserOption
from tui_train.setup.setup import Setup

# TRL looks for the first by itself, and argparse has the other.
_OPTIONS_OF_EVERY_TRL_PROGRAM = frozenset({"config", "help"})


def unknown_trl_options(setup: Setup) -> Iterator[Finding]:
    """Options that the program does not take, or takes for others because they are the beginning of a name."""
    profile = setup.profile
    words = profile.trainer.arguments
    given_options = [
        each
        for each in options.given_options(words, accept_without_dashes=False)
        if words[each.position].startswith("--")
    ]
    # Those that undo the plan are refused whether TRL has them or not.
    given_options = [each for each in given_options if each.option and each.option not in PROFILE_KEY_BY_PLAN_OPTION]
    names = _trl_option_names(setup.toolchain, profile.finetune.method)
    if given_options and not names:
        yield note(
            "trainer.arguments",
            f"it is not known whether this TRL takes {given_options[0].words[0]}",
            "TRL ends at once if it does not know an option.",
        )
    for option in given_options if names else ():
        name = option.option
        if name not in names and name.removeprefix("no_") not in names:
            yield _unknown_or_abbreviated_option_finding(profile, option, names)


def config_file_values_ignored_by_trl(setup: Setup) -> Iterator[Finding]:
    """Values of the configuration file that this TRL does not have: it ignores them without a word."""
    names, file = _trl_option_names(setup.toolchain, setup.profile.finetune.method), setup.preset.file
    keys = [entry.key for entry in file.values if not entry.when] if file and names else []
    if missing := [key for key in dict.fromkeys(keys) if key not in names]:
        yield warning(
            "trainer.python",
            f"this version of TRL ignores {quantity(len(missing), 'value')} of the plan: {', '.join(missing)}",
            "Choose a Python with another version of TRL (trainer.python), or make one: tui-train env create hf.",
        )


def _trl_option_names(toolchain: Toolchain | None, method: FinetuneMethod) -> frozenset[str]:
    """Return the options of the program for a method, empty where they are not known."""
    by_method = toolchain.trl_options if toolchain else {}
    return (
        frozenset((*by_method[""], *by_method[method])) | _OPTIONS_OF_EVERY_TRL_PROGRAM
        if {"", method} <= by_method.keys()
        else frozenset()
    )


def _unknown_or_abbreviated_option_finding(profile: Profile, option: UserOption, names: frozenset[str]) -> Finding:
    """Return that an option is unknown, or that it is short for another one, with that one as the Change."""
    typed, equals, value = option.words[0].partition("=")
    completions = sorted(name for name in names if name.startswith(option.option))
    candidates = (
        completions
        if len(completions) == 1
        else difflib.get_close_matches(option.option, sorted(names), n=1, cutoff=0.6)
    )
    change = None
    remedy = f"`python -m trl.scripts.{profile.finetune.method} --help` lists what it takes."
    if candidates:
        words, correction = list(profile.trainer.arguments), f"--{candidates[0]}"
        words[option.position] = correction + equals + value
        remedy = f"Did you mean {correction}?"
        change = Change(f"write {correction}", "TRL takes it", (("trainer.arguments", tuple(words)),))
    message = f"TRL's program for {profile.finetune.method} has no option {typed}, and would end at once"
    if len(completions) == 1:
        message = f"TRL reads {typed} as --{completions[0]}, but the checks and the estimate do not"
        remedy = f"Write --{completions[0]}."
    return error("trainer.arguments", message, remedy, change=change)
