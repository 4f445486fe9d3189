"""Reads the files that a script imports, and tells which parts of them may run when the script is started.

What lies in folders of its project above its own is found, but not read: Python does not look there by itself.
"""

import ast
import contextlib
import os
import sys
import warnings
from collections import deque
from collections.abc import Container, Iterable, Iterator
from operator import attrgetter
from pathlib import Path, PurePath

from tui_train.base.files import read_regular_file
from tui_train.facts.scripts.script_syntax import (
    FUNCTION_NODES,
    FunctionNode,
    ScriptModule,
    is_main_guard,
    last_dotted_name,
    text_constant,
)
from tui_train.runner.system.python_parser import parse_module

MAX_SCRIPT_BYTES = 2**20
PARSE_ERRORS = (SyntaxError, ValueError)
DEPTH_ERRORS = (RecursionError, MemoryError)
_MAX_IMPORTS = 400  # names; of most of them there is no file
# By these a function is called whose name the source does not say.
_NAMES_CALLING_ANY_FUNCTION = frozenset({"globals", "locals", "Fire"})
# Above a folder with one of these lie other projects.
_FILES_OF_PROJECT_ROOT = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt")
_MAX_FOLDERS_ABOVE = 4
_MAX_IMPORTED_NAMES = 200


def parse_script_and_its_imports(data: bytes, folder: str) -> tuple[ScriptModule, ...]:
    """Return a script and, where a folder is given, those files in it that it imports."""
    tree = parse_without_warnings(data)
    trees = {"": tree}
    if folder:
        trees.update(_imported_trees(ScriptModule("", tuple(ast.walk(tree))), folder))
    unused = frozenset(_unused_functions(trees.values()))
    return tuple(ScriptModule(file, tuple(_walk_excluding(tree, unused))) for file, tree in trees.items())


def parse_without_warnings(data: bytes, minor_version: int | None = None) -> ast.Module:
    """Return the syntax tree of a source, as Python 3.MINOR_VERSION reads it; raises what ast.parse does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse_module(data, minor_version)


def _imported_trees(script: ScriptModule, folder: str) -> Iterator[tuple[str, ast.Module]]:
    """Yield the files beside a script that it imports, as far as they can be read; those that they import are not."""
    existing = (name for name in _imported_files(script)[:_MAX_IMPORTS] if os.path.isfile(f"{folder}/{name}"))  # noqa: PTH113
    for name in existing:
        with contextlib.suppress(OSError, *PARSE_ERRORS, *DEPTH_ERRORS):
            tree = parse_without_warnings(read_regular_file(f"{folder}/{name}", MAX_SCRIPT_BYTES))
            tree.body = [*_statements_run_by_import(tree)]
            yield name, tree


def _imported_files(module: ScriptModule) -> tuple[str, ...]:
    """Return the files, relative to the script's folder, that its imports may name, in the order of their lines."""
    files: dict[str, None] = {}
    for each in sorted(module.imports, key=attrgetter("line")):
        names = [each.module, f"{each.module}.{each.name}".strip(".")] if each.level <= 1 else []
        for name in filter(None, names):
            path = PurePath(*name.split("."))
            files |= {f"{path}.py": None, str(path / "__init__.py"): None}
    return tuple(files)


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
    if not mentioned & _NAMES_CALLING_ANY_FUNCTION:
        yield from (function for function in functions if function.name not in mentioned)


def _mentioned_name(node: ast.AST) -> str:
    return node.name if isinstance(node, ast.alias) else last_dotted_name(node) or text_constant(node)


def _walk_excluding(tree: ast.Module, left_out: Container[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes as ast.walk does, without some and what is below them."""
    waiting = deque[ast.AST]([tree])
    while waiting:
        node = waiting.popleft()
        waiting.extend(each for each in ast.iter_child_nodes(node) if each not in left_out)
        yield node


def folder_by_package_above(script: ScriptModule, folder: str) -> dict[str, str]:
    """Return the folder that holds each package which a script imports from above its own folder, by the name."""
    names = [name for name in _imported_names(script) if not _has_module(Path(folder), name)]
    found: dict[str, str] = {}
    for above in _project_folders_above(Path(folder)) if folder and names else ():
        for name in names:
            if name not in found and _has_module(above, name):
                found[name] = str(above)
    return found


def _imported_names(script: ScriptModule) -> tuple[str, ...]:
    """Return the top-level names that a script imports and that do not come with Python."""
    names = dict.fromkeys(each.module.partition(".")[0] for each in script.imports if not each.level)
    return tuple(name for name in names if name not in sys.stdlib_module_names)[:_MAX_IMPORTED_NAMES]


def _project_folders_above(folder: Path) -> Iterator[Path]:
    """Yield the folders above one up to the root of its project, the nearest first, and the `src` in each.

    None where there is no root.
    """
    above: list[Path] = []
    for each in (folder, *folder.parents)[: _MAX_FOLDERS_ABOVE + 1]:
        if each != folder:
            above.append(each)
        if any(os.path.lexists(each / name) for name in _FILES_OF_PROJECT_ROOT):
            yield from above
            yield from (inner for outer in (folder, *above) if (inner := outer / "src").is_dir() and inner != folder)
            return


def _has_module(folder: Path, name: str) -> bool:
    return (folder / name / "__init__.py").is_file() or (folder / f"{name}.py").is_file()
