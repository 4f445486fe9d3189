"""Writes docs/checks.md, docs/reference/ and the man page, from the program: `python assets/reference_pages.py`."""

import ast
import inspect
import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from tui_train.checks import CHECKS
from tui_train.checks.finding import CheckFunction
from tui_train.cli.app import cli
from tui_train.cli.group import MEANING_BY_EXIT_CODE
from tui_train.cli.plans.keys import allowed_values_text, default_text
from tui_train.diagnose.signatures import load_signatures
from tui_train.diagnose.types import HEADING_BY_FAILURE
from tui_train.memory.ladder.rungs import RUNGS
from tui_train.profile.presets import shipped_preset_texts, shipped_presets
from tui_train.profile.rows import ROWS
from tui_train.profile.types import Ladder

_ROOT = Path(__file__).parents[1]
_CHECK_TITLE_BY_FOLDER = {
    "machine": "The machine",
    "trainer": "What trains, and what starts it",
    "recipe": "Recipe, model and data",
    "nemo": "NeMo",
    "other_machines": "Other machines",
}
_CHECKS_HEAD = """\
# Checks

`tui-train plan PROFILE`, and every screen, look for these before a start. An *error* keeps a plan from being made, or
only this machine from starting it now; a *warning* and a *note* do not. Each finding says why and what to do; where one
key or `--set` fixes it, F2 on a screen does.
"""
_KEYS_HEAD = """\
# Keys

What a profile can hold, in the order of the screens. `--set KEY=VALUE` sets one in any command that plans,
`tui-train profiles change NAME --set KEY=VALUE` keeps it; `tui-train keys WORD` prints those that match.
"""
_FAILURES_HEAD = """\
# Failures

What `tui-train diagnose LOG` and the screen of a failed run can name, with the cause and what to do. Words in capitals
stand for what the log says. Several entries of one name are several ways to fail so.
"""
_FALLBACKS_HEAD = """\
# Fallbacks

What can be tried when GPU memory runs out: of those that are on (`ladder.rungs`, or *Out of memory* on Recipe), each
that saves memory in the phase of a step in which it ran out ([memory](../memory.md)). What changes the result is off by
default, and needs your consent.
"""
_PRESETS_HEAD = """\
# Presets

How the recipe becomes arguments of a script, as `tui-train presets NAME` prints it. How to choose one, and to write
your own, is in [scripts](../scripts.md#presets).
"""
_EVENTS_HEAD = """\
# Events

`events.jsonl` of a run folder has a JSON object in each line, appended and never rewritten. Each has `time` (seconds
since the epoch), `uptime` (seconds since that machine booted) and `event`, one of these. Other fields are there where
there is something to say.
"""
_EXIT_CODES_HEAD = """\
# Exit codes

"""
_EXIT_CODES_FOOT = """
`run`, `quickstart`, `resume`, `logs --follow` and, without a terminal, `attach` end with the training's own exit code;
in a terminal `attach` ends as the wizard does.
"""


def reference_texts() -> dict[str, str]:
    """Return all that is made of the program, by its path in the checkout."""
    return {
        "docs/checks.md": _checks_page(),
        "docs/reference/keys.md": _keys_page(),
        "docs/reference/failures.md": _failures_page(),
        "docs/reference/fallbacks.md": _fallbacks_page(),
        "docs/reference/presets.md": _presets_page(),
        "docs/reference/events.md": _events_page(),
        "docs/reference/exit-codes.md": _exit_codes_page(),
        "assets/tui-train.1": _man_page(),
    }


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = tuple(head)
    lines = (head, ["---"] * len(head), *rows)
    return (
        "".join(f"| {' | '.join(_cell(text) for text in line)} |\n" for line in lines)
        .replace("| --- ", "|---")
        .replace("|--- |\n", "|---|\n")
    )


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _checks_page() -> str:
    rows_by_folder = defaultdict[str, list[tuple[str, str]]](list)
    for check in CHECKS:
        rows_by_folder[inspect.unwrap(check).__module__.split(".")[-2]].append(_check_row(check))
    return _CHECKS_HEAD + "".join(
        f"\n## {title}\n\n{_table(('Check', 'Finds'), rows_by_folder[folder])}"
        for folder, title in _CHECK_TITLE_BY_FOLDER.items()
    )


def _check_row(check: CheckFunction) -> tuple[str, str]:
    return check.__name__.replace("_", " "), (inspect.getdoc(check) or "").partition("\n")[0]


def _keys_page() -> str:
    rows_by_group = defaultdict[str, list[tuple[str, ...]]](list)
    for row in ROWS:
        group = row.key.partition(".")[0]
        rows_by_group[group].append((f"`{row.key}`", row.label, row.help, allowed_values_text(row), default_text(row)))
    head = ("Key", "On screen", "Meaning", "Values", "Default")
    return _KEYS_HEAD + "".join(f"\n## {group}\n\n{_table(head, rows)}" for group, rows in rows_by_group.items())


def _failures_page() -> str:
    text = (_ROOT / "tui_train/diagnose/signatures.toml").read_text(encoding="utf-8")
    group_by_failure, group = {}, ""
    for line in text.splitlines():
        if title := re.match(r"# -{4} (.+?) -+$", line):
            group = title[1]
        elif name := re.match(r'failure = "(\w+)"', line):
            group_by_failure.setdefault(name[1], group)
    rows_by_group = defaultdict[str, list[tuple[str, ...]]](list)
    for entry, _ in load_signatures():
        heading = HEADING_BY_FAILURE.get(entry.failure, entry.failure.replace("_", " "))
        rows_by_group[group_by_failure[entry.failure]].append(
            (heading, _without_placeholders(entry.cause), _without_placeholders(entry.remedy))
        )
    head = ("Failure", "Cause", "What to do")
    return _FAILURES_HEAD + "".join(
        f"\n## {group[:1].upper()}{group[1:]}\n\n{_table(head, rows)}" for group, rows in rows_by_group.items()
    )


def _without_placeholders(text: str) -> str:
    """Return a sentence with the words that stand for what a log says: `{host|HOST}` is HOST, `{port}` PORT.

    What follows a word without a space is a part that only some logs have.
    """
    words = re.sub(r"(?<=[\w)])(?:\{\w+\|?\})+", "", text)
    words = re.sub(r"\{(\w+)(?:\|([^{}]*))?\}", lambda found: found[1].upper() if found[2] is None else found[2], words)
    return words.replace("<", "&lt;")


def _fallbacks_page() -> str:
    defaults = Ladder().rungs
    names = (*defaults, *(name for name in RUNGS if name not in defaults))
    rows = (
        (
            f"`{name}`",
            RUNGS[name].label,
            RUNGS[name].cost,
            ", ".join(sorted(RUNGS[name].helped_phases)),
            "yes" if name in defaults else "no",
        )
        for name in names
    )
    head = ("Name", "On screen", "What it costs", "Saves memory in", "On by default")
    return f"{_FALLBACKS_HEAD}\n{_table(head, rows)}"


def _presets_page() -> str:
    return _PRESETS_HEAD + "".join(
        f"\n## {name}\n\nFor {shipped_presets()[name].about}.\n\n```toml\n{text.strip()}\n```\n"
        for name, text in shipped_preset_texts().items()
    )


def _events_page() -> str:
    fields_by_event = defaultdict[str, set[str]](set)
    for path in sorted((_ROOT / "tui_train/runner").rglob("*.py")):
        for event, names in _recorded_events(ast.parse(path.read_text(encoding="utf-8"))):
            fields_by_event[event] |= names
    events = (
        (f"`{event}`", ", ".join(f"`{name}`" for name in sorted(fields_by_event[event])))
        for event in sorted(fields_by_event)
    )
    fields = ((f"`{name}`", meaning) for name, meaning in _documented_fields())
    return (
        f"{_EVENTS_HEAD}\n{_table(('Event', 'Always has'), events)}"
        f"\nFields whose names do not say it all:\n\n{_table(('Field', 'Meaning'), fields)}"
    )


def _recorded_events(module: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yield the events that a module writes, with the names of their fields."""
    for function in ast.walk(module):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"record_event", "start.journal.append"}:
                event = node.args[-1]
                if isinstance(event, ast.Constant):
                    yield str(event.value), {word.arg for word in node.keywords if word.arg}


def _documented_fields() -> Iterator[tuple[str, str]]:
    module = ast.parse((_ROOT / "tui_train/runner/run_folder/events.py").read_text(encoding="utf-8"))
    classes = {node.name: node.body for node in module.body if isinstance(node, ast.ClassDef)}
    for field, text in itertools.pairwise(classes["JournalEvent"]):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            yield ast.unparse(field.target), str(text.value.value)


def _exit_codes_page() -> str:
    rows = ((str(code), meaning) for code, meaning in MEANING_BY_EXIT_CODE.items())
    return _EXIT_CODES_HEAD + _table(("Code", "Meaning"), rows) + _EXIT_CODES_FOOT


def _man_page() -> str:
    project = msgspec.toml.decode((_ROOT / "pyproject.toml").read_bytes())["project"]
    parts = [
        ".TH TUI-TRAIN 1",
        f".SH NAME\ntui-train \\- {_roff(project['description'])}",
        ".SH SYNOPSIS\n.B tui-train\n.RI [ COMMAND ]\n.RI [ OPTION ...]",
        ".SH DESCRIPTION\n"
        + _roff(f"{inspect.cleandoc(cli.help or '')} `tui-train COMMAND --help` shows all of a command."),
        ".SH COMMANDS",
        *_man_commands(cli, ""),
        ".SH EXIT STATUS",
        *(f".TP\n.B {code}\n{_roff(meaning)}" for code, meaning in MEANING_BY_EXIT_CODE.items()),
        ".SH FILES",
        *(
            f".TP\n.I {_roff(path)}\n{meaning}"
            for path, meaning in {
                "~/.config/tui-train/profiles/": "saved profiles",
                "~/.local/state/tui-train/runs/": "one folder for each run",
            }.items()
        ),
        ".SH SEE ALSO\n.BR torchrun (1),\n.BR sbatch (1),\n.BR ssh (1)",
    ]
    return "\n".join(parts) + "\n"


def _man_commands(group: click.Group, before: str) -> Iterator[str]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.commands[name]
        arguments = [param.name.upper() for param in command.params if isinstance(param, click.Argument) and param.name]
        if not isinstance(command, click.Group) or command.invoke_without_command:
            shown = (p.get_help_record(click.Context(command)) for p in command.params if isinstance(p, click.Option))
            options = [record for record in shown if record]
            yield f".TP\n.B {_roff(' '.join((f'{before}{name}', *arguments)))}\n{_roff(_one_line(command.help or ''))}"
            yield from (f".RS\n.TP\n.B {_roff(words)}\n{_roff(_one_line(text))}\n.RE" for words, text in options)
        if isinstance(command, click.Group):
            yield from _man_commands(command, f"{before}{name} ")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("~", "\\(ti").replace("`", "")
    escaped = "".join(char if char.isascii() else f"\\[u{ord(char):04X}]" for char in escaped)
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


if __name__ == "__main__":
    for _path, _text in reference_texts().items():
        (_ROOT / _path).parent.mkdir(parents=True, exist_ok=True)
        (_ROOT / _path).write_text(_text, encoding="utf-8")
