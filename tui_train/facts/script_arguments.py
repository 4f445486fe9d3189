"""The arguments of a script that argparse or absl parses, as its source declares them."""

import ast
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from operator import itemgetter

from msgspec.structs import replace

from tui_train.facts.script_calls import (
    Module,
    called,
    is_true,
    keyword,
    last_name,
    plain,
    plains,
    sentence,
    text,
    texts,
)
from tui_train.facts.types import Parameter, ParameterForm

_GROUPS = {"add_argument_group", "add_mutually_exclusive_group"}
_SWITCHES = {"store_true", "store_false", "store_const", "append_const", "count"}
_ABOUT = {"help", "version"}
_ABSL = {
    "DEFINE_string": "str",
    "DEFINE_integer": "int",
    "DEFINE_float": "float",
    "DEFINE_bool": "bool",
    "DEFINE_boolean": "bool",
    "DEFINE_enum": "str",
}
_ENUM_HELP = 3
_DEEPEST = 5


def by_argparse(module: Module) -> Iterator[Parameter]:
    """Yield the arguments that add_argument declares."""
    owners = _owners(module)
    for call in module.calls("add_argument"):
        if parameter := _argument(call):
            yield replace(parameter, command=_command(call, owners), file=module.file)


def parsers(module: Module) -> Iterator[str]:
    """Yield the subcommands that add_parser declares."""
    yield from (name for call in module.calls("add_parser") if (name := text(_first(call))))


def unnamed(module: Module) -> int:
    """Return the line that adds an argument whose name the source does not say, 0 for none."""
    computed = (call for call in module.calls("add_argument") if not texts(call.args))
    inherited = (call for call in module.calls("ArgumentParser") if keyword(call, "parents"))
    library = module.calls("add_argparse_args", "add_args", "add_config_arguments", "from_argparse_args")
    return min((call.lineno for calls in (computed, inherited, library) for call in calls), default=0)


def _argument(call: ast.Call) -> Parameter | None:
    """Return one argument of argparse; None where it has no name, or only prints."""
    flags = texts(call.args)
    action = keyword(call, "action")
    acts = text(action) or last_name(action)
    if not flags or acts in _ABOUT:
        return None
    name = max(flags, key=lambda flag: (flag.startswith("--"), len(flag)))
    optional = name.startswith("-")
    pair = acts == "BooleanOptionalAction"
    form: ParameterForm = "pair" if pair else "switch" if acts in _SWITCHES else "option" if optional else "positional"
    default, nargs = plain(keyword(call, "default")), plain(keyword(call, "nargs"))
    switch = form in {"switch", "pair"}
    required = is_true(keyword(call, "required")) or (not optional and nargs not in {"?", "*"})
    appends = acts in {"append", "extend"}
    return Parameter(
        name=name,
        flags=flags,
        off=tuple(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")) if pair else (),
        form=form,
        type="bool" if switch else last_name(keyword(call, "type")) or ("" if keyword(call, "type") else "str"),
        default=default or ("False" if acts == "store_true" else ""),
        choices=plains(keyword(call, "choices")),
        help=sentence(keyword(call, "help")).replace("%(default)s", default).replace("%%", "%"),
        required=required and not switch,
        several=appends or nargs in {"+", "*"} or (nargs.isdecimal() and nargs not in {"0", "1"}),
        repeats=appends and not nargs,
        line=call.lineno,
    )


def _owners(module: Module) -> Mapping[str, list[tuple[int, ast.Call]]]:
    """Return what each name is assigned by a call, with the line, in the order of the lines."""
    owners: dict[str, list[tuple[int, ast.Call]]] = {}
    for node in module.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            for target in node.targets:
                owners.setdefault(last_name(target), []).append((node.lineno, node.value))
    for made in owners.values():
        made.sort(key=itemgetter(0))
    return owners


def _command(call: ast.Call, owners: Mapping[str, list[tuple[int, ast.Call]]]) -> str:
    """Return the subcommand to whose parser, or a group of it, an argument is added."""
    owner: ast.AST | None = call.func.value if isinstance(call.func, ast.Attribute) else None
    for _ in range(_DEEPEST):
        if not isinstance(owner, ast.Call):
            made = owners.get(last_name(owner), [])
            before = bisect_right(made, call.lineno, key=itemgetter(0))
            owner = made[before - 1][1] if before else None
        if not isinstance(owner, ast.Call):
            return ""
        if called(owner) == "add_parser":
            return text(_first(owner))
        owner = owner.func.value if called(owner) in _GROUPS and isinstance(owner.func, ast.Attribute) else None
    return ""


def _first(call: ast.Call) -> ast.AST | None:
    return next(iter(call.args), None)


def by_absl(module: Module) -> Iterator[Parameter]:
    """Yield the arguments that absl's DEFINE_… declare."""
    required = {name for call in module.calls("mark_flag_as_required") for name in texts(call.args[:1])}
    required |= {
        text(item)
        for call in module.calls("mark_flags_as_required")
        for items in call.args[:1]
        if isinstance(items, (ast.List, ast.Tuple))
        for item in items.elts
    }
    for call in module.calls(*_ABSL):
        if not (name := text(_first(call))):
            continue
        enum = called(call) == "DEFINE_enum"
        words = call.args[_ENUM_HELP if enum else 2 :]
        yield Parameter(
            name=f"--{name}",
            flags=(f"--{name}",),
            type=_ABSL[called(call)],
            default=plain(call.args[1] if len(call.args) > 1 else keyword(call, "default")),
            choices=plains(call.args[2] if enum and len(call.args) > 2 else None),
            help=sentence(words[0] if words else keyword(call, "help")),
            required=name in required or is_true(keyword(call, "required")),
            line=call.lineno,
            file=module.file,
        )
