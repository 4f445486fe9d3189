"""The arguments of a script that argparse or absl parses, as its source declares them.

Of argparse it is found which names stand for a parser, and which parsers are given to code that was not read.
"""

import ast
import builtins
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Sequence
from operator import itemgetter

from msgspec.structs import replace

from tui_train.facts.scripts.script_syntax import (
    FUNCTION_NODES,
    ScriptModule,
    argument_values,
    called_function_name,
    has_unknown_keywords,
    is_true_constant,
    keyword_value,
    last_dotted_name,
    plain_value_text,
    plain_value_texts,
    text_constant,
    text_constants,
    text_on_one_line,
)
from tui_train.facts.types import ParameterForm, ScriptParameter

_NARGS_BY_CONSTANT = {"OPTIONAL": "?", "ZERO_OR_MORE": "*", "ONE_OR_MORE": "+", "REMAINDER": "...", "PARSER": "A..."}
_NARGS_TAKING_AT_MOST_ONE_VALUE = {"", "0", "1", "?"}
# None: the source does not say how many.
_NARGS_THAT_NEED_NO_VALUE = {"?", "*", "...", None}
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
_SourcePosition = tuple[int, int]
_ARGUMENT_GROUP_METHODS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
_METHODS_OF_PARSERS = frozenset({"add_argument", "add_parser", "add_subparsers", *_ARGUMENT_GROUP_METHODS})
_PARSER_MAKERS = frozenset({"ArgumentParser", *_METHODS_OF_PARSERS})
# The last one is argcomplete's.
_CALLS_THAT_ADD_NO_ARGUMENTS = frozenset({*dir(builtins), "set_defaults", "autocomplete"})


def _node_position(node: ast.expr | ast.stmt) -> _SourcePosition:
    """Return where a node begins: line and column."""
    return node.lineno, node.col_offset


class _AssignmentHistory:
    """The values assigned to each name (of a.b.c the last one), by position in the source."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        events: dict[str, list[tuple[_SourcePosition, ast.AST]]] = {}
        for node in nodes:
            for name, at, value in _assignments(node):
                events.setdefault(name, []).append((at, value))
        self._values = {name: [*_with_values_restored_after_functions(sorted(found, key=itemgetter(0)))]
                        for name, found in events.items()}  # fmt: skip

    def latest_value(self, name: str, at: _SourcePosition) -> tuple[_SourcePosition, ast.AST | None]:
        """Return what a name was made at a position, with where; None where it is not known."""
        values = self._values.get(name, [])
        before = bisect_left(values, at, key=itemgetter(0))
        return values[before - 1] if before else (at, None)


def _assignments(node: ast.AST) -> Iterator[tuple[str, _SourcePosition, ast.AST]]:
    """Yield the names that a node assigns with where and what: itself at the end of a function with parameters."""
    if isinstance(node, ast.Assign):
        yield from ((last_dotted_name(target), _node_position(node), node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value:
        yield last_dotted_name(node.target), _node_position(node), node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from ((last_dotted_name(each), _node_position(node), node) for each in ast.walk(node.target))
    elif isinstance(node, FUNCTION_NODES):
        end = node.end_lineno or node.lineno, node.end_col_offset or 0
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            yield each.arg, _node_position(node), each
            yield each.arg, end, node


def _with_values_restored_after_functions(
    events: list[tuple[_SourcePosition, ast.AST]],
) -> Iterator[tuple[_SourcePosition, ast.AST | None]]:
    """Yield them with what the name was before a function in the place of the function's end."""
    before: list[ast.AST | None] = []
    value: ast.AST | None = None
    for at, node in events:
        if isinstance(node, ast.arg):
            before.append(value)
        value = before.pop() if isinstance(node, FUNCTION_NODES) and before else node
        yield at, value


class _DefinedNames:
    """The functions and classes that the modules which were read define, and the names of these modules."""

    def __init__(self, modules: Sequence[ScriptModule]) -> None:
        classes = {node.name for module in modules for node in module.classes}
        self._called = {node.name for module in modules for node in module.functions} | classes
        files = (module.file.removesuffix(".py").removesuffix("/__init__") for module in modules)
        self._owners = classes | {file.rpartition("/")[2] for file in files}

    def has_called_function(self, call: ast.Call, imported: Container[str]) -> bool:
        """Return whether what is called was read; of what is imported, such as Model in Model.add, that as well."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Call) and called_function_name(owner) == "super":
            return False
        name = last_dotted_name(owner)
        return called_function_name(call) in self._called and (name not in imported or name in self._owners)


def _unread_calls_given_parser(module: ScriptModule, defined: _DefinedNames) -> Iterator[ast.Call]:
    """Yield the calls of functions that were not read and are given a parser, to which they may add arguments."""
    assigned = _AssignmentHistory(module.nodes)
    added_to = [call.func for call in module.calls(*_METHODS_OF_PARSERS)]
    owners = {last_dotted_name(each.value) for each in added_to if isinstance(each, ast.Attribute)} - {""}
    imported = frozenset(each.used_name for each in module.imports)
    for call in module.calls():
        if called_function_name(call) in _CALLS_THAT_ADD_NO_ARGUMENTS or defined.has_called_function(call, imported):
            continue
        if any(_is_parser(each, _node_position(call), assigned, owners) for each in argument_values(call)):
            yield call


def _is_parser(node: ast.AST, at: _SourcePosition, assigned: _AssignmentHistory, owners: set[str]) -> bool:
    """Return whether a value is a parser or a group: by what made it, or as arguments are added to its name."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = last_dotted_name(node)
        _, node_assigned = assigned.latest_value(name, at)
        if name in owners and not isinstance(node_assigned, ast.For | ast.AsyncFor):
            return True
        node = node_assigned or node
    return isinstance(node, ast.Call) and called_function_name(node) in _PARSER_MAKERS


def argparse_arguments(module: ScriptModule, *, beside_subparsers: bool) -> Iterator[ScriptParameter]:
    """Yield the arguments that add_argument declares; beside subparsers only those whose parser is known."""
    for call, command in _add_argument_calls_and_subcommands(module, beside_subparsers=beside_subparsers):
        if command is not None and (parameter := _parameter_of_add_argument(call)):
            yield replace(parameter, subcommand=command, file=module.file)


def argparse_subcommands(module: ScriptModule) -> Iterator[tuple[str, str]]:
    """Yield each name of a subcommand that add_parser declares, with the first that it has."""
    for call in module.calls("add_parser"):
        aliases = keyword_value(call, "aliases")
        if name := text_constant(_first_positional_value(call)):
            yield from ((each, name) for each in (name, *plain_value_texts(aliases)))


def has_unnamed_subcommand(module: ScriptModule) -> bool:
    """Return whether add_parser declares one whose names the source does not say."""
    return any(
        not text_constant(_first_positional_value(call))
        or has_unknown_keywords(call)
        or (keyword_value(call, "aliases") and not plain_value_texts(keyword_value(call, "aliases")))
        for call in module.calls("add_parser")
    )


def has_subparsers(modules: Iterable[ScriptModule]) -> bool:
    """Return whether a parser has subcommands."""
    return any(any(module.calls("add_subparsers")) for module in modules)


def unreadable_argument_line(modules: Sequence[ScriptModule]) -> int:
    """Return the line of the first module that adds arguments whose name or parser is not said, 0 for none."""
    beside_subparsers, defined = has_subparsers(modules), _DefinedNames(modules)
    lines = (
        min(_lines_adding_unreadable_arguments(module, defined, beside_subparsers=beside_subparsers), default=0)
        for module in modules
    )
    return next(filter(None, lines), 0)


def _lines_adding_unreadable_arguments(
    module: ScriptModule, defined: _DefinedNames, *, beside_subparsers: bool
) -> Iterator[int]:
    added = _add_argument_calls_and_subcommands(module, beside_subparsers=beside_subparsers)
    made = module.calls("ArgumentParser", "add_parser")
    library = module.calls("add_argparse_args", "add_args", "add_config_arguments", "from_argparse_args")
    yield from (
        call.lineno
        for call, command in added
        if command is None or not text_constants(call.args) or has_unknown_keywords(call)
    )
    yield from (call.lineno for call in made if keyword_value(call, "parents") or keyword_value(call, "prefix_chars"))
    yield from (call.lineno for call in library)
    yield from (call.lineno for call in _unread_calls_given_parser(module, defined))
    yield from _lines_of_add_argument_as_value(module)


def _lines_of_add_argument_as_value(module: ScriptModule) -> Iterator[int]:
    """Yield where add_argument is no call: what is called by another name is not seen."""
    called = {id(call.func) for call in module.calls("add_argument")}
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "add_argument" and id(node) not in called:
            yield node.lineno


def _parameter_of_add_argument(call: ast.Call) -> ScriptParameter | None:
    """Return one argument of argparse; None where it has no name, or only prints."""
    flags = text_constants(call.args)
    action = keyword_value(call, "action")
    action_name = text_constant(action) or last_dotted_name(action)
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
    default, nargs = plain_value_text(keyword_value(call, "default")), _nargs_text(call)
    switch = form in {"switch", "pair"}
    required = is_true_constant(keyword_value(call, "required")) or (
        not optional and nargs not in _NARGS_THAT_NEED_NO_VALUE
    )
    appends = action_name in {"append", "extend"}
    return ScriptParameter(
        name=name,
        flags=flags,
        off_flags=tuple(f"--no-{flag[2:]}" for flag in flags if flag.startswith("--")) if has_negation else (),
        form=form,
        type="bool"
        if switch
        else last_dotted_name(keyword_value(call, "type")) or ("" if keyword_value(call, "type") else "str"),
        default=default or ("False" if action_name == "store_true" else ""),
        choices=plain_value_texts(keyword_value(call, "choices")),
        help=text_on_one_line(keyword_value(call, "help")).replace("%(default)s", default).replace("%%", "%"),
        is_required=required and not switch,
        takes_several=appends or nargs not in _NARGS_TAKING_AT_MOST_ONE_VALUE,
        value_count=fixed_value_count(nargs),
        repeats_name_per_value=appends and nargs == "",
        line=call.lineno,
    )


def _nargs_text(call: ast.Call) -> str | None:
    """Return the nargs of an argument, empty where it has none, None where it is not known."""
    node = keyword_value(call, "nargs")
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return ""
    return plain_value_text(node) or _NARGS_BY_CONSTANT.get(last_dotted_name(node))


def fixed_value_count(nargs: str | None) -> int:
    """Return how many values an argument takes together, 0 where it is one, or any number."""
    return int(nargs) if nargs and nargs.isascii() and nargs.isdecimal() and int(nargs) > 1 else 0


def _add_argument_calls_and_subcommands(
    module: ScriptModule, *, beside_subparsers: bool
) -> Iterator[tuple[ast.Call, str | None]]:
    """Yield each add_argument with the subcommand that takes it; None where it is not known whose it is."""
    assigned = _AssignmentHistory(module.nodes)
    for call in module.calls("add_argument"):
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        yield call, _subcommand_of_parser(owner, _node_position(call), assigned) if beside_subparsers else ""


def _subcommand_of_parser(owner: ast.AST | None, at: _SourcePosition, assigned: _AssignmentHistory) -> str | None:
    """Return the subcommand of a parser or of a group of one, None where it is not known."""
    for _ in range(_MAX_STEPS_TO_PARSER):
        if isinstance(owner, ast.Name | ast.Attribute):
            at, owner = assigned.latest_value(last_dotted_name(owner), at)
        elif not isinstance(owner, ast.Call):
            return None
        elif called_function_name(owner) == "add_parser":
            return text_constant(_first_positional_value(owner)) or None
        elif called_function_name(owner).endswith("Parser"):
            # A parser without --help is a part of others.
            return "" if is_true_constant(keyword_value(owner, "add_help") or ast.Constant(value=True)) else None
        elif called_function_name(owner) in _ARGUMENT_GROUP_METHODS and isinstance(owner.func, ast.Attribute):
            owner = owner.func.value
        else:
            return None
    return None


def _first_positional_value(call: ast.Call) -> ast.AST | None:
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
        if not (name := text_constant(_first_positional_value(call))):
            continue
        enum = called_function_name(call) == "DEFINE_enum"
        words = call.args[_ABSL_ENUM_HELP_INDEX if enum else 2 :]
        yield ScriptParameter(
            name=f"--{name}",
            flags=(f"--{name}",),
            type=_TYPE_BY_ABSL_FUNCTION[called_function_name(call)],
            default=plain_value_text(call.args[1] if len(call.args) > 1 else keyword_value(call, "default")),
            choices=plain_value_texts(call.args[2] if enum and len(call.args) > 2 else None),
            help=text_on_one_line(words[0] if words else keyword_value(call, "help")),
            is_required=name in required or is_true_constant(keyword_value(call, "required")),
            line=call.lineno,
            file=module.file,
        )
