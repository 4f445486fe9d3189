"""Checks of a script's source: whether it is Python, loads a checkpoint, and how it reads its rank."""

import re
import shlex
import sys
from collections.abc import Iterator
from typing import Literal

from tui_train.base.text import visible
from tui_train.checks.finding import Finding
from tui_train.facts.types import Facts, Parameter, Source
from tui_train.launchers import LAUNCHERS
from tui_train.presets import PLACEHOLDER, PLACEHOLDERS, Argument
from tui_train.presets.expression import unusable
from tui_train.profile import fields
from tui_train.profile.changes import Change
from tui_train.profile.types import Profile
from tui_train.resolve import own_arguments
from tui_train.resolve.resolve import Resolved
from tui_train.trainers.script import started

_RESUME = "--resume_from_checkpoint"
_KEY = "trainer.script"
_PATHS = frozenset({"trainer.data", "trainer.validation_data", "trainer.test_data", "trainer.model", "trainer.config"})
_NOT_PYTHON = "it is not Python: "
TORCHRUN = Change("use torchrun", "it sets RANK, LOCAL_RANK and WORLD_SIZE", (("trainer.launcher", "torchrun"),))


def resumes(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that does not load the checkpoint that a second start and each fallback pass to it."""
    source, rule = _source(profile, facts, resolved), resolved.preset.checkpoints
    if source is None or rule is None or not any(word.startswith(_RESUME) for word in rule.resume):
        return
    effect = "a second start, and each fallback, trains from step 0 again"
    if source.bare_train:
        message = f"line {source.bare_train} of the script passes no checkpoint on to train(): {effect}"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"Write `{source.train_words}` there.")
    elif source.accelerates and not source.names_checkpoint:
        message = f"the script does not read {_RESUME}: {effect}"
        remedy = "Take that argument, and before the first step: accelerator.load_state(args.resume_from_checkpoint)"
        yield Finding(level="warning", key=_KEY, message=message, remedy=f"{remedy}.")


def local_rank(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that waits for --local_rank, which only torch.distributed.launch passed."""
    source = _source(profile, facts, resolved)
    if source is None or not source.local_rank or source.reads_local_rank or not LAUNCHERS[resolved.launcher].SEVERAL:
        return
    message = f"line {source.local_rank} of the script takes --local_rank, which {resolved.launcher} does not pass"
    remedy = 'Write `default=int(os.environ.get("LOCAL_RANK", 0))` there, without required=True.'
    yield Finding(level="warning", key=_KEY, message=message, remedy=remedy)


def required(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """Arguments without which the script ends at once."""
    source = _source(profile, facts, resolved)
    for parameter in own_arguments.missing(source, profile.trainer.arguments) if source else ():
        keys = [_unset(argument, profile) for argument in resolved.preset.arguments if _names(argument, parameter)]
        if "" in keys:
            continue
        where = f"line {parameter.line}{' of ' + parameter.file if parameter.file else ''}"
        name = parameter.name if parameter.form != "key" else f"{parameter.name}="
        yield Finding(
            level="error",
            key=keys[0] if keys else "trainer.arguments",
            message=f"the script requires {visible(name)} ({where}), and nothing passes it",
            remedy=f"Set {keys[0]}." if keys else f"Give it among the arguments (trainer.arguments){_such(parameter)}.",
        )


def progress(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """An expression for the lines of the log that cannot be one."""
    del facts, resolved
    expression = profile.trainer.progress
    if expression and (wrong := unusable(expression)):
        remedy = r"Write one such as `it (?P<step>\d+)/(?P<steps>\d+) L=(?P<loss>\S+)`."
        change = Change("unset it", "the usual forms are read", (("trainer.progress", ""),))
        yield Finding(
            level="error",
            key="trainer.progress",
            message=f"the expression {visible(wrong)}",
            remedy=remedy,
            change=change,
        )


def _names(argument: Argument, parameter: Parameter) -> bool:
    """Return whether an argument of a preset is this parameter of the script."""
    first = argument.words[0].partition("=")[0]
    return first in (parameter.flags or (parameter.name,))


def _unset(argument: Argument, profile: Profile) -> str:
    """Return the key that must be set for an argument of a preset to be passed; empty where it is passed."""
    keys = (PLACEHOLDERS.get(name, "") for word in argument.words for name in PLACEHOLDER.findall(word))
    own = (key for key in keys if key.startswith("recipe.") or key in _PATHS)
    return next((key for key in own if not fields.is_chosen(profile, key)), "")


def _such(parameter: Parameter) -> str:
    value = next(iter(parameter.choices), parameter.type.upper() or "VALUE")
    example = f"{parameter.name}={value}" if parameter.form in {"option", "key"} else ""
    return f", such as {visible(example)}" if example else ""


def python(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that is none of Python's."""
    path, source = profile.trainer.script, facts.sources.get(profile.trainer.script)
    if source is None or not source.problem or started(profile, resolved.preset) != path:
        return
    if source.other:
        message = f"{visible(path)} is {source.other}, and Python starts the script"
        remedy = "Name the Python file that trains."
        if source.other == "a notebook":
            remedy = f"Make a Python file of it: jupyter nbconvert --to script {visible(shlex.quote(path))}."
        yield Finding(level="error", key=_KEY, message=message, remedy=remedy)
    elif (why := source.problem.removeprefix(_NOT_PYTHON)) != source.problem:
        message = f"{visible(path)} cannot be read as Python: {why}"
        remedy = "Correct it, or name the Python file that trains."
        yield Finding(level=_sure(resolved), key=_KEY, message=message, remedy=remedy)


def _sure(resolved: Resolved) -> Literal["error", "warning"]:
    """Return how sure it is that the Python that trains reads no more than this one."""
    tool = resolved.toolchain
    own, other = sys.version_info[:2], [*map(int, re.findall(r"\d+", tool.version)[:2])] if tool else []
    return "error" if tuple(other) == own else "warning"


def ranks(profile: Profile, facts: Facts, resolved: Resolved) -> Iterator[Finding]:
    """A script that reads a rank, and a launcher that sets none for one process."""
    source, launcher = _source(profile, facts, resolved), LAUNCHERS[resolved.launcher]
    if source is None or not source.rank_line or launcher.SETS_RANKS or resolved.world_size > 1:
        return
    does = f"reads {source.rank}" if source.rank.isupper() else f"calls {source.rank}, which needs RANK and WORLD_SIZE"
    message = f"line {source.rank_line} of the script {does}: {launcher.LABEL} sets none of them for one process"
    yield Finding(
        level="error", key="trainer.launcher", message=message, remedy="Choose torchrun, which does.", change=TORCHRUN
    )


def _source(profile: Profile, facts: Facts, resolved: Resolved) -> Source | None:
    """Return the facts on the source of the script that is started, None where there is none or it is not Python."""
    path = profile.trainer.script
    if not path or started(profile, resolved.preset) != path:
        return None
    source = facts.sources.get(path)
    return None if source is None or source.problem else source
