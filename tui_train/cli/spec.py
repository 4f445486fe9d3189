"""`tui-train spec`: the whole command line as JSON, made of the commands and types themselves."""

import importlib
from collections.abc import Iterator
from types import FunctionType
from typing import Any, get_type_hints

import click
import msgspec
from msgspec import Struct

from tui_train import __version__
from tui_train.checks.finding import Finding
from tui_train.cli.answers import ErrorAnswer
from tui_train.cli.group import CHANGE_VERBS, MEANING_BY_EXIT_CODE, Command, Group
from tui_train.profile.types import Profile
from tui_train.runner.run_folder.events import JournalEvent

_REF_TEMPLATE = "#/$defs/{name}"


def command_surface(program: Group) -> dict[str, Any]:
    """Return the commands of a program, exit codes and schemas, whose `#/$defs/NAME` is in `$defs` of the whole."""
    commands = dict(known_commands(program))
    references = {
        reference: type_of_answer(reference)
        for command in commands.values()
        for reference in f"{command.answer} {command.dry_run_answer}".split()
    }
    others = {"error": ErrorAnswer, "profile": Profile, "finding": Finding, "event": _event_type()}
    types = (*references.values(), *others.values())
    schemas, definitions = msgspec.json.schema_components(types, ref_template=_REF_TEMPLATE)
    by_reference = dict(zip(references, schemas, strict=False))
    return {
        "program": "tui-train",
        "version": __version__,
        "commands": [_command_data(name, command, by_reference) for name, command in commands.items()],
        "exit_codes": {str(code): meaning for code, meaning in MEANING_BY_EXIT_CODE.items()},
        **dict(zip(others, schemas[len(references) :], strict=True)),
        "$defs": definitions,
    }


def known_commands(group: Group, before: str = "") -> Iterator[tuple[str, Command | Group]]:
    """Yield all commands by their whole name; groups that do something without another word are among them."""
    for name, command in sorted(group.commands.items()):
        if isinstance(command, Group):
            if command.invoke_without_command:
                yield f"{before}{name}", command
            yield from known_commands(command, f"{before}{name} ")
        elif isinstance(command, Command):
            yield f"{before}{name}", command


def type_of_answer(reference: str) -> Any:
    """Return the type at MODULE:NAME, or what a function there returns."""
    module, _, name = reference.partition(":")
    found = getattr(importlib.import_module(module), name)
    return found() if isinstance(found, FunctionType) else found


def _event_type() -> type[Struct]:
    """Return the type of a line of events.jsonl, where a value that is not there has its default."""
    hints, defaults = get_type_hints(JournalEvent), JournalEvent._field_defaults
    required = ("time", "event")
    fields = [(name, hint) if name in required else (name, hint, defaults[name]) for name, hint in hints.items()]
    return msgspec.defstruct("Event", fields, kw_only=True)


def _command_data(name: str, command: Command | Group, schemas: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {"name": name, "help": (command.help or "").replace("\n", " ").strip()}
    data |= {
        "arguments": [_parameter_data(each) for each in command.params if isinstance(each, click.Argument)],
        "options": [_parameter_data(each) for each in command.params if isinstance(each, click.Option)],
        "reads": command.reads,
        **{verb: command.changes.get(verb, "") for verb in CHANGE_VERBS},
        "changes_only_with": command.only_with,
        "exit_codes": {str(code): meaning for code, meaning in command.exit_codes.items()},
        "ends_with_code_of_training": command.trained,
        "answer": _answer_schema(command.answer, schemas),
        "dry_run_answer": _answer_schema(command.dry_run_answer, schemas),
    }
    return data


def _answer_schema(references: str, schemas: dict[str, Any]) -> dict[str, Any] | None:
    """Return the schema of what is one of some types; None for none."""
    found = [schemas[reference] for reference in references.split()]
    return {"anyOf": found} if found[1:] else found[0] if found else None


def _parameter_data(parameter: click.Parameter) -> dict[str, Any]:
    """Return what may be given: `flags` is empty for an argument, `multiple` tells whether several may be given.

    `without_value` is what an option means that stands without one; null where it needs it.
    """
    kind = parameter.type
    default = parameter.default if isinstance(parameter.default, (str, int, float, bool)) else None
    data: dict[str, Any] = {
        "name": parameter.name,
        "flags": [*parameter.opts, *parameter.secondary_opts] if isinstance(parameter, click.Option) else [],
        "type": _type_name(parameter),
        "metavar": parameter.metavar or "",
        "required": parameter.required,
        "multiple": parameter.multiple or parameter.nargs == -1,
        "default": default,
    }
    if isinstance(kind, click.Choice):
        data["choices"] = list(kind.choices)
    if isinstance(kind, (click.IntRange, click.FloatRange)):
        data |= {"minimum": kind.min, "maximum": kind.max}
    if isinstance(parameter, click.Option):
        data["help"] = parameter.help or ""
        may_stand_alone = not parameter.is_flag and isinstance(parameter.flag_value, str)
        data["without_value"] = parameter.flag_value if may_stand_alone else None
    return data


def _type_name(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return "flag"
    names = {click.Choice: "choice", click.Path: "path", click.types.IntParamType: "integer"}
    return next((name for kind, name in names.items() if isinstance(parameter.type, kind)), "text")
