"""launch.sh: the plan as a readable script, with one command and a table of what each attempt changes."""

from collections.abc import Sequence

import msgspec

from tui_train.base.command import Word
from tui_train.base.text import visible
from tui_train.plan.types import Attempt, Plan
from tui_train.render import around, hand_over, head
from tui_train.render.quoting import quoted
from tui_train.render.variants import Line, Value, Variants, variants

_COLUMN = 44
_MAX_LINE = 120
_PACK_WIDTH = 100


def launch_script(plan: Plan) -> str:
    """Return the text of launch.sh."""
    merged = variants(plan, around.prefix(plan))
    settings, body = _body(plan, merged)
    lines = [
        *head.comments(plan),
        *head.top(plan),
        *(around.machine(plan.container) if plan.container else []),
        *_preparations(plan),
        "choose() { # sets the command of attempt $attempt",
        *_values(plan, merged.values),
        *body,
        "}",
        "",
        *hand_over.end(plan, settings),
    ]
    return "\n".join(lines) + "\n"


def _body(plan: Plan, merged: Variants) -> tuple[tuple[Line, ...], list[str]]:
    """Return the settings, and the lines that set folder, settings and command."""
    settings, command, folder = merged.settings, merged.command, quoted(merged.folder)
    if plan.container:
        settings = around.settings(plan, plan.container, merged)
        command = around.wrapped(plan, plan.container, merged)
        folder = "/"
    devices = plan.container and plan.container.engine == "podman" and plan.gpus
    lines = [
        f"  folder={folder}",
        *([_DEVICES] if devices else []),
        *_array("settings", settings),
        *_array("command", command),
    ]
    return settings, lines


def _preparations(plan: Plan) -> list[str]:
    """Return a function for each preparation, which sets its command."""
    lines = []
    for preparation in plan.preparations:
        alone = Attempt(rung="", title="", batch="", command=preparation.command)
        merged = variants(msgspec.structs.replace(plan, attempts=(alone,)), around.prefix(plan))
        _, body = _body(plan, merged)
        lines += [f"prepare_{preparation.name}() {{ # {visible(preparation.why)}", *body, "}", ""]
    return lines


_DEVICES = '  IFS=, read -r -a devices <<< "$gpus"'


def _values(plan: Plan, values: Sequence[Value]) -> list[str]:
    """Return the values of the first attempt, and the table of what each attempt changes."""
    if len(plan.attempts) == 1:
        return [f"  title={quoted(plan.attempts[0].title)}"]
    first = [f"  {line}" for line in _packed([_set(value.name, value.values[0]) for value in values])]
    lines = [*first, "  case $attempt in # each changes the values above"]
    for number, attempt in enumerate(plan.attempts, start=1):
        title = _set("title", attempt.title)
        changed = [value for value in values if value.values[number - 1] != value.values[0]]
        words = [_set(value.name, value.values[number - 1]) for value in changed]
        line = f"    {number}) {' '.join((title, *words))} ;;"
        rest = "\n".join(f"      {line}" for line in _packed(words))
        lines.append(line if len(line) <= _MAX_LINE else f"    {number}) {title}\n{rest} ;;")
    return [*lines, "  esac"]


def _set(name: str, value: Word) -> str:
    return f"{name}={quoted(value)}"


def _packed(words: Sequence[str]) -> list[str]:
    """Return words packed into as few lines as possible."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < _PACK_WIDTH:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _array(name: str, lines: Sequence[Line]) -> list[str]:
    """Return words as an array with their reasons as comments; options without a reason share lines."""
    if not lines:
        return []
    rows: list[str] = []
    before: Line | None = None
    for line in _with_values(lines):
        if before and _together(before, line) and len(rows[-1]) + len(line.words) < _PACK_WIDTH:
            rows[-1] += f" {line.words}"
        else:
            rows += _commented(line)
        before = line
    return [f"  {name}=(", *rows, "  )"]


def _with_values(lines: Sequence[Line]) -> list[Line]:
    """Return lines with Python and its script joined, and each option joined with its value."""
    merged: list[Line] = []
    for line in lines:
        before = merged[-1] if merged else Line("")
        if before.words == '"$python"':
            merged[-1] = Line(f"{before.words} {line.words}", before.why or line.why)
        elif before.waits and not line.is_option and not line.why:
            merged[-1] = Line(f"{before.words} {line.words}", before.why)
        else:
            merged.append(line)
    return merged


def _together(before: Line, line: Line) -> bool:
    """Return whether a part can share the line of the one before."""
    return before.is_option and line.is_option and not before.why and not line.why


def _commented(line: Line) -> list[str]:
    words = f"    {line.words}"
    if not line.why:
        return [words]
    beside = f"{words:<{_COLUMN}} # {visible(line.why)}"
    return [beside] if len(beside) <= _MAX_LINE else [f"    # {visible(line.why)}", words]
