"""The modules without which a script ends as it starts: those that it, and what it imports beside it, surely import."""

import ast
import contextlib
import os
import re
from collections.abc import Collection, Iterator
from pathlib import PurePath
from typing import NamedTuple

from tui_train.base.files import read_regular_file
from tui_train.facts.scripts.script_modules import (
    DEPTH_ERRORS,
    MAX_SCRIPT_BYTES,
    PARSE_ERRORS,
    parse_without_warnings,
)
from tui_train.facts.scripts.script_syntax import is_main_guard
from tui_train.facts.types import ScriptImport
from tui_train.runner.system.paths import names_in_folder

MAX_NAMES_BESIDE_SCRIPT = 10_000
_MAX_FILES_READ = 100
# What changes where Python looks for modules, or installs them: what can be imported is then known only as it runs.
_MODULES_CHANGED_PATTERN = re.compile(
    rb"\bsys\s*\.\s*(path|meta_path|path_hooks)\b|\bfrom\s+sys\s+import\b[^\n]*\bpath\b|\baddsitedir\b"
    rb"|\bsys\s*\.\s*modules\s*(\[[^\]\n]*\]\s*=[^=]|\.\s*(setdefault|update)\b)"
    rb"|\bpythonpath\s*=\s*True\b|\b(py)?rootutils\b|\bautorootcwd\b"
    rb"|\b(system|run|call|check_call|check_output|Popen|getoutput)\s*\([^)]{0,300}?\b(pip3?|conda|uv)\b"
)


class _SourceFile(NamedTuple):
    """A file of a script's project: its path from the script's folder (empty: the script), the package it is in."""

    path: str
    package: tuple[str, ...]
    data: bytes
    tree: ast.Module


def required_outside_imports(
    data: bytes, tree: ast.Module, folder: str, names_beside: Collection[str] = ()
) -> tuple[ScriptImport, ...]:
    """Return the modules that a script surely imports and that do not lie beside it, by their top-level names.

    `names_beside` are the names in its own folder, folders with a slash, where `folder` has only some of them or none.
    None where it is not known what lies there, or the project itself changes what can be imported.
    """
    names = names_beside or (names_in_folder(folder, MAX_NAMES_BESIDE_SCRIPT) if folder else ())
    modules_beside = {name.rstrip("/").partition(".")[0] for name in names}
    found: dict[str, ScriptImport] = {}
    waiting, read = [_SourceFile("", (), data, tree)], dict[str, _SourceFile]()
    while names and waiting:
        file = waiting.pop(0)
        if _MODULES_CHANGED_PATTERN.search(file.data):
            return ()
        for line, module, name in _surely_imported_lines_and_names(file):
            top_level_name = module.partition(".")[0]
            # Python's own, such as __future__ and _thread, which no list of its modules has whole.
            if top_level_name.startswith("_"):
                continue
            if top_level_name not in modules_beside:
                found.setdefault(top_level_name, ScriptImport(top_level_name, line, file.path))
                continue
            package = read.get(f"{module.replace('.', '/')}/__init__.py")
            if name and package and _may_define(package, name):
                continue
            for path in _files_of_module(f"{module}.{name}" if name else module, folder):
                if path not in read:
                    more = _read_source_file(folder, path) if len(read) < _MAX_FILES_READ else None
                    if more is None:
                        return ()
                    read[path] = more
                    waiting.append(more)
    return tuple(found.values())


def _surely_imported_lines_and_names(file: _SourceFile) -> Iterator[tuple[int, str, str]]:
    """Yield what a file imports whatever happens: not what it tries, nor under a condition, nor in a function.

    Each is a line, a module, and a name in it that may be a module as well, empty for the module itself.
    """
    statements = file.tree.body
    if not file.path:
        statements = [
            one
            for each in statements
            for one in (each.body if isinstance(each, ast.If) and is_main_guard(each) else [each])
        ]
    for statement in statements:
        if isinstance(statement, ast.Import):
            yield from ((statement.lineno, each.name, "") for each in statement.names)
        elif isinstance(statement, ast.ImportFrom) and (module := _full_module_name(statement, file.package)):
            yield from ((statement.lineno, module, name) for name in ("", *(each.name for each in statement.names)))


def _may_define(package: _SourceFile, name: str) -> bool:
    """Return whether a package may have a name of its own, in whose place no module of that name is imported."""
    for node in ast.walk(package.tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name in {name, "__getattr__"}:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names = {each.asname or each.name.partition(".")[0] for each in node.names}
            is_module = isinstance(node, ast.ImportFrom) and _full_module_name(node, package.package) == ".".join(
                package.package
            )
            if names & {name, "*"} and not is_module:
                return True
    return False


def _full_module_name(statement: ast.ImportFrom, package: tuple[str, ...]) -> str:
    """Return from which module names are imported, empty for a relative one that leads out of its package."""
    levels_above = statement.level - 1
    if levels_above >= len(package):
        return ""
    base = package[: len(package) - levels_above] if statement.level else ()
    return ".".join((*base, *filter(None, [statement.module])))


def _files_of_module(name: str, folder: str) -> Iterator[str]:
    """Yield the files in a folder that run where a module is imported, those of its packages first."""
    parts = name.split(".")
    paths = (PurePath(*parts[: count + 1]) for count in range(len(parts))) if folder else ()
    for path in paths:
        for file in (str(path / "__init__.py"), f"{path}.py"):
            if os.path.isfile(f"{folder}/{file}"):  # noqa: PTH113
                yield file


def _read_source_file(folder: str, path: str) -> _SourceFile | None:
    """Return a file of the project, None where it cannot be read."""
    with contextlib.suppress(OSError, *PARSE_ERRORS, *DEPTH_ERRORS):
        data = read_regular_file(f"{folder}/{path}", MAX_SCRIPT_BYTES)
        return _SourceFile(path, PurePath(path).parent.parts, data, parse_without_warnings(data))
    return None
