"""launch.sh: the plan as a script to read, with one command, and a table of what each attempt changes in it."""

from collections.abc import Sequence

from tui_train.base.command import Word
from tui_train.base.text import visible
from tui_train.plan.types import Plan
from tui_train.render import around, hand_over, head
from tui_train.render.quoting import quoted
from tui_train.render.variants import Line, Value, variants

_COLUMN = 44
_LONGEST = 120
_PACKED = 100


def launch_script(plan: Plan) -> str:
    """Return the whole text of launch.sh."""
    made = variants(plan, around.prefix(plan))
    settings, command, before, folder = made.settings, made.command, [], quoted(made.folder)
    if plan.container:
        settings = around.settings(plan, plan.container, made)
        command = around.wrapped(plan, plan.container, made)
        before, folder = around.machine(plan.container), "/"
    lines = [
        *head.comments(plan),
        *head.top(plan),
        *before,
        "choose() { # what attempt $attempt starts",
        *_values(plan, made.values),
        f"  folder={folder}",
        *([_DEVICES] if plan.container and plan.container.engine == "podman" and plan.gpus else []),
        *_array("settings", settings),
        *_array("command", command),
        "}",
        "",
        *hand_over.end(plan, settings),
    ]
    return "\n".join(lines) + "\n"


_DEVICES = '  IFS=, read -r -a devices <<< "$cards"'


def _values(plan: Plan, values: Sequence[Value]) -> list[str]:
    """Return the values of the first attempt, and the table of what each one changes."""
    if len(plan.attempts) == 1:
        return [f"  title={quoted(plan.attempts[0].title)}"]
    first = [f"  {line}" for line in _packed([_set(it.name, it.values[0]) for it in values])]
    lines = [*first, "  case $attempt in # each changes the values above"]
    for number, attempt in enumerate(plan.attempts, start=1):
        title = _set("title", attempt.title)
        words = [_set(it.name, it.values[number - 1]) for it in values if it.values[number - 1] != it.values[0]]
        whole = f"    {number}) {' '.join((title, *words))} ;;"
        rest = "\n".join(f"      {line}" for line in _packed(words))
        lines.append(whole if len(whole) <= _LONGEST else f"    {number}) {title}\n{rest} ;;")
    return [*lines, "  esac"]


def _set(name: str, value: Word) -> str:
    return f"{name}={quoted(value)}"


def _packed(words: Sequence[str]) -> list[str]:
    """Return words on as few lines as they fit on."""
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + len(word) < _PACKED:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _array(name: str, lines: Sequence[Line]) -> list[str]:
    """Return words as an array, reasons beside them; options without any share a line."""
    if not lines:
        return []
    made: list[str] = []
    before: Line | None = None
    for line in _with_values(lines):
        if before and _together(before, line) and len(made[-1]) + len(line.words) < _PACKED:
            made[-1] += f" {line.words}"
        else:
            made += _commented(line)
        before = line
    return [f"  {name}=(", *made, "  )"]


def _with_values(lines: Sequence[Line]) -> list[Line]:
    """Return lines in which Python stands with its script, and an option with its value."""
    made: list[Line] = []
    for line in lines:
        before = made[-1] if made else Line("")
        if before.words == '"$python"':
            made[-1] = Line(f"{before.words} {line.words}", before.why or line.why)
        elif before.waits and not line.is_option and not line.why:
            made[-1] = Line(f"{before.words} {line.words}", before.why)
        else:
            made.append(line)
    return made


def _together(before: Line, line: Line) -> bool:
    """Tell whether a part may stand behind the one before."""
    return before.is_option and line.is_option and not before.why and not line.why


def _commented(line: Line) -> list[str]:
    words = f"    {line.words}"
    if not line.why:
        return [words]
    beside = f"{words:<{_COLUMN}} # {visible(line.why)}"
    return [beside] if len(beside) <= _LONGEST else [f"    # {visible(line.why)}", words]
