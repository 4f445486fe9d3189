"""Reads the files of a script's project, and tells which parts of them may run when the script is started."""

import ast
import contextlib
import os
import warnings
from collections import deque
from collections.abc import Container, Iterable, Iterator

from tui_train.base.files import read_regular_file
from tui_train.facts.scripts.script_kind import imported_files
from tui_train.facts.scripts.script_syntax import (
    FUNCTION_NODES,
    FunctionNode,
    ScriptModule,
    is_main_guard,
    last_name,
    text_constant,
)
from tui_train.runner.python_parser import parse_module

MAX_SCRIPT_BYTES = 2**20
PARSE_ERRORS = (SyntaxError, ValueError)
DEPTH_ERRORS = (RecursionError, MemoryError)
_MAX_IMPORTS = 400  # names; of most of them there is no file
# By these a function is called whose name the source does not say.
_NAMES_THAT_CALL_ANY = frozenset({"globals", "locals", "Fire"})


def read_modules(data: bytes, folder: str) -> tuple[ScriptModule, ...]:
    """Return a script and, where a folder is given, those files in it that it imports."""
    tree = _parsed(data)
    trees = {"": tree}
    if folder:
        trees.update(_imported_trees(ScriptModule("", tuple(ast.walk(tree))), folder))
    unused = frozenset(_unused_functions(trees.values()))
    return tuple(ScriptModule(file, tuple(_walk_without(tree, unused))) for file, tree in trees.items())


def _parsed(data: bytes) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse_module(data)


def _imported_trees(script: ScriptModule, folder: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the files beside a script that it imports, as far as they can be read; those that they import are not."""
    existing = (name for name in imported_files(script)[:_MAX_IMPORTS] if os.path.isfile(f"{folder}/{name}"))  # noqa: PTH113
    for name in existing:
        with contextlib.suppress(OSError, *PARSE_ERRORS, *DEPTH_ERRORS):
            tree = _parsed(read_regular_file(f"{folder}/{name}", MAX_SCRIPT_BYTES))
            tree.body = [*_statements_run_by_import(tree)]
            yield name, tree


def _statements_run_by_import(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in tree.body:
        if isinstance(node, ast.If) and is_main_guard(node):
            yield from node.orelse
        else:
            yield node


def _unused_functions(trees: Iterable[ast.Module]) -> Iterator[FunctionNode]:
    """Yield the functions whose name nothing mentions that may run."""
    statements = [node for tree in trees for node in tree.body]
    functions = [node for node in statements if isinstance(node, FUNCTION_NODES) and not node.decorator_list]
    by_name: dict[str, list[ast.stmt]] = {}
    for function in functions:
        by_name.setdefault(function.name, []).append(function)
    own = {id(function) for function in functions}
    waiting, mentioned = [node for node in statements if id(node) not in own], set[str]()
    while waiting:
        names = {name for node in ast.walk(waiting.pop()) if (name := _mentioned_name(node))}
        waiting += [function for name in names - mentioned for function in by_name.get(name, [])]
        mentioned |= names
    if not mentioned & _NAMES_THAT_CALL_ANY:
        yield from (function for function in functions if function.name not in mentioned)


def _mentioned_name(node: ast.AST) -> str:
    return node.name if isinstance(node, ast.alias) else last_name(node) or text_constant(node)


def _walk_without(tree: ast.Module, left_out: Container[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes as ast.walk does, without some and what is below them."""
    waiting = deque[ast.AST]([tree])
    while waiting:
        node = waiting.popleft()
        waiting.extend(each for each in ast.iter_child_nodes(node) if each not in left_out)
        yield node
