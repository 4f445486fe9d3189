"""The one command of the first attempt as words that a shell reads, for people to read and copy."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from tui_train.base.command import JoinedWord, part_needs_checkpoint
from tui_train.plan.render.quoting import quoted_word
from tui_train.plan.render.script import container_lines
from tui_train.plan.render.script.merged_attempts import ScriptLine, merge_attempts, pack_words
from tui_train.plan.types import Plan

_CONTINUED_LINE_INDENT = "    "
_LINE_CONTINUATION = " \\"


class PlainCommand(Struct, frozen=True):
    """The command that `launch.sh --plain` starts; words that belong together are one group.

    `folder` is where it starts, quoted, empty for the run folder; `settings` are its variables, NAME=VALUE each.
    `uses_run_dir`: some words name `$run_dir`.
    """

    folder: str
    settings: tuple[str, ...]
    groups: tuple[str, ...]
    uses_run_dir: bool


def make_plain_command(plan: Plan) -> PlainCommand:
    """Return the command of the first attempt, without a checkpoint; in a container with its engine's words."""
    attempt = plan.attempts[0]
    command = attempt.command
    if plan.container:
        merged = merge_attempts(msgspec.structs.replace(plan, attempts=(attempt,)))
        lines = [
            line
            for line in container_lines.container_command_lines(plan, plan.container, merged)
            if "${checkpoint:+" not in line.words
        ]
        words = [line.words.replace('"$python"', quoted_word(plan.python)) for line in lines]
        settings = tuple(line.words for line in container_lines.engine_setting_lines(plan, plan.container, merged))
        return PlainCommand("", settings, tuple(words), uses_run_dir=False)
    parts = [part for part in command.parts if not part_needs_checkpoint(part)]
    settings = tuple(f"{setting.name}={quoted_word(setting.value)}" for setting in command.env)
    groups = _group_options([quoted_word(word) for part in parts for word in part.words])
    folder = "" if isinstance(command.cwd, JoinedWord) else quoted_word(command.cwd)
    return PlainCommand(folder, settings, groups, any("$run_dir" in word for word in (*settings, *groups)))


def _group_options(words: Sequence[str]) -> tuple[str, ...]:
    """Return words in which an option and its value are one group."""
    groups: list[ScriptLine] = []
    for word in words:
        if groups and groups[-1].may_take_next_word and not ScriptLine(word).is_option:
            groups[-1] = ScriptLine(f"{groups[-1].words} {word}")
        else:
            groups.append(ScriptLine(word))
    return tuple(group.words for group in groups)


def wrap_command(command: PlainCommand, width: int) -> tuple[str, ...]:
    """Return a command in lines of at most this many characters where its groups allow."""
    lines = [f"cd -- {command.folder} &&"] if command.folder else []
    # The variables stand before the command, which begins a line of its own.
    head = pack_words(command.settings, width - len(_LINE_CONTINUATION))
    body = pack_words(command.groups, width - len(_LINE_CONTINUATION) - len(_CONTINUED_LINE_INDENT))
    flat = [*head, *(body[:1]), *(f"{_CONTINUED_LINE_INDENT}{line}" for line in body[1:])]
    return (*lines, *(f"{line}{_LINE_CONTINUATION}" for line in flat[:-1]), *flat[-1:])


def command_to_paste(command: PlainCommand, width: int = 100) -> str:
    """Return a command as it is pasted into a shell in the run folder; launch.sh sets the variables of a container."""
    first_line = ("run_dir=$PWD",) if command.uses_run_dir else ()
    return "\n".join((*first_line, *wrap_command(command, width))) + "\n"
