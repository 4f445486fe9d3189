"""Checks of what is given for the arguments that a script's source declares."""

import difflib
from collections.abc import Iterator

from tui_train.base.errors import BadInput
from tui_train.base.text import visible
from tui_train.checks.finding import Finding
from tui_train.checks.preset import names, takes, whole
from tui_train.facts.types import Parameter, Source
from tui_train.presets import PLACEHOLDER, PLACEHOLDERS, Argument
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve import own_arguments
from tui_train.resolve.setup import Setup

_KEY = "trainer.arguments"
_PATHS = frozenset({"trainer.data", "trainer.validation_data", "trainer.test_data", "trainer.model", "trainer.config"})


def required(setup: Setup) -> Iterator[Finding]:
    """Arguments without which the script ends at once."""
    profile = setup.profile
    source = own_arguments.source_of(profile, setup.facts, setup.preset)
    for parameter in own_arguments.missing(source, profile.trainer.arguments) if source else ():
        keys = [_unset(argument, profile) for argument in own_arguments.by_preset(setup.preset, parameter)]
        if "" in keys:
            continue
        name = parameter.name if parameter.form != "key" else f"{parameter.name}="
        yield Finding(
            level="error",
            key=keys[0] if keys else _KEY,
            argument="" if keys else parameter.name,
            message=f"the script requires {visible(name)} ({_where(parameter)}), and nothing passes it",
            remedy=f"Set {keys[0]}." if keys else f"Give it among the arguments (trainer.arguments){_such(parameter)}.",
            keys="" if keys else "Type it in its row on Recipe.",
        )


def unknown(setup: Setup) -> Iterator[Finding]:
    """Options that the script does not declare: its parser would end at once."""
    source = own_arguments.source_of(setup.profile, setup.facts, setup.preset)
    if source is None or not whole(source):
        return
    words = setup.profile.trainer.arguments
    for at in own_arguments.unknown(source, words):
        right = near(source, words[at])
        yield Finding(
            level="error",
            key=_KEY,
            message=f"the script does not take {visible(words[at].partition('=')[0])}; {takes(source)}",
            remedy=f"Did you mean {visible(right)}?" if right else "Leave it out.",
            change=instead(words, at, right) if right else None,
        )


def near(source: Source, word: str) -> str:
    """Return the declared option that an unknown one is most like, empty for none."""
    declared = sorted(flag for flag in names(source) if flag.startswith("--"))
    return next(iter(difflib.get_close_matches(word.partition("=")[0], declared, n=1, cutoff=0.75)), "")


def instead(words: tuple[str, ...], at: int, right: str) -> Change:
    """Return the Change that writes another option in the place of one, with the same value."""
    _, equals, value = words[at].partition("=")
    edited = (*words[:at], right + equals + value, *words[at + 1 :])
    return Change(f"write {right}", "the script takes it", ((_KEY, edited),))


def readable(setup: Setup) -> Iterator[Finding]:
    """Values that are of another type than the script reads, or none of its choices."""
    profile = setup.profile
    source = own_arguments.source_of(profile, setup.facts, setup.preset)
    if source is None or not own_arguments.reads_alike(source):
        return
    words = profile.trainer.arguments
    by_name = own_arguments.given(source, words)
    for parameter in own_arguments.in_scope(source, words):
        known = by_name.get(parameter.name, own_arguments.Given())
        if not (problem := own_arguments.problem(parameter, known.values)):
            continue
        rest = own_arguments.put(source, words, parameter, ())
        change = Change(f"without {parameter.name}", "the script takes its own", ((_KEY, rest),))
        yield Finding(
            level="error",
            key=_KEY,
            argument=parameter.name,
            message=f"{visible(parameter.name)} {problem} ({_where(parameter)} of the script)",
            remedy="Give another value, or leave it out.",
            change=None if parameter.required else change,
        )


def likely(setup: Setup) -> Iterator[Finding]:
    """Arguments that may be a value of the recipe by their name, which only the user knows."""
    profile = setup.profile
    source = own_arguments.source_of(profile, setup.facts, setup.preset)
    words = profile.trainer.arguments
    for parameter in own_arguments.in_scope(source, words) if source else ():
        name = own_arguments.likely(parameter)
        if not source or not name or name in setup.context.takes:
            continue
        change = _matching(source, profile, parameter, name)
        if change is None or own_arguments.by_preset(setup.preset, parameter):
            continue
        key = PLACEHOLDERS[name]
        label = fields.field(key).label.lower()
        yield Finding(
            level="note",
            key=_KEY,
            argument=parameter.name,
            message=f"{visible(parameter.name)} may be the {label}: its name leaves a doubt",
            remedy=f"If it is, pass {{{name}}} as its value{f', and set {key}' if key.startswith('recipe.') else ''}.",
            change=change,
        )


def _matching(source: Source, profile: Profile, parameter: Parameter, name: str) -> Change | None:
    """Return the change that passes a value of the recipe as this argument; None where no value is known for it."""
    key = PLACEHOLDERS[name]
    words = profile.trainer.arguments
    known = own_arguments.given(source, words).get(parameter.name, own_arguments.Given()).values
    edits: list[tuple[str, fields.Value]] = [(_KEY, own_arguments.put(source, words, parameter, (f"{{{name}}}",)))]
    if key.startswith("recipe."):
        try:
            value = fields.parse(fields.field(key), known[-1] if known else parameter.default)
        except BadInput:
            value = None
        chosen = fields.get(profile, key)
        if value is None and chosen is None:
            return None
        if known or chosen is None:
            edits.append((key, value))
    label = fields.field(key).label.lower()
    return Change(f"{parameter.name} is the {label}", f"{key} is passed as it", tuple(edits))


def _unset(argument: Argument, profile: Profile) -> str:
    """Return the key that must be set for an argument of a preset to be passed; empty where it is passed."""
    keys = (PLACEHOLDERS.get(name, "") for word in argument.words for name in PLACEHOLDER.findall(word))
    own = (key for key in keys if key.startswith("recipe.") or key in _PATHS)
    return next((key for key in own if not fields.is_chosen(profile, key)), "")


def _such(parameter: Parameter) -> str:
    value = next(iter(parameter.choices), parameter.type.upper() or "VALUE")
    example = f"{parameter.name}={value}" if parameter.form in {"option", "key"} else ""
    return f", such as {visible(example)}" if example else ""


def _where(parameter: Parameter) -> str:
    return visible(f"line {parameter.line}{' of ' + parameter.file if parameter.file else ''}")
