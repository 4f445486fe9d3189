"""The arguments of a script that argparse or absl parses, as its source declares them."""

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import itemgetter

from msgspec.structs import replace

from tui_train.facts.scripts.script_syntax import (
    ScriptModule,
    called_name,
    is_constant_true,
    keyword_value,
    last_name,
    one_line_text,
    plain_value,
    plain_values,
    text_constant,
    text_constants,
)
from tui_train.facts.types import ParameterForm, ScriptParameter

_ARGUMENT_GROUP_METHODS = {"add_argument_group", "add_mutually_exclusive_group"}
_SWITCH_ACTIONS = {"store_true", "store_false", "store_const", "append_const", "count"}
_PRINT_AND_EXIT_ACTIONS = {"help", "version"}
_TYPE_BY_ABSL_FUNCTION = {
    "DEFINE_string": "str",
    "DEFINE_integer": "int",
    "DEFINE_float": "float",
    "DEFINE_bool": "bool",
    "DEFINE_boolean": "bool",
    "DEFINE_enum": "str",
}
_ABSL_ENUM_HELP_INDEX = 3
_MAX_STEPS_TO_PARSER = 5


def argparse_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the arguments that add_argument declares."""
    owners = _calls_by_assigned_name(module)
    for call in module.calls("add_argument"):
        if parameter := _argparse_argument(call):
            yield replace(parameter, command=_subcommand_of_argument(call, owners), file=module.file)


def argparse_subcommands(module: ScriptModule) -> Iterator[str]:
    """Yield the subcommands that add_parser declares."""
    yield from (name for call in module.calls("add_parser") if (name := text_constant(_first_argument(call))))


def unnamed_argument_line(module: ScriptModule) -> int:
    """Return the line that adds an argument whose name the source does not say, 0 for none."""
    computed = (call for call in module.calls("add_argument") if not text_constants(call.args))
    inherited = (call for call in module.calls("ArgumentParser") if keyword_value(call, "parents"))
    library = module.calls("add_argparse_args", "add_args", "add_config_arguments", "from_argparse_args")
    return min((call.lineno for calls in (computed, inherited, library) for call in calls), default=0)


def _argparse_argument(call: ast.Call) -> ScriptParameter | None:
    """Return one argument of argparse; None where it has no name, or only prints."""
    flags = text_constants(call.args)
    action = keyword_value(call, "action")
    action_name = text_constant(action) or last_name(action)
    if not flags or action_name in _PRINT_AND_EXIT_ACTIONS:
        return None
    name = max(flags, key=lambda flag: (flag.startswith("--"), len(flag)))
    optional = name.startswith("-")
    has_negation = action_name == "BooleanOptionalAction"
    form: ParameterForm = (
        "pair"
        if has_negation
        else "switch"
        if action_name in _SWITCH_ACTIONS
        else "option"
        if optional
        else "positional"
    )
    default, nargs = plain_value(keyword_value(call, "default")), plain_value(keyword_value(call, "nargs"))
    switch = form in {"switch", "pair"}
    required = is_constant_true(keyword_value(call, "required")) or (not optional and nargs not in {"?", "*"})
    appends = action_name in {"append", "extend"}
    return ScriptParameter(
        name=name,
        flags=flags,
        off=tuple(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")) if has_negation else (),
        form=form,
        type="bool"
        if switch
        else last_name(keyword_value(call, "type")) or ("" if keyword_value(call, "type") else "str"),
        default=default or ("False" if action_name == "store_true" else ""),
        choices=plain_values(keyword_value(call, "choices")),
        help=one_line_text(keyword_value(call, "help")).replace("%(default)s", default).replace("%%", "%"),
        required=required and not switch,
        takes_several=appends or nargs in {"+", "*"} or (nargs.isdecimal() and nargs not in {"0", "1"}),
        repeats=appends and not nargs,
        line=call.lineno,
    )


def _calls_by_assigned_name(module: ScriptModule) -> Mapping[str, list[tuple[int, ast.Call]]]:
    """Return what each name is assigned by a call, with the line, in the order of the lines."""
    owners: dict[str, list[tuple[int, ast.Call]]] = {}
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                owners.setdefault(last_name(target), []).append((node.lineno, node.value))
    for made in owners.values():
        made.sort(key=itemgetter(0))
    return owners


def _subcommand_of_argument(call: ast.Call, calls_by_name: Mapping[str, list[tuple[int, ast.Call]]]) -> str:
    """Return the subcommand to whose parser, or a group of it, an argument is added."""
    owner: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    for _ in range(_MAX_STEPS_TO_PARSER):
        if not isinstance(owner, ast.Call):
            made = calls_by_name.get(last_name(owner), [])
            before = bisect_right(made, call.lineno, key=itemgetter(0))
            owner = made[before - 1][1] if before else None
        if not isinstance(owner, ast.Call):
            return ""
        if called_name(owner) == "add_parser":
            return text_constant(_first_argument(owner))
        owner = (
            owner.func.value
            if called_name(owner) in _ARGUMENT_GROUP_METHODS and isinstance(owner.func, ast.Attribute)
            else None
        )
    return ""


def _first_argument(call: ast.Call) -> ast.AST | None:
    return next(iter(call.args), None)


def absl_arguments(module: ScriptModule) -> Iterator[ScriptParameter]:
    """Yield the arguments that absl's DEFINE_… declare."""
    required = {name for call in module.calls("mark_flag_as_required") for name in text_constants(call.args[:1])}
    required |= {
        text_constant(item)
        for call in module.calls("mark_flags_as_required")
        for items in call.args[:1]
        if isinstance(items, (ast.List, ast.Tuple))
        for item in items.elts
    }
    for call in module.calls(*_TYPE_BY_ABSL_FUNCTION):
        if not (name := text_constant(_first_argument(call))):
            continue
        enum = called_name(call) == "DEFINE_enum"
        words = call.args[_ABSL_ENUM_HELP_INDEX if enum else 2 :]
        yield ScriptParameter(
            name=f"--{name}",
            flags=(f"--{name}",),
            type=_TYPE_BY_ABSL_FUNCTION[called_name(call)],
            default=plain_value(call.args[1] if len(call.args) > 1 else keyword_value(call, "default")),
            choices=plain_values(call.args[2] if enum and len(call.args) > 2 else None),
            help=one_line_text(words[0] if words else keyword_value(call, "help")),
            required=name in required or is_constant_true(keyword_value(call, "required")),
            line=call.lineno,
            file=module.file,
        )
