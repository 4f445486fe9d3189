"""Which names of a script's source stand for a parser of argparse, and which parsers are given to other code."""

import ast
import builtins
from bisect import bisect_left
from collections.abc import Container, Iterator, Sequence
from operator import itemgetter

from tui_train.facts.scripts.script_syntax import FUNCTION_NODES, ScriptModule, argument_values, called_name, last_name

ARGUMENT_GROUP_METHODS = frozenset({"add_argument_group", "add_mutually_exclusive_group"})
_METHODS_OF_PARSERS = frozenset({"add_argument", "add_parser", "add_subparsers", *ARGUMENT_GROUP_METHODS})
_PARSER_MAKERS = frozenset({"ArgumentParser", *_METHODS_OF_PARSERS})
# The last one is argcomplete's.
_CALLS_THAT_ADD_NO_ARGUMENTS = frozenset({*dir(builtins), "set_defaults", "autocomplete"})

Position = tuple[int, int]


def position(node: ast.expr | ast.stmt) -> Position:
    """Return where a node begins: line and column."""
    return node.lineno, node.col_offset


class AssignedNames:
    """What each name stands for, by the position in the source: the last name alone of a.b.c."""

    def __init__(self, nodes: Sequence[ast.AST]) -> None:
        events: dict[str, list[tuple[Position, ast.AST]]] = {}
        for node in nodes:
            for name, at, value in _assignments(node):
                events.setdefault(name, []).append((at, value))
        self._values = {name: [*_with_values_restored_after_functions(sorted(found, key=itemgetter(0)))]
                        for name, found in events.items()}  # fmt: skip

    def latest_value(self, name: str, at: Position) -> tuple[Position, ast.AST | None]:
        """Return what a name was made at a position, with where; None where it is not known."""
        values = self._values.get(name, [])
        before = bisect_left(values, at, key=itemgetter(0))
        return values[before - 1] if before else (at, None)


def _assignments(node: ast.AST) -> Iterator[tuple[str, Position, ast.AST]]:
    """Yield the names that a node assigns with where and what: itself at the end of a function with parameters."""
    if isinstance(node, ast.Assign):
        yield from ((last_name(target), position(node), node.value) for target in node.targets)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value:
        yield last_name(node.target), position(node), node.value
    elif isinstance(node, (ast.For, ast.AsyncFor)):
        yield from ((last_name(each), position(node), node) for each in ast.walk(node.target))
    elif isinstance(node, FUNCTION_NODES):
        end = node.end_lineno or node.lineno, node.end_col_offset or 0
        for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            yield each.arg, position(node), each
            yield each.arg, end, node


def _with_values_restored_after_functions(
    events: list[tuple[Position, ast.AST]],
) -> Iterator[tuple[Position, ast.AST | None]]:
    """Yield them with what the name was before a function in the place of the function's end."""
    before: list[ast.AST | None] = []
    value: ast.AST | None = None
    for at, node in events:
        if isinstance(node, ast.arg):
            before.append(value)
        value = before.pop() if isinstance(node, FUNCTION_NODES) and before else node
        yield at, value


class DefinedNames:
    """The functions and classes that the modules which were read define, and the names of these modules."""

    def __init__(self, modules: Sequence[ScriptModule]) -> None:
        classes = {node.name for module in modules for node in module.classes}
        self._called = {node.name for module in modules for node in module.functions} | classes
        files = (module.file.removesuffix(".py").removesuffix("/__init__") for module in modules)
        self._owners = classes | {file.rpartition("/")[2] for file in files}

    def has_called_function(self, call: ast.Call, imported: Container[str]) -> bool:
        """Return whether what is called was read; of what is imported, such as Model in Model.add, that as well."""
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Call) and called_name(owner) == "super":
            return False
        name = last_name(owner)
        return called_name(call) in self._called and (name not in imported or name in self._owners)


def calls_given_a_parser(module: ScriptModule, defined: DefinedNames) -> Iterator[ast.Call]:
    """Yield the calls of functions that were not read and are given a parser, to which they may add arguments."""
    assigned = AssignedNames(module.nodes)
    added_to = [call.func for call in module.calls(*_METHODS_OF_PARSERS)]
    owners = {last_name(each.value) for each in added_to if isinstance(each, ast.Attribute)} - {""}
    imported = frozenset(_imported_names(module))
    for call in module.calls():
        if called_name(call) in _CALLS_THAT_ADD_NO_ARGUMENTS or defined.has_called_function(call, imported):
            continue
        if any(_is_parser(each, position(call), assigned, owners) for each in argument_values(call)):
            yield call


def _imported_names(module: ScriptModule) -> Iterator[str]:
    for node in module.nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (each.asname or each.name.partition(".")[0] for each in node.names)


def _is_parser(node: ast.AST, at: Position, assigned: AssignedNames, owners: set[str]) -> bool:
    """Return whether a value is a parser or a group: by what made it, or as arguments are added to its name."""
    if isinstance(node, ast.Name | ast.Attribute):
        name = last_name(node)
        _, node_assigned = assigned.latest_value(name, at)
        if name in owners and not isinstance(node_assigned, ast.For | ast.AsyncFor):
            return True
        node = node_assigned or node
    return isinstance(node, ast.Call) and called_name(node) in _PARSER_MAKERS
