"""launch.sh: the plan as a readable script, with one command and a table of what each attempt changes."""

from collections.abc import Sequence

import msgspec

from tui_train.base.command import CommandWord
from tui_train.base.text import visible
from tui_train.plan.render.quoting import quoted_word
from tui_train.plan.render.script import container_lines, script_end, script_head
from tui_train.plan.render.script.merged_attempts import (
    MergedAttempts,
    ScriptLine,
    ScriptVariable,
    merge_attempts,
    pack_words,
)
from tui_train.plan.types import Attempt, Plan

_REASON_COMMENT_COLUMN = 44
_MAX_LINE_LENGTH = 120
_MAX_PACKED_LINE_WIDTH = 100


def render_launch_script(plan: Plan, outside_files: str = "") -> str:
    """Return the text of launch.sh; `outside_files` are those that its folder does not have, in words."""
    merged = merge_attempts(plan)
    settings, body = _environment_settings_and_choose_lines(plan, merged)
    lines = [
        *script_head.head_comment_lines(plan, outside_files),
        *script_head.folder_python_and_machine_lines(plan),
        *(container_lines.mount_lines(plan.container) if plan.container else []),
        *_preparation_function_lines(plan),
        "choose() { # sets the command of attempt $attempt",
        *_attempt_value_lines(plan, merged.values),
        *body,
        "}",
        "",
        *script_end.script_end_lines(plan, settings),
    ]
    return "\n".join(lines) + "\n"


def _environment_settings_and_choose_lines(
    plan: Plan, merged: MergedAttempts
) -> tuple[tuple[ScriptLine, ...], list[str]]:
    """Return the settings, and the lines that set folder, settings and command."""
    settings, command, folder = merged.settings, merged.command, quoted_word(merged.folder)
    if plan.container:
        settings = container_lines.engine_setting_lines(plan, plan.container, merged)
        command = container_lines.container_command_lines(plan, plan.container, merged)
        folder = "/"
    devices = plan.container and plan.container.engine == "podman" and plan.gpus
    lines = [
        f"  folder={folder}",
        *([_READ_DEVICES_LINE] if devices else []),
        *_array_lines("settings", settings),
        *_array_lines("command", command),
    ]
    return settings, lines


def _preparation_function_lines(plan: Plan) -> list[str]:
    """Return a function for each preparation, which sets its command."""
    lines = []
    for preparation in plan.preparations:
        alone = Attempt(rung="", title="", batch="", command=preparation.command)
        merged = merge_attempts(msgspec.structs.replace(plan, attempts=(alone,)))
        _, body = _environment_settings_and_choose_lines(plan, merged)
        lines += [f"prepare_{preparation.name}() {{ # {visible(preparation.why)}", *body, "}", ""]
    return lines


_READ_DEVICES_LINE = '  IFS=, read -r -a devices <<< "$gpus"'


def _attempt_value_lines(plan: Plan, values: Sequence[ScriptVariable]) -> list[str]:
    """Return the values of the first attempt, and the table of what each attempt changes."""
    if len(plan.attempts) == 1:
        return [f"  title={quoted_word(plan.attempts[0].title)}"]
    first = [
        f"  {line}"
        for line in pack_words([_assignment(value.name, value.values[0]) for value in values], _MAX_PACKED_LINE_WIDTH)
    ]
    lines = [*first, "  case $attempt in # each changes the values above"]
    for number, attempt in enumerate(plan.attempts, start=1):
        title = _assignment("title", attempt.title)
        changed = [value for value in values if value.values[number - 1] != value.values[0]]
        words = [_assignment(value.name, value.values[number - 1]) for value in changed]
        line = f"    {number}) {' '.join((title, *words))} ;;"
        rest = "\n".join(f"      {line}" for line in pack_words(words, _MAX_PACKED_LINE_WIDTH))
        lines.append(line if len(line) <= _MAX_LINE_LENGTH else f"    {number}) {title}\n{rest} ;;")
    return [*lines, "  esac"]


def _assignment(name: str, value: CommandWord) -> str:
    return f"{name}={quoted_word(value)}"


def _array_lines(name: str, lines: Sequence[ScriptLine]) -> list[str]:
    """Return words as an array with their reasons as comments; options without a reason share lines."""
    if not lines:
        return []
    rows: list[str] = []
    previous: ScriptLine | None = None
    for line in _join_options(lines):
        if (
            previous
            and previous.is_bare_option
            and line.is_bare_option
            and len(rows[-1]) + len(line.words) < _MAX_PACKED_LINE_WIDTH
        ):
            rows[-1] += f" {line.words}"
        else:
            rows += _commented_lines(line)
        previous = line
    return [f"  {name}=(", *rows, "  )"]


def _join_options(lines: Sequence[ScriptLine]) -> list[ScriptLine]:
    """Return lines with Python and its script joined, and each option joined with its value."""
    merged: list[ScriptLine] = []
    for line in lines:
        previous = merged[-1] if merged else ScriptLine("")
        if previous.words == '"$python"':
            merged[-1] = ScriptLine(f"{previous.words} {line.words}", previous.why or line.why)
        elif previous.may_take_next_word and not line.is_option and not line.why:
            merged[-1] = ScriptLine(f"{previous.words} {line.words}", previous.why)
        else:
            merged.append(line)
    return merged


def _commented_lines(line: ScriptLine) -> list[str]:
    words = f"    {line.words}"
    if not line.why:
        return [words]
    beside = f"{words:<{_REASON_COMMENT_COLUMN}} # {visible(line.why)}"
    return [beside] if len(beside) <= _MAX_LINE_LENGTH else [f"    # {visible(line.why)}", words]
